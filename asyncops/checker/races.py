"""Races: two uses of common memory, one of them a write, that nothing keeps apart.

A core's access is over at once; a copy uses its source until it has read it and its destination until it has written
it. The uses of one buffer are swept in an order that respects happens-before, so that only "is the earlier one over
before the later one begins" is left to ask. A use that is over for a core stays so: each is dropped once per core.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from asyncops.checker.clocks import Clock, Clocks
from asyncops.checker.completions import Completions, Witness
from asyncops.checker.events import Access, Box, Copy, Half, Point, Program, Site, Start


@dataclass(frozen=True, slots=True)
class Use:
    """One use of memory, from ``begin`` to ``end``: by a core (both are the access) or by a copy (start to half)."""

    begin: Point
    end: Point
    box: Box
    write: bool
    event: Access | Start

    @property
    def copy(self) -> Copy | None:
        """The copy that uses the memory; None for a core's access."""
        return self.event.copy if isinstance(self.event, Start) else None

    @property
    def site(self) -> Site:
        """Where the access or the start of the copy stands."""
        return self.event.site


@dataclass(frozen=True, slots=True)
class Race:
    """Two conflicting uses, neither over before the other begins. ``first`` begins first where that is decided."""

    first: Use
    second: Use

    @property
    def exact(self) -> bool:
        """Both regions are exactly what is touched."""
        return self.first.box.exact and self.second.box.exact


def uses_of(program: Program, core: int, position: int) -> list[Use]:
    """How the event uses memory (a copy's read and write both begin at its start)."""
    event, begin = program.cores[core].events[position], Point(core, position)
    if isinstance(event, Access):
        return [Use(begin, begin, event.box, event.write, event)]
    uses: list[Use] = []
    if isinstance(event, Start):
        read = Point(core, position, Half.READ_DONE)
        if event.copy.source is not None:
            uses.append(Use(begin, read, event.copy.source, False, event))
        if event.copy.destination is not None:
            uses.append(
                Use(begin, Point(core, position, Half.WRITE_DONE), event.copy.destination, True, event)
            )
        uses += [Use(begin, read, box, False, event) for box in event.copy.indices]
    return uses


@dataclass(slots=True, eq=False)
class _Entry:
    """A use as the sweep needs it. ``witnesses`` is None for a core's access."""

    rank: int
    core: int
    position: int
    part: int
    write: bool
    box: Box
    clock: Clock
    witnesses: list[Witness] | None
    shape: int = 0
    alike: Hashable = None

    def over_before(self, other: _Entry) -> bool:
        if self.witnesses is None:
            return self.core == other.core or other.clock[self.core] > self.position
        for core, position in self.witnesses:
            if other.clock[core] > position or (core == other.core and position <= other.position):
                return True
        return False


def find_races(clocks: Clocks, completions: Completions) -> Iterator[Race]:
    """All races, buffer by buffer, in an order that does not depend on hashing."""
    for entries in _by_buffer(clocks, completions).values():
        lonely = all(e.witnesses is None and e.core == entries[0].core for e in entries)
        if lonely or not any(entry.write for entry in entries):
            continue
        entries.sort(key=lambda e: (e.rank, e.core, e.position, e.part))
        for first, second in _sweep(entries):
            if _is_repeated(clocks, completions, first, second) or _is_repeated(
                clocks, completions, second, first
            ):
                continue
            yield Race(_use(clocks.program, first), _use(clocks.program, second))


def _is_repeated(clocks: Clocks, completions: Completions, write: _Entry, read: _Entry) -> bool:
    """True where a write repeats what the reader's core has written itself, by then, with the same event."""
    if not write.write or read.write or write.alike is None or write.core == read.core:
        return False
    events = clocks.program.cores[read.core].events
    twin = events[write.position] if write.position < len(events) else None
    if isinstance(twin, Access):
        return twin.alike == write.alike and write.position < read.position
    if not isinstance(twin, Start) or twin.copy.alike != write.alike:
        return False
    written = completions.halves.get((read.core, write.position))
    return written is not None and completions.done_before(written[1].witnesses, read.core, read.position)


def _use(program: Program, entry: _Entry) -> Use:
    return uses_of(program, entry.core, entry.position)[entry.part]


