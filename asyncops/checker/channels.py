"""Who adds to which semaphore, and who waits on it: a program by its synchronisation alone."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from asyncops.checker.events import Program, Signal, Start, Wait


@dataclass(slots=True)
class Feed:
    """What one core's signals and copies add to one semaphore, in program order."""

    positions: list[int] = field(default_factory=list[int])
    totals: list[int] = field(default_factory=lambda: [0])
    syncs: list[int] = field(default_factory=list[int])

    def add(self, position: int, amount: int, sync: int) -> None:
        """Append a contribution; ``sync`` is the last synchronisation of its core before it (-1: none)."""
        if self.positions and self.positions[-1] == position:
            self.totals[-1] += amount
            return
        self.positions.append(position)
        self.totals.append(self.totals[-1] + amount)
        self.syncs.append(sync)

    def before(self, index: int) -> int:
        """The sum of the contributions that stand before event ``index``."""
        return self.totals[bisect_left(self.positions, index)]


@dataclass(slots=True)
class Drain:
    """What one core waits for on one semaphore, in program order. ``taken[k]``: taken off by the first ``k``."""

    positions: list[int] = field(default_factory=list[int])
    syncs: list[int] = field(default_factory=list[int])
    amounts: list[int] = field(default_factory=list[int])
    taken: list[int] = field(default_factory=lambda: [0])

    def add(self, position: int, sync: int, amount: int, decrement: bool) -> None:
        """Append a wait."""
        self.positions.append(position)
        self.syncs.append(sync)
        self.amounts.append(amount)
        self.taken.append(self.taken[-1] + (amount if decrement else 0))

    def need(self, turn: int) -> int:
        """The count that wait number ``turn`` needs, as far as this core's own waits go."""
        return self.taken[turn] + self.amounts[turn]

    def before(self, index: int) -> int:
        """What the waits before event ``index`` take off."""
        return self.taken[bisect_left(self.positions, index)]


@dataclass(slots=True)
class Channel:
    """One semaphore: who adds to it and who waits on it."""

    number: int
    initial: int
    feeds: dict[int, Feed] = field(default_factory=dict[int, Feed])
    drains: dict[int, Drain] = field(default_factory=dict[int, Drain])

    @property
    def is_simple(self) -> bool:
        """One core signals and one core waits: no count can be mistaken for another core's."""
        return len(self.feeds) <= 1 and len(self.drains) <= 1


class Sync(NamedTuple):
    """A place where a core learns of others: wait number ``turn`` on ``channel``, or barrier number ``barrier``.

    It stands before event ``position`` (a wait *is* event ``position``; a barrier is passed just before it).
    """

    position: int
    channel: Channel | None
    turn: int
    barrier: int = -1


class SyncIndex:
    """The synchronisation in a program, by core and by semaphore. Events from ``reach[core]`` on are left out."""

    def __init__(self, program: Program, reach: Sequence[int]) -> None:
        self.program = program
        self.reach = tuple(reach)
        self.channels: dict[Hashable, Channel] = {}
        self.syncs: list[list[Sync]] = [[] for _ in program.cores]
        self.steps: list[list[tuple[Channel, int, int, int]]] = [[] for _ in program.cores]
        gates: list[dict[int, list[int]]] = [defaultdict(list) for _ in program.cores]
        for number, points in enumerate(program.barriers):
            for core, position in points:
                gates[core][position + 1].append(number)
        for core in range(len(program.cores)):
            self._read_core(core, gates[core])
        self.positions = [[sync.position for sync in syncs] for syncs in self.syncs]

    def channel(self, semaphore: Hashable) -> Channel:
        """The channel of a semaphore, made on first sight."""
        channel = self.channels.get(semaphore)
        if channel is None:
            channel = Channel(len(self.channels), self.program.initial.get(semaphore, 0))
            self.channels[semaphore] = channel
        return channel

    def _read_core(self, core: int, gates: dict[int, list[int]]) -> None:
        for position, event in enumerate(self.program.cores[core].events[: self.reach[core]]):
            if gates:
                for number in gates.get(position, ()):
                    self._add_barrier(core, position, number)
            if isinstance(event, Wait):
                self._add_wait(core, position, event)
            elif isinstance(event, Start):
                copy = event.copy
                self._add_count(core, position, copy.source_semaphore, copy.source_amount)
                self._add_count(core, position, copy.destination_semaphore, copy.destination_amount)
            elif isinstance(event, Signal):
                self._add_count(core, position, event.semaphore, event.amount)

    def _add_count(self, core: int, position: int, semaphore: Hashable | None, amount: int) -> None:
        if semaphore is None or amount <= 0:
            return
        channel = self.channel(semaphore)
        feed = channel.feeds.get(core)
        if feed is None:
            feed = channel.feeds[core] = Feed()
        feed.add(position, amount, len(self.syncs[core]) - 1)
        self.steps[core].append((channel, amount, 0, -1))

    def _add_wait(self, core: int, position: int, event: Wait) -> None:
        channel = self.channel(event.semaphore)
        drain = channel.drains.get(core)
        if drain is None:
            drain = channel.drains[core] = Drain()
        number, syncs = len(self.syncs[core]), self.syncs[core]
        syncs.append(Sync(position, channel, len(drain.positions)))
        drain.add(position, number, event.amount, event.decrement)
        self.steps[core].append((channel, -event.amount if event.decrement else 0, event.amount, number))

    def _add_barrier(self, core: int, position: int, number: int) -> None:
        # A barrier is no semaphore; the run below passes over it, which costs at most a second visit.
        self.steps[core].append((_NO_CHANNEL, 0, 0, len(self.syncs[core])))
        self.syncs[core].append(Sync(position, None, 0, number))


_NO_CHANNEL = Channel(-1, 0)


def run_order(index: SyncIndex) -> Iterator[tuple[int, int]]:
    """Every (core, sync) in the order of one run, then those that the run did not reach.

    The order only saves work: visiting a wait after what it waits for settles it at once.
    """
    counts = [channel.initial for channel in index.channels.values()] + [0]
    parked: dict[int, list[int]] = defaultdict(list)
    at = [0] * len(index.steps)
    ready = deque(range(len(index.steps)))
    while ready:
        core = ready.popleft()
        steps, i = index.steps[core], at[core]
        while i < len(steps):
            channel, change, need, sync = steps[i]
            number = channel.number
            if sync < 0:
                ready.extend(parked.pop(number, ()))
            elif counts[number] < need:
                parked[number].append(core)
                break
            else:
                yield core, sync
            counts[number] += change
            i += 1
        at[core] = i
    for core, i in enumerate(at):
        yield from ((core, step[3]) for step in index.steps[core][i:] if step[3] >= 0)
