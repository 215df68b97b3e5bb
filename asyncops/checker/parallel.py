"""Dependences between grid steps that differ in a parallel dimension.

Steps with different coordinates there may run on different cores at the same time, each core with scratch of its own.
So no region of an operand or output may be written by one and touched by another, no block of an output be visited by
both, and nothing (scratch contents, a copy, a count) be left by one for the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from typing import Any

from asyncops.checker.analysis import Analysis, Finding, lines
from asyncops.checker.events import Location
from asyncops.checker.naming import short
from asyncops.checker.recording import Entry, Trace
from asyncops.checker.witnesses import Exhibit
from stateful.types import Region

_HELP = 'mark the dimension "arbitrary" in dimension_semantics, or make its steps independent of each other'


def parallel_axes(form: Any) -> tuple[int, ...]:
    """The grid dimensions whose steps may be spread over cores."""
    return tuple(i for i, s in enumerate(form.dimension_semantics) if s is not None and "parallel" in s)


def dependences(analysis: Analysis, code: str) -> Iterator[Finding]:
    """All dependences between parallel steps, one for each source line."""
    for trace in analysis.traces:
        for entries in _by_call(trace):
            axes = parallel_axes(entries[0].call.form)
            if not axes:
                continue
            yield from _shared_memory(code, entries, axes)
            yield from _shared_blocks(code, entries, axes)
            handed_over = list(_handed_over(entries, axes))
            yield from _counts(code, handed_over)
            yield from _carried(code, entries, axes, {id(start) for start, _ in handed_over})


def _by_call(trace: Trace) -> Iterator[list[Entry]]:
    calls: dict[int, list[Entry]] = defaultdict(list)
    for entry in trace.entries:
        if entry.call is not None and entry.coordinates:
            calls[id(entry.call)].append(entry)
    yield from calls.values()


def _at(entry: Entry, axes: tuple[int, ...]) -> tuple[Any, ...]:
    return tuple(entry.coordinates[a] for a in axes)


def _uses(entry: Entry) -> Iterator[tuple[Region, bool]]:
    if entry.kind == "access" and entry.region is not None:
        yield entry.region, entry.write
    elif entry.kind == "start" and entry.copy.kind != "pipeline":
        yield entry.copy.source, False
        yield entry.copy.destination, True


def _finding(code: str, entry: Entry, message: str, other: Entry | None) -> Finding:
    related = lines(("the other step touches it here", other.site.location if other else None))
    apart = other is not None and other.coordinates != entry.coordinates
    proof = Exhibit((f"at {short(entry.site.location)}: {message}",), lambda: apart)
    return Finding(
        code, message, entry.site, _HELP, related, frozenset({("line", entry.site.location)}), proof
    )


def _shared_memory(code: str, entries: list[Entry], axes: tuple[int, ...]) -> Iterator[Finding]:
    """Regions of operands and results that steps with different coordinates touch, at least one writing."""
    known: dict[Any, dict[Any, tuple[Any, Entry, Region, bool]]] = defaultdict(dict)
    reported: set[Any] = set()
    for entry in entries:
        for region, write in _uses(entry):
            if region.root.role not in ("operand", "result"):  # type: ignore[attr-defined]
                continue
            at = _at(entry, axes)
            for place, other, theirs, wrote in list(known[region.root].values()):
                if (
                    place != at
                    and (write or wrote)
                    and region.overlaps(theirs)
                    and entry.site.location not in reported
                ):
                    culprit, second = (entry, other) if write else (other, entry)
                    reported.add(entry.site.location)
                    message = (
                        f"{region} is written at grid step {_text(culprit)} and touched at step {_text(second)}, which "
                        "differ in a parallel dimension and may run at the same time"
                    )
                    yield _finding(code, culprit, message, second)
            known[region.root][(at, region, write)] = (at, entry, region, write)


def _text(entry: Entry) -> str:
    return f"({', '.join(map(str, entry.coordinates))})"


def _shared_blocks(code: str, entries: list[Entry], axes: tuple[int, ...]) -> Iterator[Finding]:
    """Output blocks that steps with different coordinates visit."""
    call: Any = entries[0].call
    flow = call.pipeline
    if flow is None:
        return
    for window, visits in flow.block_visits.items():
        if window.number - len(call.form.inputs) in call.unused:
            continue  # nobody sees the result, as with outputs that serve as scratch
        seen: dict[Any, tuple[Any, ...]] = {}
        for coordinates, index, site in visits:
            at = tuple(coordinates[a] for a in axes)
            if seen.setdefault(index, at) != at:
                message = (
                    f"block {index} of output {window.slots[0]} is visited by grid steps that differ in a parallel "
                    f"dimension (coordinates {seen[index]} and {at}), which may run at the same time"
                )
                written = _first_write(entries, window.slots)
                where = lines(
                    ("the block is written here", written), ("the kernel is called here", call.location)
                )
                first, again = seen[index], at
                proof = Exhibit((f"at {short(site.location)}: {message}",), lambda a=first, b=again: a != b)  # type: ignore[misc]
                yield Finding(
                    code, message, site, _HELP, where, frozenset({("window", window.number)}), proof
                )
                break


def _first_write(entries: list[Entry], slots: Sequence[Any]) -> Location | None:
    """Where the body first writes one of the buffers."""
    return next(
        (e.site.location for e in entries for r, write in _uses(e) if write and r.root in slots), None
    )


def _carried(
    code: str, entries: list[Entry], axes: tuple[int, ...], handed_over: Container[int]
) -> Iterator[Finding]:
    """Scratch that a step reads although a step with another coordinate wrote it last.

    What a copy wrote whose wait is reported already follows from that.
    """
    last: dict[Any, list[tuple[Region, Entry]]] = defaultdict(list)
    reported: set[Any] = set()
    for entry in entries:
        for region, write in _uses(entry):
            if region.root.role != "scratch":  # type: ignore[attr-defined]
                continue
            writers = last[region.root]
            if write:
                kept = [(r, e) for r, e in writers if region.contains(r) is not True]
                last[region.root] = [*kept, (region, entry)]
                continue
            for theirs, other in writers:
                if _at(other, axes) != _at(entry, axes) and region.overlaps(theirs) is not False:
                    if entry.site.location not in reported and id(other) not in handed_over:
                        reported.add(entry.site.location)
                        message = (
                            f"{region} is read at grid step {_text(entry)}, but was written last at "
                            f"step {_text(other)}, which "
                            "differs in a parallel dimension: each core has scratch of its own"
                        )
                        yield _finding(code, entry, message, other)
                    break


def _handed_over(entries: list[Entry], axes: tuple[int, ...]) -> Iterator[tuple[Entry, Entry]]:
    """The starts and signals that a step with another coordinate waits for, each with that wait."""
    open_: dict[Any, list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry.kind == "start" and entry.copy.kind != "pipeline":
            for key in (entry.copy.source_semaphore, entry.copy.destination_semaphore):
                if key is not None and key.buffer.device == 0:
                    open_[key].append(entry)
        elif entry.kind == "signal":
            open_[entry.semaphore].append(entry)
        elif entry.kind == "wait" and open_[entry.semaphore] and entry.decrement:
            other = open_[entry.semaphore].pop(0)
            if _at(other, axes) != _at(entry, axes):
                yield other, entry


def _counts(code: str, handed_over: list[tuple[Entry, Entry]]) -> Iterator[Finding]:
    """Waits for what a step with another coordinate started or signalled, one for each source line."""
    reported: set[Any] = set()
    for other, entry in handed_over:
        if entry.site.location not in reported:
            reported.add(entry.site.location)
            message = (
                f"grid step {_text(entry)} waits on {entry.semaphore} for what step {_text(other)} started, which "
                "differs in a parallel dimension and may run on another core"
            )
            yield _finding(code, entry, message, other)
