"""The machine that schedules are run on: cores, copies in flight and semaphores, one step at a time.

It is strict: a step that the machine could not take is an error. Searching for schedules is done elsewhere
(``scheduling.py``); whether one shows what it claims is decided here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass

from asyncops.checker.events import Copy, Half, Point, Program, Signal, Start, Wait
from stateful.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class Advance:
    """A core runs up to, not including, event ``stop``."""

    core: int
    stop: int


@dataclass(frozen=True, slots=True)
class Move:
    """Half a copy moves on until it has counted ``count``; when ``done`` the half is complete."""

    half: Point
    count: int
    done: bool


@dataclass(frozen=True, slots=True)
class Settle:
    """Every copy in flight completes."""


Step = Advance | Move | Settle


def half_of(copy: Copy, half: Half | None) -> tuple[Hashable | None, int]:
    """The semaphore and the amount that a half of a copy counts."""
    if half is Half.READ_DONE:
        return copy.source_semaphore, max(copy.source_amount, 0)
    return copy.destination_semaphore, max(copy.destination_amount, 0)


class Machine:
    """The state of a run. ``at[core]`` is the next event of a core; ``moved`` what halves have counted so far."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.at = [0] * len(program.cores)
        self.counts: defaultdict[Hashable, int] = defaultdict(int, program.initial)
        self.moved: dict[Point, int] = {}
        self.done: set[Point] = set()
        self.flying: dict[Point, Copy] = {}
        self._gates: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for number, points in enumerate(program.barriers):
            for core, index in points:
                self._gates[core, index + 1].append(number)

    def take(self, step: Step) -> None:
        """Take a step; an error if the machine cannot."""
        if isinstance(step, Advance):
            while self.at[step.core] < step.stop:
                self.advance(step.core)
        elif isinstance(step, Move):
            self.move(step)
        else:
            for start in list(self.flying):
                self.complete(start)

    def gate_is_open(self, core: int) -> bool:
        """No barrier holds the core before its next event."""
        gates = self._gates.get((core, self.at[core]), ())
        return all(self.at[other] > index for g in gates for other, index in self.program.barriers[g])

    def can_advance(self, core: int) -> bool:
        """The core has a next event that can happen now."""
        events = self.program.cores[core].events
        if self.at[core] >= len(events) or not self.gate_is_open(core):
            return False
        event = events[self.at[core]]
        return not isinstance(event, Wait) or self.counts[event.semaphore] >= event.amount

    def advance(self, core: int) -> None:
        """The next event of a core happens."""
        if not self.can_advance(core):
            raise InvalidArgumentError(f"schedule: core {core} cannot take its event {self.at[core]} here")
        event = self.program.cores[core].events[self.at[core]]
        if isinstance(event, Wait):
            self.counts[event.semaphore] -= event.amount * event.decrement
        elif isinstance(event, Signal):
            self.counts[event.semaphore] += event.amount
        elif isinstance(event, Start):
            self.flying[Point(core, self.at[core])] = event.copy
        self.at[core] += 1

    def move(self, step: Move) -> None:
        """Half a copy moves on. It counts all but one before it is done; the write is done after the read."""
        half, start = step.half, Point(step.half.core, step.half.index)
        copy, before = self.flying.get(start), self.moved.get(half, 0)
        if copy is None or half in self.done:
            raise InvalidArgumentError(f"schedule: {half} is not in flight")
        semaphore, amount = half_of(copy, half.half)
        most = amount if step.done else max(amount - 1, 0)
        early = (
            step.done
            and half.half is Half.WRITE_DONE
            and Point(*start_of(half), Half.READ_DONE) not in self.done
        )
        if not before <= step.count <= most or (step.done and step.count != amount) or early:
            raise InvalidArgumentError(f"schedule: {half} cannot count {step.count} of {amount} here")
        self.moved[half] = step.count
        if semaphore is not None:
            self.counts[semaphore] += step.count - before
        if step.done:
            self.done.add(half)
            if half.half is Half.WRITE_DONE:
                del self.flying[start]

    def complete(self, start: Point) -> None:
        """The copy started there finishes both its halves."""
        copy = self.flying[start]
        for half in (Half.READ_DONE, Half.WRITE_DONE):
            point = Point(start.core, start.index, half)
            if point not in self.done:
                self.move(Move(point, half_of(copy, half)[1], True))

    def is_open(self, begin: Point, end: Point) -> bool:
        """A use of memory is going on: the copy is in flight, or the core's access can happen now."""
        if begin == end:
            return self.at[begin.core] == begin.index and self.can_advance(begin.core)
        return self.at[begin.core] > begin.index and end not in self.done


def start_of(point: Point) -> tuple[int, int]:
    """The core and index of a point, without its half."""
    return point.core, point.index
