"""The schedule report: what a compiled program overlaps with each copy, and the copies the compiler made."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from asyncops.checker.events import Location
from asyncops.compiled.facts import CopyMade, Trace, loops, times
from asyncops.compiled.findings import Facts, moved
from asyncops.compiled.operations import COLLECTIVES, describe
from asyncops.compiled.timeline import draw
from asyncops.compiled.windows import Item, Window, windows


@dataclass(frozen=True, slots=True)
class Overlapped:
    """One thing that runs while a copy is in flight."""

    instruction: str
    what: str
    line: Location | None
    cycles: int | None
    trips: int | None


@dataclass(frozen=True, slots=True)
class Pair:
    """A start and its done.

    Attributes:
      start, done: the HLO instructions, with their lines.
      what: the operation; ``by`` is "XLA" or "Pallas".
      nbytes: bytes in flight; ``space`` is where they arrive.
      times: how often the pair runs, None where the program does not tell.
      overlapped: what runs in between; ``cycles`` the compiler's estimates of it, added up.
    """

    start: str
    done: str
    what: str
    by: str
    start_line: Location | None
    done_line: Location | None
    nbytes: int
    space: str
    times: int | None
    overlapped: tuple[Overlapped, ...]
    cycles: int | None


@dataclass(frozen=True, slots=True)
class MadeCopy:
    """A copy or move that the compiler put into the program.

    ``reason`` is why: "argument", "result", "in flight", "loop" or "other".
    """

    instruction: str
    line: Location | None
    what: str
    nbytes: int
    times: int | None
    reason: str


@dataclass(frozen=True)
class ScheduleReport:
    """What the compiler made of one module's asynchronous operations. ``str()`` is a table for people."""

    module: str
    pairs: tuple[Pair, ...] = ()
    copies: tuple[MadeCopy, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    def to_json(self) -> str:
        """JSON text, the same for the same program."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True)

    def to_svg(self) -> str:
        """A picture: time runs right, one bar for each copy in flight, below it what it overlaps."""
        return draw(self)

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def schedule_report(facts: Facts) -> ScheduleReport:
    """The report of a followed module."""
    trace = facts.trace
    pairs = tuple(_pair(facts, window) for window in windows(trace))
    in_flight = {t.instruction for touches in facts.touches.values() for t in touches}
    made: dict[object, MadeCopy] = {}
    for copy in trace.copies:
        if copy.result.shape.size > 1:
            made.setdefault(copy.instruction, _copy(facts, copy, copy.instruction in in_flight))
    return ScheduleReport(trace.module.name, pairs, tuple(made.values()))


def _pair(facts: Facts, window: Window) -> Pair:
    flight = window.flight
    return Pair(
        start=window.start.name,
        done=window.done.name,
        what=_operation(facts, window),
        by="XLA" if flight.native else "Pallas",
        start_line=facts.sites.towards(window.start, window.done),
        done_line=facts.sites.towards(window.done, window.start),
        nbytes=window.nbytes,
        space=flight.destination.shape.place if flight.destination is not None else "",
        times=window.times,
        overlapped=tuple(_overlapped(facts, item) for item in window.items),
        cycles=window.cycles,
    )


def _operation(facts: Facts, window: Window) -> str:
    """What the pair does; XLA's own collective may be wrapped in a fusion."""
    wrapped = (i.opcode for i in facts.inner(window.start) if i.opcode.startswith(COLLECTIVES))
    return next(wrapped, None) or describe(window.start).removesuffix("-start")


def _overlapped(facts: Facts, item: Item) -> Overlapped:
    instruction = item.instruction
    line = facts.sites.innermost(instruction)
    return Overlapped(instruction.name, describe(instruction), line, item.cycles, item.trips)


def _copy(facts: Facts, copy: CopyMade, in_flight: bool) -> MadeCopy:
    return MadeCopy(
        copy.instruction.name,
        facts.sites.innermost(copy.instruction),
        moved(copy),
        copy.result.shape.nbytes,
        times(copy.path),
        "in flight" if in_flight else _reason(facts.trace, copy),
    )


def _reason(trace: Trace, copy: CopyMade) -> str:
    if loops(copy.path):
        return "loop"
    if copy.operand.source().parameter >= 0:
        return "argument"
    return "result" if trace.last_use.get(copy.result, -1) >= len(trace.log) - 1 else "other"


def _lines(report: ScheduleReport) -> Iterator[str]:
    yield f"schedule of {report.module}"
    if not report.pairs:
        yield "  no asynchronous operation"
    for pair in report.pairs:
        often = "" if pair.times == 1 else f", {pair.times} times" if pair.times else ", in a loop"
        yield f"  {pair.what} by {pair.by}, {pair.nbytes:,} bytes to {pair.space or '?'}{often}"
        yield f"    start %{pair.start}{_at(pair.start_line)}"
        for item in pair.overlapped:
            trips = f" x {item.trips}" if item.trips is not None else ""
            cycles = f", {item.cycles:,} cycles" if item.cycles is not None else ""
            yield f"      {item.what} %{item.instruction}{trips}{cycles}{_at(item.line)}"
        if not pair.overlapped:
            yield "      nothing runs meanwhile"
        yield f"    done  %{pair.done}{_at(pair.done_line)}"
    if report.copies:
        yield "  copies made by the compiler"
    for copy in report.copies:
        often = "" if copy.times == 1 else f", {copy.times} times" if copy.times else ", in a loop"
        size = f"{copy.nbytes:,} bytes {copy.what}{often} ({copy.reason})"
        yield f"    %{copy.instruction}: {size}{_at(copy.line)}"


def _at(line: Location | None) -> str:
    return f"  {line}" if line is not None else ""
