"""Which steps must not be swapped, because their order may matter: to a race, to a wait, to a lifetime.

Two steps that can both be executed next and do not *conflict* here lead to the same state in either order,
and every finding of the explorer is seen in one order exactly when it is seen in the other. ``reduction.py``
rests on that. How each kind of finding becomes a conflict:

* **Race.** A core's access is open while it is next. A copy holds its source until ``READ_DONE`` and its
  destination until ``WRITE_DONE``, so an interval is open while that completion is still to come. Two open
  accesses are two steps that are both enabled (a copy that is still reading can first be taken to writing:
  that enables its ``WRITE_DONE`` and disables nothing).
* **Taken counts.** A wait that takes can disable another core's wait on the semaphore. Signals, starts and
  completions only raise counts: they disable nothing.
* **Released in flight.** A mark ends the life of what a copy still uses: again two enabled steps.
* **Touched outside its life, left with a count.** Decided when the touch, or the mark, is executed, by what
  was executed before; so it conflicts with every step that could change the answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

from asyncops.checker.events import Access, Box, Half, Mark, Signal, Start, Wait
from asyncops.explorer.findings import When
from asyncops.explorer.steps import Machine, Step, as_set

BEGINS = frozenset({"enter", "allocate"})
ENDS = frozenset({"exit", "free"})

Pairs = Iterator[tuple[int, int]]


class Uses(NamedTuple):
    """Memory and semaphores that a step touches or holds."""

    boxes: tuple[Box, ...] = ()
    semaphores: tuple[Hashable, ...] = ()

    def include(self, resource: Box | Hashable) -> bool:
        if isinstance(resource, Box):
            return any(box.overlaps(resource) for box in self.boxes)
        return resource in self.semaphores


@dataclass(frozen=True, slots=True)
class Life:
    """When one resource lives according to one core: that core's marks of it in program order."""

    marks: tuple[tuple[int, bool], ...]  # (step, whether it begins the life)

    def offence(self, executed: int) -> tuple[When, int] | None:
        """None if the resource lives in a state; else when, and the mark that ended or begins its life.

        A life whose first mark ends it began before the program did.
        """
        passed = [mark for mark in self.marks if executed >> mark[0] & 1]
        number, begins = passed[-1] if passed else self.marks[0]
        if begins == bool(passed):
            return None
        if not passed:
            return "before", number
        return ("after" if passed[-1] is self.marks[-1] else "between"), number


@dataclass(frozen=True, slots=True)
class Release:
    """What a mark that ends lives must find: ``held`` completions done, and ``counts`` at zero.

    ``counts`` pairs a semaphore number with the completions that count on it.
    """

    held: int
    counts: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Conflicts:
    """The conflicts of a machine. Sets of steps are bits; the module's text says what they are for.

    Attributes:
      races: per step, the steps that race with it when both are enabled.
      any: per step, all its conflicts, races included.
      lives: for a step that touches something, the lives it must fall into.
      releases: for a mark that ends lives, what it must find.
    """

    races: tuple[int, ...]
    any: tuple[int, ...]
    lives: dict[int, tuple[Life, ...]]
    releases: dict[int, Release]


def find_conflicts(machine: Machine) -> Conflicts:
    """All conflicts of ``machine``."""
    marks = _Marks(machine)
    races = _symmetric(machine, _racing(machine))
    others = _symmetric(machine, [*_competing_waits(machine), *marks.conflicts()])
    return Conflicts(races, tuple(map(int.__or__, races, others)), marks.lives(), marks.releases())


def find_competing_waits(machine: Machine) -> tuple[int, ...]:
    """Per step, those that it can disable or be disabled by; only they matter to what can be executed."""
    return _symmetric(machine, _competing_waits(machine))


