"""What may not be touched while an operation on Refs runs: its destination not at all, its source not by a write.

The order of effects keeps every access on its side of a start and a done, but not out of the time between them. Refs
are followed through calls, branches and loops by the variable that holds them first; slots are not, their indices are
data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from asyncops.misuse import Line, Place, Problem, Report, shown
from asyncops.ref_ops import Layout, done_ref_p, start_ref_p
from stateful._jax import primitives
from stateful.errors import InFlightAccessError

_READS = {primitives.get: "reads"}
_WRITES = {primitives.swap: "writes", primitives.addupdate: "adds to"}


@dataclass(frozen=True)
class Flight:
    """One running operation: the variables of its Refs, and where it was started."""

    source: Any
    destination: Any
    line: Line | None


class Exclusion:
    """The operations that run at a point of a program, and the names of their Refs there.

    ``report`` gets each access to what a running operation uses.
    """

    def __init__(self, report: Report) -> None:
        self._report = report
        self._flights: dict[Any, Flight] = {}
        self._first: dict[Any, Any] = {}

    def inside(self, inputs: Sequence[Any], operands: Sequence[Any]) -> Exclusion:
        """The same in a body whose ``inputs`` the ``operands`` bind."""
        inner = Exclusion(self._report)
        inner._flights = dict(self._flights)
        inner._first = {var: self._name(atom) for var, atom in zip(inputs, operands, strict=True)}
        return inner

    def leave(self, bodies: Sequence[Exclusion]) -> None:
        """What runs after one of ``bodies``: what ran before and none of them has finished."""
        for handle in list(self._flights):
            if any(handle not in body._flights for body in bodies):
                del self._flights[handle]

    def equation(self, eqn: Any, line: Line | None) -> None:
        """Follows one first-order equation."""
        if eqn.primitive is start_ref_p:
            self._start(eqn, line)
        elif eqn.primitive is done_ref_p:
            self._flights.pop(self._name(eqn.invars[0]), None)
        elif eqn.primitive in _READS:
            self._access(eqn.invars[0], line, _READS[eqn.primitive], ("AO201", None))
        elif eqn.primitive in _WRITES:
            self._access(eqn.invars[0], line, _WRITES[eqn.primitive], ("AO203", "AO202"))

    def _name(self, atom: Any) -> Any:
        return self._first.get(atom, atom) if atom.__hash__ else id(atom)

    def _start(self, eqn: Any, line: Line | None) -> None:
        layout: Layout = eqn.params["layout"]
        if layout.from_slot or layout.to_slot:
            return
        source, destination = eqn.invars[0], eqn.invars[layout.destination]
        self._access(source, line, "starts to send", ("AO201", None))
        self._access(destination, line, "starts to receive into", ("AO204", "AO202"))
        self._flights[eqn.outvars[0]] = Flight(self._name(source), self._name(destination), line)

    def _access(self, ref: Any, line: Line | None, how: str, codes: tuple[str, str | None]) -> None:
        """``codes``: of the rules against this access to a destination, and to a source (None: it is allowed)."""
        name = self._name(ref)
        for flight in self._flights.values():
            if name is flight.destination:
                self._refuse(flight, line, how, "writing", codes[0])
            elif codes[1] is not None and name is flight.source:
                self._refuse(flight, line, how, "sending", codes[1])

    def _refuse(self, flight: Flight, line: Line | None, how: str, busy: str, code: str) -> None:
        cure = "move it behind the done, or use another Ref"
        message = (
            f"{shown(line)} {how} a Ref that the operation started at {shown(flight.line)} is {busy}; {cure}"
        )
        related = (Place("started at", flight.line),)
        self._report(Problem(code, InFlightAccessError, message, line, related, cure))
