"""Which rule a race breaks.

The sides of a race are a core's loads and stores and the two halves of copies. Who began first, whether the memory had
contents before, and on which device the other side runs decide between "read too early", "overwritten too early" and
"overrun by a neighbour".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from asyncops.checker.analysis import Analysis
from asyncops.checker.events import Access, Half, Point, Start
from asyncops.checker.order import Race, Use
from asyncops.checker.recording import SemaphoreKey


@dataclass(frozen=True)
class Conflict:
    """A race with its roles: ``offender`` is the side that comes too early, ``victim`` the copy it disturbs."""

    code: str
    offender: Use
    victim: Use
    race: Race


def conflicts_of(analysis: Analysis) -> dict[str, list[Conflict]]:
    """The races of a run by the rule they break."""
    found: dict[str, list[Conflict]] = defaultdict(list)
    for race in analysis.races:
        conflict = classify(analysis, race)
        if conflict is not None:
            found[conflict.code].append(conflict)
    return found


def is_pipeline(use: Use) -> bool:
    """True for a copy that the block pipeline makes."""
    return use.copy is not None and use.copy.kind == "pipeline"


def classify(analysis: Analysis, race: Race) -> Conflict | None:
    """The rule that a race breaks; None where another check decides (two copies of the block pipeline)."""
    first, second = race.first, race.second
    if is_pipeline(first) and is_pipeline(second):
        return None
    if first.copy is None and second.copy is None:
        return Conflict("AO207", second, first, race)
    if first.copy is None:
        return _with_core(analysis, race, first, second)
    if second.copy is None:
        return _with_core(analysis, race, second, first)
    return _two_copies(analysis, race, first, second)


def _with_core(analysis: Analysis, race: Race, core: Use, copy: Use) -> Conflict:
    remote = core.begin.core != copy.begin.core
    if not copy.write:
        return Conflict("AO202", core, copy, race)
    if remote and (core.write or _had_contents(analysis, core)):
        return Conflict("AO402", copy, core, race)
    return Conflict("AO203" if core.write else "AO201", core, copy, race)


def _two_copies(analysis: Analysis, race: Race, first: Use, second: Use) -> Conflict:
    foreign = _foreign(analysis, first), _foreign(analysis, second)
    if first.write and second.write:
        code = "AO402" if any(foreign) else "AO204"
        return Conflict(code, second, first, race)
    writer, reader = (first, second) if first.write else (second, first)
    if _foreign(analysis, writer) and _had_contents(analysis, reader):
        return Conflict("AO402", writer, reader, race)
    if writer is first or (_foreign(analysis, writer) and not _had_contents(analysis, reader)):
        return Conflict("AO201", reader, writer, race)
    return Conflict("AO202", writer, reader, race)


def _foreign(analysis: Analysis, use: Use) -> bool:
    """True when a copy started on one device uses memory of another."""
    return use.box.buffer.device != analysis.device(use.begin)  # type: ignore[attr-defined]


def _had_contents(analysis: Analysis, use: Use) -> bool:
    """True when the memory was written before the use: what the use means is not (only) what is still arriving."""
    for point, writer in writes_to(analysis, use.box):
        if point == use.begin or (point.core == use.begin.core and point.index >= use.begin.index):
            continue
        if analysis.order.before(writer, use.begin):
            return True
    role = use.box.buffer.role  # type: ignore[attr-defined]
    return role in ("operand", "scalar") or (role == "window" and use.box.buffer.path[3] == 0)  # type: ignore[attr-defined]


def writes_to(analysis: Analysis, box: object) -> Iterator[tuple[Point, Point]]:
    """(start, completion) of everything that writes a region."""
    for c, core in enumerate(analysis.program.cores):
        for i, event in enumerate(core.events):
            if isinstance(event, Access) and event.write and event.box.overlaps(box):  # type: ignore[arg-type]
                yield Point(c, i), Point(c, i)
            elif isinstance(event, Start) and _writes(event, box):
                yield Point(c, i), Point(c, i, Half.WRITE_DONE)


def _writes(start: Start, box: Any) -> bool:
    destination = start.copy.destination
    return destination is not None and destination.overlaps(box)


def guarding_wait(analysis: Analysis, conflict: Conflict) -> tuple[Point | None, bool]:
    """The wait that the offender's core did before it on the victim's semaphore, and whether it is the wrong one.

    Wrong: a wait that names the victim's region but another semaphore.
    """
    copy = conflict.victim.copy or conflict.offender.copy
    core = conflict.offender.begin if conflict.victim.copy is not None else conflict.victim.begin
    if copy is None:
        return None, False
    victim = conflict.victim if conflict.victim.copy is not None else conflict.offender
    key = copy.destination_semaphore if victim.write else copy.source_semaphore or copy.destination_semaphore
    for wait in analysis.waits_naming(victim.box, core.core):
        between = wait.core == victim.begin.core and victim.begin.index < wait.index < core.index
        if between and analysis.event(wait).semaphore != key and isinstance(key, SemaphoreKey):
            return wait, True
    return (analysis.last_wait_before(core, key), False) if key is not None else (None, False)
