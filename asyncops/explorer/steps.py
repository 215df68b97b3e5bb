"""A program as a set of steps, and the states that executing them one by one can reach.

Every event of a core is a step, and so is every completion of a copy (``READ_DONE``, ``WRITE_DONE``). A step
has steps that must come ``after`` (the core's previous event, the copy's start, the barrier before it) and,
if it is a wait, a guard on one semaphore. Nothing else constrains a schedule, so a schedule is an order of
the steps, and the set of executed steps determines program counters, copies in flight and counts: **the
executed set is the state**, one Python integer used as a bit set. Each step is executed at most once, so the
state graph is finite and has no cycles.

**Counts that rise as bytes move.** A copy may show any amount on its semaphore before the half that counts
there completes, up to all but the last unit. Here it shows all but the last unit as soon as it starts, which
is enough:

* it is a legal behaviour, so every state reached here is reached by the machine;
* conversely take any schedule of the machine and forget its partial deliveries. A wait is a lower bound on a
  count and nothing else looks at counts, and with the early delivery each count is at every moment at least
  what it was. So the same steps in the same order are a schedule here, through the same executed sets.

Nothing is lost where no step is left either: copies complete on their own, so a stuck or final state has no
copy in flight and its counts are the full ones.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from asyncops.checker.events import Event, Half, Point, Program, Signal, Start, Wait
from stateful.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a schedule. Steps go by their numbers; bit ``n`` of a set stands for step ``n``.

    Attributes:
      point: the step in the vocabulary of events; it is what a schedule is made of.
      event: the core's event; for a completion, the Start of its copy.
      after: set of the steps that must be executed before.
      guard: semaphore number that a wait looks at, or -1.
      needs: the count the guard must show.
      takes: what the step takes off it.
      adds: (semaphore number, amount) pairs that the step adds.
    """

    point: Point
    event: Event
    after: int
    guard: int = -1
    needs: int = 0
    takes: int = 0
    adds: tuple[tuple[int, int], ...] = ()


