"""Searching for schedules: greedy runs that hold something back, and the choices that are left.

Withholding is all the steering there is: some cores must not pass an event, some halves of copies must not complete
(they count all but one). Everything else runs as far as it can. More counts never hurt, and a wait on a semaphore that
no other core waits on takes nothing from anybody, so such a run reaches whatever can be reached, and one run decides
whether two uses can both be open. Only where several cores wait on one semaphore does it matter who comes first: those
waits are tried in every order, within a budget.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from asyncops.checker.events import Half, Point, Program, Signal, Start, Wait
from asyncops.checker.machine import half_of


class Add(NamedTuple):
    """``amount`` counted on semaphore number ``semaphore``, by a core's signal or by half a copy."""

    semaphore: int
    amount: int
    half: Half | None


class Op(NamedTuple):
    """An event that matters to others: a wait, a signal, the start of a copy, or a barrier before the event."""

    position: int
    wait: int = -1
    need: int = 0
    take: int = 0
    adds: tuple[Add, ...] = ()
    gate: int = -1


class Segment(NamedTuple):
    """A stretch of a run: ``core`` went from event ``start`` to event ``stop``."""

    core: int
    start: int
    stop: int


class Path(NamedTuple):
    """How a run came to be where it is; runs that branch share their past."""

    before: Path | None
    last: Segment


@dataclass(slots=True)
class Position:
    """A state of a greedy run. Copies move as far as they may at once, so where the cores are says all."""

    at: list[int]
    next_op: list[int]
    counts: list[int]
    arrived: list[int]
    gated: set[int] = field(default_factory=set[int])
    path: Path | None = None

    def copy(self) -> Position:
        """A state to go on from independently."""
        return Position(
            list(self.at),
            list(self.next_op),
            list(self.counts),
            list(self.arrived),
            set(self.gated),
            self.path,
        )

    def segments(self) -> list[Segment]:
        """How the run came here."""
        found: list[Segment] = []
        path = self.path
        while path is not None:
            found.append(path.last)
            path = path.before
        return found[::-1]


@dataclass(frozen=True, slots=True)
class Restraint:
    """What a run must not do: pass ``holds[core]``, complete a half in ``withheld``."""

    holds: dict[int, int] = field(default_factory=dict[int, int])
    withheld: frozenset[Point] = frozenset()

    def amount(self, core: int, position: int, add: Add) -> int:
        """How much of ``add`` can be counted."""
        if add.half is None or not self.withheld:
            return add.amount
        stopped = Point(core, position, add.half) in self.withheld or (
            add.half is Half.WRITE_DONE and Point(core, position, Half.READ_DONE) in self.withheld
        )
        return add.amount - stopped