def _by_buffer(clocks: Clocks, completions: Completions) -> dict[Hashable, list[_Entry]]:
    found: dict[Hashable, list[_Entry]] = defaultdict(list)
    for core, events in enumerate(c.events for c in clocks.program.cores):
        clock, known, sync = clocks.nothing, 0, 0
        positions, rows = clocks.index.positions[core], clocks.rows[core]
        for position in range(clocks.reach[core]):
            while sync < len(positions) and positions[sync] <= position:
                clock, known = rows[sync], sum(rows[sync])
                sync += 1
            event = events[position]
            # How many events come before: grows along every order, so sorting by it respects them all.
            rank = known + position
            if isinstance(event, Access):
                box = event.box
                entry = _Entry(rank, core, position, 0, event.write, box, clock, None)
                entry.alike = event.alike
                found[box.buffer].append(entry)
            elif isinstance(event, Start):
                halves = completions.halves[core, position]
                copy = event.copy
                boxes = [(copy.source, halves[0]), (copy.destination, halves[1])]
                boxes += [(box, halves[0]) for box in copy.indices]
                for part, (box, half) in enumerate(pair for pair in boxes if pair[0] is not None):
                    assert box is not None
                    write = half.half is Half.WRITE_DONE
                    entry = _Entry(rank, core, position, part, write, box, clock, half.witnesses)
                    entry.alike = copy.alike if write else None
                    found[box.buffer].append(entry)
    return found


def _sweep(entries: list[_Entry]) -> Iterator[tuple[_Entry, _Entry]]:
    neighbours = _number_shapes(entries)
    visitors = sorted({entry.core for entry in entries})
    live: dict[tuple[int, bool], dict[int, list[_Entry]]] = {
        (core, write): {} for core in visitors for write in (False, True)
    }
    for entry in entries:
        for write in (True, False) if entry.write else (True,):
            yield from ((other, entry) for other in _still_open(live[entry.core, write], entry, neighbours))
        for core in visitors:
            if entry.witnesses is not None or core != entry.core:
                live[core, entry.write].setdefault(entry.shape, []).append(entry)


def _still_open(live: dict[int, list[_Entry]], entry: _Entry, neighbours: list[set[int]]) -> list[_Entry]:
    """Live uses that overlap the entry's; those found to be over are dropped from ``live``."""
    if not live:
        return []
    near = neighbours[entry.shape]
    few, many = (near, live) if len(near) < len(live) else (live, near)
    found: list[_Entry] = []
    for shape in [shape for shape in few if shape in many]:
        remaining = [other for other in live[shape] if not other.over_before(entry)]
        if remaining:
            live[shape] = remaining
            found += remaining
        else:
            del live[shape]
    return [
        o
        for o in found
        if (o.core, o.position) != (entry.core, entry.position)
        and (entry.alike is None or o.alike != entry.alike)
    ]


def _number_shapes(entries: list[_Entry]) -> list[set[int]]:
    """Number the distinct boxes; for each the numbers of those that overlap it."""
    numbers: dict[Hashable, int] = {}
    boxes: list[Box] = []
    for entry in entries:
        # Boxes that are supersets may have the same extents and yet lie apart.
        entry.shape = numbers.setdefault(entry.box.dims if entry.box.exact else entry.box, len(numbers))
        if entry.shape == len(boxes):
            boxes.append(entry.box)
    neighbours: list[set[int]] = [set() for _ in boxes]
    for a, b in _close_pairs(boxes):
        if boxes[a].overlaps(boxes[b]):
            neighbours[a].add(b)
            neighbours[b].add(a)
    return neighbours


def _close_pairs(boxes: list[Box]) -> Iterator[tuple[int, int]]:
    """Pairs (a box with itself, too) whose extents meet along the dimension that tells most boxes apart.

    Boxes of different rank see the buffer in different shapes: any two of them may meet.
    """
    by_rank: dict[int, list[int]] = defaultdict(list)
    for number, box in enumerate(boxes):
        by_rank[len(box.dims)].append(number)
    groups = list(by_rank.values())
    for n, group in enumerate(groups):
        yield from _meeting(boxes, group)
        yield from ((a, b) for a in group for other in groups[:n] for b in other)


def _meeting(boxes: list[Box], group: list[int]) -> Iterator[tuple[int, int]]:
    axes = range(len(boxes[group[0]].dims))
    axis = max(axes, key=lambda d: len({boxes[n].dims[d][0] for n in group}), default=None)
    if axis is None:
        yield from ((a, b) for a in group for b in group if b <= a)
        return
    extents = ((n, *boxes[n].dims[axis]) for n in group)
    active: list[tuple[int, int]] = []
    for low, high, number in sorted((s, s + (size - 1) * step, n) for n, s, size, step in extents):
        if high >= low:
            active = [(end, other) for end, other in active if end >= low]
            active.append((high, number))
            yield from ((number, other) for _, other in active)
