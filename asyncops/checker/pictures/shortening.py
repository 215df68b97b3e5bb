"""Timelines cut to what fits on a page: some columns are kept, a run of others becomes one; so with cores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from asyncops.checker.pictures.tracks import CoreTrack, Deed, Flight, Level, SemaphoreTrack, Tracks

_FIRST = 2


def shortened(tracks: Tracks, columns: int, cores: int) -> Tracks:
    """At most about ``columns``: those of the defect and the ones before it, else the first ones; so many ``cores``.

    Cores that only enter the kernel and semaphores that nothing happens to are left out as well.
    """
    return _with_fewer_cores(_with_fewer_columns(tracks, columns), cores)


def _with_fewer_cores(tracks: Tracks, most: int) -> Tracks:
    busy = [core for core in tracks.cores if any(deed.kind != "mark" or deed.accused for deed in core.deeds)]
    ranked = sorted(busy or tracks.cores, key=lambda core: not _is_accused(core))[:most]
    shown = [core for core in tracks.cores if core in ranked]
    cores = tuple(replace(c, semaphores=tuple(s for s in c.semaphores if _matters(s))) for c in shown)
    return replace(tracks, cores=cores, hidden=tracks.hidden + len(tracks.cores) - len(shown))


def _is_accused(core: CoreTrack) -> bool:
    return any(thing.accused for thing in (*core.deeds, *core.flights))


def _matters(track: SemaphoreTrack) -> bool:
    return track.is_lacking or any(level.count != track.levels[0].count for level in track.levels)


def _with_fewer_columns(tracks: Tracks, most: int) -> Tracks:
    if tracks.columns <= most:
        return tracks
    kept = _kept(tracks, most)
    starts, columns = _new_columns(kept, tracks.columns)

    def moved(at: float) -> float:
        column = min(int(at), tracks.columns - 1)
        return starts[column] + (at - column if column in kept else 0.5)

    cores = tuple(_core(core, kept, starts, moved) for core in tracks.cores)
    return replace(tracks, cores=cores, columns=columns)


def _kept(tracks: Tracks, most: int) -> set[int]:
    """The columns to keep."""
    last = tracks.columns - 1
    if not tracks.clash:
        return {*range(most - _FIRST), *range(last - _FIRST + 1, last + 1)}
    accused = [d.column for c in tracks.cores for d in c.deeds if d.accused]
    wanted = [last, *sorted(accused, reverse=True), *range(_FIRST), *range(last - 1, -1, -1)]
    return set(list(dict.fromkeys(wanted))[:most])


def _new_columns(kept: set[int], columns: int) -> tuple[list[int], int]:
    """Where each column begins now (those of one gap alike), and how many columns there are."""
    starts: list[int] = []
    at = -1
    for column in range(columns):
        in_gap = column not in kept and column > 0 and column - 1 not in kept
        at += not in_gap
        starts.append(at)
    return starts, at + 1


def _core(
    core: CoreTrack, kept: set[int], starts: Sequence[int], moved: Callable[[float], float]
) -> CoreTrack:
    flights = tuple(_flights(core.flights, kept, moved))
    semaphores = tuple(_semaphore(s, moved) for s in core.semaphores)
    return replace(
        core, deeds=tuple(_deeds(core.deeds, kept, starts)), flights=flights, semaphores=semaphores
    )


def _deeds(deeds: Sequence[Deed], kept: set[int], starts: Sequence[int]) -> Iterator[Deed]:
    skipped: dict[int, int] = {}
    for deed in deeds:
        column = starts[deed.column]
        if deed.column in kept:
            for gap, times in skipped.items():
                yield _gap(gap, times)
            skipped.clear()
            yield replace(deed, column=column)
        else:
            skipped[column] = skipped.get(column, 0) + deed.times
    for gap, times in skipped.items():
        yield _gap(gap, times)


def _gap(column: int, times: int) -> Deed:
    return Deed(column, "skipped", f"{times} event{'s' * (times != 1)}", times=times)


def _flights(flights: Sequence[Flight], kept: set[int], moved: Callable[[float], float]) -> Iterator[Flight]:
    """Without those that begin and end inside a gap."""
    for flight in flights:
        begin, end = moved(flight.begin), None if flight.end is None else moved(flight.end)
        if end is not None and end <= begin and int(flight.begin) not in kept:
            continue
        read = None if flight.read is None else moved(flight.read)
        yield replace(flight, begin=begin, read=read, end=end)


def _semaphore(track: SemaphoreTrack, moved: Callable[[float], float]) -> SemaphoreTrack:
    """Of the counts at one moment only the last."""
    levels = [Level(moved(level.at), level.count) for level in track.levels]
    last = [a for a, b in pairwise([*levels, None]) if b is None or (a is not None and b.at > a.at)]
    return replace(track, levels=tuple(level for level in last if level is not None))
