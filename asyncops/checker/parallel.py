"""Dependences between grid steps that differ in a parallel dimension.

Steps with different coordinates there may run on different cores at the same time, each core with scratch of its own.
So no region of an operand or output may be written by one and touched by another, no block of an output be visited by
both, and nothing (scratch contents, a copy, a count) be left by one for the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from asyncops.checker.analysis import Analysis, Finding, lines
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
            yield from _shared_memory(analysis, code, entries, axes)
            yield from _shared_blocks(analysis, code, entries[0].call, axes)
            yield from _carried(analysis, code, entries, axes)
            yield from _counts(analysis, code, entries, axes)


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
    proof = Exhibit((f"{entry.site.location}: {message}",), lambda: apart)
    return Finding(
        code, message, entry.site, _HELP, related, frozenset({("line", entry.site.location)}), proof
    )


def _shared_memory(
    analysis: Analysis, code: str, entries: list[Entry], axes: tuple[int, ...]
) -> Iterator[Finding]:
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


def _shared_blocks(analysis: Analysis, code: str, call: Any, axes: tuple[int, ...]) -> Iterator[Finding]:
    """Output blocks that steps with different coordinates visit."""
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
                where = lines(("the kernel is called here", call.location))
                first, again = seen[index], at
                proof = Exhibit((f"{site.location}: {message}",), lambda a=first, b=again: a != b)  # type: ignore[misc]
                yield Finding(
                    code, message, site, _HELP, where, frozenset({("window", window.number)}), proof
                )
                break


def _carried(analysis: Analysis, code: str, entries: list[Entry], axes: tuple[int, ...]) -> Iterator[Finding]:
    """Scratch that a step reads although a step with another coordinate wrote it last."""
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
                    if entry.site.location not in reported:
                        reported.add(entry.site.location)
                        message = (
                            f"{region} is read at grid step {_text(entry)}, but was written last at "
                            f"step {_text(other)}, which "
                            "differs in a parallel dimension: each core has scratch of its own"
                        )
                        yield _finding(code, entry, message, other)
                    break


def _counts(analysis: Analysis, code: str, entries: list[Entry], axes: tuple[int, ...]) -> Iterator[Finding]:
    """Waits for what a step with another coordinate started or signalled."""
    open_: dict[Any, list[tuple[Entry, int]]] = defaultdict(list)
    reported: set[Any] = set()
    for entry in entries:
        if entry.kind == "start" and entry.copy.kind != "pipeline":
            for key, amount in (
                (entry.copy.source_semaphore, entry.copy.source_amount),
                (entry.copy.destination_semaphore, entry.copy.destination_amount),
            ):
                if key is not None and key.buffer.device == 0:
                    open_[key].append((entry, amount))
        elif entry.kind == "signal":
            open_[entry.semaphore].append((entry, entry.amount))
        elif entry.kind == "wait" and open_[entry.semaphore] and entry.decrement:
            other, _ = open_[entry.semaphore].pop(0)
            if _at(other, axes) != _at(entry, axes) and entry.site.location not in reported:
                reported.add(entry.site.location)
                message = (
                    f"grid step {_text(entry)} waits on {entry.semaphore} for what step "
                    f"{_text(other)} started, which differs "
                    "in a parallel dimension and may run on another core"
                )
                yield _finding(code, entry, message, other)