def _symmetric(machine: Machine, pairs: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    sets = [0] * len(machine.steps)
    for a, b in pairs:
        sets[a] |= 1 << b
        sets[b] |= 1 << a
    return tuple(sets)


def _held(step: Step) -> Uses:
    """What a copy holds until its completion ``step``; nothing for other steps."""
    match step.point.half, step.event:
        case Half.READ_DONE, Start(copy):
            return _uses((copy.source,), (copy.source_semaphore,))
        case Half.WRITE_DONE, Start(copy):
            return _uses((copy.destination,), (copy.destination_semaphore,))
        case _:
            return Uses()


def _touched(step: Step) -> Uses:
    """What a core's step touches or, by starting a copy, begins to hold; nothing for completions."""
    match step.point.half, step.event:
        case None, Access(box):
            return Uses((box,))
        case None, Signal(semaphore) | Wait(semaphore):
            return Uses((), (semaphore,))
        case None, Start(copy):
            return _uses((copy.source, copy.destination), (copy.source_semaphore, copy.destination_semaphore))
        case _:
            return Uses()


def _uses(boxes: tuple[Box | None, ...], semaphores: tuple[Hashable | None, ...]) -> Uses:
    return Uses(
        tuple(box for box in boxes if box is not None),
        tuple(semaphore for semaphore in semaphores if semaphore is not None),
    )


def _racing(machine: Machine) -> Pairs:
    """Pairs of open accesses that overlap, one of them a write."""
    opened: defaultdict[Hashable, list[tuple[int, Box, bool]]] = defaultdict(list)
    for number, step in enumerate(machine.steps):
        if isinstance(step.event, Access):
            opened[step.event.box.buffer].append((number, step.event.box, step.event.write))
        for box in _held(step).boxes:
            opened[box.buffer].append((number, box, step.point.half is Half.WRITE_DONE))
    for accesses in opened.values():
        for (a, box, writes), (b, other, writes_other) in combinations(accesses, 2):
            if (writes or writes_other) and box.overlaps(other):
                yield a, b


def _competing_waits(machine: Machine) -> Pairs:
    """Pairs of waits of different cores where one takes what the other may need."""
    waits = [(n, step) for n, step in enumerate(machine.steps) if step.guard >= 0]
    for (a, one), (b, other) in combinations(waits, 2):
        if one.guard == other.guard and one.point.core != other.point.core and (one.takes or other.takes):
            yield a, b


class _Marks:
    """The marks of a machine, and what happens to what they name."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.marks = [(n, step.event) for n, step in enumerate(machine.steps) if isinstance(step.event, Mark)]
        self.touched = [_touched(step) for step in machine.steps] if self.marks else []
        self.held = [_held(step) for step in machine.steps] if self.marks else []

    def conflicts(self) -> Pairs:
        """Marks with what touches their resources; for ends also with the completions that hold them."""
        for number, mark in self.marks:
            for resource in (*mark.memory, *mark.semaphores):
                for user in _users(self.touched, resource):
                    yield number, user
                if mark.kind in ENDS:
                    for holder in _users(self.held, resource):
                        yield number, holder

    def lives(self) -> dict[int, tuple[Life, ...]]:
        marks: defaultdict[tuple[int, Box | Hashable], list[tuple[int, bool]]] = defaultdict(list)
        for number, mark in self.marks:
            core = self.machine.steps[number].point.core
            for resource in dict.fromkeys((*mark.memory, *mark.semaphores)):
                marks[core, resource].append((number, mark.kind in BEGINS))
        lives: defaultdict[int, list[Life]] = defaultdict(list)
        for (_, resource), named in marks.items():
            for user in _users(self.touched, resource):
                lives[user].append(Life(tuple(named)))
        return {user: tuple(found) for user, found in lives.items()}

    def releases(self) -> dict[int, Release]:
        return {number: self._release(mark) for number, mark in self.marks if mark.kind in ENDS}

    def _release(self, mark: Mark) -> Release:
        held = as_set(h for resource in (*mark.memory, *mark.semaphores) for h in _users(self.held, resource))
        numbers = {semaphore: n for n, semaphore in enumerate(self.machine.semaphores)}
        counts = tuple(
            (numbers[semaphore], as_set(_users(self.held, semaphore)))
            for semaphore in dict.fromkeys(mark.semaphores)
            if semaphore in numbers  # else nothing in the program uses it
        )
        return Release(held, counts)


def _users(uses: list[Uses], resource: Box | Hashable) -> Iterator[int]:
    return (number for number, used in enumerate(uses) if used.include(resource))
