"""A run in which every copy takes as long as it may: what it overlaps with can be seen."""

from __future__ import annotations

from collections.abc import Iterator

from asyncops.checker.events import Half, Point, Program, Wait
from asyncops.checker.machine import Advance, Machine, Move, Settle, Step, half_of


def late_run(program: Program) -> tuple[Step, ...]:
    """The steps of the run: every core goes as far as it can, and only then the oldest copy waited for completes."""
    machine, steps = Machine(program), list[Step]()
    while True:
        moved = [step for core in range(len(program.cores)) if (step := _advanced(machine, core))]
        steps += moved
        if moved:
            continue
        landing = list(_landing(machine))
        if not landing:
            return (*steps, Settle())
        for step in landing:
            machine.take(step)
        steps += landing


def _advanced(machine: Machine, core: int) -> Step | None:
    """Runs a core as far as it can; None where that is not at all."""
    start = machine.at[core]
    while machine.can_advance(core):
        machine.advance(core)
    return Advance(core, machine.at[core]) if machine.at[core] > start else None


def _landing(machine: Machine) -> Iterator[Step]:
    """What completes of the oldest copy that counts on a semaphore which some core waits on."""
    wanted = {
        e.semaphore for core in range(len(machine.at)) if isinstance(e := _next_event(machine, core), Wait)
    }
    for start, copy in machine.flying.items():
        for last in Half:
            semaphore, amount = half_of(copy, last)
            point = Point(start.core, start.index, last)
            if semaphore in wanted and amount and point not in machine.done:
                halves = (Half.READ_DONE,) if last is Half.READ_DONE else (Half.READ_DONE, Half.WRITE_DONE)
                points = [Point(start.core, start.index, half) for half in halves]
                yield from (Move(p, half_of(copy, p.half)[1], True) for p in points if p not in machine.done)
                return


def _next_event(machine: Machine, core: int) -> object:
    events = machine.program.cores[core].events
    return events[machine.at[core]] if machine.at[core] < len(events) else None
