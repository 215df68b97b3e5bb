"""A machine for one core that forks: what is in flight, what is counted, and what looks wrong.

On one core that only copies signal, a copy is known to be complete when everything ever counted on its semaphore has
been waited for: a wait whose need equals the supply drains the semaphore, any smaller one proves nothing. (The general
rule of :mod:`.order` says the same for this case.) That makes the state small: the copies in flight, and per semaphore
what was signalled and waited for since it was last drained. It is what loop heads are compared by (:mod:`.loops`).

The machine is a filter. What looks wrong here becomes a :class:`Suspect` with the events that led to it; the rules look
at those events with the full order and decide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from asyncops.checker.events import Site
from asyncops.checker.memory import Buffer
from asyncops.checker.recording import (
    CopyDraft,
    Entry,
    Problem,
    Recorder,
    SemaphoreKey,
    Trace,
    assume_sizes,
    counts_of,
    further,
    out_of_bounds,
)
from asyncops.checker.skeleton import OutOfBudget, PathEnds
from asyncops.checker.tables import same_entries, table_names
from stateful import terms
from stateful.terms import Conditions, Predicate, Term
from stateful.types import Region, View


@dataclass(frozen=True, slots=True)
class InFlight:
    """A copy that may still be running: which halves are not known to be over."""

    draft: CopyDraft
    reading: bool = True
    writing: bool = True


@dataclass(frozen=True, slots=True)
class Count:
    """What a semaphore got and gave since it was last drained."""

    signalled: Term = 0
    waited: Term = 0


@dataclass(frozen=True, slots=True)
class Chain:
    """Entries in order, sharing what came before."""

    entry: Any
    before: Chain | None

    def entries(self) -> list[Any]:
        """All entries, oldest first."""
        found: list[Any] = []
        at: Chain | None = self
        while at is not None:
            found.append(at.entry)
            at = at.before
        return found[::-1]


@dataclass(slots=True)
class Flight:
    """The forking state of the machine."""

    copies: tuple[InFlight, ...] = ()
    counts: dict[SemaphoreKey, Count] = field(default_factory=dict)
    chain: Chain | None = None
    is_suspicious: bool = False
    is_weakened: bool = False  # something that was assumed on the way has been forgotten

    def fork(self) -> Flight:
        """An independent copy; everything inside is immutable."""
        return Flight(self.copies, dict(self.counts), self.chain, self.is_suspicious, self.is_weakened)


@dataclass(frozen=True)
class Suspect:
    """Something that looks wrong: the kind and place, the path's conditions, and the events up to it."""

    key: Any
    conditions: Conditions
    chain: Chain
    is_weakened: bool = False

    def trace(self) -> Trace:
        """The events as the trace of one core."""
        trace = Trace(0)
        for entry in self.chain.entries():
            if entry.kind == "problem":
                trace.problems.append((entry.what, len(trace.entries)))
            else:
                trace.entries.append(entry)
        return trace


def rebased(flight: Flight) -> Chain | None:
    """A chain of events that leads to the flight's state directly: what has been entered, what is in flight."""
    chain: Chain | None = None
    for entry in flight.chain.entries() if flight.chain else ():
        if entry.kind in ("enter", "allocate", "exit", "free"):
            chain = Chain(entry, chain)
    for key, count in flight.counts.items():
        moving = [a for c in flight.copies for k, a in counts_of(c.draft) if k == key]
        over = count.signalled
        for amount in moving:
            over = terms.sub(over, amount)
        if over != 0:
            chain = Chain(Entry("signal", Site(), semaphore=key, amount=over), chain)
    for copy in flight.copies:
        chain = Chain(Entry("start", copy.draft.site, copy=copy.draft), chain)
    for key, count in flight.counts.items():
        if count.waited != 0:
            chain = Chain(Entry("wait", Site(), semaphore=key, amount=count.waited), chain)
    return chain


