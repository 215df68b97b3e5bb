"""Where copies are known to be complete: the order of read-done and write-done before core events.

A completion precedes an event exactly when it precedes, directly by the counting rule, some wait at or before that
event; so per half of a copy a few such waits ("witnesses", the first one of each core) say everything, and the clocks
of ``clocks.py`` do the rest. They come from three observations, ``spare`` being what could be counted beyond the need
of a wait, with everything that is not ordered after it:

* the wait has nothing to spare: every copy on its semaphore that was not started after it is complete;
* the completion is known elsewhere: what follows that is withheld together with it (``_learn_on_channel``: it is short
  of one count on the wait's own semaphore; ``_learn_elsewhere``: several cores know it by different witnesses).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate

from asyncops.checker.channels import Channel, Drain
from asyncops.checker.clocks import Clocks
from asyncops.checker.events import Copy, Half, Point, Start

Witness = tuple[int, int]
"""A wait: (core, position)."""


@dataclass(slots=True, eq=False)
class Completion:
    """One half of a copy. ``witnesses``: the first wait of each core that directly follows it."""

    core: int
    position: int
    copy: Copy
    half: Half
    shortfall: dict[int, int] = field(default_factory=dict[int, int])
    witnesses: list[Witness] = field(default_factory=list[Witness])

    @property
    def point(self) -> Point:
        """This completion as a point."""
        return Point(self.core, self.position, self.half)

    def learn(self, witness: Witness) -> bool:
        """Add a witness; True if it tells more than those there are."""
        core, position = witness
        for i, (other, known) in enumerate(self.witnesses):
            if other == core:
                if known <= position:
                    return False
                self.witnesses[i] = witness
                return True
        self.witnesses.append(witness)
        return True


@dataclass(slots=True, eq=False)
class Ledger:
    """The waits of one core on one semaphore against what could have been counted by then.

    ``cuts[core][turn]``: the first event of ``core`` that comes after wait number ``turn``: later counts are too late.
    """

    core: int
    channel: Channel
    drain: Drain
    needs: list[int]
    supplies: list[int]
    cuts: dict[int, list[int]]
    highest: list[int]

    def first_with_spare(self, most: int) -> tuple[list[int], dict[int, list[int]]]:
        """The waits with at most ``most`` to spare, and their cuts."""
        turns = [t for t, (n, s) in enumerate(zip(self.needs, self.supplies)) if s - n <= most]
        return turns, {core: [cuts[t] for t in turns] for core, cuts in self.cuts.items()}


class Completions:
    """For every copy of a program, the waits from which on its two halves are known to be done."""

    def __init__(self, clocks: Clocks) -> None:
        self.clocks = clocks
        self.ledgers: dict[int, list[Ledger]] = {
            channel.number: [self._ledger(channel, core) for core in channel.drains]
            for channel in clocks.index.channels.values()
        }
        self._channels = {channel.number: channel for channel in clocks.index.channels.values()}
        self.halves: dict[tuple[int, int], tuple[Completion, Completion]] = {}
        self._read_copies()
        self._learn_from_exact_waits()
        self._learn_from_each_other()

    def witnesses(self, point: Point) -> list[Witness]:
        """The waits that directly follow a completion, at most one a core."""
        halves = self.halves.get((point.core, point.index))
        if halves is None:
            return []
        return halves[0 if point.half is Half.READ_DONE else 1].witnesses

    def done_before(self, witnesses: Iterable[Witness], core: int, position: int) -> bool:
        """True when a completion with these witnesses precedes event ``position`` of ``core``."""
        past = None
        for other, known in witnesses:
            if other == core:
                if known <= position:
                    return True
            else:
                past = past or self.clocks.past(core, position)
                if past[other] > known:
                    return True
        return False

    def _ledger(self, channel: Channel, core: int) -> Ledger:
        clocks, drain = self.clocks, channel.drains[core]
        needs = [drain.need(turn) for turn in range(len(drain.positions))]
        if len(channel.drains) > 1:
            for turn, position in enumerate(drain.positions):
                past = clocks.past(core, position)
                needs[turn] += sum(
                    d.before(past[other]) for other, d in channel.drains.items() if other != core
                )
        supplies = [channel.initial] * len(needs)
        cuts: dict[int, list[int]] = {}
        for other, feed in channel.feeds.items():
            cuts[other] = [clocks.first_after(core, position, other) for position in drain.positions]
            supplies = [s + feed.before(cut) for s, cut in zip(supplies, cuts[other])]
        return Ledger(core, channel, drain, needs, supplies, cuts, list(accumulate(needs, max)))

    def _read_copies(self) -> None:
        for core, events in enumerate(c.events for c in self.clocks.program.cores):
            for position in range(self.clocks.reach[core]):
                event = events[position]
                if isinstance(event, Start):
                    self.halves[core, position] = self._halves(core, position, event.copy)

    def _halves(self, core: int, position: int, copy: Copy) -> tuple[Completion, Completion]:
        """While a half is not done, its counts are one short; the write is not done before the read is."""
        read = Completion(core, position, copy, Half.READ_DONE)
        write = Completion(core, position, copy, Half.WRITE_DONE)
        channels = self.clocks.index.channels
        if copy.source_semaphore is not None and copy.source_amount > 0:
            read.shortfall[channels[copy.source_semaphore].number] = 1
        if copy.destination_semaphore is not None and copy.destination_amount > 0:
            number = channels[copy.destination_semaphore].number
            write.shortfall[number] = 1
            read.shortfall[number] = read.shortfall.get(number, 0) + 1
        return read, write

    def _learn_from_exact_waits(self) -> None:
        exact: dict[tuple[int, int], list[tuple[Ledger, list[int], dict[int, list[int]]]]] = {}
        for completion in self._completions():
            for number, short in completion.shortfall.items():
                found = exact.get((number, short))
                if found is None:
                    found = [(ledger, *ledger.first_with_spare(short - 1)) for ledger in self.ledgers[number]]
                    exact[number, short] = found
                for ledger, turns, cuts in found:
                    first = bisect_right(cuts[completion.core], completion.position)
                    if first < len(turns):
                        completion.learn((ledger.core, ledger.drain.positions[turns[first]]))

    def _completions(self) -> Iterator[Completion]:
        for pair in self.halves.values():
            yield from pair

    def _learn_from_each_other(self) -> None:
        """To the fixpoint: what is known of one completion on one core can tell another core of it."""
        news = list(self._completions())
        while news:
            while news:
                news = [completion for completion in news if self._learn_on_channel(completion)]
            news = self._learn_elsewhere()

    def _learn_on_channel(self, completion: Completion) -> bool:
        """The completion is short of a count on the semaphore itself; some of the rest comes only after it."""
        learned = False
        for number, short in completion.shortfall.items():
            for ledger in self.ledgers[number]:
                elsewhere = [witness for witness in completion.witnesses if witness[0] != ledger.core]
                turn = self._first_short(ledger, completion, elsewhere, short) if elsewhere else None
                if turn is not None and self._learn_unless_known(completion, ledger, turn):
                    learned = True
        return learned

    def _learn_unless_known(self, completion: Completion, ledger: Ledger, turn: int) -> bool:
        position = ledger.drain.positions[turn]
        if self.done_before(completion.witnesses, ledger.core, position):
            return False
        return completion.learn((ledger.core, position))

    def _first_short(
        self, ledger: Ledger, completion: Completion, witnesses: list[Witness], short: int
    ) -> int | None:
        """The first wait of the ledger that cannot return while the completion is withheld."""
        feeds, needs = ledger.channel.feeds, ledger.needs
        stops = {core: self._first_after_any(witnesses, core) for core in feeds}
        limit = ledger.channel.initial + sum(feeds[core].before(stop) for core, stop in stops.items()) - short
        low = bisect_right(ledger.cuts[completion.core], completion.position)
        last = max(low, bisect_right(ledger.highest, limit))
        while last < len(needs) and needs[last] <= limit:
            last += 1
        if len(feeds) > 1:
            # Where a core's counts are cut off by the wait itself the need may exceed the supply already before.
            high = max(bisect_left(ledger.cuts[core], stop) for core, stop in stops.items())
            for turn in range(low, min(last, high)):
                if self._supply(ledger, turn, stops) - short < needs[turn]:
                    return turn
        return last if last < len(needs) else None

    def _first_after_any(self, witnesses: Iterable[Witness], core: int) -> int:
        return min(self.clocks.first_after(other, position, core) for other, position in witnesses)

    def _supply(self, ledger: Ledger, turn: int, stops: dict[int, int]) -> int:
        supply = ledger.channel.initial
        for core, feed in ledger.channel.feeds.items():
            supply += feed.before(min(stops[core], ledger.cuts[core][turn]))
        return supply

    def _learn_elsewhere(self) -> list[Completion]:
        """Waits that any of several cores may satisfy: each of them knows the completion by a witness of its own."""
        by_core = self._sorted_witnesses()
        learned: list[Completion] = []
        for ledgers in self.ledgers.values():
            for ledger in ledgers:
                if len(ledger.channel.feeds) > 1:
                    for turn in range(len(ledger.needs)):
                        learned += self._learn_at(ledger, turn, by_core)
        return learned

    def _sorted_witnesses(self) -> list[list[tuple[int, Completion]]]:
        """Per core the witnesses, in program order, of completions that more than one core knows directly."""
        by_core: list[list[tuple[int, Completion]]] = [[] for _ in self.clocks.rows]
        for completion in self._completions():
            if len(completion.witnesses) > 1:
                for core, position in completion.witnesses:
                    by_core[core].append((position, completion))
        for entries in by_core:
            entries.sort(key=lambda entry: entry[0])
        return by_core

    def _learn_at(
        self, ledger: Ledger, turn: int, by_core: list[list[tuple[int, Completion]]]
    ) -> Iterator[Completion]:
        need, spare = ledger.needs[turn], ledger.supplies[turn] - ledger.needs[turn]
        open_feeds = self._open_feeds(ledger, turn) if spare else {}
        if sum(amount for _, amount in open_feeds.values()) <= spare:
            return  # what surely came before suffices
        stake: Counter[Completion] = Counter()
        for core, (last, amount) in open_feeds.items():
            for completion in self._known_between(ledger, turn, core, last, by_core):
                stake[completion] += amount
        for completion, withheld in stake.items():
            if withheld > spare:
                stops = {core: self._first_after_any(completion.witnesses, core) for core in ledger.cuts}
                short = self._supply(ledger, turn, stops) < need
                if short and self._learn_unless_known(completion, ledger, turn):
                    yield completion

    def _open_feeds(self, ledger: Ledger, turn: int) -> dict[int, tuple[int, int]]:
        """Per core its last count that is not ordered after the wait, and how much is not ordered before."""
        past = self.clocks.past(ledger.core, ledger.drain.positions[turn])
        found: dict[int, tuple[int, int]] = {}
        for core, feed in ledger.channel.feeds.items():
            last = bisect_left(feed.positions, ledger.cuts[core][turn])
            amount = feed.totals[last] - feed.before(past[core])
            if amount and core != ledger.core:
                found[core] = feed.positions[last - 1], amount
        return found

    def _known_between(
        self, ledger: Ledger, turn: int, core: int, last: int, by_core: list[list[tuple[int, Completion]]]
    ) -> set[Completion]:
        """Completions that event ``last`` of ``core`` follows, though they are not known at the wait."""
        past = self.clocks.past(ledger.core, ledger.drain.positions[turn])
        known = self.clocks.past(core, last)
        found: set[Completion] = set()
        for other, entries in enumerate(by_core):
            high = last if other == core else known[other]
            if entries and past[other] < high and other != ledger.core:
                low = bisect_left(entries, past[other], key=_position)
                found.update(c for _, c in entries[low : bisect_left(entries, high, key=_position)])
        return found


def _position(entry: tuple[int, Completion]) -> int:
    return entry[0]
