"""Very small event programs, and two slow, plain judges of what is ordered in them.

:func:`rule` is the rule of the specification word for word, pair by pair; :class:`AllRuns` tries every run there is,
each count of each copy a step of its own. Neither shares a line with the checker.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from asyncops.checker.events import (
    Access,
    Box,
    Copy,
    Core,
    Event,
    Half,
    Mark,
    Point,
    Program,
    Signal,
    Start,
    Wait,
)


def start(
    destination: Hashable = None,
    amount: int = 1,
    *,
    source: Hashable = None,
    source_amount: int = 1,
    reads: Box | None = None,
    writes: Box | None = None,
) -> Start:
    """A copy that counts ``amount`` on semaphore ``destination`` (and on ``source``, if there is one)."""
    taken = 0 if source is None else source_amount
    return Start(Copy(reads, writes, source, destination, taken, amount))


def program(*cores: list[Event], **more: Any) -> Program:
    """A program of one core a device."""
    return Program(tuple(Core(device, tuple(events)) for device, events in enumerate(cores)), **more)


def slot(buffer: Hashable, index: int = 0, size: int = 1) -> Box:
    """Some elements of a buffer."""
    return Box(buffer, ((index, size, 1),))


def points(program: Program) -> list[Point]:
    """Every event and every completion."""
    found = []
    for core, events in enumerate(core.events for core in program.cores):
        for index, event in enumerate(events):
            halves = Half if isinstance(event, Start) else ()
            found += [Point(core, index), *(Point(core, index, half) for half in halves)]
    return found


def is_contested(program: Program) -> bool:
    """Several cores wait on one semaphore."""
    waits = {
        (e.semaphore, c) for c, core in enumerate(program.cores) for e in core.events if isinstance(e, Wait)
    }
    return len(waits) > len({semaphore for semaphore, _ in waits})


@st.composite
def programs(
    draw: st.DrawFn,
    largest: int = 8,
    smallest: int = 1,
    cores: int = 3,
    semaphores: int = 3,
    boxes: bool = False,
) -> Program:
    """Small programs. Most can run to their end: a wait that nothing before it could feed is left out."""
    size, names = draw(st.integers(1, cores)), draw(st.integers(1, semaphores))
    semaphore, small = st.integers(0, names - 1), st.sampled_from((1, 1, 2, 3))
    live = draw(st.integers(0, 3)) > 0
    counts, events = [0] * names, [[] for _ in range(size)]

    def box() -> Box | None:
        if not boxes or draw(st.integers(0, 3)) == 0:
            return None
        return slot(draw(st.integers(0, 1)), draw(st.integers(0, 1)), draw(st.integers(1, 2)))

    for _ in range(draw(st.integers(smallest, largest))):
        kind, core, on, amount = (
            draw(st.integers(0, 9)),
            draw(st.integers(0, size - 1)),
            draw(semaphore),
            draw(small),
        )
        if kind < 4:
            if not live or counts[on] >= amount:
                decrement = draw(st.integers(0, 5)) > 0
                counts[on] -= amount * decrement
                events[core].append(Wait(on, amount, decrement))
        elif kind < 7:
            source = draw(st.none() | semaphore)
            event = start(on, amount, source=source, source_amount=draw(small), reads=box(), writes=box())
            counts[on] += amount
            if source is not None:
                counts[source] += event.copy.source_amount
            events[core].append(event)
        elif kind < 9 and (here := box() if boxes and kind == 8 else None) is not None:
            events[core].append(Access(here, draw(st.booleans())))
        elif kind < 9:
            counts[on] += amount
            events[core].append(Signal(on, amount))
        else:
            events[core].append(Mark("enter", "kernel"))
    barriers: tuple[tuple[tuple[int, int], ...], ...] = ()
    if size > 1 and all(events) and draw(st.integers(0, 7)) == 0:
        barriers = (tuple((core, draw(st.integers(0, len(e) - 1))) for core, e in enumerate(events)),)
    initial = {0: draw(small)} if draw(st.integers(0, 7)) == 0 else {}
    return program(*events, barriers=barriers, initial=initial)


def busy_program(seed: int) -> Program:
    """A program of some forty events in which every wait can return in the order it was written.

    Denser than what :func:`programs` draws: chains of orders that force further orders are common here.
    """
    rng = random.Random(seed)
    size, names = rng.randint(2, 5), rng.randint(1, 8)
    waits, largest = rng.choice((0.3, 0.45, 0.6)), rng.choice((1, 1, 2, 3))
    counts, events = [0] * names, [[] for _ in range(size)]
    for _ in range(rng.randint(10, 40)):
        core, on, amount = rng.choice(events), rng.randrange(names), rng.choice((1, 1, 2, 3)[: largest + 1])
        if rng.random() < waits and (fed := [name for name in range(names) if counts[name]]):
            on, decrement = rng.choice(fed), rng.random() < 0.9
            amount = rng.randint(1, min(counts[on], largest))
            core.append(Wait(on, amount, decrement))
            counts[on] -= amount * decrement
        elif rng.random() < 0.6:
            source = rng.choice((None, rng.randrange(names)))
            core.append(start(on, amount, source=source, source_amount=rng.choice((1, 1, 2))))
            for _, name, count in _halves(core[-1].copy):
                if name is not None:
                    counts[name] += count
        else:
            core.append(Signal(on, amount))
            counts[on] += amount
    return program(*events)


def rule(program: Program) -> Callable[[Point, Point], bool]:
    """Must-happen-before, by the rule of the specification."""
    names = points(program)
    number = {point: n for n, point in enumerate(names)}
    before = np.array([[_is_plain_order(program, a, b) for b in names] for a in names], bool)
    while True:
        known = before.copy()
        for wait in names:
            if isinstance(_event(program, wait), Wait):
                before[:, number[wait]] |= _forced(program, wait, number, known)
        before |= before.astype(np.float32) @ before.astype(np.float32) > 0
        if (before == known).all():
            return lambda a, b: bool(before[number[a], number[b]])


def _event(program: Program, point: Point) -> Event:
    return program.cores[point.core].events[point.index]


def _is_plain_order(program: Program, a: Point, b: Point) -> bool:
    if (a.core, a.index) == (b.core, b.index):
        return b.half is not None and (
            a.half is None or (a.half is Half.READ_DONE and b.half is Half.WRITE_DONE)
        )
    if a.half is not None or b.half is not None:
        return False
    if a.core == b.core:
        return a.index < b.index
    return any(
        (a.core, a.index) in group and any(core == b.core and index < b.index for core, index in group)
        for group in program.barriers
    )


def _forced(program: Program, wait: Point, number: dict[Point, int], before: np.ndarray) -> np.ndarray:
    """For every point whether the wait cannot return without it."""
    event, at = _event(program, wait), number[wait]
    need = event.amount
    for other in number:
        it = _event(program, other)
        if (
            isinstance(it, Wait)
            and it.semaphore == event.semaphore
            and it.decrement
            and before[number[other], at]
        ):
            need += it.amount
    at_or_before = before | np.eye(len(number), dtype=bool)
    available = np.full(len(number), program.initial.get(event.semaphore, 0))
    for begin, end, amount in _contributions(program, event.semaphore):
        if not before[at, number[begin]]:
            count = amount - at_or_before[:, number[end]] if end is not None else amount
            available += np.where(at_or_before[:, number[begin]], 0, count)
    return available < need


def _contributions(program: Program, semaphore: Hashable) -> Iterator[tuple[Point, Point | None, int]]:
    for core, events in enumerate(core.events for core in program.cores):
        for index, event in enumerate(events):
            begin = Point(core, index)
            if isinstance(event, Signal) and event.semaphore == semaphore:
                yield begin, None, event.amount
            elif isinstance(event, Start):
                for half, name, amount in _halves(event.copy):
                    if name == semaphore and amount:
                        yield begin, Point(core, index, half), amount


def _halves(copy: Copy) -> tuple[tuple[Half, Hashable, int], ...]:
    return (
        (Half.READ_DONE, copy.source_semaphore, copy.source_amount),
        (Half.WRITE_DONE, copy.destination_semaphore, copy.destination_amount),
    )


@dataclass(frozen=True)
class State:
    """Where the cores are, and per half of a copy its count and whether it is done."""

    at: tuple[int, ...]
    moved: tuple[tuple[int, bool], ...]


class AllRuns:
    """Every state that any run of a program can reach; ``complete`` unless there were too many."""

    def __init__(self, program: Program, limit: int = 20_000) -> None:
        self.program = program
        copies = list(program.copies())
        self.halves = [
            (Point(c, i, half), name, n) for c, i, copy in copies for half, name, n in _halves(copy)
        ]
        self.number = {point: n for n, (point, _, _) in enumerate(self.halves)}
        first = State((0,) * len(program.cores), ((0, False),) * len(self.halves))
        self.states, waiting = {first}, [first]
        while waiting and len(self.states) < limit:
            new = set(self._next(waiting.pop())) - self.states
            self.states |= new
            waiting += new
        self.complete = not waiting

    def counts(self, state: State) -> dict[Hashable, int]:
        """The counts of all semaphores."""
        counts = dict(self.program.initial)
        for core, at in zip(self.program.cores, state.at):
            for event in core.events[:at]:
                change = event.amount if isinstance(event, Signal) else 0
                change -= event.amount if isinstance(event, Wait) and event.decrement else 0
                if isinstance(event, Signal | Wait):
                    counts[event.semaphore] = counts.get(event.semaphore, 0) + change
        for (_, name, _), (moved, _) in zip(self.halves, state.moved):
            counts[name] = counts.get(name, 0) + moved
        counts.pop(None, None)
        return counts

    def can_advance(self, state: State, core: int) -> bool:
        """The next event of a core can happen."""
        at, events = state.at[core], self.program.cores[core].events
        for group in self.program.barriers:
            if (core, at - 1) in group and any(state.at[other] <= index for other, index in group):
                return False
        if at == len(events):
            return False
        event = events[at]
        return not isinstance(event, Wait) or self.counts(state).get(event.semaphore, 0) >= event.amount

    def _next(self, state: State) -> Iterator[State]:
        for core, at in enumerate(state.at):
            if self.can_advance(state, core):
                yield State((*state.at[:core], at + 1, *state.at[core + 1 :]), state.moved)
        for number, ((point, name, amount), (count, done)) in enumerate(zip(self.halves, state.moved)):
            if done or state.at[point.core] <= point.index:
                continue
            full = amount if name is not None else 0
            if count < full - 1:
                yield self._with(state, number, (count + 1, False))
            if point.half is Half.READ_DONE or state.moved[number - 1][1]:
                yield self._with(state, number, (full, True))

    def _with(self, state: State, number: int, moved: tuple[int, bool]) -> State:
        return State(state.at, (*state.moved[:number], moved, *state.moved[number + 1 :]))

    def happened(self, state: State, point: Point) -> bool:
        """The event, or the completion, lies behind."""
        if point.half is None:
            return state.at[point.core] > point.index
        return state.moved[self.number[point]][1]

    def possible(self) -> set[Point]:
        """What happens in some run."""
        return {p for p in points(self.program) if any(self.happened(s, p) for s in self.states)}

    def must(self, later: Point) -> set[Point]:
        """What has always happened when ``later`` has."""
        found = set(points(self.program)) - {later}
        for state in self.states:
            if self.happened(state, later):
                found = {point for point in found if self.happened(state, point)}
        return found

    def is_open(self, state: State, begin: Point, end: Point) -> bool:
        """A use of memory is going on."""
        if begin == end:
            return state.at[begin.core] == begin.index and self.can_advance(state, begin.core)
        return self.happened(state, begin) and not self.happened(state, end)

    def ends(self) -> list[State]:
        """The states where nothing can go on."""
        return [state for state in self.states if next(self._next(state), None) is None]

    def is_stuck(self, state: State) -> bool:
        """Some core has not finished."""
        return any(at < len(core.events) for at, core in zip(state.at, self.program.cores))