class Runner:
    """A program prepared for greedy runs. ``contested``: semaphores that more than one core waits on."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.numbers: dict[Hashable, int] = {semaphore: n for n, semaphore in enumerate(program.initial)}
        self.ops: list[list[Op]] = [self._read(core) for core in range(len(program.cores))]
        waiters: defaultdict[int, set[int]] = defaultdict(set)
        for core, ops in enumerate(self.ops):
            for op in ops:
                if op.wait >= 0:
                    waiters[op.wait].add(core)
        self.contested = {semaphore for semaphore, cores in waiters.items() if len(cores) > 1}

    def number(self, semaphore: Hashable) -> int:
        """The number of a semaphore."""
        return self.numbers.setdefault(semaphore, len(self.numbers))

    def _read(self, core: int) -> list[Op]:
        gates: defaultdict[int, list[int]] = defaultdict(list)
        for number, points in enumerate(self.program.barriers):
            for other, index in points:
                if other == core:
                    gates[index + 1].append(number)
        ops: list[Op] = []
        events = self.program.cores[core].events
        for position, event in enumerate(events):
            ops += [Op(position, gate=g) for g in gates.pop(position, ())] if gates else []
            if isinstance(event, Wait):
                take = event.amount if event.decrement else 0
                ops.append(Op(position, self.number(event.semaphore), event.amount, take))
            elif isinstance(event, Signal):
                ops.append(Op(position, adds=(Add(self.number(event.semaphore), event.amount, None),)))
            elif isinstance(event, Start):
                ops.append(Op(position, adds=tuple(self._adds(event))))
        ops += [Op(position, gate=g) for position, numbers in gates.items() for g in numbers]
        return ops

    def _adds(self, start: Start) -> Iterator[Add]:
        for half in Half:
            semaphore, amount = half_of(start.copy, half)
            if semaphore is not None and amount:
                yield Add(self.number(semaphore), amount, half)

    def beginning(self) -> Position:
        """The state before anything has happened."""
        cores = len(self.ops)
        counts = [self.program.initial.get(semaphore, 0) for semaphore in self.numbers]
        return Position([0] * cores, [0] * cores, counts, [0] * len(self.program.barriers))

    def run(
        self, state: Position, restraint: Restraint, cores: Sequence[int], goal: Goal | None = None
    ) -> bool:
        """Run everything, the given cores first, until nothing but contested waits can go on or the goal is met."""
        ready = deque(cores)
        ready.extend(core for core in range(len(self.ops)) if core not in ready)
        parked: defaultdict[int, list[int]] = defaultdict(list)
        while ready:
            core = ready.popleft()
            start = state.at[core]
            woken = self._run_core(state, restraint, core, parked)
            if state.at[core] > start:
                state.path = Path(state.path, Segment(core, start, state.at[core]))
            ready.extend(woken)
            if goal is not None and goal(state):
                return True
        return False

    def _run_core(
        self, state: Position, restraint: Restraint, core: int, parked: defaultdict[int, list[int]]
    ) -> list[int]:
        """Run one core until it blocks; the cores that its signals may wake."""
        ops, counts, i = self.ops[core], state.counts, state.next_op[core]
        hold = restraint.holds.get(core, len(self.program.cores[core].events))
        woken: list[int] = []
        while i < len(ops):
            op = ops[i]
            if op.gate >= 0:
                if op.position > hold or not self._pass_gate(state, core, i, woken, parked):
                    break
            elif op.position >= hold:
                break
            elif op.wait >= 0:
                if op.wait in self.contested:
                    break
                if counts[op.wait] < op.need:
                    parked[op.wait].append(core)
                    break
                counts[op.wait] -= op.take
            else:
                for add in op.adds:
                    counts[add.semaphore] += restraint.amount(core, op.position, add)
                    woken += parked.pop(add.semaphore, ())
            i += 1
        state.next_op[core] = i
        state.at[core] = min(hold, ops[i].position) if i < len(ops) else hold
        return woken

    def _pass_gate(
        self, state: Position, core: int, i: int, woken: list[int], parked: defaultdict[int, list[int]]
    ) -> bool:
        gate = self.ops[core][i].gate
        if core not in state.gated:
            state.gated.add(core)
            state.arrived[gate] += 1
        if state.arrived[gate] < len(self.program.barriers[gate]):
            parked[-1 - gate].append(core)
            return False
        woken += parked.pop(-1 - gate, ())
        state.gated.discard(core)
        return True

    def is_gated(self, state: Position, core: int) -> bool:
        """A barrier keeps the core from its next event (or has not been passed yet)."""
        ops, i = self.ops[core], state.next_op[core]
        return i < len(ops) and ops[i].gate >= 0 and ops[i].position == state.at[core]

    def choices(self, state: Position, restraint: Restraint) -> list[int]:
        """The cores at a contested wait that could return now."""
        found: list[int] = []
        for core, ops in enumerate(self.ops):
            i = state.next_op[core]
            if i < len(ops) and ops[i].wait in self.contested:
                held = ops[i].position >= restraint.holds.get(core, ops[i].position + 1)
                if not held and state.counts[ops[i].wait] >= ops[i].need:
                    found.append(core)
        return found

    def choose(self, state: Position, core: int) -> Position:
        """The state after ``core`` has passed its contested wait."""
        after = state.copy()
        op = self.ops[core][after.next_op[core]]
        after.counts[op.wait] -= op.take
        after.next_op[core] += 1
        after.at[core] = op.position + 1
        after.path = Path(after.path, Segment(core, op.position, op.position + 1))
        return after


Goal = Callable[[Position], bool]


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search: the state looked for, or None; ``exhaustive`` when no schedule was left untried."""

    state: Position | None
    exhaustive: bool


def search(
    runner: Runner,
    restraint: Restraint,
    goal: Goal,
    budget: int,
    first: Sequence[int] = (),
    stuck: bool = False,
) -> Found:
    """Look for a state with the goal; with ``stuck``, among those only where nothing can go on.

    ``budget`` bounds the states that are tried where several cores contend for a semaphore.
    """
    stack, seen = [runner.beginning()], set[tuple[int, ...]]()
    for _ in range(max(1, budget)):
        state = stack.pop()
        met = runner.run(state, restraint, first, None if stuck else goal)
        choices = [] if met else runner.choices(state, restraint)
        if met or (stuck and not choices and goal(state)):
            return Found(state, True)
        for core in reversed(choices):
            after = runner.choose(state, core)
            key = tuple(after.at)
            if key not in seen:
                seen.add(key)
                stack.append(after)
        if not stack:
            return Found(None, True)
    return Found(None, False)
