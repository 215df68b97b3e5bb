"""From the steps of a run to tracks: in which column each event stands, and how long each copy is under way.

An event stands right after what it needs: the event before it on its core, what a wait takes, all that a barrier
gathers. A copy is drawn until the first wait that takes its count: it may take that long.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from asyncops.checker.events import Access, Copy, Event, Half, Mark, Point, Program, Signal, Start, Wait
from asyncops.checker.machine import Advance, Machine, Move, Step, half_of
from asyncops.checker.naming import Names
from asyncops.checker.outcomes import Claim, Outside, Overlap, Stuck, outcome_of
from asyncops.checker.pictures.tracks import CoreTrack, Deed, Flight, Level, SemaphoreTrack, Tracks

_NOT_DRAWN = ("allocate", "free")


def lay_out(program: Program, steps: Sequence[Step], claim: Claim | None, caption: str) -> Tracks:
    """The tracks of a run. ``claim``: what is wrong at its end, to be marked; None: nothing."""
    layout = _Layout(program, claim)
    for step in steps:
        layout.take(step)
    layout.show_claim()
    return layout.tracks(caption)


@dataclass(slots=True)
class _Flying:
    """A copy of the layout: the columns of its halves, once they are known."""

    copy: Copy
    begin: int
    core: int
    done: dict[Half, int] = field(default_factory=dict[Half, int])  # half -> number of its completion
    until: dict[Half, float] = field(default_factory=dict[Half, float])


class _Layout:
    def __init__(self, program: Program, claim: Claim | None) -> None:
        self.program, self.claim, self.names = program, claim, Names(program)
        self.machine = Machine(program)
        self.accused = set(_accused(claim))
        self.deeds: list[list[Deed]] = [[] for _ in program.cores]
        self.free = [0] * len(program.cores)  # the next free column of each core
        self.column: dict[tuple[int, int], int] = {}
        self.flights: dict[tuple[int, int], _Flying] = {}
        self.ready: defaultdict[Hashable, int] = defaultdict(
            int
        )  # per semaphore: no wait for it stands earlier
        self.changes: defaultdict[Hashable, list[tuple[float, int]]] = defaultdict(list)
        self.unclaimed: defaultdict[Hashable, list[tuple[_Flying, Half, int]]] = defaultdict(list)
        self.waiters: dict[Hashable, int] = {}
        self.lacking: set[Hashable] = set()
        self.gates: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for number, points in enumerate(program.barriers):
            for core, index in points:
                self.gates[core, index + 1].append(number)

    def take(self, step: Step) -> None:
        """Puts what a step does into columns."""
        if isinstance(step, Advance):
            for index in range(self.machine.at[step.core], step.stop):
                self.machine.advance(step.core)
                self._place(step.core, index)
        elif isinstance(step, Move):
            self._move(step)
        else:
            for start in list(self.machine.flying):
                for half in Half:
                    point = Point(start.core, start.index, half)
                    if point not in self.machine.done:
                        amount = half_of(self.machine.flying[start], half)[1]
                        self._move(Move(point, amount, True))

    def _move(self, step: Move) -> None:
        flying = self.flights[step.half.core, step.half.index]
        semaphore, _ = half_of(flying.copy, step.half.half)
        before = self.machine.moved.get(step.half, 0)
        self.machine.move(step)
        half = step.half.half or Half.WRITE_DONE
        if semaphore is not None:
            self.ready[semaphore] = max(self.ready[semaphore], flying.begin + 1)
        if step.done:
            flying.done[half] = len(flying.done)
        if semaphore is None or not step.count:
            return
        if step.done:
            self.unclaimed[semaphore].append((flying, half, step.count - before))
        else:
            self.changes[semaphore].append((flying.begin + 0.75, step.count - before))

    def _place(self, core: int, index: int) -> None:
        """The event's column, and what follows from it."""
        event = self.program.cores[core].events[index]
        column = max(
            self.free[core], *(self.ready[s] for s in _needed(event)), 0, self._after_gates(core, index)
        )
        if self._merges(core, index, event):
            column = self.column[core, index] = self.column[core, index - 1]
            self.deeds[core][-1] = replace(self.deeds[core][-1], times=self.deeds[core][-1].times + 1)
            return
        self.column[core, index] = column
        if isinstance(event, Mark) and event.kind in _NOT_DRAWN and (core, index) not in self.accused:
            return
        self.free[core] = column + 1
        self.deeds[core].append(self._deed(core, index, column))
        self._count(core, index, event, column)

    def _after_gates(self, core: int, index: int) -> int:
        points = (p for number in self.gates.get((core, index), ()) for p in self.program.barriers[number])
        return max((self.column.get(point, -1) + 1 for point in points), default=0)

    def _merges(self, core: int, index: int, event: Event) -> bool:
        """The event is like the one before it, and is drawn with it."""
        if not index or not isinstance(event, Access) or (core, index) in self.accused:
            return False
        before = self.program.cores[core].events[index - 1]
        alike = isinstance(before, Access) and (before.write, before.box, before.site) == (
            event.write,
            event.box,
            event.site,
        )
        return alike and (core, index - 1) not in self.accused and bool(self.deeds[core])

    def _count(self, core: int, index: int, event: Event, column: int) -> None:
        if isinstance(event, Start):
            self.flights[core, index] = _Flying(event.copy, column, core)
        elif isinstance(event, Signal):
            self.ready[event.semaphore] = max(self.ready[event.semaphore], column + 1)
            self.changes[event.semaphore].append((column + 0.5, event.amount))
        elif isinstance(event, Wait):
            self._land(event.semaphore, column)
            # What one core takes another finds missing: of waits on one semaphore, the later stands no earlier.
            self.ready[event.semaphore] = max(self.ready[event.semaphore], column)
            self.waiters.setdefault(event.semaphore, core)
            if event.decrement:
                self.changes[event.semaphore].append((column + 0.5, -event.amount))

    def _land(self, semaphore: Hashable, column: float) -> None:
        """The copies that have counted on a semaphore are drawn up to here."""
        for flying, half, amount in self.unclaimed.pop(semaphore, ()):
            flying.until[half] = max(float(column), flying.begin + 0.75)
            self.changes[semaphore].append((flying.until[half], amount))

    def _deed(self, core: int, index: int, column: int) -> Deed:
        event = self.program.cores[core].events[index]
        kind, verb, what = self._words(core, index, event)
        accused = (core, index) in self.accused
        return Deed(column, kind, verb, what, self.names.line(event), self.names.moment(event), 1, accused)

    def _words(self, core: int, index: int, event: Event) -> tuple[str, str, str]:
        if isinstance(event, Access):
            return (
                ("write", "writes", event.site.label) if event.write else ("read", "reads", event.site.label)
            )
        if isinstance(event, Start):
            return "start", "starts", self.names.copy_name(core, index)
        if isinstance(event, Signal):
            return "signal", "signals", f"{event.amount:,} on {event.semaphore}"
        if isinstance(event, Wait):
            return "wait", "waits", f"{event.amount:,} on {event.semaphore}"
        verb, _, what = self.names.doing(core, index).partition(" ")
        return "mark", verb, what

    def show_claim(self) -> None:
        """Adds what the claim says is going on, or happens next, in a column of its own."""
        if self.claim is None:
            return
        last = max(self.free, default=0)
        for core, index in self._next_events():
            if self.machine.at[core] <= index < len(self.program.cores[core].events):
                self.column[core, index] = last
                deed = replace(self._deed(core, index, last), accused=True)
                self.deeds[core].append(
                    replace(deed, verb=f"{deed.verb} for ever") if self._is_stuck else deed
                )
        self.free = [last + 1] * len(self.free)

    @property
    def _is_stuck(self) -> bool:
        return isinstance(self.claim, Stuck)

    def _next_events(self) -> Iterator[tuple[int, int]]:
        if isinstance(self.claim, Overlap):
            race = self.claim.race
            yield from ((u.begin.core, u.begin.index) for u in (race.first, race.second) if u.copy is None)
        elif isinstance(self.claim, Stuck):
            for wait in outcome_of(self.program, self.machine.at, self.machine.counts).stuck:
                yield wait.point.core, wait.point.index
                if wait.semaphore is not None:
                    self.lacking.add(wait.semaphore)
                    self.waiters.setdefault(wait.semaphore, wait.point.core)
        elif isinstance(self.claim, Outside):
            yield self.claim.mark.core, self.claim.mark.index

    def tracks(self, caption: str) -> Tracks:
        """What was laid out."""
        columns = max([1, *self.free])
        for semaphore in list(self.unclaimed):
            self._land(semaphore, columns)
        shown = [core for core in range(len(self.program.cores)) if self.deeds[core]]
        cores = tuple(self._core(core, columns) for core in shown)
        hidden = len(self.program.cores) - len(shown)
        return Tracks(caption, columns, cores, self.claim is not None, hidden)

    def _core(self, core: int, columns: int) -> CoreTrack:
        flights = tuple(
            self._flight(*key, flying, columns) for key, flying in self.flights.items() if key[0] == core
        )
        owned = [s for s, owner in self._owners().items() if owner == core]
        device = self.program.cores[core].device
        semaphores = tuple(
            SemaphoreTrack(_semaphore_name(s, device), tuple(self._levels(s)), s in self.lacking)
            for s in owned
        )
        return CoreTrack(self.names.core(core), device, tuple(self.deeds[core]), flights, semaphores)

    def _flight(self, core: int, index: int, flying: _Flying, columns: int) -> Flight:
        event = self.program.cores[core].events[index]
        ends: list[float | None] = []
        for half in (Half.READ_DONE, Half.WRITE_DONE):
            ends.append(flying.until.get(half, float(columns)) if half in flying.done else None)
        read, end = ends
        if read is not None and end is not None:
            read = min(read, end)
        accused = (core, index) in self.accused
        line, moment = self.names.line(event), self.names.moment(event)
        name = self.names.copy_name(core, index) or "copy"
        return Flight(name, line, moment, flying.begin + 0.5, read, end, accused)

    def _owners(self) -> dict[Hashable, int]:
        """Each semaphore with the core it is drawn below: who waits on it, else who counts on it."""
        owners = dict(self.waiters)
        for (core, _), flying in self.flights.items():
            for semaphore in (flying.copy.source_semaphore, flying.copy.destination_semaphore):
                if semaphore is not None:
                    owners.setdefault(semaphore, core)
        for core, index in self.column:
            event = self.program.cores[core].events[index]
            if isinstance(event, Signal):
                owners.setdefault(event.semaphore, core)
        return owners

    def _levels(self, semaphore: Hashable) -> Iterator[Level]:
        count = self.program.initial.get(semaphore, 0)
        yield Level(0.0, count)
        by_time: defaultdict[float, int] = defaultdict(int)
        for at, change in self.changes[semaphore]:
            by_time[at] += change
        for at in sorted(by_time):
            count += by_time[at]
            yield Level(at, count)


def _semaphore_name(semaphore: Hashable, device: int) -> str:
    """Its name; of another device's, where it is."""
    home = getattr(getattr(semaphore, "buffer", None), "device", device)
    return str(semaphore) if home == device else f"{semaphore} of device {home}"


def _needed(event: Event) -> tuple[Hashable, ...]:
    return (event.semaphore,) if isinstance(event, Wait) else ()


def _accused(claim: Claim | None) -> Iterator[tuple[int, int]]:
    """The events that a claim is about."""
    if isinstance(claim, Overlap):
        yield from ((use.begin.core, use.begin.index) for use in (claim.race.first, claim.race.second))
    elif isinstance(claim, Outside):
        yield from ((point.core, point.index) for point in (claim.point, claim.mark))
