"""Copies and signals that can reach memory or a semaphore outside its life.

Marks say where something comes into being (enter, allocate) and goes away (exit, free). What a core itself starts in a
scope belongs between the marks of that scope. Scoped memory is laid out statically, so another core's copy or signal
may reach it from the kernel's *enter* on, whichever instance of the scope it is meant for, but not after the last one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

from asyncops.checker.clocks import Clocks
from asyncops.checker.completions import Completions
from asyncops.checker.events import Box, Half, Mark, Point, Signal, Start

_BEGINS = ("enter", "allocate")


@dataclass(frozen=True, slots=True)
class Touch:
    """A signal or a copy's half that can happen outside the life of what it touches.

    ``point``: the signal, or the completion until which the copy touches it. ``what``: the box, or the semaphore.
    ``mark``: the mark that nothing keeps it behind (``early``) or within (not ``early``).
    """

    point: Point
    what: Hashable
    mark: Point
    early: bool


@dataclass(slots=True)
class Span:
    """Where one thing (or a part of it) begins and ends in the program order of one core."""

    core: int
    begins: list[int]
    ends: list[int]

    def bound(self, passed: int) -> tuple[int | None, bool]:
        """The mark that bounds a touch which follows all marks before ``passed``, and whether it is a begin."""
        life = bisect_left(self.begins, passed) - 1
        if self.begins and life < 0:
            return self.begins[0], True
        following = self.begins[life + 1] if life + 1 < len(self.begins) else None
        low = bisect_left(self.ends, self.begins[life]) if self.begins else 0
        high = len(self.ends) if following is None else bisect_left(self.ends, following)
        if low == high:
            return None, False
        end = self.ends[high - 1]
        return (following, True) if following is not None and end < passed else (end, False)


@dataclass(slots=True)
class _Life:
    """The marks of one core for one thing. ``enters`` are all its kernel enters."""

    core: int
    enters: list[int]
    begins: list[tuple[int, Box | None]] = field(default_factory=list[tuple[int, Box | None]])
    ends: list[tuple[int, Box | None]] = field(default_factory=list[tuple[int, Box | None]])

    def span(self, box: Box | None, toucher: int) -> Span:
        """Where ``toucher`` may touch the part ``box``."""
        begins, ends = (
            [p for p, b in marks if box is None or b is None or b.overlaps(box)]
            for marks in (self.begins, self.ends)
        )
        if self.core != toucher:
            begins = sorted({_last_at_or_before(self.enters, begin) for begin in begins})
        return Span(self.core, begins, ends)


class _Lives:
    """The lives of all memory and semaphores, by core."""

    def __init__(self, clocks: Clocks) -> None:
        self.by_thing: dict[Hashable, dict[int, _Life]] = defaultdict(dict)
        self._spans: dict[Hashable, list[Span]] = {}
        for core in range(len(clocks.program.cores)):
            self._read_core(clocks, core)

    def _read_core(self, clocks: Clocks, core: int) -> None:
        enters: list[int] = []
        for position, event in enumerate(clocks.program.cores[core].events):
            if not isinstance(event, Mark):
                continue
            if event.kind == "enter":
                enters.append(position)
            things: list[tuple[Hashable, Box | None]] = [
                (("memory", box.buffer), box) for box in event.memory
            ]
            things += [(("semaphore", semaphore), None) for semaphore in event.semaphores]
            for thing, box in things:
                life = self.by_thing[thing].setdefault(core, _Life(core, enters))
                (life.begins if event.kind in _BEGINS else life.ends).append((position, box))

    def spans(self, thing: Hashable, box: Box | None, toucher: int) -> list[Span]:
        """Per core that marks the thing, where ``toucher`` may touch it."""
        key = (thing, box.dims if box else None, toucher)
        spans = self._spans.get(key)
        if spans is None:
            spans = [life.span(box, toucher) for life in self.by_thing.get(thing, {}).values()]
            self._spans[key] = spans
        return spans


def _last_at_or_before(positions: list[int], position: int) -> int:
    k = bisect_left(positions, position + 1)
    return positions[k - 1] if k else position


def touches_outside_life(clocks: Clocks, completions: Completions) -> Iterator[Touch]:
    """Every touch that can fall outside the life of what it touches, in program order of each core."""
    lives = _Lives(clocks)
    for core, events in enumerate(c.events for c in clocks.program.cores):
        for position in range(clocks.reach[core]):
            event = events[position]
            if not isinstance(event, Start | Signal):
                continue
            for half, thing, box in _touched(event):
                point = Point(core, position, half)
                found = _violation(clocks, completions, point, lives.spans(thing, box, core))
                if found is not None:
                    yield Touch(point, thing[1] if box is None else box, *found)


def _touched(event: Start | Signal) -> Iterator[tuple[Half | None, tuple[str, Hashable], Box | None]]:
    if isinstance(event, Signal):
        yield None, ("semaphore", event.semaphore), None
        return
    copy = event.copy
    for half, box, semaphore in (
        (Half.READ_DONE, copy.source, copy.source_semaphore),
        (Half.WRITE_DONE, copy.destination, copy.destination_semaphore),
    ):
        if box is not None:
            yield half, ("memory", box.buffer), box
        if semaphore is not None:
            yield half, ("semaphore", semaphore), None


def _violation(
    clocks: Clocks, completions: Completions, point: Point, spans: list[Span]
) -> tuple[Point, bool] | None:
    """The mark that the touch can overstep; None if it stays within the life that some core gives the thing."""
    first = None
    for span in spans:
        core = span.core
        passed = point.index if core == point.core else clocks.past(point.core, point.index)[core]
        mark, early = span.bound(passed)
        if mark is None or (not early and _ends_before(clocks, completions, point, core, mark)):
            return None
        first = first or (Point(core, mark), early)
    return first


def _ends_before(clocks: Clocks, completions: Completions, point: Point, core: int, mark: int) -> bool:
    if mark >= clocks.reach[core]:
        return True  # the end never comes
    if point.half is None:
        return clocks.precedes(point.core, point.index, core, mark)
    return completions.done_before(completions.witnesses(point), core, mark)
