"""Each future is consumed exactly once, on every path: checked on jaxprs.

A future's way through a program is that of its semaphores, a variable of a type of its own; its source and its
destination must go along. A variable that holds a future must be used exactly once: by its done, by a call, branch or
loop that takes it over, or as a result. Every branch must treat it alike; a loop body may consume only what the loop
carries, because what it closes over would be consumed again in the next iteration.

`check` is run on every function under `asyncops.program_order`, and on the bodies of `asyncops.fori_loop` and its
siblings; `problems` gives all that `asyncops.check`, and so `asyncops.checking` and the linter, report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from asyncops import ops
from asyncops.exclusion import Exclusion
from asyncops.landing import futures_among
from asyncops.misuse import Line, Place, Problem, Report, shown
from asyncops.ref_ops import start_ref_p
from asyncops.regions import is_dropped
from stateful._jax import jaxprs
from stateful._jax.inflight import is_handle, is_in_flight
from stateful.errors import FutureDroppedError, FutureMismatchError, FutureReusedError, InFlightMovedError
from stateful.higher_order import Branch, Call, Scan, ShardMap, While, normal_form


@dataclass(frozen=True)
class Running:
    """A future inside a jaxpr.

    Args:
        name: which future; shared by its leaves where the start is in the same jaxpr.
        place: where it was started, or entered the jaxpr, for messages.
        is_started: True where the start is in the same jaxpr.
    """

    name: int
    place: Place
    is_started: bool = False


def check(jaxpr: Any) -> None:
    """Checks a jaxpr of any class, and all that it calls. Futures may enter as arguments and leave as results.

    Raises:
        FutureDroppedError: a future reaches no done on some path.
        FutureReusedError: a future reaches two dones, or one in a loop that did not start it.
        FutureMismatchError: a done gets parts of different futures.
        InFlightAccessError: a Ref is touched that a running operation uses.
    """

    _walk(jaxpr, Problem.refuse, True)


def problems(jaxpr: Any) -> list[Problem]:
    """All that `check` would refuse, and what a compiler would move because nothing keeps the order around it."""
    found: list[Problem] = []
    _walk(jaxpr, found.append, False)
    return found


def _walk(jaxpr: Any, report: Report, ordered: bool) -> None:
    body = jaxprs.open_jaxpr(jaxpr)
    _Walk(Exclusion(report), report, ordered).body(body.jaxpr, {})


class _Walk:
    """One jaxpr: which variables hold which future, and who used it."""

    def __init__(self, exclusion: Exclusion, report: Report, ordered: bool) -> None:
        self._ordered = ordered
        self._held: dict[Any, Running] = {}
        self._used: dict[Any, Place] = {}
        self._exclusion = exclusion
        self._report = report

    def body(self, jaxpr: Any, names: dict[Any, Running]) -> dict[Any, Place]:
        """Walks all equations; gives how each variable that holds semaphores was used."""
        self._enter(jaxpr, names)
        for eqn in jaxpr.eqns:
            self._equation(eqn)
        for atom in jaxpr.outvars:
            if self._holds(atom):
                self._use(atom, Place("returned"))
        for var, running in self._held.items():
            if is_handle(var.aval) and var not in self._used and not names.get(var) and not is_dropped(var):
                self._dropped(
                    running,
                    f"the future {running.place} reaches no done on some path; call its done on every path",
                )
        return self._used

    def _dropped(self, running: Running, message: str) -> None:
        place = running.place
        cure = "call its done on every path, or do not start it"
        self._report(Problem("AO501", FutureDroppedError, message, place.line, (place,), cure))

    def _enter(self, jaxpr: Any, names: dict[Any, Running]) -> None:
        self._held.update(names)
        for n, var in enumerate((*jaxpr.constvars, *jaxpr.invars)):
            if is_in_flight(var.aval) and var not in self._held:
                self._held[var] = Running(-1 - n, Place(f"given as argument {n}"))

    def _holds(self, atom: Any) -> bool:
        return not isinstance(atom, jaxprs.Literal) and is_handle(atom.aval)

    def _use(self, atom: Any, how: Place) -> None:
        if atom in self._used:
            place, first = self._held[atom].place, self._used[atom]
            message = f"the future {place} is consumed twice: {first}, and {how}"
            cure = "use the first done's result, or start the operation again"
            line = how.line or first.line
            self._report(Problem("AO502", FutureReusedError, message, line, (place, first), cure))
        self._used[atom] = how

    def _equation(self, eqn: Any) -> None:
        line = jaxprs.user_location(eqn)
        form = normal_form(eqn)
        self._exclusion.equation(eqn, line)
        if eqn.primitive is ops.done_p:
            self._same_future(eqn, line)
        closed, untouched = _constants(form), _untouched(form)
        for atom in filter(self._holds, eqn.invars):
            if atom in closed and atom not in untouched:
                self._used.setdefault(atom, Place("at", line))
            elif atom not in untouched:
                self._use(atom, Place("at", line))
        if form is not None:
            self._nested(form, line)
            if not self._ordered:
                self._moved(eqn, form, line)
        self._results(eqn, line)

    def _results(self, eqn: Any, line: Line | None) -> None:
        started = eqn.primitive in (ops.start_p, start_ref_p)
        place = Place("started at" if started else "from", line)
        for leaf, var in enumerate(eqn.outvars):
            if not is_in_flight(var.aval):
                continue
            self._held[var] = running = Running(id(eqn) if started else id(eqn) + 1 + leaf, place, started)
            if is_handle(var.aval) and is_dropped(var):
                self._dropped(
                    running,
                    f"the future started at {shown(line)} reaches no done; call its done, or do not start it",
                )

    def _same_future(self, eqn: Any, line: Line | None) -> None:
        """The three operands of a done that were started in this jaxpr come from one start, each in its place."""
        leaves = [self._held[v] for v in eqn.invars if v in self._held]
        started = {r.name for r in leaves if r.is_started}
        if len(started) > 1:
            places = sorted((r.place for r in leaves), key=str)
            message = (
                f"the done at {shown(line)} got parts of different futures: {places[0]} and {places[-1]}"
            )
            related = (places[0], places[-1])
            self._report(
                Problem(
                    "AO105",
                    FutureMismatchError,
                    f"{message}; pass whole futures",
                    line,
                    related,
                    "pass whole futures",
                )
            )

    # -- bodies ---------------------------------------------------------------------------------------

    def _nested(self, form: Any, line: Line | None) -> None:
        match form:
            case Call() | ShardMap():
                before = self._ordered
                self._ordered = before or getattr(form, "kind", "") == "program_order"
                self._called([form.jaxpr], form.operands, line)
                self._ordered = before
            case Branch():
                self._called(form.branches, form.operands, line)
            case While():
                closed = self._closed_over(form.body_consts, form, line)
                closed |= self._closed_over(form.cond_consts, form, line)
                self._must_only_look(form.cond)
                self._called([form.body], (*form.body_consts, *form.carry), line, closed)
            case Scan():
                closed = self._closed_over(form.consts, form, line)
                self._called([form.jaxpr], (*form.consts, *form.carry, *form.xs), line, closed)
            case _:
                pass

    def _closed_over(self, consts: Sequence[Any], form: Any, line: Line | None) -> set[Any]:
        """The futures among the constants of a loop, which it may not consume."""
        closed = {atom for atom in consts if self._holds(atom)}
        for atom in closed - _untouched(form):
            message = (
                f"the loop at {shown(line)} closes over a future and would consume it in every iteration; carry the "
                "future through the loop, or finish it before"
            )
            cure = "carry the future through the loop, or finish it before"
            self._report(
                Problem("AO502", FutureReusedError, message, line, (self._running(atom).place,), cure)
            )
        return closed

    def _must_only_look(self, cond: Any) -> None:
        """A loop's condition is evaluated once more than its body: it may not consume what the body does."""
        for eqn in cond.jaxpr.eqns:
            if any(is_handle(v.aval) for v in eqn.invars):
                line = jaxprs.user_location(eqn)
                message = (
                    f"the loop's condition consumes a future at {shown(line)}, and the body gets the same one; finish "
                    "it in the body"
                )
                self._report(Problem("AO502", FutureReusedError, message, line, (), "finish it in the body"))

    def _moved(self, eqn: Any, form: Any, line: Line | None) -> None:
        """What a loop carries or stacks, and what a branch returns, the compiler may copy, in flight."""
        for first in futures_among(eqn.outvars):
            if isinstance(form, (Scan, While)) and first < len(form.carry):
                code, how = "AO508", f"the loop at {shown(line)} carries a future"
            elif isinstance(form, (Scan, Branch)):
                what = "loop" if isinstance(form, Scan) else "conditional"
                code, how = "AO504", f"the {what} at {shown(line)} returns a future"
            else:
                continue
            cure = "put asyncops.program_order around the function, or use asyncops' loops"
            message = f"{how}, and nothing keeps the compiler from copying its buffers while they are in flight; {cure}"
            self._report(Problem(code, InFlightMovedError, message, line, (), cure))

    def _running(self, atom: Any) -> Running:
        return self._held.get(atom, Running(id(atom), Place("of an enclosing function")))

    def _called(
        self,
        bodies: Sequence[Any],
        operands: Sequence[Any],
        line: Line | None,
        closed: set[Any] | None = None,
    ) -> None:
        """Each body takes over the futures among its operands (but for those in ``closed``): it must consume or
        return them."""
        exclusions = []
        for body in bodies:
            exclusion = self._exclusion.inside(body.inputs, operands)
            self._takes_over(body, operands, exclusion, line, closed or set())
            exclusions.append(exclusion)
        self._exclusion.leave(exclusions)

    def _takes_over(
        self, body: Any, operands: Sequence[Any], exclusion: Exclusion, line: Line | None, closed: set[Any]
    ) -> None:
        names = {
            var: (self._running(atom), atom)
            for var, atom in zip(body.inputs, operands, strict=True)
            if is_in_flight(var.aval) and not isinstance(atom, jaxprs.Literal)
        }
        running = {var: held for var, (held, _) in names.items()}
        used = _Walk(exclusion, self._report, self._ordered).body(body.jaxpr, running)
        for var, (held, atom) in names.items():
            if is_handle(var.aval) and var not in used and atom not in closed:
                message = (
                    f"the future {held.place} reaches no done on some path: {_described(body)} takes it and "
                    "neither finishes nor returns it"
                )
                related = (held.place, Place("taken over at", line))
                self._report(
                    Problem(
                        "AO501",
                        FutureDroppedError,
                        message,
                        held.place.line or line,
                        related,
                        "finish or return it there",
                    )
                )


