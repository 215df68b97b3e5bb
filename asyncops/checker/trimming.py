"""From a greedy run to a schedule: the part of it that is needed, step by step on the machine.

Of what was counted on a semaphore a wait needs the first so many; those, and what they needed in turn, are kept. Copies
move only when a wait needs it, and those to be delayed move last.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

from asyncops.checker.events import Half, Point, Program, Start, Wait
from asyncops.checker.machine import Advance, Machine, Move, Step, half_of
from asyncops.checker.scheduling import Op, Restraint, Runner, Segment


def needed_part(
    runner: Runner,
    segments: Sequence[Segment],
    restraint: Restraint,
    goals: Mapping[int, int],
    ready: Iterable[int] = (),
) -> list[Segment]:
    """What of a run is needed for each core of ``goals`` to come to its event (``ready``: past barriers before it)."""
    return _Slice(runner, segments, restraint).cut(goals, ready)


def compose(program: Program, segments: Sequence[Segment], restraint: Restraint) -> list[Step] | None:
    """The steps of a run, copies moving only when a wait needs it; None where they do not suffice."""
    return _Composer(program, restraint).compose(segments)


class _Slice:
    """The part of a run that is needed to bring some cores as far as they came."""

    def __init__(self, runner: Runner, segments: Sequence[Segment], restraint: Restraint) -> None:
        self.runner, self.segments, self.restraint = runner, segments, restraint
        self.arrivals: defaultdict[int, list[tuple[int, int]]] = defaultdict(
            list
        )  # the (core, position) of each
        self.totals: defaultdict[int, list[int]] = defaultdict(lambda: [0])
        self.used: defaultdict[int, int] = defaultdict(int)
        self.needs: dict[tuple[int, int], int] = {}  # per wait, how many of the first arrivals it relies on
        self.first_op = [[op.position for op in ops] for ops in runner.ops]
        self.initial = runner.beginning().counts
        for segment in segments:
            self._read(segment)

    def _ops(self, core: int, start: int, stop: int) -> list[Op]:
        positions = self.first_op[core]
        return self.runner.ops[core][bisect_left(positions, start) : bisect_left(positions, stop)]

    def _read(self, segment: Segment) -> None:
        core = segment.core
        for op in self._ops(*segment):
            for add in op.adds:
                amount = self.restraint.amount(core, op.position, add)
                self.arrivals[add.semaphore].append((core, op.position))
                self.totals[add.semaphore].append(self.totals[add.semaphore][-1] + amount)
            if op.wait >= 0:
                need = self.used[op.wait] + op.need - self.initial[op.wait]
                self.needs[core, op.position] = bisect_left(self.totals[op.wait], need)
                self.used[op.wait] += op.take

    def cut(self, goals: Mapping[int, int], ready: Iterable[int]) -> list[Segment]:
        """The segments, each cut where its core is no longer needed."""
        stops = [0] * len(self.runner.ops)
        todo = list(goals.items())
        for core in ready:
            gates = self._ops(core, goals[core], goals[core] + 1)
            todo += [goal for op in gates if op.gate >= 0 for goal in self._required(core, op)]
        while todo:
            core, stop = todo.pop()
            start = stops[core]
            if stop > start:
                stops[core] = stop
                for op in self._ops(core, start, stop):
                    todo += self._required(core, op)
        clipped = (Segment(s.core, s.start, min(s.stop, stops[s.core])) for s in self.segments)
        return [segment for segment in clipped if segment.stop > segment.start]

    def _required(self, core: int, op: Op) -> Iterator[tuple[int, int]]:
        if op.gate >= 0:
            yield from ((other, index + 1) for other, index in self.runner.program.barriers[op.gate])
        elif op.wait >= 0:
            arrivals = self.arrivals[op.wait]
            yield from ((c, p + 1) for c, p in arrivals[: self.needs[core, op.position]])


class _Composer:
    def __init__(self, program: Program, restraint: Restraint) -> None:
        self.machine = Machine(program)
        self.restraint = restraint
        self.steps: list[Step] = []
        self.waiting: defaultdict[Hashable, deque[Point]] = defaultdict(deque)

    def compose(self, segments: Sequence[Segment]) -> list[Step] | None:
        for segment in segments:
            while self.machine.at[segment.core] < segment.stop:
                start = self.machine.at[segment.core]
                self._advance(segment)
                stop = self.machine.at[segment.core]
                if stop > start:
                    self.steps.append(Advance(segment.core, stop))
                if stop < segment.stop and not self._feed(segment.core):
                    return None
        return self.steps

    def _advance(self, segment: Segment) -> None:
        machine, core = self.machine, segment.core
        events = machine.program.cores[core].events
        while machine.at[core] < segment.stop and machine.can_advance(core):
            position = machine.at[core]
            machine.advance(core)
            event = events[position]
            if isinstance(event, Start):
                for half in Half:
                    semaphore, amount = half_of(event.copy, half)
                    if semaphore is not None and amount:
                        self.waiting[semaphore].append(Point(core, position, half))

    def _feed(self, core: int) -> bool:
        """Let copies move until the wait of ``core`` can return; what is to be delayed moves last."""
        machine = self.machine
        events, at = machine.program.cores[core].events, machine.at[core]
        wait = events[at] if at < len(events) else None
        if not isinstance(wait, Wait) or not machine.gate_is_open(core):
            return False
        delayed: list[Point] = []
        halves = self.waiting[wait.semaphore]
        while machine.counts[wait.semaphore] < wait.amount and halves:
            half = halves.popleft()
            if not self._finish(half):
                delayed.append(half)
        for half in delayed:
            if machine.counts[wait.semaphore] < wait.amount:
                _, amount = half_of(machine.flying[Point(half.core, half.index)], half.half)
                self._move(Move(half, max(amount - 1, 0), False))
        halves.extendleft(reversed(delayed))
        return machine.counts[wait.semaphore] >= wait.amount

    def _finish(self, half: Point) -> bool:
        """Complete a half (and before a write the read), unless that is to be withheld."""
        read = Point(half.core, half.index, Half.READ_DONE)
        before = (read,) if half.half is Half.WRITE_DONE else ()
        if not self.restraint.withheld.isdisjoint((half, *before)):
            return False
        for point in (*before, half):
            if point not in self.machine.done:
                copy = self.machine.flying[Point(point.core, point.index)]
                self._move(Move(point, half_of(copy, point.half)[1], True))
        return True

    def _move(self, step: Move) -> None:
        if step.done or self.machine.moved.get(step.half, 0) < step.count:
            self.machine.take(step)
            self.steps.append(step)
