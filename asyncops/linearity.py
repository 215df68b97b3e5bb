"""Each future is consumed exactly once, on every path: checked on jaxprs.

A future's way through a program is that of its semaphores, a variable of a type of its own; its source and its
destination must go along. A variable that holds a future must be used exactly once: by its done, by a call, branch or
loop that takes it over, or as a result. Every branch must treat it alike; a loop body may consume only what the loop
carries, because what it closes over would be consumed again in the next iteration.

`check` is run on every function under `asyncops.program_order`, on the bodies of `asyncops.fori_loop` and its
siblings, and on whatever is traced inside `asyncops.checking`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from asyncops import ops
from asyncops.exclusion import Exclusion
from asyncops.ref_ops import start_ref_p
from asyncops.regions import is_dropped
from stateful._jax import jaxprs
from stateful._jax.inflight import is_handle, is_in_flight
from stateful.errors import FutureDroppedError, FutureMismatchError, FutureReusedError
from stateful.higher_order import Branch, Call, Scan, ShardMap, While, normal_form


@dataclass(frozen=True)
class Running:
    """A future inside a jaxpr.

    Args:
        name: which future; shared by its leaves where the start is in the same jaxpr.
        place: where it was started, or entered the jaxpr, for messages.
    """

    name: int
    place: str


def check(jaxpr: Any) -> None:
    """Checks a jaxpr of any class, and all that it calls. Futures may enter as arguments and leave as results.

    Raises:
        FutureDroppedError: a future reaches no done on some path.
        FutureReusedError: a future reaches two dones, or one in a loop that did not start it.
        FutureMismatchError: a done gets parts of different futures.
        InFlightAccessError: a Ref is touched that a running operation uses.
    """
    body = jaxprs.open_jaxpr(jaxpr)
    _Walk(Exclusion()).body(body.jaxpr, {})


class _Walk:
    """One jaxpr: which variables hold which future, and who used it."""

    def __init__(self, exclusion: Exclusion) -> None:
        self._held: dict[Any, Running] = {}
        self._used: dict[Any, str] = {}
        self._exclusion = exclusion

    def body(self, jaxpr: Any, names: dict[Any, Running]) -> dict[Any, str]:
        """Walks all equations; gives how each variable that holds semaphores was used."""
        self._enter(jaxpr, names)
        for eqn in jaxpr.eqns:
            self._equation(eqn)
        for atom in jaxpr.outvars:
            if self._holds(atom):
                self._use(atom, "returned")
        for var, running in self._held.items():
            if is_handle(var.aval) and var not in self._used and not names.get(var):
                raise FutureDroppedError(
                    f"the future {running.place} reaches no done on some path; call its done on every path"
                )
        return self._used

    def _enter(self, jaxpr: Any, names: dict[Any, Running]) -> None:
        self._held.update(names)
        for n, var in enumerate((*jaxpr.constvars, *jaxpr.invars)):
            if is_in_flight(var.aval) and var not in self._held:
                self._held[var] = Running(-1 - n, f"given as argument {n}")

    def _holds(self, atom: Any) -> bool:
        return not isinstance(atom, jaxprs.Literal) and is_handle(atom.aval)

    def _use(self, atom: Any, how: str) -> None:
        if atom in self._used:
            raise FutureReusedError(
                f"the future {self._held[atom].place} is consumed twice: {self._used[atom]}, and {how}"
            )
        self._used[atom] = how

    def _equation(self, eqn: Any) -> None:
        where = location(eqn)
        form = normal_form(eqn)
        self._exclusion.equation(eqn, where)
        if eqn.primitive is ops.done_p:
            self._same_future(eqn, where)
        for atom in eqn.invars:
            if self._holds(atom):
                self._use(atom, f"at {where}")
        if form is not None:
            self._nested(form, where)
        self._results(eqn, where)

    def _results(self, eqn: Any, where: str) -> None:
        for leaf, var in enumerate(eqn.outvars):
            if not is_in_flight(var.aval):
                continue
            if is_handle(var.aval) and is_dropped(var):
                raise FutureDroppedError(
                    f"the future started at {where} reaches no done; call its done, or do not start it"
                )
            started = eqn.primitive in (ops.start_p, start_ref_p)
            name = id(eqn) if started else id(eqn) + 1 + leaf
            self._held[var] = Running(name, f"started at {where}" if started else f"from {where}")

    def _same_future(self, eqn: Any, where: str) -> None:
        """The three operands of a done that were started in this jaxpr come from one start, each in its place."""
        leaves = [self._held[v] for v in eqn.invars if v in self._held]
        started = {r.name for r in leaves if r.place.startswith("started")}
        if len(started) > 1:
            places = sorted(r.place for r in leaves)
            raise FutureMismatchError(
                f"the done at {where} got parts of different futures: {places[0]} and {places[-1]}; pass whole futures"
            )

    # -- bodies ---------------------------------------------------------------------------------------

    def _nested(self, form: Any, where: str) -> None:
        match form:
            case Call() | ShardMap():
                self._called([form.jaxpr], form.operands)
            case Branch():
                self._called(form.branches, form.operands)
            case While():
                _refuse(form.cond_consts, where)
                _refuse(form.body_consts, where)
                _must_only_look(form.cond)
                self._called([form.body], (*form.body_consts, *form.carry))
            case Scan():
                _refuse(form.consts, where)
                self._called([form.jaxpr], (*form.consts, *form.carry, *form.xs))
            case _:
                pass

    def _called(self, bodies: Sequence[Any], operands: Sequence[Any]) -> None:
        """Each body takes over the futures among its operands: it must consume them, or return them."""
        exclusions = []
        for body in bodies:
            exclusion = self._exclusion.inside(body.inputs, operands)
            self._takes_over(body, operands, exclusion)
            exclusions.append(exclusion)
        self._exclusion.leave(exclusions)

    def _takes_over(self, body: Any, operands: Sequence[Any], exclusion: Exclusion) -> None:
        names = {
            var: self._held.get(atom, Running(id(var), "of an enclosing function"))
            for var, atom in zip(body.inputs, operands, strict=True)
            if is_in_flight(var.aval) and not isinstance(atom, jaxprs.Literal)
        }
        used = _Walk(exclusion).body(body.jaxpr, names)
        for var, running in names.items():
            if is_handle(var.aval) and var not in used:
                raise FutureDroppedError(
                    f"the future {running.place} reaches no done on some path: {_described(body)} takes it and "
                    "neither finishes nor returns it"
                )


def _described(body: Any) -> str:
    info = getattr(body.jaxpr, "debug_info", None)
    return f"the body {info.func_src_info}" if info is not None else "a body"


def _refuse(consts: Iterable[Any], where: str) -> None:
    """A loop may not close over a future."""
    for atom in consts:
        if not isinstance(atom, jaxprs.Literal) and is_handle(atom.aval):
            raise FutureReusedError(
                f"the loop at {where} closes over a future and would consume it in every iteration; carry the "
                "future through the loop, or finish it before"
            )


def _must_only_look(cond: Any) -> None:
    """A loop's condition is evaluated once more than its body: it may not consume what the body does."""
    for eqn in cond.jaxpr.eqns:
        if any(is_handle(v.aval) for v in eqn.invars):
            raise FutureReusedError(
                f"the loop's condition consumes a future at {location(eqn)}, and the body gets the same one; finish "
                "it in the body"
            )


def location(eqn: Any) -> str:
    """The user's line of an equation, for messages."""
    found = jaxprs.user_location(eqn)
    if found is None:
        return "an unknown line"
    file, line, function = found
    return f"{file.rsplit('/', 1)[-1]}:{line} ({function})"