def _constants(form: Any) -> set[Any]:
    """What a loop closes over."""
    consts = getattr(form, "consts", ()) if isinstance(form, Scan) else ()
    if isinstance(form, While):
        consts = (*form.cond_consts, *form.body_consts)
    return {atom for atom in consts if not isinstance(atom, jaxprs.Literal)}


def _untouched(form: Any) -> set[Any]:
    """The constants of a loop that its bodies do not use: JAX turns what is carried unchanged into such."""
    match form:
        case While():
            bodies = [(form.cond, form.cond_consts), (form.body, form.body_consts)]
            others = form.carry
        case Scan():
            bodies, others = [(form.jaxpr, form.consts)], (*form.carry, *form.xs)
        case _:
            return set()
    found: set[Any] = set()
    for body, consts in bodies:
        used = {v for eqn in body.jaxpr.eqns for v in eqn.invars if not isinstance(v, jaxprs.Literal)}
        used |= {v for v in body.outputs if not isinstance(v, jaxprs.Literal)}
        found |= {
            atom
            for v, atom in zip(body.inputs, consts)
            if v not in used and not isinstance(atom, jaxprs.Literal)
        }
    return found - {atom for atom in others if not isinstance(atom, jaxprs.Literal)}


def _described(body: Any) -> str:
    info = getattr(body.jaxpr, "debug_info", None)
    return f"the body {info.func_src_info}" if info is not None else "a body"
