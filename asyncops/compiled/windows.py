"""What runs between the start and the end of each copy in flight."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from asyncops.compiled.facts import Entry, Flight, Mark, ScopePath, Trace, loops, times
from asyncops.compiled.hlo import Instruction
from asyncops.compiled.operations import CONTROL, estimated_cycles, is_work


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that runs inside a window: an instruction, or a whole loop, conditional or call.

    ``cycles`` is the compiler's estimate for all its iterations, None where it made none.
    """

    instruction: Instruction
    cycles: int | None
    trips: int | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """The schedule between ``start`` and ``done``. Of several runs of both, in a loop, it is the last one's.

    ``path`` is what both halves are inside of; ``is_carried``: the innermost loop of it carries the copy
    from one iteration to the next.
    """

    start: Instruction
    done: Instruction
    flight: Flight
    path: ScopePath
    is_carried: bool
    items: tuple[Item, ...]

    @property
    def times(self) -> int | None:
        """How often it is opened and closed; None where the program does not tell."""
        count = times(self.path)
        last = loops(self.path)[-1].trips if self.is_carried and loops(self.path) else None
        return count - count // last if count and last else count

    @property
    def nbytes(self) -> int:
        """Bytes that are on their way."""
        buffer = self.flight.destination or self.flight.source
        return buffer.shape.nbytes if buffer is not None else 0

    @property
    def cycles(self) -> int | None:
        """The compiler's estimates of what is overlapped, added up; None where it made none at all."""
        known = [item.cycles for item in self.items if item.cycles is not None]
        return sum(known) if known else None


def windows(trace: Trace) -> tuple[Window, ...]:
    """The windows of a module, in schedule order of their starts."""
    halves = {f.start for f in trace.flights} | {e.instruction for f in trace.flights for e in f.endings}
    found: dict[tuple[Instruction, Instruction], Window] = {}
    for flight in trace.flights:
        for ending in flight.endings:
            entries = trace.log[flight.step + 1 : ending.step]
            shared = tuple(a for a, b in zip(flight.path, ending.path, strict=False) if a == b)
            turned = {entry.instruction for entry in entries if entry.mark is Mark.ITERATION}
            carried = any(scope.instruction in turned for scope in shared)
            runs = (i for i in _items(entries) if i.instruction not in halves)
            items = tuple(item for item in runs if _takes_time(item.instruction))
            found[flight.start, ending.instruction] = Window(
                flight.start, ending.instruction, flight, shared, carried, items
            )
    return tuple(found.values())


def _takes_time(instruction: Instruction) -> bool:
    """Loops and the like, copies, and computations on arrays; not scalars and the halves of other copies."""
    if instruction.opcode in CONTROL:
        return True
    return (is_work(instruction) or instruction.opcode == "copy") and instruction.shape.size > 1


def ran(entries: Sequence[Entry]) -> Iterator[Instruction]:
    """The instructions that ran, those inside loops and branches included."""
    return (entry.instruction for entry in entries if entry.mark is Mark.RUN)


def _items(entries: Sequence[Entry]) -> Iterator[Item]:
    """What a stretch of the log amounts to.

    A scope that lies in it whole is one item, of one that does not its parts are. A branch that lies in it
    whole, of a conditional that does not, is the one that was not taken.
    """
    closing = _matching(entries)
    at = 0
    while at < len(entries):
        entry = entries[at]
        if entry.mark is Mark.RUN:
            yield Item(entry.instruction, estimated_cycles(entry.instruction))
        elif entry.mark is Mark.ENTER and at in closing:
            end = closing[at]
            if not entry.branch:
                yield Item(entry.instruction, _cost(entries, at, end, closing), entry.trips)
            at = end
        at += 1


def _matching(entries: Sequence[Entry]) -> dict[int, int]:
    """Index of the ENTER -> index of its EXIT, of the scopes that lie in ``entries`` whole."""
    stack: list[int] = []
    closing: dict[int, int] = {}
    for at, entry in enumerate(entries):
        if entry.mark is Mark.ENTER:
            stack.append(at)
        elif entry.mark is Mark.EXIT and stack:
            closing[stack.pop()] = at
    return closing


def _cost(entries: Sequence[Entry], begin: int, end: int, closing: dict[int, int]) -> int | None:
    """Estimated cycles: of a loop, one iteration's times the trip count; of branches, the dearest's."""
    total: int | None = None
    branches: list[int] = []
    iterations = 0
    at = begin + 1
    while at < end:
        entry = entries[at]
        cost: int | None = None
        if entry.mark is Mark.RUN:
            cost = estimated_cycles(entry.instruction)
        elif entry.mark is Mark.ITERATION:
            iterations += 1
        elif entry.mark is Mark.ENTER and at in closing:
            cost = _cost(entries, at, closing[at], closing)
            at = closing[at]
        if cost is not None and entry.branch:
            branches.append(cost)
        elif cost is not None:
            total = (total or 0) + cost
        at += 1
    if branches:
        total = (total or 0) + max(branches)
    if iterations and total is not None:
        return None if entries[begin].trips is None else total * (entries[begin].trips or 0) // iterations
    return total
