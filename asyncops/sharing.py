"""Loop variables that hold what is being sent: one buffer must not become two.

A loop gives each variable a buffer of its own. If an array is carried and also sent by a future that is carried, there
would be two buffers for one value, and the compiler would fill one of them by a copy: perhaps the one that nobody
keeps, perhaps the one that is being sent. So such an array is carried once, as the future's source, and read from there
(`Shared.pairs`). Where that is not so in every iteration, the array gets a copy of our own before the loop needs two
(`Shared.copied`), and so does the second of two futures that send the same array (`private_starts`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from asyncops import ops
from asyncops.landing import Held
from asyncops.origins import NOWHERE
from asyncops.regions import is_ref
from asyncops.transfers import Copy, Shape
from stateful._jax.inflight import is_handle, is_in_flight
from stateful._jax.jaxprs import Literal
from stateful.higher_order import Scan, While, normal_form

# What gives an array another shape or name without moving it.
_VIEWS = ("reshape", "squeeze", "expand_dims", "async_barrier", "optimization_barrier")


class Roots:
    """Which variables of a jaxpr are the same array, and which array each future sends."""

    def __init__(self, jaxpr: Any) -> None:
        self._of: dict[Any, Any] = {}
        self.starts: dict[Any, Any] = {}
        for eqn in jaxpr.eqns:
            if eqn.primitive.name in _VIEWS:
                # A barrier has no result for a Ref among its operands.
                arrays = [v for v in eqn.invars if not is_ref(v)]
                self._of.update(zip(eqn.outvars, arrays, strict=False))
            elif eqn.primitive is ops.start_p:
                self.starts[eqn.outvars[2]] = eqn

    def of(self, atom: Any) -> Any:
        """The variable that made the array; None for a literal."""
        while not isinstance(atom, Literal) and atom in self._of:
            atom = self._of[atom]
        return None if isinstance(atom, Literal) else atom

    def views(self, root: Any) -> list[Any]:
        """The variables that are the array ``root``."""
        return [root, *(v for v in self._of if self.of(v) is root)]

    def sent(self, handle: Any) -> Any:
        """The array that a future sends; None if it was not started here."""
        start = self.starts.get(handle)
        return None if start is None else self.of(start.invars[0])


def private_starts(jaxpr: Any, fixed: Iterable[Any] = ()) -> set[Any]:
    """The equations that must send a copy, because a loop carries their future and holds what they send besides.

    Args:
        jaxpr: where they stand.
        fixed: those of its variables that an enclosing loop holds in every iteration.
    """
    roots = Roots(jaxpr)
    carried = {v for eqn in jaxpr.eqns for v in _carried(eqn) if not isinstance(v, Literal)}
    carried |= {v for v in jaxpr.outvars if not isinstance(v, Literal)}
    held = set(fixed)
    found = set()
    for handle, start in roots.starts.items():
        array = roots.sent(handle)
        if handle in carried and array is not None:
            if array in held:
                found.add(start)
            held.add(array)
    return found


def _carried(eqn: Any) -> Sequence[Any]:
    form = normal_form(eqn) if any(is_handle(v.aval) for v in eqn.invars) else None
    return form.carry if isinstance(form, (Scan, While)) else ()


def private(x: Any) -> Any:
    """A copy of ``x`` that the compiler takes for another array."""
    x = jnp.asarray(x)
    buffer = x.reshape(1) if x.ndim == 0 else x
    leaves = ops.start(buffer, Copy(), NOWHERE, ordered=True)
    return ops.done(leaves, Copy(), NOWHERE, ordered=True).reshape(x.shape)


@dataclass(frozen=True)
class Shared:
    """What a loop would hold twice.

    Args:
        pairs: (position, shape, future) of arrays among what is carried that are always what the future sends.
        copied: positions among the operands that need a copy of their own before the loop.
        copied_back: positions among what the body carries on that need one at the end of each iteration.
    """

    pairs: tuple[tuple[int, Shape, Held], ...] = ()
    copied: tuple[int, ...] = ()
    copied_back: tuple[int, ...] = ()

    def reduce(self, carry: Sequence[Any]) -> list[Any]:
        """What is carried, without the arrays that futures hold."""
        gone = {n for n, _, _ in self.pairs}
        return [x for n, x in enumerate(carry) if n not in gone]

    def expand(self, reduced: Sequence[Any]) -> list[Any]:
        """Inverse of `reduce`."""
        carry = list(reduced)
        for n, _, _ in self.pairs:
            carry.insert(n, None)
        for n, shape, held in self.pairs:
            carry[n] = ops.peek(carry[held.positions[0]], held.batch).reshape(shape)
        return carry

    def apart(self, form: While) -> Shared:
        """The same with copies in the place of pairs."""
        consts = len(form.cond_consts) + len(form.body_consts)
        paired = [n for n, _, _ in self.pairs]
        copied = {*self.copied, *(consts + n for n in paired)}
        return Shared((), tuple(sorted(copied)), tuple(sorted({*self.copied_back, *paired})))

    def copy(self, operands: Sequence[Any]) -> list[Any]:
        """The loop's operands, each in a buffer of its own."""
        return [private(x) if n in self.copied else x for n, x in enumerate(operands)]

    def copy_back(self, carry: Sequence[Any]) -> list[Any]:
        """What an iteration carries on, each in a buffer of its own."""
        return [private(x) if n in self.copied_back else x for n, x in enumerate(carry)]


def shared(jaxpr: Any, form: Scan | While, futures: Sequence[Held]) -> Shared:
    """What a loop in ``jaxpr`` would hold twice; ``futures`` are those among what it carries."""
    outside = Roots(jaxpr)
    body = form.jaxpr if isinstance(form, Scan) else form.body
    inside = Roots(body.jaxpr)
    consts = form.consts if isinstance(form, Scan) else (*form.cond_consts, *form.body_consts)
    results = body.outputs[: len(form.carry)]
    pairs: dict[int, tuple[int, Shape, Held]] = {}
    copied: set[int] = set()
    copied_back: set[int] = set()
    for held in futures:
        handle = held.positions[2]
        before = _same(outside, form.carry, outside.sent(form.carry[handle]))
        after = _same(inside, results, inside.sent(results[handle]))
        for n in sorted(before & after - pairs.keys()):
            pairs[n] = (n, results[n].aval.shape, held)
        copied |= {len(consts) + n for n in before - pairs.keys()}
        copied_back |= after - pairs.keys()
        copied |= _same(outside, consts, outside.sent(form.carry[handle]))
    return Shared(tuple(pairs[n] for n in sorted(pairs)), tuple(sorted(copied)), tuple(sorted(copied_back)))


def _same(roots: Roots, atoms: Sequence[Any], array: Any) -> set[int]:
    """Positions of the atoms that are ``array``."""
    if array is None:
        return set()
    return {n for n, atom in enumerate(atoms) if roots.of(atom) is array and not is_in_flight(atom.aval)}
