"""Writes down what happens to copies in flight while a schedule is followed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from asyncops.compiled.facts import (
    CopyMade,
    Ending,
    Entry,
    Flight,
    Lost,
    Mark,
    Scope,
    SecondWait,
    Touch,
    Trace,
)
from asyncops.compiled.hlo import Instruction
from asyncops.compiled.inflight import InFlight
from asyncops.compiled.values import Buffer, Value, leaves


class Recorder:
    """The log, the scopes around the present step, and the copies in flight at it (``state``)."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.state = InFlight()
        self.path: tuple[Scope, ...] = ()

    @property
    def step(self) -> int:
        """The number of the latest entry of the log."""
        return len(self.trace.log) - 1

    def log(self, mark: Mark, instruction: Instruction, branch: str = "", trips: int | None = None) -> None:
        """Something runs, begins or ends."""
        self.trace.log.append(Entry(mark, instruction, branch, trips))

    @contextmanager
    def inside(self, scope: Scope) -> Iterator[None]:
        """What runs in the body belongs to ``scope``."""
        self.path = (*self.path, scope)
        yield
        self.path = self.path[:-1]

    def use(self, value: Value) -> None:
        """``value`` is alive at this step."""
        for buffer in leaves(value):
            self.trace.last_use[buffer] = self.step

    def begin(self, flight: Flight) -> None:
        """A copy has started. One that nothing could ever wait for is none of a program's."""
        if flight.keys:
            self.trace.flights.append(flight)
            self.state.add(flight)

    def wait(
        self, instruction: Instruction, key: Buffer, amount: int | None = None, chosen: bool = False
    ) -> list[Flight]:
        """``instruction`` waits on ``key`` for ``amount`` bits (None: all); which copies are over, is told.

        Of several in flight on one semaphore none is known to be over before all are waited for.
        ``chosen``: a conditional has chosen the semaphore, so that it is this one on some paths only.
        """
        flights = self.state.waiting_on(key)
        over = flights if self.state.suffices(key, amount, flights) else []
        for flight in over:
            split = self.state.splits.get(flight)
            if split is not None and not chosen:
                self._again(instruction, key, ", ".join(b.label for b in split.over))
            for half in self.state.halves(flight, key):
                flight.released.setdefault(half, []).append(self.step)
            if self.state.complete(flight, key, instruction):
                flight.endings.append(Ending(instruction, self.step, self.path))
        if not flights:
            self._again(instruction, key)
        return over

    def _again(self, instruction: Instruction, key: Buffer, branch: str = "") -> None:
        if key in self.state.ended:
            flight, earlier = self.state.ended[key]
            self.trace.second_waits.append(SecondWait(instruction, flight, earlier, self.path, branch))

    def lose(self, flight: Flight) -> None:
        """Nothing can wait for ``flight`` any more."""
        split = self.state.splits.get(flight)
        if split is not None:
            labels = ", ".join(b.label for b in split.still)
            self.trace.lost.append(Lost(flight, split.still[0].control, labels))
        else:
            branch = next((s for s in reversed(self.path) if s.kind == "branch"), None)
            entered = branch is not None and branch not in flight.path
            self.trace.lost.append(Lost(flight, branch.instruction if branch and entered else None))
        self.state.remove(flight)

    def touch(
        self,
        instruction: Instruction,
        value: Value,
        access: str,
        result: Buffer | None = None,
        operand: int = -1,
    ) -> None:
        """``instruction`` reads, copies or writes ``value``; of interest where a copy is in flight on it."""
        if not self.state.open:
            return
        for buffer in leaves(value):
            for flight in self.state.of(buffer):
                if flight.native or flight.start is instruction:
                    continue
                for role in self.state.roles(flight, buffer):
                    if role == "destination" or access != "read":
                        touch = Touch(
                            flight, instruction, role, access, self.step, self.path, result, operand
                        )
                        self.trace.touches.append(touch)

    def copied(self, instruction: Instruction, operand: Buffer, result: Buffer) -> None:
        """The compiler copies ``operand`` to new memory."""
        result.copied_from = operand
        self.touch(instruction, operand, "copy", result)
        self.trace.copies.append(CopyMade(instruction, operand, result, self.step, self.path))
