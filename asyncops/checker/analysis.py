"""One concrete run of a program on all its devices, with what the rules ask about it.

An :class:`Analysis` holds the event program, its order, and the traces it was recorded from. Rules
(``rules/``) read facts
here and yield :class:`Finding` values; :mod:`.findings` turns those into diagnostics.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from asyncops.checker import events
from asyncops.checker.events import Copy, Half, Location, Mark, Point, Signal, Site, Start, Wait
from asyncops.checker.memory import Buffer
from asyncops.checker.order import Order, Race, Touch, Use, must_happen_before
from asyncops.checker.recording import Entry, Problem, SemaphoreKey, Trace, surely_overlap
from asyncops.checker.replay import Outcome, Scheduler, Search
from asyncops.checker.tables import same_entries
from stateful import terms

RACE_LIMIT = 400


@dataclass(frozen=True)
class Finding:
    """A defect as a rule sees it.

    ``subjects`` are the things it is about (source lines of copies, semaphores): findings that share one are one
    defect. ``evidence`` is what a witness has to reproduce: a race, a touch, a stuck wait, a leftover.
    """

    code: str
    message: str
    site: Site
    help: str
    related: tuple[tuple[str, Location], ...] = ()
    subjects: frozenset[Hashable] = frozenset()
    evidence: Any = None
    severity: str | None = None
    moment: int = 0


@dataclass(frozen=True)
class Stuck:
    """A wait that never returns, and what its semaphore gets in all."""

    point: Point
    wait: Wait
    entry: Entry
    supplied: int
    demanded: int

    @property
    def is_short(self) -> bool:
        """True when even everything ever signalled is not enough for all waits."""
        return self.supplied < self.demanded


class Analysis:
    """Facts about one event program."""

    def __init__(self, program: events.Program, traces: Sequence[Trace], devices: int, model: Any = None):
        self.program, self.traces, self.devices, self.model = program, traces, devices, model or {}
        self._overlaps: dict[int, Search] = {}

    @cached_property
    def order(self) -> Order:
        """Must-happen-before."""
        return must_happen_before(self.program)

    @cached_property
    def scheduler(self) -> Scheduler:
        """Searches for schedules of this program."""
        return Scheduler(self.program)

    @cached_property
    def outcome(self) -> Outcome:
        """What happens when every core runs as far as it can."""
        return self.scheduler.run_to_end()

    @cached_property
    def races(self) -> tuple[Race, ...]:
        """Races, a few for each pair of source lines."""
        return tuple(r for r in self._candidates if self._surely_meet(r))

    @cached_property
    def doubtful_races(self) -> tuple[Race, ...]:
        """Pairs of uses that would race if they share memory, which is not known."""
        return tuple(r for r in self._candidates if not self._surely_meet(r) and not _is_scattered(r))

    @cached_property
    def promises(self) -> tuple[str, ...]:
        """What is taken for granted of copies that scatter: different indices name different places."""
        found = (r for r in self._candidates if not self._surely_meet(r) and _is_scattered(r))
        what = "different indices of what is scattered name different places"
        return tuple(dict.fromkeys(f"{what} ({_places(r)})" for r in found))

    def _surely_meet(self, race: Race) -> bool:
        if not surely_overlap(race.first.box, race.second.box):
            return False
        first, second = self._region(race.first), self._region(race.second)
        if first is None or second is None:
            return True
        same = same_entries(first, second)
        return same is None or terms.substitute(same, self.model) is True

    def _region(self, use: Use) -> Any:
        """The region of a use as it was recorded, with symbols."""
        entry = self.entry(use.begin)
        if use.copy is None:
            return entry.region
        return entry.copy.destination if use.write else entry.copy.source

    @cached_property
    def _candidates(self) -> tuple[Race, ...]:
        return self.order.races(limit=RACE_LIMIT, per_place=6)

    @cached_property
    def touches(self) -> tuple[Touch, ...]:
        """Copies and signals outside the life of what they touch."""
        return self.order.touches()

    @cached_property
    def problems(self) -> list[Problem]:
        """Defects seen while running."""
        return [problem for trace in self.traces for problem, _ in trace.problems]

    @cached_property
    def stuck(self) -> list[Stuck]:
        """Waits that never return."""
        balances = self.order.balances()
        found = []
        for point in (stuck.point for stuck in self.outcome.stuck):
            wait = self.event(point)
            if not isinstance(wait, Wait):
                continue  # held at a barrier by a core that is stuck itself
            balance = balances.get(wait.semaphore)
            supplied = balance.initial + balance.signalled if balance else 0
            found.append(
                Stuck(point, wait, self.entry(point), supplied, balance.waited if balance else wait.amount)
            )
        return found

    def may_let_go(self, point: Point) -> tuple[tuple[str, Location], ...]:
        """The last wait for signals before a point, and where a signal comes from that can satisfy it."""
        for i in range(point.index - 1, -1, -1):
            wait = self.program.cores[point.core].events[i]
            feeds = self.feeds[wait.semaphore] if isinstance(wait, Wait) else []
            if feeds and isinstance(self.event(feeds[0]), Signal):
                break
        else:
            return ()
        try:
            feeders = self.order.feeders(Point(point.core, i))
        except ValueError:
            return ()
        last = max(feeders, key=lambda p: (p.index, p.core), default=None)
        if last is None:
            return ()
        site = self.event(Point(last.core, last.index)).site
        caller = site.stack[1] if len(site.stack) > 1 and site.stack[1].file == site.location.file else None
        return lines(
            ("this signal can satisfy the wait before it", site.location), ("called from here", caller),
            ("the wait before it", wait.site.location),
        )  # fmt: skip

    @cached_property
    def alone(self) -> Analysis:
        """The same run up to the end of its first kernel call: that call as if nothing came after it."""
        cores = []
        for core in self.program.cores:
            ends = [i for i, e in enumerate(core.events) if isinstance(e, Mark) and e.kind == "exit"]
            cores.append(
                dataclasses.replace(core, events=core.events[: ends[0] + 1] if ends else core.events)
            )
        barriers = tuple(b for b in self.program.barriers if all(i < len(cores[c].events) for c, i in b))
        program = dataclasses.replace(self.program, cores=tuple(cores), barriers=barriers)
        return Analysis(program, self.traces, self.devices, self.model)

    def overlap(self, race: Race) -> Search:
        """A schedule in which both sides of a race are going on, or that there is none."""
        if id(race) not in self._overlaps:
            self._overlaps[id(race)] = self.scheduler.overlap(race)
        return self._overlaps[id(race)]

    # -- looking up --

    def event(self, point: Point) -> Any:
        """The event at a point."""
        return self.program.cores[point.core].events[point.index]

    def entry(self, point: Point) -> Entry:
        """What was recorded for the event at a point."""
        return self.traces[point.core].entries[point.index]

    def device(self, point: Point) -> int:
        """The device a point's core belongs to."""
        return self.program.cores[point.core].device

    def where(self, point: Point) -> str:
        """ " on device 2", empty in a program of one device."""
        return f" on device {self.device(point)}" if self.devices > 1 else ""

    def when(self, site: Site) -> str:
        """ " at grid step 3", empty outside loops and grids."""
        moment = str(site.moment)
        return f" ({moment})" if moment else ""

    @cached_property
    def starts(self) -> list[tuple[Point, Copy]]:
        """Every copy with the point of its start."""
        return [(Point(c, i), copy) for c, i, copy in self.program.copies()]

    @cached_property
    def feeds(self) -> dict[Hashable, list[Point]]:
        """Per semaphore, the signals and starts of copies that count on it, in program order per core."""
        found: dict[Hashable, list[Point]] = defaultdict(list)
        for c, core in enumerate(self.program.cores):
            for i, event in enumerate(core.events):
                if isinstance(event, Signal):
                    found[event.semaphore].append(Point(c, i))
                elif isinstance(event, Start):
                    for key in {event.copy.source_semaphore, event.copy.destination_semaphore} - {None}:
                        found[key].append(Point(c, i))
        return found

    @cached_property
    def waits(self) -> dict[Hashable, list[Point]]:
        """Per semaphore, the waits on it."""
        found: dict[Hashable, list[Point]] = defaultdict(list)
        for c, core in enumerate(self.program.cores):
            for i, event in enumerate(core.events):
                if isinstance(event, Wait):
                    found[event.semaphore].append(Point(c, i))
        return found

    def waits_naming(self, box: Any, core: int) -> Iterator[Point]:
        """Waits of a core for copies whose descriptor names a region like ``box``."""
        for i, entry in enumerate(self.traces[core].entries):
            view = getattr(entry.op, "view", None) if entry.kind == "wait" else None
            if view is None or box is None or view.root is not box.buffer:
                continue
            if view.region == getattr(box, "region", None):
                yield Point(core, i)

    def last_wait_before(self, point: Point, semaphore: Hashable) -> Point | None:
        """The wait on a semaphore that comes last before ``point`` on the same core."""
        before = [w for w in self.waits[semaphore] if w.core == point.core and w.index < point.index]
        return before[-1] if before else None

    def is_known_complete(self, start: Point, half: Half, mark: Point) -> bool:
        """True when a copy's half is surely over at a mark."""
        return self.order.before(Point(start.core, start.index, half), mark)

    def marks(self, kind: str) -> Iterator[tuple[Point, Mark]]:
        """All marks of a kind."""
        for c, core in enumerate(self.program.cores):
            for i, event in enumerate(core.events):
                if isinstance(event, Mark) and event.kind == kind:
                    yield Point(c, i), event


