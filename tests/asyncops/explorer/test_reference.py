"""The explorer against a literal machine: every unit of every copy moves on its own, nothing is reduced.

The reference below shares no code with the explorer and states the machine model in the plainest way; it is
slow, so it runs on programs whose state space it can hold. It shows by experiment what the explorer argues
for: that early delivery of all but the last unit loses nothing, and that persistent sets lose nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from itertools import combinations

import pytest

from asyncops.checker.events import Access, Box, Half, Mark, Point, Program, Signal, Start, Wait
from asyncops.explorer import explore
from asyncops.explorer.findings import Exploration, Schedule
from asyncops.explorer.generating import random_program
from asyncops.explorer.notation import format_program
from asyncops.explorer.precedence import exact_order
from asyncops.explorer.steps import build_machine

PROGRAMS = 300
REFERENCE_STATES = 500
UNREDUCED_STATES = 2_000

UNBORN, READING, WRITING, DONE = range(4)
HALVES = (Half.READ_DONE, Half.WRITE_DONE)

State = tuple[tuple[int, ...], tuple[tuple[int, int, int], ...]]  # counters; per copy stage and units given


class TooLarge(Exception):
    """The reference cannot hold the program."""


@dataclass
class Reference:
    """All reachable states of a program, and what they show."""

    program: Program
    races: set[tuple[Point, Point]] = field(default_factory=set)
    deadlocks: set[tuple[Point, ...]] = field(default_factory=set)
    leaks: set[tuple[Hashable, int, Point | None]] = field(default_factory=set)
    unfinished: set[tuple[Point, Point]] = field(default_factory=set)
    strays: set[tuple[Point, str]] = field(default_factory=set)
    without: dict[Point, set[Point]] = field(default_factory=dict)  # point -> what has happened without it

    def __post_init__(self) -> None:
        self.copies = list(self.program.copies())
        events = [
            (Point(c, i), event)
            for c, core in enumerate(self.program.cores)
            for i, event in enumerate(core.events)
        ]
        halves = [Point(c, i, half) for c, i, _ in self.copies for half in HALVES]
        self.without = {point: set() for point in (*(point for point, _ in events), *halves)}
        self.semaphores = dict.fromkeys(s for _, event in events for s in touched(event)[1] if s is not None)
        self.explore()

    def explore(self) -> None:
        start: State = (0,) * len(self.program.cores), ((UNBORN, 0, 0),) * len(self.copies)
        seen, todo = {start}, [start]
        while todo:
            state = todo.pop()
            self.look(state)
            for new in self.moves(state):
                if new not in seen:
                    seen.add(new)
                    todo.append(new)
            if len(seen) > REFERENCE_STATES:
                raise TooLarge

    # How states follow each other.

    def count(self, state: State, semaphore: Hashable) -> int:
        total = self.program.initial.get(semaphore, 0)
        for core, position in zip(self.program.cores, state[0], strict=True):
            for event in core.events[:position]:
                if isinstance(event, Signal) and event.semaphore == semaphore:
                    total += event.amount
                if isinstance(event, Wait) and event.decrement and event.semaphore == semaphore:
                    total -= event.amount
        for (_, _, copy), (_, read, written) in zip(self.copies, state[1], strict=True):
            total += read * (copy.source_semaphore == semaphore)
            total += written * (copy.destination_semaphore == semaphore)
        return total

    def next_events(self, state: State) -> Iterator[tuple[int, int]]:
        """(core, index) of what each core can do now."""
        for c, (core, i) in enumerate(zip(self.program.cores, state[0], strict=True)):
            if i < len(core.events) and self.passes(state, c, i):
                event = core.events[i]
                if not isinstance(event, Wait) or self.count(state, event.semaphore) >= event.amount:
                    yield c, i

    def passes(self, state: State, core: int, index: int) -> bool:
        """Whether every barrier that the core is behind has been reached and passed by all of its group."""
        return all(
            all(state[0][c] > i for c, i in group)
            for group in self.program.barriers
            if any(c == core and i < index for c, i in group)
        )

    def moves(self, state: State) -> Iterator[State]:
        counters, copies = state
        for c, i in self.next_events(state):
            born = [
                (READING, 0, 0) if (c, i) == start[:2] else copy
                for start, copy in zip(self.copies, copies, strict=True)
            ]
            yield (*counters[:c], i + 1, *counters[c + 1 :]), tuple(born)
        for k, (_, _, copy) in enumerate(self.copies):
            for moved in moves_of_copy(copies[k], copy.source_amount, copy.destination_amount):
                yield counters, (*copies[:k], moved, *copies[k + 1 :])

    # What a state shows.

    def look(self, state: State) -> None:
        next_events = list(self.next_events(state))
        self.look_for_races(state, next_events)
        for c, i in next_events:
            self.look_at_event(state, c, i)
        if not next_events and all(copy[0] in (UNBORN, DONE) for copy in state[1]):
            self.look_at_end(state)
        happened = set(self.happened(state))
        for point, others in self.without.items():
            if point not in happened:
                others |= happened

    def happened(self, state: State) -> Iterator[Point]:
        for c, position in enumerate(state[0]):
            yield from (Point(c, i) for i in range(position))
        for (c, i, _), (stage, _, _) in zip(self.copies, state[1], strict=True):
            if stage >= WRITING:
                yield Point(c, i, Half.READ_DONE)
            if stage == DONE:
                yield Point(c, i, Half.WRITE_DONE)

    def look_for_races(self, state: State, next_events: list[tuple[int, int]]) -> None:
        opened: list[tuple[Hashable, Point, Box, bool]] = []
        for c, i in next_events:
            event = self.program.cores[c].events[i]
            if isinstance(event, Access):
                opened.append((("core", c), Point(c, i), event.box, event.write))
        for k, (c, i, copy) in enumerate(self.copies):
            if state[1][k][0] == READING and copy.source is not None:
                opened.append((("copy", k), Point(c, i, Half.READ_DONE), copy.source, False))
            if state[1][k][0] in (READING, WRITING) and copy.destination is not None:
                opened.append((("copy", k), Point(c, i, Half.WRITE_DONE), copy.destination, True))
        for (agent, a, box, writes), (other, b, other_box, other_writes) in combinations(opened, 2):
            if agent != other and (writes or other_writes) and box.overlaps(other_box):
                self.races.add(in_order(a, b))

    def look_at_event(self, state: State, c: int, i: int) -> None:
        event = self.program.cores[c].events[i]
        boxes, semaphores = touched(event)
        for resource in (*boxes, *semaphores):
            self.strays.update((Point(c, i), when) for when in self.offences(state, resource))
        if isinstance(event, Mark) and event.kind in ("exit", "free"):
            in_flight = set(self.in_flight(state, event.semaphores))
            for semaphore in event.semaphores:
                if semaphore not in in_flight and (count := self.count(state, semaphore)):
                    self.leaks.add((semaphore, count, Point(c, i)))
            for completion, boxes, semaphores in self.held(state):
                if set(semaphores) & set(event.semaphores) or overlap(boxes, event.memory):
                    self.unfinished.add((completion, Point(c, i)))

    def offences(self, state: State, resource: Box | Hashable) -> Iterator[str]:
        """For every core whose marks name the resource, or memory it overlaps: when it does not live."""
        for core, position in zip(self.program.cores, state[0], strict=True):
            names = {
                n
                for event in core.events
                if isinstance(event, Mark)
                for n in (*event.memory, *event.semaphores)
            }
            for name in names:
                if name == resource or overlap((name,), (resource,)):
                    named = [
                        event.kind in ("enter", "allocate")
                        for event in core.events[:position]
                        if isinstance(event, Mark) and name in (*event.memory, *event.semaphores)
                    ]
                    first = next(
                        e for e in core.events if isinstance(e, Mark) and name in (*e.memory, *e.semaphores)
                    )
                    if not named and first.kind in ("enter", "allocate"):
                        yield "before"
                    if named and not named[-1]:
                        more = any(
                            isinstance(e, Mark) and name in (*e.memory, *e.semaphores)
                            for e in core.events[position:]
                        )
                        yield "between" if more else "after"

    def held(self, state: State) -> Iterator[tuple[Point, tuple[Box | None, ...], tuple[Hashable, ...]]]:
        for (c, i, copy), (stage, _, _) in zip(self.copies, state[1], strict=True):
            if stage == READING:
                yield Point(c, i, Half.READ_DONE), (copy.source,), (copy.source_semaphore,)
            if stage in (READING, WRITING):
                yield Point(c, i, Half.WRITE_DONE), (copy.destination,), (copy.destination_semaphore,)

    def in_flight(self, state: State, semaphores: tuple[Hashable, ...]) -> Iterator[Hashable]:
        return (s for _, _, used in self.held(state) for s in used if s in semaphores)

    def look_at_end(self, state: State) -> None:
        cores = self.program.cores
        stuck = tuple(Point(c, i) for c, i in enumerate(state[0]) if i < len(cores[c].events))
        if stuck:
            self.deadlocks.add(stuck)
            return
        for semaphore in (*self.semaphores, *self.program.initial):
            if count := self.count(state, semaphore):
                self.leaks.add((semaphore, count, None))


def moves_of_copy(
    copy: tuple[int, int, int], read_amount: int, written_amount: int
) -> Iterator[tuple[int, int, int]]:
    """One more unit shown on either semaphore, or the next half done."""
    stage, read, written = copy
    if stage == READING and read < read_amount - 1:
        yield stage, read + 1, written
    if stage in (READING, WRITING) and written < written_amount - 1:
        yield stage, read, written + 1
    if stage == READING:
        yield WRITING, read_amount, written
    if stage == WRITING:
        yield DONE, read, written_amount


def touched(event: object) -> tuple[tuple[Box | None, ...], tuple[Hashable, ...]]:
    if isinstance(event, Access):
        return (event.box,), ()
    if isinstance(event, Signal | Wait):
        return (), (event.semaphore,)
    if isinstance(event, Start):
        copy = event.copy
        return (copy.source, copy.destination), (copy.source_semaphore, copy.destination_semaphore)
    return (), ()


def overlap(one: tuple[Hashable, ...], other: tuple[Hashable, ...]) -> bool:
    return any(isinstance(a, Box) and isinstance(b, Box) and a.overlaps(b) for a in one for b in other)


def in_order(a: Point, b: Point) -> tuple[Point, Point]:
    key = lambda p: (p.core, p.index, p.half is not None, p.half is Half.WRITE_DONE)  # noqa: E731
    return (a, b) if key(a) <= key(b) else (b, a)


def references() -> Iterator[tuple[Program, Reference]]:
    for seed in range(PROGRAMS):
        program = random_program(seed)
        try:
            yield program, Reference(program)
        except TooLarge:
            continue


@pytest.fixture(scope="module")
def explored() -> list[tuple[Program, Reference, Exploration]]:
    return [(program, reference, explore(program)) for program, reference in references()]


@pytest.mark.slow
def test_findings_are_those_of_the_literal_machine(explored):
    for program, reference, exploration in explored:
        found = (
            {in_order(race.first, race.second) for race in exploration.races},
            {deadlock.waits for deadlock in exploration.deadlocks},
            {(leak.semaphore, leak.count, leak.mark) for leak in exploration.leaks},
            {(unfinished.completion, unfinished.mark) for unfinished in exploration.unfinished},
            {(stray.touch, stray.when) for stray in exploration.strays},
        )
        expected = (
            reference.races, reference.deadlocks, reference.leaks, reference.unfinished, reference.strays
        )  # fmt: skip
        assert exploration.complete
        assert found == expected, format_program(program)


def test_every_kind_of_finding_occurs_often_enough_to_mean_something(explored):
    """Non-vacuity: the comparison above is about hundreds of programs and each kind of finding."""
    assert len(explored) > PROGRAMS / 3
    for kind in ("races", "deadlocks", "leaks", "unfinished", "strays"):
        assert sum(bool(getattr(exploration, kind)) for _, _, exploration in explored) > 5, kind
    assert sum(not exploration.findings for _, _, exploration in explored) > 20


def test_the_exact_order_is_that_of_the_literal_machine(explored):
    for program, reference, _ in explored:
        order = exact_order(program)
        assert order is not None
        for a, others in reference.without.items():
            for b in order.points:
                if a != b:
                    assert order.before(a, b) == (b not in others), (a, b, format_program(program))


def test_the_reduction_loses_nothing_where_the_literal_machine_is_too_slow():
    compared = saved = 0
    for seed in range(PROGRAMS, 2 * PROGRAMS):
        program = random_program(seed)
        every = explore(program, reduced=False, limit=UNREDUCED_STATES)
        if every.complete:
            reduced = explore(program)
            assert reduced.findings == every.findings, format_program(program)
            compared, saved = compared + 1, saved + every.states - reduced.states
    assert compared > PROGRAMS / 2
    assert saved > 0


def test_every_schedule_is_one_of_the_machine(explored):
    for program, _, exploration in explored:
        for finding in exploration.findings:
            assert_possible(program, finding.schedule)


def assert_possible(program: Program, schedule: Schedule) -> None:
    """Executes ``schedule`` step by step."""
    machine = build_machine(program)
    state = machine.initial
    for point in schedule:
        assert machine.numbers[point] in machine.enabled(state), format_program(program)
        state = machine.execute(state, machine.numbers[point])
