"""Which core events must happen before which: vector clocks under counting semaphores.

The rule: an event ``x`` precedes a wait that needs ``N`` counts when, with ``x`` held back, fewer than ``N`` can
arrive. Whatever lies between two *core* events on the way is again a core event (a copy's completion only follows its
start), so the order of core events is a fixpoint of its own; completions are placed afterwards (``completions.py``).

For one core ``c0`` the events before a wait are a prefix of its program order, so a clock per wait says it all. Write
``V(m)`` for how many events of ``c0`` precede (or are) the contribution ``m``: with event number ``q`` held back, just
the contributions with ``V(m) <= q`` can arrive. The wait's entry for ``c0`` is therefore the least ``v`` such that the
contributions with ``V(m) <= v`` add up to ``N``. Where one core signals and one core waits this is decided by a single
contribution, known beforehand, and one visit in the order of a run settles the wait; only the others are revisited.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from operator import ge, itemgetter, le

from asyncops.checker.channels import Channel, Drain, Feed, SyncIndex, run_order
from asyncops.checker.events import Program

Clock = Sequence[int]
"""``clock[c]``: how many events of core ``c`` come before (0 for the clock's own core, where program order tells)."""


_VISITS = 40
"""How often each sync is visited again at most, on average, so that time stays proportional to events."""


class NeverPasses(Exception):
    """Counting alone shows that a core never gets past an event."""

    def __init__(self, core: int, position: int) -> None:
        super().__init__(core, position)
        self.core, self.position = core, position


class _Agenda:
    """Syncs to visit again, swept in turn backwards and forwards along the order of one run.

    What a wait learns concerns later waits (they follow it) and earlier ones (what follows it cannot have fed them).
    Sweeping both ways carries either kind of news through a long program in one sweep.
    """

    def __init__(self, cores: int) -> None:
        self.rank: dict[tuple[int, int], int] = {}
        self.queued = [0] * cores  # bit sets of sync numbers
        self._heap: list[tuple[int, int, int, int]] = []
        self._now = (0, -math.inf)

    @property
    def is_backward(self) -> bool:
        """The present sweep goes from later to earlier waits."""
        return self._now[0] % 2 == 0

    def add(self, core: int, sync: int) -> None:
        """Visit this sync (again)."""
        if self.queued[core] >> sync & 1:
            return
        self.queued[core] |= 1 << sync
        (sweep, at), rank = self._now, self.rank[core, sync]
        if _turn(sweep, rank) <= at:
            sweep += 1
        heapq.heappush(self._heap, (sweep, _turn(sweep, rank), core, sync))

    def next(self) -> tuple[int, int] | None:
        """The next (core, sync) to visit, or None."""
        if not self._heap:
            return None
        sweep, at, core, sync = heapq.heappop(self._heap)
        self._now = sweep, at
        self.queued[core] ^= 1 << sync
        return core, sync


def _turn(sweep: int, rank: int) -> int:
    """Even sweeps go backwards: the first visits, in the order of a run, were a sweep forwards."""
    return rank if sweep % 2 else -rank


class _Fixpoint:
    """The least clocks that satisfy the rule at every wait."""

    def __init__(self, index: SyncIndex) -> None:
        cores = range(len(index.program.cores))
        self.index = index
        self.clocks: list[list[Clock]] = [[] for _ in cores]
        self.told: list[list[Clock]] = [[] for _ in cores]
        self.unknown: Clock = (0,) * len(cores)
        self.agenda = _Agenda(len(cores))
        self.listeners: list[dict[int, list[tuple[int, int]]]] = [defaultdict(list) for _ in cores]
        self._list_complex(cores)

    def _list_complex(self, cores: range) -> None:
        """What happens on the semaphores that several cores signal or wait on.

        ``open_counts[core][sync]``: the contributions between that sync and the next. ``open_feeds[core][other]``: the
        semaphores by which ``core`` may feed ``other``. ``open_waits[number, core]``: bit set of the syncs that wait.
        """
        self.open_counts: list[dict[int, list[tuple[Channel, int]]]] = [defaultdict(list) for _ in cores]
        self.open_feeds: list[dict[int, list[tuple[Channel, Feed]]]] = [defaultdict(list) for _ in cores]
        self.open_waits: dict[tuple[int, int], int] = {}
        for channel in self.index.channels.values():
            if channel.is_simple:
                continue
            for core, feed in channel.feeds.items():
                for other in channel.drains:
                    if other != core:
                        self.open_feeds[core][other].append((channel, feed))
                for position, sync in zip(feed.positions, feed.syncs, strict=True):
                    self.open_counts[core][sync].append((channel, position))
            for core, drain in channel.drains.items():
                self.open_waits[channel.number, core] = bit_set(drain.syncs)

    def solve(self) -> Clocks:
        """The clocks; each is settled by few visits in all but contrived programs."""
        for rank, (core, sync) in enumerate(run_order(self.index)):
            self.agenda.rank[core, sync] = rank
            self._visit(core, sync)
        patience = _VISITS * sum(map(len, self.clocks))
        while (place := self.agenda.next()) is not None:
            if patience == 0:
                return Clocks(self.index, self.clocks, exact=False)
            patience -= 1
            self._visit(*place)
        return Clocks(self.index, self.clocks, exact=True)

    def _visit(self, core: int, sync: int) -> None:
        clocks, told = self.clocks[core], self.told[core]
        first = sync == len(clocks)
        new = self._evaluate(core, sync, first)
        if first:
            since = clocks[-1] if clocks else self.unknown
            clocks.append(new)
            told.append(self.unknown)
        else:
            since = told[sync]
            self._raise(core, sync, new)
        # Before the first visit others may have taken it for any earlier clock of the core, hence told = unknown.
        if first or told[sync] != new:
            self._tell(core, sync, told[sync], since, new)
            told[sync] = new

    def _raise(self, core: int, sync: int, new: Clock) -> None:
        """Later clocks of the core follow at once: searches among them rely on their growing."""
        clocks = self.clocks[core]
        while clocks[sync] != new:
            clocks[sync] = new
            sync += 1
            if sync == len(clocks):
                return
            new = tuple(map(max, clocks[sync], new))
            if new != clocks[sync]:
                self.agenda.add(core, sync)

    def _tell(self, core: int, sync: int, taken_for: Clock, old: Clock, new: Clock) -> None:
        for other, number in self.listeners[core].get(sync, ()):
            if number < len(self.clocks[other]):
                self.agenda.add(other, number)
        if self.open_waits:
            self._tell_followers(core, sync, new)
            self._tell_waits_for(core, sync, taken_for, old, new)
            self._tell_overtaken(core, sync, old, new)

    def _tell_followers(self, core: int, sync: int, new: Clock) -> None:
        """On each other core the first sync that follows this one: what comes before here comes before there."""
        position = self.index.positions[core][sync]
        for other, clocks in enumerate(self.clocks):
            if other != core:
                number = bisect_right(clocks, position, key=itemgetter(core))
                if number < len(clocks) and not all(map(ge, clocks[number], _without(new, other))):
                    self.agenda.add(other, number)

    def _tell_waits_for(self, core: int, sync: int, taken_for: Clock, old: Clock, new: Clock) -> None:
        """The waits that relied on a contribution with its old clock: not before it, nor long after it."""
        for channel, position in self.open_counts[core].get(sync, ()):
            for other in channel.drains:
                if other == core:
                    continue
                clocks, shared = self.clocks[other], _without(new, other)
                low = bisect_left(self.index.positions[other], old[other])
                high = bisect_right(clocks, position, key=itemgetter(core)) + 1
                for number in ascending(self._idle(channel, other, low, high)):
                    clock = clocks[low + number]
                    if all(map(ge, clock, shared)):
                        break  # it knows all this already, and so do later waits
                    if any(map(_counted_only_before, taken_for, clock, new)):
                        self.agenda.add(other, low + number)

    def _tell_overtaken(self, core: int, sync: int, old: Clock, new: Clock) -> None:
        """The waits now known to lie before this one that relied on contributions which come after it."""
        position = self.index.positions[core][sync]
        for other, feeds in self.open_feeds[core].items():
            if new[other] == old[other]:
                continue
            low = bisect_left(self.index.positions[other], old[other])
            high = bisect_left(self.index.positions[other], new[other])
            for channel, feed in feeds:
                late = bisect_left(feed.positions, position)
                idle = self._idle(channel, other, low, high) if late < len(feed.positions) else 0
                entries = self._entries(core, feed, late) if idle else ()
                for number in descending(idle):
                    if not self._relies_on(other, low + number, entries):
                        break  # nor do earlier waits
                    self.agenda.add(other, low + number)

    def _idle(self, channel: Channel, core: int, low: int, high: int) -> int:
        """The waits among the core's syncs from ``low`` to ``high`` that were visited and are not queued.

        A bit set, counting from ``low``.
        """
        high = min(high, len(self.clocks[core]))
        if high <= low:
            return 0
        waits = self.open_waits[channel.number, core] >> low & ~(self.agenda.queued[core] >> low)
        return waits & ((1 << high - low) - 1)

    def _entries(self, core: int, feed: Feed, k: int) -> list[int]:
        """The least entries that others may have taken contribution ``k`` for."""
        known, sync = self.clocks[core], feed.syncs[k]
        entries = list(known[sync] if 0 <= sync < len(known) else self.unknown)
        entries[core] = feed.positions[k] + 1
        return entries

    def _relies_on(self, core: int, number: int, entries: Sequence[int]) -> bool:
        """Whether a contribution with these entries is counted at a wait (for some core's prefix)."""
        counted = list(map(le, entries, self.clocks[core][number]))
        counted[core] = False
        return any(counted)

    def _evaluate(self, core: int, number: int, first: bool) -> Clock:
        sync = self.index.syncs[core][number]
        clock = self.clocks[core][number - 1] if number else self.unknown
        if not first:
            clock = tuple(map(max, clock, self.clocks[core][number]))
        if sync.channel is None:
            clock = self._join_barrier(core, number, clock, first)
        elif sync.channel.is_simple:
            clock = self._join_cause(core, number, clock, first)
        else:
            return self._join_counts(core, number, clock)
        if clock[core] > sync.position:
            raise NeverPasses(core, sync.position)
        return _without(clock, core)

    def _after(self, core: int, position: int, sync: int, clock: Clock) -> Clock:
        """``clock`` joined with that of event ``position`` of ``core``, the event included."""
        known = self.clocks[core]
        if sync >= 0 and known:
            clock = list(map(max, clock, known[sync] if sync < len(known) else known[-1]))
        if clock[core] <= position:
            clock = list(clock)
            clock[core] = position + 1
        return clock

    def _join_barrier(self, core: int, number: int, clock: Clock, first: bool) -> Clock:
        sync = self.index.syncs[core][number]
        for other, position in self.index.program.barriers[sync.barrier]:
            if other == core:
                continue
            if position >= self.index.reach[other]:
                raise NeverPasses(core, sync.position)
            last = bisect_right(self.index.positions[other], position) - 1
            if first:
                self.listeners[other][last].append((core, number))
            clock = self._after(other, position, last, clock)
        return clock

    def _join_cause(self, core: int, number: int, clock: Clock, first: bool) -> Clock:
        """One core signals, in its program order: the contribution that fills the need is the cause."""
        sync = self.index.syncs[core][number]
        channel = sync.channel
        assert channel is not None
        need = channel.drains[core].need(sync.turn) - channel.initial
        if need <= 0:
            return clock
        for other, feed in channel.feeds.items():
            cause = bisect_left(feed.totals, need) - 1
            if cause == len(feed.positions) or (other == core and feed.positions[cause] > sync.position):
                break
            if other == core:
                return clock
            if first:
                self.listeners[other][feed.syncs[cause]].append((core, number))
            return self._after(other, feed.positions[cause], feed.syncs[cause], clock)
        raise NeverPasses(core, sync.position)

    def _join_counts(self, core: int, number: int, clock: Clock) -> Clock:
        sync = self.index.syncs[core][number]
        channel = sync.channel
        assert channel is not None
        feeds, drains = channel.feeds, channel.drains
        guess = self._guess(core, drains[core], sync.turn)
        cuts = {other: self._not_after(core, sync.position, other, feed) for other, feed in feeds.items()}
        supply = channel.initial + sum(feeds[other].totals[cut] for other, cut in cuts.items())
        need = -1
        while True:
            wanted = drains[core].need(sync.turn)
            wanted += sum(drain.before(clock[other]) for other, drain in drains.items() if other != core)
            if wanted == need:
                return clock
            need = wanted
            if supply < need:
                raise NeverPasses(core, sync.position)
            if supply == need:
                clock = self._join_all(core, channel, cuts, clock)
            else:
                clock = tuple(
                    0 if other == core else self._least(channel, cuts, need, other, floor, guess[other])
                    for other, floor in enumerate(clock)
                )
            clock = self._closed(core, sync.position, clock)
            if len(drains) == 1:
                return clock

    def _closed(self, core: int, position: int, clock: Clock) -> Clock:
        """With everything that precedes what precedes.

        Counting alone would not find it where waits support each other in a circle.
        """
        closed = clock
        for other, entry in enumerate(clock):
            last = bisect_left(self.index.positions[other], entry) - 1 if entry else -1
            known = self.clocks[other]
            if last >= 0 and known:
                closed = tuple(map(max, closed, known[min(last, len(known) - 1)]))
        if closed[core] > position:
            raise NeverPasses(core, position)
        return _without(closed, core)

    def _guess(self, core: int, drain: Drain, turn: int) -> Clock:
        """A clock that may be nearer than the present one: going backwards, that of the next wait."""
        if not self.agenda.is_backward or turn + 1 == len(drain.syncs):
            return self.unknown
        number = drain.syncs[turn + 1]
        return self.clocks[core][number] if number < len(self.clocks[core]) else self.unknown

    def _not_after(self, core: int, position: int, other: int, feed: Feed) -> int:
        """How many contributions of ``feed`` (of core ``other``) are not ordered after this event."""
        if other == core:
            return bisect_left(feed.positions, position)
        later = bisect_right(self.clocks[other], position, key=itemgetter(core))
        if later == len(self.clocks[other]):
            return len(feed.positions)
        return bisect_left(feed.positions, self.index.positions[other][later])

    def _join_all(self, core: int, channel: Channel, cuts: dict[int, int], clock: Clock) -> Clock:
        """Nothing to spare: every contribution is needed, in each core the last one tells."""
        for other, cut in cuts.items():
            if cut and other != core:
                feed = channel.feeds[other]
                clock = self._after(other, feed.positions[cut - 1], feed.syncs[cut - 1], clock)
        return _without(clock, core)

    def _least(
        self, channel: Channel, cuts: dict[int, int], need: int, target: int, floor: int, guess: int
    ) -> int:
        """The least entry for core ``target``, ``floor`` or more, at which the counts suffice.

        Searched up or down from ``guess``, one contribution after the other: the nearer the guess the better.
        """
        have = channel.initial
        known: dict[int, int] = {}
        for core, cut in cuts.items():
            feed = channel.feeds[core]
            known[core] = min(cut, self._within(feed, core, target, max(floor, guess)))
            have += feed.totals[known[core]]
        if have >= need:
            return self._lower(channel, known, have - need, target, floor) if guess > floor else floor
        return self._higher(channel, cuts, known, need - have, target)

    def _lower(self, channel: Channel, known: dict[int, int], spare: int, target: int, floor: int) -> int:
        """Give up the highest of the ``known`` contributions as long as the others suffice."""
        feeds = channel.feeds
        heads = [(-self._entry(feeds[c], c, target, k - 1), c, k - 1) for c, k in known.items() if k]
        heapq.heapify(heads)
        while heads:
            entry, core, k = heads[0]
            spare -= feeds[core].totals[k + 1] - feeds[core].totals[k]
            if spare < 0 or -entry <= floor:
                return max(floor, -entry)
            if k:
                heapq.heapreplace(heads, (-self._entry(feeds[core], core, target, k - 1), core, k - 1))
            else:
                heapq.heappop(heads)
        return floor

    def _higher(
        self, channel: Channel, cuts: dict[int, int], known: dict[int, int], missing: int, target: int
    ) -> int:
        """Take the lowest further contributions until they suffice."""
        feeds = channel.feeds
        heads = [(self._entry(feeds[c], c, target, k), c, k) for c, k in known.items() if k < cuts[c]]
        heapq.heapify(heads)
        while True:
            entry, core, k = heads[0]
            missing -= feeds[core].totals[k + 1] - feeds[core].totals[k]
            if missing <= 0:
                return entry
            if k + 1 < cuts[core]:
                heapq.heapreplace(heads, (self._entry(feeds[core], core, target, k + 1), core, k + 1))
            else:
                heapq.heappop(heads)

    def _entry(self, feed: Feed, core: int, target: int, k: int) -> int:
        """How many events of ``target`` precede or are contribution ``k`` of ``core``."""
        if core == target:
            return feed.positions[k] + 1
        known = self.clocks[core]
        sync = min(feed.syncs[k], len(known) - 1)
        return known[sync][target] if sync >= 0 else 0

    def _within(self, feed: Feed, core: int, target: int, limit: int) -> int:
        """How many contributions of ``core`` have an entry for ``target`` of at most ``limit``."""
        if core == target:
            return bisect_left(feed.positions, limit)
        known = self.clocks[core]
        sync = bisect_right(known, limit, key=itemgetter(target))
        return len(feed.positions) if sync == len(known) else bisect_left(feed.syncs, sync)


def bit_set(numbers: Iterable[int]) -> int:
    """The numbers as the bits of an integer."""
    numbers = list(numbers)
    bits = bytearray(max(numbers, default=0) // 8 + 1)
    for n in numbers:
        bits[n // 8] |= 1 << n % 8
    return int.from_bytes(bits, "little")


def ascending(bits: int) -> Iterator[int]:
    """The numbers of a bit set, smallest first."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def descending(bits: int) -> Iterator[int]:
    """The numbers of a bit set, largest first."""
    while bits:
        number = bits.bit_length() - 1
        yield number
        bits ^= 1 << number


def _counted_only_before(old: int, entry: int, new: int) -> bool:
    return old <= entry < new


def _without(clock: Clock, core: int) -> Clock:
    if clock[core]:
        clock = list(clock)
        clock[core] = 0
    return clock if isinstance(clock, tuple) else tuple(clock)


class Clocks:
    """The order of core events. ``reach[c]``: events of core ``c`` from there on can never happen.

    Not ``exact``: the fixpoint was cut short. What is ordered is, but more may be.
    """

    def __init__(self, index: SyncIndex, clocks: list[list[Clock]], exact: bool) -> None:
        self.index = index
        self.exact = exact
        self.program = index.program
        self.reach = index.reach
        self.rows = clocks
        self.nothing: Clock = (0,) * len(self.rows)
        self._columns: dict[tuple[int, int], list[int]] = {}

    def past(self, core: int, position: int) -> Clock:
        """The clock of event ``position`` of ``core``, without its own core's entry."""
        sync = bisect_right(self.index.positions[core], position) - 1
        return self.rows[core][sync] if sync >= 0 else self.nothing

    def precedes(self, core: int, position: int, other: int, later: int) -> bool:
        """True when event ``position`` of ``core`` happens before event ``later`` of ``other`` in every run."""
        if core == other:
            return position < later
        return self.past(other, later)[core] > position

    def first_after(self, core: int, position: int, other: int) -> int:
        """The first event of ``other`` that is ordered after event ``position`` of ``core``; its reach if none is."""
        if core == other:
            return position + 1
        column = self._columns.get((other, core))
        if column is None:
            column = self._columns[other, core] = [row[core] for row in self.rows[other]]
        sync = bisect_right(column, position)
        return self.index.positions[other][sync] if sync < len(column) else self.reach[other]


def core_order(program: Program) -> Clocks:
    """The order that counting forces on core events.

    A wait that can never return never happens, nor does what follows it: such a core is cut short there and the rest
    decided again, without the counts it would have sent.
    """
    reach = [len(core.events) for core in program.cores]
    while True:
        index = SyncIndex(program, reach)
        try:
            return _Fixpoint(index).solve()
        except NeverPasses as stop:
            reach[stop.core] = stop.position