def _is_scattered(race: Race) -> bool:
    """True where two copies write where their indices say: a caller keeps these apart, or leaves it to chance."""
    both = race.first, race.second
    return all(u.write and u.copy is not None and u.copy.indices and not u.box.exact for u in both)


def _places(race: Race) -> str:
    return " and ".join(dict.fromkeys(str(u.site.location) for u in (race.first, race.second)))


# -- words ------------------------------------------------------------------------------------------------------------


def name_of(thing: Any) -> str:
    """A box, semaphore or buffer in the user's terms."""
    region = getattr(thing, "region", None)
    if region is not None:
        return str(region)
    return str(thing)


def copy_text(copy: Copy) -> str:
    """ "the copy x[0] -> buf[1]"."""
    kind = "remote copy" if copy.kind == "remote" else "pipeline copy" if copy.kind == "pipeline" else "copy"
    return f"the {kind} {copy.name}" if copy.name else f"the {kind}"


def copy_subjects(copy: Copy) -> set[Hashable]:
    """What a finding about a copy is about: the line that starts it, and its semaphores' buffers."""
    subjects: set[Hashable] = {("line", copy.site.location)}
    for key in (copy.source_semaphore, copy.destination_semaphore):
        if isinstance(key, SemaphoreKey):
            subjects |= semaphore_subjects(key)
    return subjects


def semaphore_subjects(key: Hashable) -> set[Hashable]:
    """What a finding about a semaphore is about: the semaphore as the program names it, on whichever device."""
    return {("semaphore", key.buffer.path)} if isinstance(key, SemaphoreKey) else set()


def lines(*pairs: tuple[str, Location | None]) -> tuple[tuple[str, Location], ...]:
    """Related locations, without those that are not known, each line once."""
    seen: set[Any] = set()
    result = []
    for label, location in pairs:
        if location is not None and (location.file, location.line) not in seen:
            seen.add((location.file, location.line))
            result.append((label, location))
    return tuple(result)


__all__ = [
    "Analysis", "Buffer", "Finding", "Half", "Race", "Stuck", "Touch", "Use", "copy_subjects", "copy_text", "lines",
    "name_of", "semaphore_subjects",
]  # fmt: skip
