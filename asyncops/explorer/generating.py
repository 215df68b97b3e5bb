"""Small random programs that look like kernels, most of them slightly wrong.

A program is woven from idioms (``idioms.py``): the events of an idiom keep their order on each core and fall
anywhere between those of the others. Few buffers and semaphores are drawn from, so idioms meet on them. Then
some events are dropped, swapped, repeated or changed, and lifetimes and an entry barrier may be put around
them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace

from asyncops.checker.events import Access, Box, Event, Mark, Program, Signal, Start, Wait
from asyncops.explorer.drafting import Chooser, Draft, SeededChooser
from asyncops.explorer.idioms import IDIOMS

MAX_CORES = 3
MAX_IDIOMS = 4
MAX_CHANGES = 2


def random_program(seed: int | str) -> Program:
    """The program of a seed: the same in every process and on every machine."""
    return draw_program(SeededChooser(seed))


def draw_program(chooser: Chooser) -> Program:
    """A program made by the choices of ``chooser``."""
    cores: list[list[Event]] = [[] for _ in range(chooser.integer(1, MAX_CORES))]
    draft = Draft(chooser, cores, shared_memory=chooser.integer(0, 3) == 3)
    for _ in draft.many(1, MAX_IDIOMS):
        draft.pick(IDIOMS)(draft)
    if draft.flag():
        for _ in draft.many(1, MAX_CHANGES):
            _change(draft)
    if draft.flag(3):
        _add_lives(draft)
    if draft.flag(5):
        _add_barrier(draft)
    return draft.program()


def _change(draft: Draft) -> None:
    """Breaks (or mends) one event; not a mark, and not across one, for a core uses what it allocated."""
    line = draft.cores[draft.core()]
    if line:
        change, i = draft.pick(CHANGES), draft.chooser.integer(0, len(line) - 1)
        if not any(isinstance(event, Mark) for event in (line[i], line[i - 1])):
            change(draft, line, i)


def _drop(draft: Draft, line: list[Event], i: int) -> None:
    del line[i]


def _swap(draft: Draft, line: list[Event], i: int) -> None:
    line[i - 1], line[i] = line[i], line[i - 1]


def _repeat(draft: Draft, line: list[Event], i: int) -> None:
    event = line[i]
    line.insert(i, Start(replace(event.copy)) if isinstance(event, Start) else replace(event))


def _change_amount(draft: Draft, line: list[Event], i: int) -> None:
    event, amount = line[i], draft.amount()
    if isinstance(event, Wait | Signal):
        line[i] = replace(event, amount=amount)
    elif isinstance(event, Start) and event.copy.destination_semaphore is not None:
        line[i] = Start(replace(event.copy, destination_amount=amount))


def _change_target(draft: Draft, line: list[Event], i: int) -> None:
    """Another semaphore, or other memory."""
    event, core = line[i], draft.core()
    semaphore = draft.semaphore(core, "stgh")
    if isinstance(event, Wait | Signal):
        line[i] = replace(event, semaphore=semaphore)
    elif isinstance(event, Start):
        line[i] = Start(
            replace(event.copy, destination_semaphore=semaphore, destination_amount=draft.amount())
        )
    elif isinstance(event, Access):
        line[i] = replace(event, box=draft.box(core))


CHANGES: tuple[Callable[[Draft, list[Event], int], None], ...] = (
    _drop,
    _swap,
    _repeat,
    _change_amount,
    _change_target,
)


def _add_lives(draft: Draft) -> None:
    """A kernel call on every core, whose scratch lives from its first event to its last."""
    for c, line in enumerate(draft.cores):
        names = draft.pick(("x", "xy"))
        memory = tuple(Box(f"{name}{draft.device(c)}") for name in names if c == draft.device(c))
        semaphores: tuple[Hashable, ...] = tuple(f"{name}{c}" for name in draft.pick(("s", "st", "sg", "")))
        line.insert(0, Mark("enter", f"k{c}", memory, semaphores))
        line.append(Mark("exit", f"k{c}", memory, semaphores))


def _add_barrier(draft: Draft) -> None:
    """A barrier after some event of every core: after its first if it is one on entry."""
    lines = [(c, line) for c, line in enumerate(draft.cores) if line]
    draft.barriers.append(
        tuple((c, draft.chooser.integer(0, len(line) - 1) if draft.flag(4) else 0) for c, line in lines)
    )