class State(NamedTuple):
    """An executed set with two things that follow from it, kept to save computing them again.

    ``ready``: the steps whose ``after`` is executed (a wait among them may still lack its count).
    ``counts``: what each semaphore shows.
    """

    executed: int
    ready: tuple[int, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Machine:
    """The steps of a program and how states follow each other.

    Attributes:
      cores: per core with events, the numbers of its steps in program order.
      following: per step, the steps that name it in their ``after``.
      numbers: the step of each point.
    """

    steps: tuple[Step, ...]
    cores: tuple[tuple[int, ...], ...]
    semaphores: tuple[Hashable, ...]
    initial: State
    following: tuple[tuple[int, ...], ...]
    numbers: dict[Point, int]

    def enabled(self, state: State) -> list[int]:
        """The steps that can be executed in ``state``."""
        steps, counts = self.steps, state.counts
        return [n for n in state.ready if (step := steps[n]).guard < 0 or counts[step.guard] >= step.needs]

    def without(self, number: int) -> Machine:
        """The same machine, in which step ``number`` is never executed."""
        steps = list(self.steps)
        steps[number] = _with_after(steps[number], 1 << number)
        executed, ready, counts = self.initial
        initial = State(executed, tuple(n for n in ready if n != number), counts)
        return replace(self, steps=tuple(steps), initial=initial)

    def execute(self, state: State, number: int) -> State:
        """The state after executing the enabled step ``number``."""
        step = self.steps[number]
        executed = state.executed | 1 << number
        ready = [n for n in state.ready if n != number]
        ready += [n for n in self.following[number] if not self.steps[n].after & ~executed]
        if not step.adds and not step.takes:
            return State(executed, tuple(ready), state.counts)
        counts = list(state.counts)
        if step.takes:
            counts[step.guard] -= step.takes
        for semaphore, amount in step.adds:
            counts[semaphore] += amount
        return State(executed, tuple(ready), tuple(counts))


@dataclass(slots=True)
class _Builder:
    """Collects steps; semaphores are numbered as they are met."""

    program: Program
    steps: list[Step] = field(default_factory=list)
    numbers: dict[Point, int] = field(default_factory=dict)
    semaphores: dict[Hashable, int] = field(default_factory=dict)

    def semaphore(self, identity: Hashable) -> int:
        return self.semaphores.setdefault(identity, len(self.semaphores))

    def add(self, step: Step) -> int:
        number = self.numbers[step.point] = len(self.steps)
        self.steps.append(step)
        return 1 << number

    def core(self, c: int) -> None:
        previous = 0
        for i, event in enumerate(self.program.cores[c].events):
            previous = self.event(Point(c, i), event, previous)

    def event(self, point: Point, event: Event, previous: int) -> int:
        match event:
            case Wait(semaphore, amount, decrement):
                takes = amount if decrement else 0
                return self.add(Step(point, event, previous, self.semaphore(semaphore), amount, takes))
            case Signal(semaphore, amount):
                return self.add(Step(point, event, previous, adds=((self.semaphore(semaphore), amount),)))
            case Start():
                return self.start(point, event, previous)
            case _:
                return self.add(Step(point, event, previous))

    def start(self, point: Point, event: Start, previous: int) -> int:
        """The start and the two completions of a copy, with the early delivery of the module's text."""
        copy, early, late = event.copy, [], {}
        for half, semaphore, amount in (
            (Half.READ_DONE, copy.source_semaphore, copy.source_amount),
            (Half.WRITE_DONE, copy.destination_semaphore, copy.destination_amount),
        ):
            if semaphore is not None and amount:
                number = self.semaphore(semaphore)
                early.append((number, amount - 1))
                late[half] = ((number, 1),)
        start = last = self.add(Step(point, event, previous, adds=tuple(early)))
        for half in (Half.READ_DONE, Half.WRITE_DONE):
            done = Point(point.core, point.index, half)
            last = self.add(Step(done, event, last, adds=late.get(half, ())))
        return start

    def barriers(self) -> None:
        """All events of a group come before the next event of each of its cores."""
        for group in self.program.barriers:
            members = sum(1 << self.numbers[Point(c, i)] for c, i in set(group))
            for c, i in group:
                later = self.numbers.get(Point(c, i + 1))
                if later is not None:
                    self.steps[later] = _with_after(self.steps[later], members)


def _with_after(step: Step, more: int) -> Step:
    return replace(step, after=step.after | more)


def bits(numbers: int) -> Iterator[int]:
    """The members of a bit set, smallest first."""
    while numbers:
        lowest = numbers & -numbers
        yield lowest.bit_length() - 1
        numbers ^= lowest


def as_set(numbers: Iterable[int]) -> int:
    """The bit set of ``numbers``."""
    result = 0
    for number in numbers:
        result |= 1 << number
    return result


def build_machine(program: Program) -> Machine:
    """The machine of ``program``.

    Raises:
      InvalidArgumentError: an amount is negative, or a barrier names an event that does not exist.
    """
    _validate(program)
    builder = _Builder(program)
    for identity in program.initial:
        builder.semaphore(identity)
    for c in range(len(program.cores)):
        builder.core(c)
    builder.barriers()
    steps, semaphores = tuple(builder.steps), tuple(builder.semaphores)
    following = tuple(
        tuple(m for m, step in enumerate(steps) if step.after >> n & 1) for n in range(len(steps))
    )
    ready = tuple(n for n, step in enumerate(steps) if not step.after)
    counts = tuple(program.initial.get(identity, 0) for identity in semaphores)
    cores = tuple(
        tuple(builder.numbers[Point(c, i)] for i in range(len(core.events)))
        for c, core in enumerate(program.cores)
        if core.events
    )
    return Machine(steps, cores, semaphores, State(0, ready, counts), following, builder.numbers)


def _validate(program: Program) -> None:
    for c, core in enumerate(program.cores):
        for i, event in enumerate(core.events):
            if any(amount < 0 for amount in _amounts(event)):
                raise InvalidArgumentError(
                    f"program: event {i} of core {c} has a negative amount; amounts count up from 0"
                )
    for group in program.barriers:
        for c, i in group:
            if not (0 <= c < len(program.cores) and 0 <= i < len(program.cores[c].events)):
                raise InvalidArgumentError(
                    f"program: a barrier names event {i} of core {c}, which does not exist; "
                    "give (core, event index) pairs of the program's own events"
                )


def _amounts(event: Event) -> tuple[int, ...]:
    match event:
        case Wait() | Signal():
            return (event.amount,)
        case Start():
            return (event.copy.source_amount, event.copy.destination_amount)
        case _:
            return ()
