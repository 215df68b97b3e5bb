"""What a timeline shows, as plain data: it can be cut, drawn, exported, pickled and kept as JSON.

Time is a row of columns. A core does one thing in a column; column ``c`` reaches from ``c`` to ``c + 1``. Columns are
logical: what causes something stands in an earlier column; how long anything really takes is not known.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deed:
    """What a core does in one column.

    ``kind``: "read", "write", "start", "signal", "wait", "mark" (enter and exit), or "skipped" (``times`` events that
    are not shown). ``times``: how many alike events it stands for. ``accused``: it is part of the defect.
    """

    column: int
    kind: str
    verb: str
    what: str = ""
    line: str = ""
    moment: str = ""
    times: int = 1
    accused: bool = False


@dataclass(frozen=True, slots=True)
class Flight:
    """A copy under way: when it starts, has read its source (None: not known), and has written (None: still under way
    at the end)."""

    name: str
    line: str
    moment: str
    begin: float
    read: float | None
    end: float | None
    accused: bool = False


@dataclass(frozen=True, slots=True)
class Level:
    """A semaphore's count from ``at`` on."""

    at: float
    count: int


@dataclass(frozen=True, slots=True)
class SemaphoreTrack:
    """A semaphore and its counts, the earliest first. ``is_lacking``: somebody waits on it for ever."""

    name: str
    levels: tuple[Level, ...]
    is_lacking: bool = False


@dataclass(frozen=True, slots=True)
class CoreTrack:
    """A core, the copies that it starts, and the semaphores that it waits on."""

    name: str
    device: int
    deeds: tuple[Deed, ...]
    flights: tuple[Flight, ...] = ()
    semaphores: tuple[SemaphoreTrack, ...] = ()


@dataclass(frozen=True, slots=True)
class Tracks:
    """A whole timeline: ``columns`` long. ``clash``: its last column is where the defect shows.

    ``hidden``: cores that had nothing to do with it and were left out.
    """

    caption: str
    columns: int
    cores: tuple[CoreTrack, ...]
    clash: bool = False
    hidden: int = 0

    def end(self, flight: Flight) -> float:
        """Until when a copy is under way, the end of the timeline at most."""
        return self.columns if flight.end is None else flight.end

    def rows(self, flights: Iterable[Flight]) -> list[list[Flight]]:
        """The copies in rows; in a row, none is under way together with another."""
        rows: list[list[Flight]] = []
        for flight in sorted(flights, key=lambda f: f.begin):
            row = next((r for r in rows if self.end(r[-1]) <= flight.begin), None)
            if row is None:
                rows.append(row := [])
            row.append(flight)
        return rows
