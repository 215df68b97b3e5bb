"""What a run comes to, and what a schedule can claim to show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from asyncops.checker.events import Half, Point, Program, Signal, Start, Wait
from asyncops.checker.machine import Machine, half_of
from asyncops.checker.races import Race


@dataclass(frozen=True, slots=True)
class StuckWait:
    """A core that can never go on: its next event is ``point``.

    It waits for ``amount`` on ``semaphore``, where ``count`` is left of all the ``signalled`` that ever came (what was
    there at the beginning included). ``semaphore`` is None where it waits at a barrier of the program.
    """

    point: Point
    semaphore: Hashable | None = None
    amount: int = 0
    count: int = 0
    signalled: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to.

    ``reproduced``: it shows what its schedule claims (of a run to the end: it got stuck). ``stuck``: the waits that
    nothing can end; empty while copies are in flight. ``left``: the counts that remain. ``at``: the next event of each
    core. ``exhaustive``: no other order of events comes out worse; False where several cores wait on one semaphore and
    the budget ran out before all orders were tried.
    """

    reproduced: bool
    stuck: tuple[StuckWait, ...]
    left: dict[Hashable, int]
    at: tuple[int, ...]
    exhaustive: bool = True

    @property
    def unfinished(self) -> tuple[int, ...]:
        """The cores that are stuck."""
        return tuple(wait.point.core for wait in self.stuck)


@dataclass(frozen=True, slots=True)
class Overlap:
    """Claim: at the end of the schedule both uses of the race are going on."""

    race: Race


@dataclass(frozen=True, slots=True)
class Stuck:
    """Claim: at the end nothing can go on, and some core has not finished."""


@dataclass(frozen=True, slots=True)
class Outside:
    """Claim: the copy's half or signal ``point`` reaches what does not exist yet (``early``) or no longer.

    ``mark`` is where it comes into being, or goes away.
    """

    point: Point
    mark: Point
    early: bool


Claim = Overlap | Stuck | Outside


def is_shown(machine: Machine, claim: Claim, mark_came_first: bool = False) -> bool:
    """The state of the machine shows what is claimed. ``mark_came_first``: the mark passed before the point."""
    if isinstance(claim, Overlap):
        return all(machine.is_open(use.begin, use.end) for use in (claim.race.first, claim.race.second))
    if isinstance(claim, Stuck):
        unfinished = any(at < len(core.events) for at, core in zip(machine.at, machine.program.cores))
        return unfinished and not machine.flying and not any(map(machine.can_advance, range(len(machine.at))))
    point, mark = claim.point, claim.mark
    happened, passed = machine.at[point.core] > point.index, machine.at[mark.core] > mark.index
    if claim.early:
        return happened and not passed
    return happened and passed and (mark_came_first or (point.half is not None and point not in machine.done))


def outcome_of(
    program: Program,
    at: Sequence[int],
    counts: Mapping[Hashable, int],
    reproduced: bool | None = None,
    settled: bool = True,
    exhaustive: bool = True,
) -> Outcome:
    """The outcome in a state; ``settled``: no copy is in flight."""
    stuck = tuple(_stuck_waits(program, at, counts)) if settled else ()
    left = {semaphore: count for semaphore, count in counts.items() if count}
    return Outcome(bool(stuck) if reproduced is None else reproduced, stuck, left, tuple(at), exhaustive)


def _stuck_waits(program: Program, at: Sequence[int], counts: Mapping[Hashable, int]) -> Iterator[StuckWait]:
    signalled = _signalled(program, at)
    held = {point for points in program.barriers if _is_closed(points, at) for point in points}
    for core, position in enumerate(at):
        events = program.cores[core].events
        if position == len(events):
            continue
        event = events[position]
        if (core, position - 1) in held:
            yield StuckWait(Point(core, position))
        elif isinstance(event, Wait) and counts.get(event.semaphore, 0) < event.amount:
            count, came = counts.get(event.semaphore, 0), signalled[event.semaphore]
            yield StuckWait(Point(core, position), event.semaphore, event.amount, count, came)


def _is_closed(points: Sequence[tuple[int, int]], at: Sequence[int]) -> bool:
    return any(at[core] <= index for core, index in points)


def _signalled(program: Program, at: Sequence[int]) -> Counter[Hashable]:
    """All that was ever counted on each semaphore."""
    total: Counter[Hashable] = Counter(program.initial)
    for core, position in enumerate(at):
        for event in program.cores[core].events[:position]:
            if isinstance(event, Signal):
                total[event.semaphore] += event.amount
            elif isinstance(event, Start):
                for half in Half:
                    semaphore, amount = half_of(event.copy, half)
                    total[semaphore] += amount
    return total
