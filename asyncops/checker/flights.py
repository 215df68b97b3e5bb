"""Values of a program and the copies in flight on their memory: what :mod:`.program` follows through a jaxpr."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from asyncops.checker.events import Location, Site


@dataclass(eq=False, slots=True)
class Memory:
    """What holds a value. ``is_kept``: an argument or constant of the program, which its caller keeps."""

    is_kept: bool = False


@dataclass(eq=False, slots=True)
class Value:
    """A result of an equation; values that alias share their memory. ``after``: the copies that were over before."""

    memory: Memory
    after: frozenset[Flight] = frozenset()


@dataclass(frozen=True, slots=True)
class Call:
    """An equation of the program as the user sees it. ``stack``: its lines, innermost first."""

    name: str
    stack: tuple[Location, ...]

    @property
    def location(self) -> Location | None:
        """The innermost line."""
        return self.stack[0] if self.stack else None

    @property
    def site(self) -> Site:
        """Where a finding about it stands."""
        return Site(self.location, stack=self.stack)

    def apart_from(self, other: Call) -> Site:
        """The outermost line that the two do not share: what tells two uses of one function apart."""
        for mine, theirs in zip(reversed(self.stack), reversed(other.stack)):
            if (mine.file, mine.line) != (theirs.file, theirs.line):
                return Site(mine, stack=self.stack)
        return self.site


Key = tuple[Memory, "tuple[int, ...] | None"]  # one semaphore


@dataclass(eq=False, slots=True)
class Flight:
    """A copy that a kernel leaves in flight. ``waits`` are the semaphores its halves count on, with the amounts."""

    call: Call
    line: Location | None
    source: Memory | None
    destination: Memory | None
    waits: dict[Key, object]
    halves: tuple[Key, Key]  # what says that the source is free, and that the destination is there
    is_pinned: bool
    is_marked: bool
    origin: Hashable  # equal for starts that a compiler may take for one

    @property
    def subjects(self) -> frozenset[Hashable]:
        """What findings about it have in common with those about the kernel that starts it."""
        return frozenset({("line", self.line)})

    @property
    def memories(self) -> frozenset[Memory]:
        """The arrays that it reads and writes."""
        return frozenset(m for m in (self.source, self.destination) if m is not None)


@dataclass(slots=True)
class State:
    """One path through the program: what is in flight, what is over, and what was decided on the way."""

    open: dict[Flight, frozenset[Key]] = field(default_factory=dict)
    ended: dict[Key, tuple[Flight, Call]] = field(default_factory=dict)
    parts: dict[tuple[Flight, Key], int] = field(default_factory=dict)  # what was waited for of a half
    finished: dict[Flight, Call] = field(default_factory=dict)
    kept: frozenset[Flight] = frozenset()
    uses: dict[Flight, tuple[Call, bool]] = field(
        default_factory=dict
    )  # of a source in flight: the last, is a write
    taken: dict[Value, Call] = field(default_factory=dict)  # operands that a start took over
    decisions: tuple[tuple[Call, int, int], ...] = ()  # cond, branch, starts before it
    choices: dict[Value, int] = field(default_factory=dict)
    starts: tuple[Flight, ...] = ()

    def fork(self) -> State:
        """An independent copy."""
        return State(
            dict(self.open), dict(self.ended), dict(self.parts), dict(self.finished), self.kept, dict(self.uses),
            dict(self.taken), self.decisions, dict(self.choices), self.starts,
        )  # fmt: skip

    def joined(self, others: list[State]) -> State:
        """The state behind branches after which the same copies are in flight as before."""
        result = self.fork()
        result.kept |= frozenset[Flight].intersection(*(s.kept for s in others))
        result.parts = {k: max(s.parts.get(k, 0) for s in others) for s in others for k in s.parts}
        for state in others:
            result.kept |= frozenset(f for f in state.kept if f not in self.finished and f not in self.open)
            result.ended |= state.ended
            result.finished |= state.finished
            result.uses |= state.uses
            result.taken |= state.taken
            result.starts = tuple(dict.fromkeys((*result.starts, *state.starts)))
        return result

    def start(self, flight: Flight) -> None:
        """The copy is in flight from now on."""
        self.open[flight] = frozenset(flight.waits)
        self.starts = (*self.starts, flight)

    def decided_since(self, flight: Flight) -> list[tuple[Call, int, int]]:
        """The branches taken since the copy started."""
        born = self.starts.index(flight)
        return [decision for decision in self.decisions if decision[2] > born]

    def waiting_on(self, key: Key) -> Flight | None:
        """The oldest copy in flight that counts on a semaphore."""
        return next((f for f, keys in self.open.items() if key in keys), None)

    def finish(self, flight: Flight, keys: Iterable[Key], call: Call) -> None:
        """These halves of the copy are over."""
        left = self.open[flight] - frozenset(keys)
        if left:
            self.open[flight] = left
            return
        del self.open[flight]
        self.finished[flight] = call

    def leaves_some(self, flight: Flight, key: Key, amount: object) -> bool:
        """Notes a wait for a part of a half; True where some of the half is left to wait for."""
        whole = flight.waits[key]
        if not isinstance(whole, int) or not isinstance(amount, int):
            return False
        waited = self.parts[flight, key] = self.parts.get((flight, key), 0) + amount
        return waited < whole

    def is_reading(self, flight: Flight) -> bool:
        """True where the source may still be read."""
        return flight.halves[0] in self.open[flight]

    def is_writing(self, flight: Flight) -> bool:
        """True where the destination may still be written."""
        return flight.halves[1] in self.open[flight]

    def touching(self, memories: Iterable[Memory]) -> list[Flight]:
        """The copies in flight that read or write one of the memories."""
        wanted = set(memories)
        return [f for f in self.open if f.memories & wanted]
