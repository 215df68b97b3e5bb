"""How far a program gets: every core runs as far as it can, every copy completes.

With one waiting core per semaphore the result does not depend on the schedule, so one run decides which waits never
return. Where several cores wait on one semaphore, one order is tried, and ``is_certain`` is False.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass

from asyncops.checker.events import Event, Point, Program, Signal, Start, Wait


@dataclass(frozen=True)
class Progress:
    """Where every core stops (its first event that does not happen), and the counts left."""

    stuck: tuple[Point, ...]
    counts: dict[Hashable, int]
    is_certain: bool


def run_to_end(program: Program) -> Progress:
    """Runs the program once, completing every copy at its start."""
    counts: dict[Hashable, int] = defaultdict(int, program.initial)
    at = [0] * len(program.cores)
    gates = {point: group for group in program.barriers for point in group}
    waiters: dict[Hashable, set[int]] = defaultdict(set)
    moved = True
    while moved:
        moved = False
        for c, core in enumerate(program.cores):
            while at[c] < len(core.events):
                event = core.events[at[c]]
                if not _can_pass(event, counts) or _is_held(gates.get((c, at[c])), c, at):
                    break
                _count(event, counts)
                if isinstance(event, Wait):
                    waiters[event.semaphore].add(c)
                at[c] += 1
                moved = True
    stuck = tuple(Point(c, at[c]) for c, core in enumerate(program.cores) if at[c] < len(core.events))
    return Progress(stuck, dict(counts), all(len(cores) < 2 for cores in waiters.values()))


def _is_held(gate: tuple[tuple[int, int], ...] | None, c: int, at: list[int]) -> bool:
    """True while another core of the gate has not reached it."""
    return gate is not None and any(at[other] < index for other, index in gate if other != c)


def _can_pass(event: Event, counts: dict[Hashable, int]) -> bool:
    return not isinstance(event, Wait) or counts[event.semaphore] >= event.amount


def _count(event: Event, counts: dict[Hashable, int]) -> None:
    if isinstance(event, Wait):
        counts[event.semaphore] -= event.amount * event.decrement
    elif isinstance(event, Signal):
        counts[event.semaphore] += event.amount
    elif isinstance(event, Start):
        copy = event.copy
        for key, amount in (
            (copy.source_semaphore, copy.source_amount),
            (copy.destination_semaphore, copy.destination_amount),
        ):
            if key is not None:
                counts[key] += amount
