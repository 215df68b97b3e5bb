"""Must-happen-before: what comes before what in every run of a program, and the facts that rules draw from it.

The relation is the least one that holds program order, start < read-done < write-done, the program's barriers, and for
every wait what it cannot return without (see ``clocks.py`` for core events, ``completions.py`` for copies). What is not
ordered here may still be excluded by a deeper argument: a schedule (``replay.py``) has the last word on a race.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from itertools import islice

from asyncops.checker.clocks import core_order
from asyncops.checker.completions import Completions, Ledger
from asyncops.checker.events import Half, Mark, Point, Program, Signal, Start, Wait
from asyncops.checker.lifetimes import Touch, touches_outside_life
from asyncops.checker.races import Race, Use, find_races

__all__ = ["Balance", "Order", "Race", "Touch", "Use", "must_happen_before"]

_RACES_LOOKED_AT = 100
"""With ``per_place``, how many races are looked at for each one that may be returned."""


@dataclass(frozen=True, slots=True)
class Balance:
    """What a semaphore starts with, what is added to it and what waits take off it."""

    initial: int
    signalled: int
    waited: int

    @property
    def left(self) -> int:
        """The count that remains (negative: more is waited for than ever comes)."""
        return self.initial + self.signalled - self.waited


class Order:
    """The order of a program's events. Points at or after ``never`` cannot happen: they follow everything."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.clocks = core_order(program)
        self.completions = Completions(self.clocks)

    @property
    def never(self) -> tuple[Point, ...]:
        """Per core that gets stuck whatever the schedule, the first event that it never passes."""
        reach = enumerate(self.clocks.reach)
        return tuple(Point(c, stop) for c, stop in reach if stop < len(self.program.cores[c].events))

    @property
    def exact(self) -> bool:
        """False when the fixpoint was cut short: what is ordered is, but more may be (a race may be none)."""
        return self.clocks.exact

    def before(self, a: Point, b: Point) -> bool:
        """True when ``a`` has happened whenever ``b`` happens."""
        reach = self.clocks.reach
        if b.index >= reach[b.core]:
            return a.index < reach[a.core] or (a.core == b.core and a.index < b.index)
        if a.index >= reach[a.core]:
            return False
        if b.half is not None:
            return self._before_completion(a, b)
        if a.half is not None:
            return self.completions.done_before(self.completions.witnesses(a), b.core, b.index)
        return self.clocks.precedes(a.core, a.index, b.core, b.index)

    def _before_completion(self, a: Point, b: Point) -> bool:
        """A completion only follows its own start (and read-done), and what came before that."""
        start = Point(b.core, b.index)
        if (a.core, a.index) == (b.core, b.index):
            return a.half is None or (a.half is Half.READ_DONE and b.half is Half.WRITE_DONE)
        return self.before(a, start)

    def races(self, limit: int = 1000, per_place: int | None = None) -> tuple[Race, ...]:
        """Races, at most ``limit``; at most ``per_place`` for the same two source lines and kinds of use."""
        races = find_races(self.clocks, self.completions)
        if per_place is None:
            return tuple(islice(races, limit))
        seen: Counter[Hashable] = Counter()
        found: list[Race] = []
        for race in islice(races, limit * _RACES_LOOKED_AT):
            place = (_place(race.first), _place(race.second))
            seen[place] += 1
            if seen[place] <= per_place:
                found.append(race)
            if len(found) == limit:
                break
        return tuple(found)

    def completion_waits(self, completion: Point) -> tuple[Point, ...]:
        """The first wait of each core from which on a completion is known, by counting at that very wait.

        Empty: nobody ever waits for it. Events ordered after one of these follow it, too.
        """
        return tuple(
            Point(core, position) for core, position in sorted(self.completions.witnesses(completion))
        )

    def spare(self, wait: Point) -> int:
        """How much more could be counted by a wait than it needs; at 0 every count it may get is needed."""
        ledger, turn = self._ledger(wait)
        return ledger.supplies[turn] - ledger.needs[turn]

    def feeders(self, wait: Point) -> tuple[Point, ...]:
        """The signals and completions whose counts a wait may take.

        Not those that only come after it; nor those that earlier waits of its core have used up for certain.
        """
        ledger, turn = self._ledger(wait)
        exact = (t for t in range(turn - 1, -1, -1) if ledger.supplies[t] == ledger.needs[t])
        last = next(exact, None)
        found: list[Point] = []
        for core, feed in sorted(ledger.channel.feeds.items()):
            low = 0 if last is None else bisect_left(feed.positions, ledger.cuts[core][last])
            high = bisect_left(feed.positions, ledger.cuts[core][turn])
            for position in feed.positions[low:high]:
                found.extend(self._counts_on(Point(core, position), self._wait(wait).semaphore))
        return tuple(found)

    def _wait(self, wait: Point) -> Wait:
        event = self.program.cores[wait.core].events[wait.index]
        if not isinstance(event, Wait) or wait.index >= self.clocks.reach[wait.core]:
            raise ValueError(f"{wait} is not a wait that can return; see Order.never")
        return event

    def _ledger(self, wait: Point) -> tuple[Ledger, int]:
        channel = self.clocks.index.channels[self._wait(wait).semaphore]
        ledgers = self.completions.ledgers[channel.number]
        ledger = next(ledger for ledger in ledgers if ledger.core == wait.core)
        return ledger, bisect_left(ledger.drain.positions, wait.index)

    def _counts_on(self, point: Point, semaphore: Hashable) -> Iterator[Point]:
        event = self.program.cores[point.core].events[point.index]
        if not isinstance(event, Start):
            yield point
            return
        if event.copy.source_semaphore == semaphore:
            yield Point(point.core, point.index, Half.READ_DONE)
        if event.copy.destination_semaphore == semaphore:
            yield Point(point.core, point.index, Half.WRITE_DONE)

    def touches(self) -> tuple[Touch, ...]:
        """Copies and signals that can reach memory or a semaphore before it comes into being or after it went."""
        return tuple(touches_outside_life(self.clocks, self.completions))

    def balances(self) -> dict[Hashable, Balance]:
        """Per semaphore, over the whole program as written, what is added and what is taken off."""
        signalled: Counter[Hashable] = Counter()
        waited: Counter[Hashable] = Counter()
        for core in self.program.cores:
            for event in core.events:
                if isinstance(event, Signal):
                    signalled[event.semaphore] += event.amount
                elif isinstance(event, Wait):
                    waited[event.semaphore] += event.amount * event.decrement
                elif isinstance(event, Start):
                    signalled[event.copy.source_semaphore] += event.copy.source_amount
                    signalled[event.copy.destination_semaphore] += event.copy.destination_amount
        initial = self.program.initial
        names = dict.fromkeys([*initial, *signalled, *waited])
        return {s: Balance(initial.get(s, 0), signalled[s], waited[s]) for s in names if s is not None}

    def balances_at(self, mark: Point) -> dict[Hashable, Balance]:
        """For the semaphores of a mark: all that may have been added by then, and what was surely taken off."""
        event = self.program.cores[mark.core].events[mark.index]
        if not isinstance(event, Mark):
            raise ValueError(f"{mark} is not a mark")
        past = self.clocks.past(mark.core, mark.index)
        found: dict[Hashable, Balance] = {}
        for semaphore in event.semaphores:
            channel = self.clocks.index.channels.get(semaphore)
            if channel is None:
                found[semaphore] = Balance(self.program.initial.get(semaphore, 0), 0, 0)
                continue
            after = {core: self.clocks.first_after(mark.core, mark.index, core) for core in channel.feeds}
            signalled = sum(feed.before(after[core]) for core, feed in channel.feeds.items())
            ends = {core: mark.index if core == mark.core else past[core] for core in channel.drains}
            waited = sum(drain.before(ends[core]) for core, drain in channel.drains.items())
            found[semaphore] = Balance(channel.initial, signalled, waited)
        return found


def _place(use: Use) -> Hashable:
    return use.site.location or (use.begin.core, use.begin.index), use.write, use.copy is None


def must_happen_before(program: Program) -> Order:
    """The order of ``program``: what comes before what in every run."""
    return Order(program)
