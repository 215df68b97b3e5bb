"""Futures that are finished early where a compiler could move what is in flight, and the loops and branches that do so.

A conditional gives each result one buffer, so what a branch returns may be copied; a future's buffers must not be. So
a future does not leave a branch: where every branch starts it, it is started behind the conditional; otherwise it is
finished in the branch, what arrived leaves, and a done that follows has nothing left to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from asyncops import ops
from asyncops.origins import NOWHERE
from asyncops.transfers import Shape, Transfer
from stateful._jax import primitives
from stateful._jax.inflight import is_handle, is_in_flight
from stateful._jax.jaxprs import Literal
from stateful.higher_order import Branch, Call, HigherOrder, Scan, ShardMap, While, normal_form


@dataclass(frozen=True)
class Held:
    """A future among the leaves of a list.

    Args:
        first: position of the first of its three leaves, which stand in a row.
        transfer: of its operation.
        batch: of its operation.
        shape: of the buffer that is sent.
        turned: True for a future of cotangents: its destination comes first.
    """

    first: int
    transfer: Transfer
    batch: int
    shape: Shape
    turned: bool = False

    @property
    def positions(self) -> tuple[int, int, int]:
        """Of source, destination and semaphores."""
        n = self.first
        return (n + 1, n, n + 2) if self.turned else (n, n + 1, n + 2)

    def turn(self, leaves: Sequence[Any]) -> list[Any]:
        """From source, destination and semaphores to the order in which they stand, or back."""
        a, b, semaphores = leaves
        return [b, a, semaphores] if self.turned else [a, b, semaphores]


@dataclass(frozen=True)
class Landed:
    """What arrived, in place of a future's leaf: the ``leaf``-th of those that stand in a row.

    ``stacked``: of a stack of futures, as ``scan`` gives one; its first dimension counts them.
    """

    array: jax.Array
    future: Held
    leaf: int
    stacked: bool = False

    def leaves(self) -> list[Any]:
        """The future again, for whoever needs one: its leaves as they stand in a row."""
        held = self.future
        return held.turn(ops.resume(self.array, held.transfer, held.batch, held.shape))


def futures_among(variables: Sequence[Any]) -> list[int]:
    """Where in a list of variables the whole futures begin: source, destination, semaphores in a row."""
    flags = [(is_in_flight(v.aval), is_handle(v.aval)) for v in variables]
    whole = [(True, False), (True, False), (True, True)]
    return [n for n in range(len(flags)) if flags[n : n + 3] == whole]


def finish(leaves: Sequence[Any], futures: Sequence[Held]) -> list[Any]:
    """``leaves`` with what arrived in the place of each future's first leaf, and without its other two."""
    result: list[Any] = []
    skipped = {held.first + k for held in futures for k in (1, 2)}
    at = {held.first: held for held in futures}
    for n, leaf in enumerate(leaves):
        if n in at:
            held = at[n]
            triple = [leaves[k] for k in held.positions]
            result.append(ops.done(triple, held.transfer, NOWHERE, held.batch, ordered=True))
        elif n not in skipped:
            result.append(leaf)
    return result


def as_landed(values: Sequence[Any], futures: Sequence[Held], stacked: bool = False) -> list[Any]:
    """Inverse of `finish`, as far as positions go: `Landed` in the places of the leaves."""
    result: list[Any] = []
    at = {held.first: held for held in futures}
    for value in values:
        held = at.get(len(result))
        result.extend([value] if held is None else [Landed(value, held, k, stacked) for k in range(3)])
    return result


def landed_among(values: Sequence[Any]) -> list[Held]:
    """The futures that landed already among ``values``, where they stand there."""
    first = [(n, v) for n, v in enumerate(values) if isinstance(v, Landed) and v.leaf == 0]
    return [replace(v.future, first=n) for n, v in first]


def arrays_of(values: Sequence[Any], futures: Sequence[Held]) -> list[Any]:
    """``values`` with what arrived in the place of each landed future's first leaf, and without its other two."""
    skipped = {held.first + k for held in futures for k in (1, 2)}
    kept = [v for n, v in enumerate(values) if n not in skipped]
    return [v.array if isinstance(v, Landed) else v for v in kept]


def shifted(futures: Sequence[Held], gone: Sequence[Held]) -> list[Held]:
    """``futures`` where of each future in ``gone`` one leaf is left instead of three."""
    return [replace(held, first=held.first - 2 * sum(g.first < held.first for g in gone)) for held in futures]


