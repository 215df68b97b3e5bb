"""Tracks in the Trace Event Format, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

A device is a process; a core, and each row of its copies, a thread; a semaphore a counter. A column is a millisecond:
times are logical (https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from asyncops.checker.pictures.tracks import CoreTrack, Deed, Flight, SemaphoreTrack, Tracks

COLUMN = 1000  # microseconds, the format's unit
_BAD, _COPY = "terrible", "rail_response"


def trace_of(tracks: Tracks) -> dict[str, Any]:
    """The trace as a JSON value."""
    events: list[dict[str, Any]] = []
    named: set[int] = set()
    thread = 0
    for core in tracks.cores:
        if core.device not in named:
            named.add(core.device)
            events.append(_metadata("process_name", core.device, 0, f"device {core.device}"))
        thread += 1
        events += _core(core, thread, tracks)
        if tracks.clash and any(deed.accused for deed in core.deeds):
            events.append(_clash(tracks, core.device, thread))
        thread += len(tracks.rows(core.flights))
    about = {"caption": tracks.caption, "times": "logical: one millisecond is one step"}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}


def _core(core: CoreTrack, thread: int, tracks: Tracks) -> Iterator[dict[str, Any]]:
    yield _metadata("thread_name", core.device, thread, core.name)
    for deed in core.deeds:
        yield _deed(deed, core.device, thread)
    for number, flights in enumerate(tracks.rows(core.flights), thread + 1):
        yield _metadata("thread_name", core.device, number, f"{core.name}: copies in flight")
        for flight in flights:
            yield from _flight(flight, core.device, thread, number, tracks.end(flight))
    for semaphore in core.semaphores:
        yield from _counter(semaphore, core.device)


def _deed(deed: Deed, process: int, thread: int) -> dict[str, Any]:
    name = f"{deed.verb} {deed.what}".strip()
    told = {"line": deed.line, "moment": deed.moment, "times": deed.times}
    colour = {"cname": _BAD} if deed.accused else {}
    return _slice(name, deed.kind, process, thread, deed.column, deed.column + 1, told) | colour


def _flight(flight: Flight, process: int, core: int, thread: int, end: float) -> Iterator[dict[str, Any]]:
    """The copy, and an arrow to it from where the core starts it."""
    told = {"line": flight.line, "moment": flight.moment, "complete": flight.end is not None}
    colour = {"cname": _BAD if flight.accused else _COPY}
    yield _slice(flight.name, "copy", process, thread, flight.begin, end, told) | colour
    at = _time(flight.begin)
    # Perfetto takes numbers alone as the identity of an arrow.
    arrow = {"name": "starts", "cat": "copy", "id": thread * 10**9 + at, "pid": process}
    yield {**arrow, "ph": "s", "tid": core, "ts": at}
    yield {**arrow, "ph": "f", "bp": "e", "tid": thread, "ts": at}


def _counter(semaphore: SemaphoreTrack, process: int) -> Iterator[dict[str, Any]]:
    for level in semaphore.levels:
        count = {"count": level.count}
        yield {
            "name": semaphore.name,
            "ph": "C",
            "pid": process,
            "tid": 0,
            "ts": _time(level.at),
            "args": count,
        }


def _clash(tracks: Tracks, process: int, thread: int) -> dict[str, Any]:
    """The defect, as an instant on a core that has to do with it."""
    at = _time(tracks.columns - 0.5)
    event = {"name": tracks.caption, "cat": "finding", "ph": "i", "s": "t", "ts": at, "cname": _BAD}
    return {**event, "pid": process, "tid": thread}


def _slice(
    name: str, kind: str, process: int, thread: int, begin: float, end: float, told: dict[str, Any]
) -> dict[str, Any]:
    times = {"ts": _time(begin), "dur": max(1, _time(end) - _time(begin))}
    return {"name": name, "cat": kind, "ph": "X", "pid": process, "tid": thread, **times, "args": told}


def _metadata(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def _time(at: float) -> int:
    return round(at * COLUMN)
