"""The set of copies in flight at a moment of the schedule."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from asyncops.compiled.facts import Flight
from asyncops.compiled.hlo import Instruction
from asyncops.compiled.values import Buffer


@dataclass(frozen=True, slots=True)
class Branch:
    """One way through a conditional, by the conditional's instruction and the branch's name."""

    control: Instruction
    label: str


@dataclass(frozen=True, slots=True)
class Split:
    """A copy was waited for in the branches ``over`` of a conditional, and not in those of ``still``."""

    over: tuple[Branch, ...]
    still: tuple[Branch, ...]


@dataclass
class InFlight:
    """Which copies are in flight, by the memories and semaphores they involve.

    ``open`` maps each to the halves that nothing has waited for; ``ended`` maps a semaphore to the last
    copy that was completed on it, and the wait that did it; ``splits`` holds the copies in flight that are
    over on some paths; ``waited`` is what was waited for on a semaphore, where more is in flight.
    """

    open: dict[Flight, frozenset[Buffer]] = field(default_factory=dict)
    ended: dict[Buffer, tuple[Flight, Instruction]] = field(default_factory=dict)
    splits: dict[Flight, Split] = field(default_factory=dict)
    waited: dict[Buffer, int] = field(default_factory=dict)
    _by_buffer: dict[Buffer, dict[Flight, None]] = field(default_factory=dict)

    def copy(self) -> InFlight:
        """An independent copy, for one branch."""
        index = {buffer: dict(flights) for buffer, flights in self._by_buffer.items()}
        return InFlight(dict(self.open), dict(self.ended), dict(self.splits), dict(self.waited), index)

    def add(self, flight: Flight, keys: frozenset[Buffer] | None = None) -> None:
        """``flight`` has started (or comes from a branch with ``keys`` still open)."""
        self.open[flight] = flight.keys if keys is None else keys
        for buffer in _involved(flight):
            self._by_buffer.setdefault(buffer, {})[flight] = None

    def remove(self, flight: Flight) -> None:
        """``flight`` is over, or nothing can wait for it any more."""
        self.open.pop(flight, None)
        self.splits.pop(flight, None)
        for buffer in _involved(flight):
            flights = self._by_buffer.get(buffer, {})
            flights.pop(flight, None)
            if not flights:
                self._by_buffer.pop(buffer, None)

    def of(self, buffer: Buffer) -> tuple[Flight, ...]:
        """The copies that read, write or count on ``buffer``."""
        return tuple(self._by_buffer.get(buffer, ()))

    def roles(self, flight: Flight, buffer: Buffer) -> list[str]:
        """What ``buffer`` is to a copy in flight, "source" or "destination", while that half is not over."""
        both = (("source", flight.source), ("destination", flight.destination))
        return [role for role, b in both if b is buffer and flight.key_of(role) in self.open[flight]]

    def buffers(self) -> set[Buffer]:
        """Everything that copies in flight involve."""
        return set(self._by_buffer)

    def waiting_on(self, key: Buffer) -> list[Flight]:
        """The copies with a half that a wait on ``key`` completes, in the order in which they started."""
        return [f for f in self._by_buffer.get(key.array, ()) if self.halves(f, key)]

    def halves(self, flight: Flight, key: Buffer) -> list[Buffer]:
        """The semaphores on which ``flight`` is still waited for, of those that ``key`` may be."""
        return [k for k in self.open[flight] if k.overlaps(key)]

    def suffices(self, key: Buffer, amount: int | None, flights: list[Flight]) -> bool:
        """Whether all of ``flights`` are over, once ``amount`` more has been waited for on ``key``.

        One semaphore may count both halves of a copy.
        """
        before = sum(self.waited.pop(k) for k in list(self.waited) if k.overlaps(key))
        amounts = [
            f.amount
            for f in flights
            for half in (f.source_key, f.destination_key)
            if self._counts(f, half, key)
        ]
        known = [a for a in amounts if a is not None]
        if amount is None or len(known) < len(amounts) or before + amount >= sum(known):
            return True
        self.waited[key] = before + amount
        return False

    def _counts(self, flight: Flight, half: Buffer | None, key: Buffer) -> bool:
        return half is not None and half in self.open[flight] and half.overlaps(key)

    def complete(self, flight: Flight, key: Buffer, wait: Instruction) -> bool:
        """The half on ``key`` is over; True when the copy is with it."""
        over = self.halves(flight, key)
        self.open[flight] = self.open[flight].difference(over)
        self.ended.update((k, (flight, wait)) for k in (key, *over))
        if self.open[flight]:
            return False
        self.remove(flight)
        return True

    def unreachable(self, started: Iterable[Flight], reachable: set[Buffer]) -> list[Flight]:
        """Those of ``started`` that are in flight on semaphores which nothing in ``reachable`` leads to."""
        return [f for f in started if f in self.open and reachable.isdisjoint(k.array for k in self.open[f])]


def _involved(flight: Flight) -> set[Buffer]:
    keys = (memory for key in flight.keys for memory in (key, key.array))
    return {b for b in (flight.source, flight.destination, *keys) if b is not None}


def join(before: InFlight, branches: list[tuple[Branch, InFlight]]) -> InFlight:
    """The state after a conditional: what is in flight after any branch may be."""
    result = InFlight()
    for flight in dict.fromkeys(f for _, state in branches for f in state.open):
        result.add(
            flight, frozenset[Buffer]().union(*(s.open[flight] for _, s in branches if flight in s.open))
        )
        over = tuple(b for b, s in branches if flight not in s.open and flight in before.open)
        still = tuple(b for b, s in branches if flight in s.open)
        if over:
            result.splits[flight] = Split(over, still)
        elif flight in before.splits:
            result.splits[flight] = before.splits[flight]
    for _, state in branches:
        result.ended.update(state.ended)
        for key, amount in state.waited.items():
            result.waited[key] = min(amount, result.waited.get(key, amount))
    return result