def choose(index: Any, branches: Sequence[Callable[[], list[Any]]]) -> list[Any]:
    """``branches[index]()``; a Boolean index has the False branch first."""
    if index.dtype == jnp.bool_:
        return lax.cond(index, branches[1], branches[0])
    return lax.switch(index, branches)


# -- who makes or takes a future ----------------------------------------------------------------------


# What gives the leaves of a future other names, each at its place.
_RENAMES = (ops.stack_p, primitives.optimization_barrier)

Row = Sequence[Any]  # the variables of a future's leaves, as they stand


def taker(jaxpr: Any, row: Row) -> tuple[Any, bool] | None:
    """The done, however deep in calls, that takes a future in ``jaxpr``, and whether the row is turned there."""
    for eqn in jaxpr.eqns:
        if any(v is row[2] for v in eqn.invars):
            if eqn.primitive is ops.done_p:
                return eqn, eqn.invars[0] is row[1]
            if eqn.primitive in _RENAMES:
                return taker(jaxpr, _renamed(row, eqn.invars, eqn.outvars))
            return _first(taker(body.jaxpr, inner) for body, inner in _entered(eqn, row))
    return None


def maker(jaxpr: Any, row: Row) -> tuple[Any, bool] | None:
    """The start, however deep in calls, that made a future in ``jaxpr``, and whether the row is turned there."""
    for eqn in jaxpr.eqns:
        if any(v is row[2] for v in eqn.outvars):
            if eqn.primitive in (ops.start_p, ops.resume_p):
                return eqn, eqn.outvars[0] is row[1]
            if eqn.primitive in _RENAMES:
                return maker(jaxpr, _renamed(row, eqn.outvars, eqn.invars))
            return _first(maker(body.jaxpr, inner) for body, inner in _left(eqn, row))
    return None


def _renamed(row: Row, old: Sequence[Any], new: Sequence[Any]) -> Row:
    names = {id(a): b for a, b in zip(old, new, strict=True)}
    return [names.get(id(v), v) for v in row]


def _first(found: Iterable[tuple[Any, bool] | None]) -> tuple[Any, bool] | None:
    return next((f for f in found if f is not None), None)


def _position(variables: Sequence[Any], variable: Any) -> int:
    return next(n for n, v in enumerate(variables) if v is variable)


def _entered(eqn: Any, row: Row) -> list[tuple[Any, Row]]:
    """Each body of ``eqn`` that the future enters, and its row there."""
    found = []
    for body, operands in bodies_of(normal_form(eqn)):
        if any(v is row[2] for v in operands):
            found.append((body, [body.inputs[_position(operands, v)] for v in row]))
    return found


def _left(eqn: Any, row: Row) -> list[tuple[Any, Row]]:
    """Each body of ``eqn`` that the future leaves, and its row there."""
    places = [_position(eqn.outvars, v) for v in row]
    found = [(body, [body.outputs[n] for n in places]) for body, _ in bodies_of(normal_form(eqn))]
    return [(body, inner) for body, inner in found if not any(isinstance(v, Literal) for v in inner)]


def bodies_of(form: HigherOrder | None) -> list[tuple[Any, Sequence[Any]]]:
    """Each body that an equation runs, and the operands that bind its inputs."""
    match form:
        case Call() | ShardMap():
            return [(form.jaxpr, form.operands)]
        case Branch():
            return [(branch, form.operands) for branch in form.branches]
        case While():
            return [(form.body, (*form.body_consts, *form.carry))]
        case Scan():
            return [(form.jaxpr, (*form.consts, *form.carry, *form.xs))]
        case _:
            return []


def held_results(jaxpr: Any, eqn: Any) -> list[Held]:
    """The futures among the results of an equation of ``jaxpr``, with what they are futures of.

    One that is only handed through, from an argument to a result, is left out: nothing here makes or takes it.
    """
    found = []
    for first in futures_among(eqn.outvars):
        row = eqn.outvars[first : first + 3]
        known = taker(jaxpr, row) or _first(maker(body.jaxpr, inner) for body, inner in _left(eqn, row))
        if known is not None:
            other, turned = known
            sent = row[1] if turned else row[0]
            q = other.params
            found.append(Held(first, q["transfer"], q["batch"], sent.aval.dtype.element, turned))
    return found
