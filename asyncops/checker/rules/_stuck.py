"""Waits that never return, and why."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from asyncops.checker.analysis import Analysis, Stuck, semaphore_subjects
from asyncops.checker.events import Copy, Point, Start
from asyncops.checker.recording import SemaphoreKey
from stateful.types import SemaphoreKind


class Cause(enum.Enum):
    """Why a wait never returns."""

    OTHER_SEMAPHORE = "its copy signals another semaphore"
    NEVER_STARTED = "no copy on this path signals it"
    TAKEN = "an earlier wait took the count"
    WRONG_SIZE = "it asks for more than the copies count"
    DEADLOCK = "signals are missing, or come from cores that wait"


@dataclass(frozen=True)
class StuckWait(Stuck):
    """A stuck wait with the copy that was meant, where one is found on another semaphore."""

    copy: Copy | None = None


def stuck_waits(analysis: Analysis, cause: Cause) -> Iterator[StuckWait]:
    """The roots among the stuck waits (those whose semaphore gets too little), with this cause; one per line."""
    roots = [s for s in analysis.stuck if s.is_short] or analysis.stuck
    seen: set[Any] = set()
    for stuck in roots:
        place = (stuck.wait.site.location, frozenset(semaphore_subjects(stuck.wait.semaphore)))
        if place in seen:
            continue
        found, copy = cause_of(analysis, stuck)
        if found is cause:
            seen.add(place)
            yield StuckWait(stuck.point, stuck.wait, stuck.entry, stuck.supplied, stuck.demanded, copy)


def cause_of(analysis: Analysis, stuck: Stuck) -> tuple[Cause, Copy | None]:
    """Why one wait never returns."""
    key = stuck.wait.semaphore
    if not stuck.is_short or not _is_dma(key):
        return Cause.DEADLOCK, None
    other = _meant_copy(analysis, stuck)
    if other is not None:
        return Cause.OTHER_SEMAPHORE, other
    feeds = feeds_before(analysis, stuck)
    if not feeds:
        return Cause.NEVER_STARTED, None
    amounts = [_amount(analysis.event(p), key) for p in feeds]
    if stuck.wait.amount > stuck.supplied or all(stuck.wait.amount % a for a in amounts if a):
        return Cause.WRONG_SIZE, None
    return Cause.TAKEN, None


def feeds_before(analysis: Analysis, stuck: Stuck) -> list[Point]:
    """What signals the semaphore of a stuck wait and does not come after that wait on its own core."""
    at = stuck.point
    return [p for p in analysis.feeds[stuck.wait.semaphore] if p.core != at.core or p.index < at.index]


def _is_dma(key: Any) -> bool:
    return isinstance(key, SemaphoreKey) and key.buffer.type.semaphore is SemaphoreKind.DMA


def _amount(event: Any, key: Any) -> int:
    if not isinstance(event, Start):
        return int(event.amount)
    copy = event.copy
    return copy.destination_amount if copy.destination_semaphore == key else copy.source_amount


def _meant_copy(analysis: Analysis, stuck: Stuck) -> Copy | None:
    """A copy to the region the wait's descriptor names that signals another semaphore and is never waited for."""
    view = getattr(stuck.entry.op, "view", None)
    if view is None:
        return None
    for point, copy in analysis.starts:
        if point.core != stuck.point.core or copy.destination_semaphore == stuck.wait.semaphore:
            continue
        box = copy.destination
        if box is not None and box.buffer is view.root and getattr(box, "region", None) == view.region:
            signalled = copy.destination_semaphore
            if not [w for w in analysis.waits[signalled] if w.core == point.core and w.index > point.index]:
                return copy
    return None
