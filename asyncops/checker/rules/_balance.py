"""Counts that are left on semaphores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from asyncops.checker.analysis import Analysis
from asyncops.checker.events import Point, Site, Start
from asyncops.checker.recording import SemaphoreKey
from stateful.types import SemaphoreKind


@dataclass(frozen=True)
class Leftover:
    """A semaphore that ends with a count. ``site``: the last thing that signalled it."""

    semaphore: SemaphoreKey
    left: int
    signalled: int
    waited: int
    site: Site
    end: str
    end_location: Any
    where: str
    mark: Point | None

    @property
    def is_bytes(self) -> bool:
        """True for DMA semaphores."""
        return self.semaphore.buffer.type.semaphore is SemaphoreKind.DMA


@dataclass(frozen=True)
class Rest:
    """A wait that takes less than the copies on its semaphore count."""

    wait: Point
    start: Site
    signalled: int
    waited: int
    leftover: Leftover


def leftovers(analysis: Analysis) -> Iterator[Leftover]:
    """Semaphores that can be nonzero at the end of their life; nothing where a core is stuck before it."""
    if analysis.stuck:
        return
    for kind, end in (("exit", "the kernel ends"), ("free", "its scope ends")):
        for point, mark in analysis.marks(kind):
            if not mark.semaphores:
                continue
            for semaphore, balance in analysis.order.balances_at(point).items():
                if balance.left > 0 and semaphore.buffer.role != "pipeline":  # type: ignore[attr-defined]
                    yield _leftover(analysis, semaphore, balance, end, mark.site.location, point)
    for semaphore, balance in analysis.order.balances().items():
        if isinstance(semaphore, SemaphoreKey) and semaphore.buffer.role == "barrier" and balance.left > 0:
            yield _leftover(analysis, semaphore, balance, "the program ends", None, None)


def _leftover(
    analysis: Analysis, semaphore: Any, balance: Any, end: str, location: Any, mark: Any
) -> Leftover:
    feeds = analysis.feeds[semaphore]
    site = analysis.event(feeds[-1]).site if feeds else Site()
    where = f" on device {semaphore.buffer.device}" if analysis.devices > 1 else ""
    return Leftover(
        semaphore,
        balance.left,
        balance.initial + balance.signalled,
        balance.waited,
        site,
        end,
        location,
        where,
        mark,
    )


def unbalanced(analysis: Analysis) -> Iterator[Rest]:
    """Waits of a size that no copy on their semaphore has, where a rest stays."""
    seen: set[Any] = set()
    for rest in leftovers(analysis):
        if not rest.is_bytes:
            continue
        amounts, start = set(), None
        for p in analysis.feeds[rest.semaphore]:
            event = analysis.event(p)
            if isinstance(event, Start):
                start = start or event.site
                copy = event.copy
                same = copy.destination_semaphore == rest.semaphore
                amounts.add(copy.destination_amount if same else copy.source_amount)
        for wait in analysis.waits[rest.semaphore]:
            amount = analysis.event(wait).amount
            place = analysis.event(wait).site.location
            smaller = amounts and all(amount < a for a in amounts)
            combined = len(analysis.waits[rest.semaphore]) < len(analysis.feeds[rest.semaphore])
            if (
                start is not None
                and place not in seen
                and (smaller or (combined and _is_lonely(analysis, rest)))
            ):
                seen.add(place)
                yield Rest(wait, start, rest.signalled, rest.waited, rest)


def _is_lonely(analysis: Analysis, rest: Leftover) -> bool:
    """True when a single wait follows all of several copies: it was meant for all of them."""
    waits, feeds = analysis.waits[rest.semaphore], analysis.feeds[rest.semaphore]
    return len(waits) == 1 and len(feeds) > 1 and all(_key(f) < _key(waits[0]) for f in feeds)


def _key(point: Point) -> tuple[int, int]:
    return point.core, point.index
