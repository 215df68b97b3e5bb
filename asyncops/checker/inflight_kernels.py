"""What a kernel call leaves in flight, and what it waits for: a summary of the kernel's body by operand and result.

A kernel that starts a copy on a semaphore that it returns, or got from its caller, leaves the copy in flight; a kernel
that waits on such a semaphore finishes one. Copies on semaphores of the kernel's own are its own affair.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from asyncops.checker.events import Location
from asyncops.checker.skeleton import bodies_of, location_of
from stateful import higher_order as ho
from stateful import signatures
from stateful._jax import jaxprs
from stateful.types import View, ref_type

Role = tuple[str, int]  # "constant", "scalar", "input" or "output", and its position
Index = tuple[int, ...] | None  # which semaphore of an array; None: not known


@dataclass(frozen=True, slots=True)
class Semaphore:
    """A semaphore of the caller's: whose, and which of an array."""

    role: Role
    index: Index


@dataclass(frozen=True, slots=True)
class Started:
    """A copy that the kernel starts, by the roles of what it uses (None: memory or a semaphore of the kernel's own)."""

    source: Role | None
    destination: Role | None
    source_semaphore: Semaphore | None
    destination_semaphore: Semaphore | None
    amounts: tuple[Any, Any]  # counted on the source's and on the destination's semaphore
    line: Location | None


@dataclass(frozen=True, slots=True)
class Waited:
    """A wait on a semaphore of the caller's; ``amount`` is None where it is not known."""

    semaphore: Semaphore
    amount: Any
    line: Location | None


@functools.lru_cache(maxsize=4096)
def summary(form: ho.KernelForm) -> tuple[Started | Waited, ...]:
    """The starts and waits of a kernel that concern its caller, in the order of the body."""
    if form.backend != "tpu":
        return ()
    found: list[Started | Waited] = []
    for program in form.programs:
        parts = form.split_inputs(program)
        roles: dict[Any, Role] = {}
        for kind in ("constants", "scalars", "inputs", "outputs"):
            roles |= {v: (kind[:-1], i) for i, v in enumerate(parts[kind])}
        found += _walk(program.body.jaxpr, roles)
    return tuple(found)


def _walk(jaxpr: Any, roles: dict[Any, Role]) -> Iterator[Started | Waited]:
    for eqn in jaxpr.eqns:
        form = ho.normal_form(eqn)
        if form is None:
            if any(jaxprs.is_ref(v.aval) for v in eqn.invars):
                yield from _operations(eqn, roles)
            continue
        if isinstance(form, ho.Kernel | ho.Pipeline):
            continue
        for body, operands in zip(bodies_of(form), bindings(form), strict=True):
            inner = {v: roles[a] for v, a in zip(body.inputs, operands) if not _is_literal(a) and a in roles}
            yield from _walk(body.jaxpr, inner)


def bindings(form: Any) -> tuple[tuple[Any, ...], ...]:
    """Per body of a higher-order equation, the atoms that bind its first inputs."""
    if isinstance(form, ho.Branch):
        return (form.operands,) * len(form.branches)
    if isinstance(form, ho.While):
        return (*form.cond_consts, *form.carry), (*form.body_consts, *form.carry)
    if isinstance(form, ho.Scan):
        return ((*form.consts, *form.carry, *form.xs),)
    if isinstance(form, ho.ParallelLoop):
        return (form.consts,)
    return (form.operands,)


def _operations(eqn: Any, roles: dict[Any, Role]) -> Iterator[Started | Waited]:
    line = location_of(eqn)[0]

    def value(atom: Any) -> Any:
        if _is_literal(atom):
            return int(atom.val) if getattr(atom.val, "shape", ()) == () else None
        return View.whole(roles.get(atom), ref_type(atom.aval)) if jaxprs.is_ref(atom.aval) else None

    if not signatures.is_known_pure(eqn.primitive):
        for op in signatures.operations(eqn, value):
            yield from _fact(op, line)


def _fact(op: Any, line: Location | None) -> Iterator[Started | Waited]:
    if isinstance(op, signatures.StartCopy):
        read, written = _semaphore(op.source_semaphore), _semaphore(op.destination_semaphore)
        if read or written:
            amounts = (op.source_amount, op.destination_amount)
            yield Started(_role(op.source), _role(op.destination), read, written, amounts, line)
    elif isinstance(op, signatures.WaitCopy | signatures.Wait):
        semaphore = _semaphore(op.semaphore)
        if semaphore is not None:
            yield Waited(semaphore, op.amount, line)


def _role(view: Any) -> Role | None:
    return view.root if view is not None else None


def _semaphore(view: Any) -> Semaphore | None:
    if view is None or view.root is None:
        return None
    starts = tuple(start for start, _, _ in view.ranges)
    return Semaphore(view.root, starts if all(type(s) is int for s in starts) else None)


def _is_literal(atom: Any) -> bool:
    return isinstance(atom, jaxprs.Literal)
