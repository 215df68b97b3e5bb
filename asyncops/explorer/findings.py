"""What the explorer finds, as values. A schedule is the tuple of points executed, in order."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Literal

from asyncops.checker.events import Point

Schedule = tuple[Point, ...]
When = Literal["before", "between", "after"]


@dataclass(frozen=True, slots=True)
class Race:
    """Two conflicting accesses that are open at once, after ``schedule``.

    A point without a half is a core's access, about to be executed; with ``READ_DONE`` it is a copy that may
    still be reading its source, with ``WRITE_DONE`` one that may still be writing its destination. ``first``
    is the smaller.
    """

    first: Point
    second: Point
    schedule: Schedule = field(compare=False)


@dataclass(frozen=True, slots=True)
class Deadlock:
    """Nothing can be executed after ``schedule`` and the cores at ``waits`` have not ended.

    ``waits`` are the next events of those cores: waits that lack a count, or events behind a barrier that a
    core will never reach.
    """

    waits: tuple[Point, ...]
    schedule: Schedule = field(compare=False)


@dataclass(frozen=True, slots=True)
class Leak:
    """``semaphore`` shows ``count`` > 0 when ``mark`` takes it away; None: when all cores have ended."""

    semaphore: Hashable
    count: int
    mark: Point | None
    schedule: Schedule = field(compare=False)


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The copy half ``completion`` has not come when ``mark`` takes away the memory or semaphore it uses."""

    completion: Point
    mark: Point
    schedule: Schedule = field(compare=False)


@dataclass(frozen=True, slots=True)
class Stray:
    """The access, start, signal or wait ``touch`` comes while something it touches does not live.

    ``when``: "before" its first life, "between" two, or "after" its last, as told by the marks of one core.
    ``mark``: the one which ended the life before, or will begin the first.
    """

    touch: Point
    when: When
    mark: Point
    schedule: Schedule = field(compare=False)


@dataclass(frozen=True)
class Exploration:
    """The result of an exploration. Findings are in a fixed order, each with one schedule.

    Attributes:
      complete: every schedule is covered. If not, findings are real but others may be missing: ``verdict``
        says so.
      states: states visited.
      executions: complete schedules through them; without a limit in the way, one or more for each that
        differs in the order of conflicting steps.
    """

    races: tuple[Race, ...]
    deadlocks: tuple[Deadlock, ...]
    leaks: tuple[Leak, ...]
    unfinished: tuple[Unfinished, ...]
    strays: tuple[Stray, ...]
    complete: bool
    states: int
    executions: int

    @property
    def findings(self) -> tuple[Race | Deadlock | Leak | Unfinished | Stray, ...]:
        """All of them, in that order."""
        return (*self.races, *self.deadlocks, *self.leaks, *self.unfinished, *self.strays)

    @property
    def verdict(self) -> Literal["findings", "incomplete", "clean"]:
        """ "clean" only if every schedule was covered."""
        if self.findings:
            return "findings"
        return "clean" if self.complete else "incomplete"