class Tracker(Recorder):
    """Tells the copies in flight from those that are over, and notes what conflicts with them."""

    suspects: list[Suspect]

    def __init__(self, memory: Any, policy: Any, topology: Any, events: int = 400_000):
        super().__init__(memory, policy, topology)
        self.suspects = []
        self.suspect_keys: dict[Any, int] = {}
        self.assumptions: dict[str, None] = {}
        self.doubts: dict[str, None] = {}
        self.events_left = events
        self.needs_steps = (
            False  # what choosing blocks by scalars that bodies write does, only single steps show
        )
        self.events = 0

    def _add(self, state: Any, entry: Entry) -> None:
        entry.coordinates = tuple(index for index, _ in state.grid)
        entry.call = state.call
        flight: Flight = state.machine
        flight.chain = Chain(entry, flight.chain)
        self.events += 1
        if self.events > self.events_left:
            raise OutOfBudget("more events than are followed")

    def checkpoint(self) -> Callable[[], None]:
        """A function that forgets what was noted since: for runs on trial."""
        suspects, keys = list(self.suspects), dict(self.suspect_keys)

        def back() -> None:
            self.suspects[:], self.suspect_keys = suspects, keys

        return back

    def suspect(self, state: Any, key: Any, condition: Predicate = True) -> None:
        """Notes something that looks wrong where ``condition`` can hold on this path."""
        conditions = state.path.assume(condition)
        if conditions is None:
            return
        state.machine.is_suspicious = True
        seen = self.suspect_keys.get(key, 0)
        if seen < 3:
            self.suspect_keys[key] = seen + 1
            flight: Flight = state.machine
            self.suspects.append(Suspect(key, conditions, flight.chain, flight.is_weakened))  # type: ignore[arg-type]

    def problem(self, state: Any, problem: Problem, condition: Predicate = True) -> None:
        """A defect seen at once."""
        self._add(state, Entry("problem", problem.site, what=problem))
        both = terms.logical_and(condition, problem.condition)
        self.suspect(state, (problem.code, problem.site.location), both)

    def check_bounds(self, state: Any, view: View, site: Site) -> None:
        """A view outside its memory."""
        assume_sizes(state, view)
        outside = view.region.out_of_bounds()
        if outside is False or state.path.decide(outside) is False:
            return
        before = state.path
        condition = self.policy.avoid(state, outside)
        if condition is False:
            where = f" ({site.location})" if site.location else ""
            self.assumptions[f"the arguments keep every index of {view.root} in range{where}"] = None
        else:
            after, state.path = state.path, before
            self.problem(state, out_of_bounds(view, site), condition)
            state.path = after

    # -- memory --

    def access(self, state: Any, view: View, write: bool, site: Site, is_program: bool) -> None:
        """A load or store by the core."""
        flight: Flight = state.machine
        if not flight.copies and not self.records_all(state):
            self.events += 1
            return
        region = view.region
        self._add(state, Entry("access", site, region=region, write=write))
        for copy in flight.copies:
            self._meet(state, copy, region, write, site)

    def records_all(self, state: Any) -> bool:
        """True where every access is written down, whether or not something is in flight."""
        return False

    def _meet(self, state: Any, copy: InFlight, region: Region, write: bool, site: Site) -> None:
        draft = copy.draft
        if copy.writing and draft.destination is not None and draft.destination.root is region.root:
            self._overlap(state, draft, draft.destination, region, ("write", write), site)
        if write and copy.reading:
            for read in (draft.source, *draft.indices):
                if read is not None and read.root is region.root:
                    self._overlap(state, draft, read, region, ("read", write), site)

    def _overlap(
        self, state: Any, draft: CopyDraft, theirs: Region, mine: Region, kind: Any, site: Site
    ) -> None:
        together = theirs.overlap(mine)
        if together is False:
            return
        same = same_entries(theirs, mine)
        if same is not None:
            if state.path.assume(together) is not None:
                self._rely_on_tables(theirs, mine, kind == ("write", True), draft.site, site)
            together = terms.logical_and(together, same)
        if together is not False:
            self.suspect(state, ("race", kind, draft.site.location, site.location), together)

    def _rely_on_tables(
        self, theirs: Region, mine: Region, both_write: bool, first: Site, second: Site
    ) -> None:
        """The two uses do not meet if different entries of what is read from memory name different places.

        That is a caller's promise where both write: which of them comes last would be left to chance otherwise.
        """
        names, where = table_names(theirs, mine), f"{first.location} and {second.location}"
        if both_write:
            self.assumptions[f"different entries of {names} name different places ({where})"] = None
        else:
            self.doubts[
                f"{where} race where different entries of {names} name one place: give them and values=True"
            ] = None

    # -- copies --

    def start(self, state: Any, op: Any, site: Site) -> None:
        """A copy starts on this core's own device."""
        self.check_semaphore_types(state, op, site)
        draft = CopyDraft(
            op.source.region, op.destination.region, self.key(state, op.source_semaphore),
            self.key(state, op.destination_semaphore), op.source_amount, op.destination_amount, op.add, "dma", site,
            *further(op, state),
        )  # fmt: skip
        self._launch(state, draft, Entry("start", site, copy=draft, op=op), site)
        state.cells.disturb(op.destination.root)

    def pipeline_start(self, state: Any, draft: CopyDraft, site: Site) -> None:
        """A copy that the block pipeline makes."""
        self._launch(state, draft, Entry("start", site, copy=draft), site)

    def _launch(self, state: Any, draft: CopyDraft, entry: Entry, site: Site) -> None:
        flight: Flight = state.machine
        self._add(state, entry)
        for copy in flight.copies:
            if copy.draft.kind == "pipeline" and draft.kind == "pipeline":
                continue
            for read in (draft.source, *draft.indices):
                self._meet(state, copy, read, False, site)  # type: ignore[arg-type]
            if not (
                draft.alike is not None
                and copy.draft.alike == draft.alike
                and draft.destination == copy.draft.destination
            ):
                self._meet(state, copy, draft.destination, True, site)  # type: ignore[arg-type]
        for key, amount in (
            (draft.source_semaphore, draft.source_amount),
            (draft.destination_semaphore, draft.destination_amount),
        ):
            if key is not None:
                self._count(state, key, amount)
        flight.copies = (*flight.copies, InFlight(draft))

    def _count(self, state: Any, key: SemaphoreKey, amount: Term) -> None:
        key = self.same_key(state, key)
        count = state.machine.counts.get(key, Count())
        state.machine.counts[key] = replace(count, signalled=terms.add(count.signalled, amount))

    def key(self, state: Any, view: View | None) -> SemaphoreKey | None:
        """The identity of a semaphore; its index may hold symbols."""
        if view is None:
            return None
        index = tuple(self.policy.concretise(state, start) for start, _, _ in view.ranges)
        return self.same_key(state, SemaphoreKey(view.root, index))  # type: ignore[arg-type]

    def same_key(self, state: Any, key: SemaphoreKey) -> SemaphoreKey:
        """The key under which the semaphore is counted already, if the path decides that they are the same."""
        if key in state.machine.counts or all(type(i) is int for i in key.index):
            return key
        for other in state.machine.counts:
            if other.buffer is key.buffer:
                same = terms.logical_and(*(terms.eq(a, b) for a, b in zip(key.index, other.index)))
                if state.path.decide(same) is True:
                    return other
        return key

    # -- waits and signals --

    def wait(self, state: Any, semaphore: View, amount: Any, decrement: bool, site: Site, op: Any) -> None:
        """A wait: drains the semaphore, takes a part, or never returns."""
        key = self.key(state, semaphore)
        assert key is not None
        self._add(state, Entry("wait", site, semaphore=key, amount=amount, decrement=decrement, op=op))
        self._take(state, key, amount, decrement, site)

    def pipeline_wait(self, state: Any, key: SemaphoreKey, amount: Any, site: Site) -> None:
        """A wait that the block pipeline makes."""
        self._add(state, Entry("wait", site, semaphore=key, amount=amount))
        self._take(state, self.same_key(state, key), amount, True, site)

    def _take(self, state: Any, key: SemaphoreKey, amount: Any, decrement: bool, site: Site) -> None:
        flight: Flight = state.machine
        if amount is None:
            amount = terms.element("amount", (), id(site) % 1000, 0)
        count = flight.counts.get(key, Count())
        need = terms.add(count.waited, amount)
        gap = terms.sub(count.signalled, need)
        short = state.path.decide(terms.lt(gap, 0))
        if short is not False:
            self.suspect(state, ("stuck", site.location), terms.lt(gap, 0))
            possible = state.path.assume(terms.le(0, gap))
            if short or possible is None:
                raise PathEnds
            state.path = possible
        if state.path.decide(terms.eq(gap, 0)) is True:
            flight.copies = tuple(c for c in (self._finished(c, key) for c in flight.copies) if c is not None)
            if decrement:
                flight.counts.pop(key, None)
        elif decrement:
            flight.counts[key] = Count(count.signalled, need)

    def _finished(self, copy: InFlight, key: SemaphoreKey) -> InFlight | None:
        """The copy once everything counted on ``key`` has been counted; None when it is over."""
        reading, writing = copy.reading, copy.writing
        if copy.draft.destination_semaphore == key:
            return None
        if copy.draft.source_semaphore == key:
            reading = False
        return replace(copy, reading=reading, writing=writing)

    def _counted(self, state: Any, key: SemaphoreKey) -> tuple[Term, Term] | None:
        flight: Flight = state.machine
        if any(k.buffer is key.buffer and any(type(i) is not int for i in k.index) for k in flight.counts):
            return None
        count = flight.counts.get(key, Count())
        most = terms.sub(count.signalled, count.waited)
        least = most
        for amount in (a for c in flight.copies for k, a in counts_of(c.draft) if k == key):
            least = terms.sub(least, amount)
        return (least if least == most else terms.maximum(0, least)), most

    def signal(self, state: Any, op: Any, site: Site) -> None:
        """A signal by the core on its own device."""
        self.check_semaphore_types(state, op, site)
        key = self.key(state, op.semaphore)
        assert key is not None
        self._add(state, Entry("signal", site, semaphore=key, amount=op.amount))
        self._count(state, key, op.amount)

    # -- lives --

    def end(self, state: Any) -> None:
        """The program ends: a copy whose semaphore left its kernel should have been waited for."""
        for copy in state.machine.copies:
            if copy.draft.kind != "pipeline":
                self.suspect(state, ("dropped", copy.draft.site.location))

    def barrier(self, state: Any, gate: Any) -> None:
        """A barrier of one core orders nothing."""

    def subcore_barrier(self, state: Any, buffer: Buffer, members: int, site: Site) -> None:
        """Here the core is the only one of its SparseCore."""

    def mark(self, state: Any, kind: str, what: Any, buffers: Sequence[Buffer], site: Site) -> None:
        """Enter, exit, allocate, free."""
        self._add(state, Entry(kind, site, what=what, buffers=tuple(buffers)))
        if kind not in ("exit", "free"):
            return
        flight: Flight = state.machine
        gone = set(buffers)
        for copy in flight.copies:
            if copy.draft.kind != "pipeline" and _uses(copy.draft, gone):
                self.suspect(state, ("late", kind, copy.draft.site.location))
        for key, count in flight.counts.items():
            left = terms.sub(count.signalled, count.waited)
            if key.buffer in gone and key.buffer.role != "pipeline" and left != 0:
                self.suspect(state, ("left", key.buffer.path, site.location), terms.lt(0, left))
        self.forget(state, gone)

    def forget(self, state: Any, buffers: set[Buffer]) -> None:
        """What is in flight on these buffers and semaphores is no longer this core's business."""
        flight: Flight = state.machine
        flight.counts = {k: c for k, c in flight.counts.items() if k.buffer not in buffers}
        flight.copies = tuple(c for c in flight.copies if not _uses(c.draft, buffers))


def _uses(draft: CopyDraft, buffers: set[Buffer]) -> bool:
    keys = [k for k in (draft.source_semaphore, draft.destination_semaphore) if k is not None]
    if any(k.buffer in buffers for k in keys):
        return True
    if any(k.buffer.role in ("result", "operand") for k in keys):
        return False
    return any(r is not None and r.root in buffers for r in (draft.source, draft.destination))


__all__ = ["Chain", "Count", "Flight", "InFlight", "Suspect", "Tracker"]
