"""Cores that never speak to each other: one run for all of them, and what they touch of the memory they share.

Where no core of a kernel signals, writes to or waits for another, each can be followed alone, with its index along the
mesh a symbol; one run to the fixpoint stands for every core and every trip count. What is left to see is whether two
cores touch common memory. So each use of shared memory is noted with the conditions it happens under, and compared
between cores: by the ranges it may lie in and by its remainder modulo the strides it moves by. Uses that are told apart
by neither are looked at step by step, on the two cores in question.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from asyncops.checker.events import Location, Site
from asyncops.checker.memory import Buffer
from asyncops.checker.recording import Entry
from asyncops.checker.tracking import Tracker
from stateful import terms
from stateful.terms import Atom, Conditions, Linear, Term
from stateful.types import Region, View


@dataclass(frozen=True, slots=True)
class Footprint:
    """One use of memory that the cores of a kernel call share, and the conditions on a path that leads to it."""

    call: Any
    region: Region
    write: bool
    conditions: Conditions
    location: Location | None


@dataclass(frozen=True, slots=True)
class Meeting:
    """Two cores (by their number among those of the kernel) that may touch common memory, and where."""

    cores: tuple[int, int]
    places: tuple[Location | None, Location | None]


class FootprintTracker(Tracker):
    """Also notes what is touched of shared memory inside kernels over meshes of cores."""

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self.footprints: dict[Any, Footprint] = {}
        self.is_noting = True

    def checkpoint(self) -> Callable[[], None]:
        """As for the tracker; a run on trial notes nothing."""
        back, was_noting = super().checkpoint(), self.is_noting
        self.is_noting = False

        def resume() -> None:
            back()
            self.is_noting = was_noting

        return resume

    def _note(self, state: Any, region: Region | None, write: bool, site: Site) -> None:
        call = state.call
        if region is None or call is None or call.station is None or not self.is_noting:
            return
        buffer: Buffer = region.root  # type: ignore[assignment]
        if buffer.core is None and not buffer.is_semaphore:
            key = (call.number, region, write, state.path.key())
            self.footprints.setdefault(key, Footprint(call, region, write, state.path, site.location))

    def access(self, state: Any, view: View, write: bool, site: Site, is_program: bool) -> None:
        """A load or store by the core."""
        self._note(state, view.region, write, site)
        super().access(state, view, write, site, is_program)

    def _launch(self, state: Any, draft: Any, entry: Entry, site: Site) -> None:
        for read in (draft.source, *draft.indices):
            self._note(state, read, False, site)
        self._note(state, draft.destination, True, site)
        super()._launch(state, draft, entry, site)


@dataclass(frozen=True, slots=True)
class _Extent:
    """Where a use lies along each dimension on one core: ``(first, last, modulus, remainder, length)``.

    The start is ``remainder`` modulo ``modulus`` (0: nothing is known), and ``length`` elements are touched from there.
    """

    dims: tuple[tuple[int, int, int, int, int], ...]

    def may_meet(self, other: _Extent) -> bool:
        """False where one dimension keeps the two apart."""
        return all(map(_along, self.dims, other.dims)) if len(self.dims) == len(other.dims) else True


def _along(a: tuple[int, int, int, int, int], b: tuple[int, int, int, int, int]) -> bool:
    (first, last, modulus, start, length), (first2, last2, modulus2, start2, length2) = a, b
    if last < first2 or last2 < first:
        return False
    common = math.gcd(modulus, modulus2)
    if common and length + length2 <= common:
        gap = (start2 - start) % common
        return gap < length or common - gap < length2
    return True


def meetings(footprints: Sequence[Footprint]) -> list[Meeting]:
    """Pairs of cores that may touch common memory, at least one of them writing; one for each pair of places."""
    found: dict[Any, Meeting] = {}
    groups: dict[Any, list[Footprint]] = defaultdict(list)
    for footprint in footprints:
        groups[footprint.call.number, footprint.region.root].append(footprint)
    for group in groups.values():
        if any(f.write for f in group):
            for meeting in _meetings_in(group):
                found.setdefault(meeting.places, meeting)
    return list(found.values())


@dataclass(frozen=True, slots=True)
class _Use:
    """A footprint on one core. ``told``: the core's index along the axes that its program asks for."""

    footprint: Footprint
    core: int
    told: tuple[int, ...]
    extent: _Extent

    def is_repeated_by(self, other: _Use) -> bool:
        """Two cores that are not told apart write the same."""
        mine, theirs = self.footprint, other.footprint
        same = mine.location == theirs.location and mine.region == theirs.region
        return same and mine.write and theirs.write and self.told == other.told


def _meetings_in(group: list[Footprint]) -> Iterator[Meeting]:
    uses = [use for footprint in group for use in _uses(footprint)]
    for x, y in itertools.combinations(uses, 2):
        f, g = x.footprint, y.footprint
        if x.core == y.core or not (f.write or g.write) or not x.extent.may_meet(y.extent):
            continue
        if not x.is_repeated_by(y):
            yield Meeting((x.core, y.core), (f.location, g.location))


def _uses(footprint: Footprint) -> Iterator[_Use]:
    """The footprint on each core that its station may be."""
    station = footprint.call.station
    choices = (range(size) if isinstance(i, Linear) else (i,) for _, i, size in station.axes)
    sizes = [size for _, _, size in station.axes]
    for index in itertools.product(*choices):
        extent = _extent(footprint, index)
        if extent is not None:
            told = tuple(index[d] for d in station.asked)
            yield _Use(footprint, int(np.ravel_multi_index(index, sizes)), told, extent)


def _extent(footprint: Footprint, index: tuple[int, ...]) -> _Extent | None:
    """Where a use lies on the core with this index; None where that core never comes to it."""
    values: dict[Atom, Term] = {}
    for (_, symbol, _), i in zip(footprint.call.station.axes, index):
        if isinstance(symbol, Linear):
            values[symbol.parts[0][0]] = i
    conditions = footprint.conditions
    if any(values.keys() & terms.symbols(fact) for fact in conditions.facts()):
        narrowed = conditions.substituted(values)
        if narrowed is None:
            return None
        conditions = narrowed
    dims = []
    for (start, size, step), extent in zip(footprint.region.ranges, footprint.region.system):
        dims.append(
            _dim(terms.substitute(start, values), terms.substitute(size, values), step, extent, conditions)
        )
    return _Extent(tuple(dims))


def _dim(
    start: Term, size: Term, step: int, extent: int, conditions: Conditions
) -> tuple[int, int, int, int, int]:
    last = terms.add(start, terms.scale(terms.sub(size, 1), step))
    low, high = conditions.range(start)[0], conditions.range(last)[1]
    bounds = (0 if low is None else low, extent - 1 if high is None else high)
    most = conditions.range(size)[1]
    length = extent if most is None else (most - 1) * step + 1
    if type(start) is int:
        return *bounds, 0, start, length
    assert isinstance(start, Linear)
    modulus = math.gcd(*(c for _, c in start.parts))
    return *bounds, modulus, start.constant % modulus, length
