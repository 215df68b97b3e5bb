"""Makes a program small while it keeps a property, so that what a generator found can be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from asyncops.checker.events import Copy, Event, Program, Signal, Start, Wait


def shrink(program: Program, keeps: Callable[[Program], bool]) -> Program:
    """The smallest program that single simplifications of ``program`` reach while it ``keeps`` a property.

    ``program`` itself must have it. Cores keep their numbers, empty ones at the end are dropped.
    """
    simpler: Program | None = program
    while simpler is not None:
        program = simpler
        simpler = next((candidate for candidate in _simplifications(program) if keeps(candidate)), None)
    return program


def _simplifications(program: Program) -> Iterator[Program]:
    """Programs one step simpler, the largest steps first. Each makes something smaller, so shrinking ends."""
    yield from _without_cores(program)
    yield from _without_barriers(program)
    for c, core in enumerate(program.cores):
        for i in range(len(core.events)):
            yield _without_event(program, c, i)
    for semaphore in program.initial:
        yield replace(program, initial={s: n for s, n in program.initial.items() if s != semaphore})
    for c, core in enumerate(program.cores):
        for i, event in enumerate(core.events):
            for simple in _simpler_events(event):
                yield _with_events(program, c, (*core.events[:i], simple, *core.events[i + 1 :]))


def _without_cores(program: Program) -> Iterator[Program]:
    """Without the events of a core; without the last core if it has none."""
    for c, core in enumerate(program.cores):
        if core.events:
            barriers = (tuple(point for point in group if point[0] != c) for group in program.barriers)
            yield replace(_with_events(program, c, ()), barriers=tuple(filter(None, barriers)))
    if program.cores and not program.cores[-1].events:
        yield replace(program, cores=program.cores[:-1])


def _without_barriers(program: Program) -> Iterator[Program]:
    for n in range(len(program.barriers)):
        yield replace(program, barriers=program.barriers[:n] + program.barriers[n + 1 :])


def _without_event(program: Program, core: int, index: int) -> Program:
    """Without one event; barriers that name it leave it out, those behind it move."""
    events = program.cores[core].events
    barriers = (
        tuple((c, i - (c == core and i > index)) for c, i in group if (c, i) != (core, index))
        for group in program.barriers
    )
    shorter = _with_events(program, core, events[:index] + events[index + 1 :])
    return replace(shorter, barriers=tuple(filter(None, barriers)))


def _with_events(program: Program, core: int, events: tuple[Event, ...]) -> Program:
    cores = list(program.cores)
    cores[core] = replace(cores[core], events=events)
    return replace(program, cores=tuple(cores))


def _simpler_events(event: Event) -> Iterator[Event]:
    if isinstance(event, Wait | Signal) and event.amount > 1:
        yield replace(event, amount=1)
        yield replace(event, amount=event.amount - 1)
    if isinstance(event, Start):
        yield from (replace(event, copy=copy) for copy in _simpler_copies(event.copy))


def _simpler_copies(copy: Copy) -> Iterator[Copy]:
    """Without a semaphore, an end or the accumulation; with a smaller amount."""
    if copy.source_semaphore is not None:
        yield replace(copy, source_semaphore=None, source_amount=0)
    if copy.destination_semaphore is not None:
        yield replace(copy, destination_semaphore=None, destination_amount=0)
    if copy.source is not None:
        yield replace(copy, source=None)
    if copy.destination is not None:
        yield replace(copy, destination=None)
    if copy.accumulate:
        yield replace(copy, accumulate=False)
    if copy.source_amount > 1:
        yield replace(copy, source_amount=copy.source_amount - 1)
    if copy.destination_amount > 1:
        yield replace(copy, destination_amount=copy.destination_amount - 1)
