"""A machine that writes events down: one straight-line trace per core, for the order, the rules and the witness.

Regions, semaphore indices and amounts may contain symbols while a core runs. :func:`finish` puts the values of a
model in and gives the concrete :class:`~asyncops.checker.events.Program`.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from asyncops.checker import events
from asyncops.checker.events import ATOMIC, Box, Site
from asyncops.checker.memory import Buffer, Memory
from stateful import terms
from stateful.types import Region, SemaphoreKind, View

MAX_EVENTS = 200_000


@dataclass(frozen=True, slots=True)
class RegionBox(Box):
    """A box that remembers its region, for buffers whose parts are seen in several coordinate systems."""

    region: Region | None = None

    def overlaps(self, other: Box) -> bool:
        """Exact where both systems agree or both regions are known; else True unless excluded."""
        if self.buffer is not other.buffer:
            return False
        mine, theirs = self.region, getattr(other, "region", None)
        if (
            mine is None
            or theirs is None
            or (mine.is_known and theirs.is_known and mine.system == theirs.system)
        ):
            return Box.overlaps(self, other)
        return mine.overlap(theirs) is not False


def surely_overlap(a: Box, b: Box) -> bool:
    """True where two boxes that may share an element are known to."""
    mine, theirs = getattr(a, "region", None), getattr(b, "region", None)
    if mine is None or theirs is None:
        return a.exact and b.exact
    return mine.overlaps(theirs) is True


def box_of(region: Region) -> RegionBox:
    """The region as a box in the coordinates of its buffer; a superset where it is not known there."""
    buffer: Buffer = region.root  # type: ignore[assignment]
    if region.is_known and region.system == buffer.type.shape:
        return RegionBox(buffer, region.ranges, region.exact, region)  # type: ignore[arg-type]
    return RegionBox(buffer, tuple((0, n, 1) for n in buffer.type.shape), False, region)


@dataclass(frozen=True, slots=True)
class SemaphoreKey:
    """One semaphore: its buffer and the index in an array of them."""

    buffer: Buffer
    index: tuple[Any, ...]

    def __str__(self) -> str:
        where = f"[{', '.join(map(str, self.index))}]" if self.index else ""
        return f"{self.buffer.name}{where}"


@dataclass(slots=True)
class Entry:
    """One event as it was recorded. ``coordinates`` are those of the grid step; ``call`` the kernel call."""

    kind: str
    site: Site
    region: Region | None = None
    write: bool = False
    copy: Any = None
    semaphore: Any = None
    amount: Any = 0
    decrement: bool = True
    what: Any = None
    buffers: Sequence[Buffer] = ()
    coordinates: tuple[Any, ...] = ()
    call: Any = None
    op: Any = None
    core: Any = None
    alike: Hashable = None


@dataclass(frozen=True, slots=True)
class Gate:
    """A point that cores pass together: of a call, on one device or (None) on all.

    ``group`` and ``turn`` tell the barriers inside a kernel apart; ``members``: how many cores have to come (0: those
    that do).
    """

    kind: str
    call: int
    device: int | None = None
    group: Hashable = None
    turn: int = 0
    members: int = 0


@dataclass(slots=True)
class Trace:
    """What one core did. ``slot`` is the number of the core among those that run the program on its device."""

    device: int
    slot: int = 0
    entries: list[Entry] = field(default_factory=list)
    barriers: dict[Gate, int] = field(
        default_factory=dict
    )  # the entry after which the core waits for the others
    problems: list[Any] = field(default_factory=list)

    def fork(self) -> Trace:
        """Recording follows one path."""
        raise AssertionError("a recorded run does not fork")


@dataclass(slots=True)
class CopyDraft:
    """A copy whose regions and amounts may still contain symbols."""

    source: Region | None
    destination: Region | None
    source_semaphore: Any
    destination_semaphore: Any
    source_amount: Any
    destination_amount: Any
    accumulate: bool
    kind: str
    site: Site
    indices: tuple[Region, ...] = ()
    alike: Hashable = None


def counts_of(draft: CopyDraft) -> tuple[tuple[Any, Any], ...]:
    """The semaphore that each half of a copy counts on (None: none), with the amount."""
    return (
        (draft.source_semaphore, draft.source_amount),
        (draft.destination_semaphore, draft.destination_amount),
    )


@dataclass(frozen=True)
class Problem:
    """A defect seen while running, before any order is computed: out of bounds, wrong semaphore type, ..."""

    code: str
    message: str | Callable[[Mapping[Any, int]], str]
    site: Site
    help: str = ""
    related: tuple[tuple[str, Any], ...] = ()
    test: Callable[[Mapping[Any, int]], bool] | None = None
    condition: Any = True  # a predicate: where it is false the defect is not there
    subject: Callable[[Mapping[Any, int]], Hashable] | None = None  # problems with one subject are one defect

    def text(self, model: Mapping[Any, int]) -> str:
        """The message, with the values of a model in place of symbols."""
        return self.message if isinstance(self.message, str) else self.message(model)


class Recorder:
    """The machine of a concrete run. ``concretise`` gives the value of a semaphore index."""

    def __init__(self, memory: Memory, policy: Any, topology: Any):
        self.memory, self.policy, self.topology = memory, policy, topology
        self.events_left = MAX_EVENTS
        self.assumptions: dict[str, None] = {}
        self.is_alone = False  # no other core signals here

    def assume(self, text: str) -> None:
        """The verdict rests on something that is not checked."""
        self.assumptions[text] = None

    def _add(self, state: Any, entry: Entry) -> None:
        entry.coordinates = tuple(index for index, _ in state.grid)
        entry.call, entry.core = state.call, state.place.core
        trace: Trace = state.machine
        if entry.core is not None:
            self._compare(state, entry, len(trace.entries))
        trace.entries.append(entry)
        self.events_left -= 1
        if self.events_left < 0:
            from asyncops.checker.skeleton import OutOfBudget

            moment = entry.site.moment
            reached = f", at {moment}" if moment else ""
            raise OutOfBudget(
                f"the run of one core has too many events to be judged (given up after {len(trace.entries) - 1:,}"
                f"{reached}): try fewer steps"
            )

    def _compare(self, state: Any, entry: Entry, position: int) -> None:
        """Cores whose program does not tell them apart write the same values, which does no harm."""
        station = state.call.station
        alike = (state.call.number, station.program.core, position, station.told_apart)
        if entry.kind == "access" and entry.write and entry.alike is None:
            entry.alike = alike
        elif entry.kind == "start" and entry.copy.alike is None and not entry.copy.accumulate:
            entry.copy.alike = alike

    def problem(self, state: Any, problem: Problem) -> None:
        """Reports a defect seen at once."""
        state.machine.problems.append((problem, len(state.machine.entries)))

    def access(self, state: Any, view: View, write: bool, site: Site, is_program: bool) -> None:
        """A load or store by the core."""
        self._add(state, Entry("access", site, region=view.region, write=write))

    def start(self, state: Any, op: Any, site: Site) -> None:
        """A copy starts; a remote one writes and signals on another device."""
        self.check_semaphore_types(state, op, site)
        destination, receive = op.destination, op.destination_semaphore
        kind = "dma"
        if op.device is not None:
            kind = "remote"
            target = self.topology.target(state, op.device, site)
            destination, receive = self._moved(destination, target), self._moved(receive, target)
        assert destination is not None
        draft = CopyDraft(
            op.source.region, destination.region, self.key(state, op.source_semaphore), self.key(state, receive),
            op.source_amount, op.destination_amount, op.add, kind, site, *further(op, state),
        )  # fmt: skip
        self._add(state, Entry("start", site, copy=draft, op=op))
        state.cells.disturb(op.destination.root)

    def _moved(self, view: View | None, target: Any) -> View | None:
        """The view on another device or core."""
        if view is None:
            return None
        root: Buffer = view.root  # type: ignore[assignment]
        return view._with(root=self.memory.counterpart(root, target.device, target.owner(root)))

    def key(self, state: Any, view: View | None) -> SemaphoreKey | None:
        """The identity of the semaphore that a view names."""
        if view is None:
            return None
        index = tuple(self.policy.concretise(state, start) for start, _, _ in view.ranges)
        return SemaphoreKey(view.root, index)  # type: ignore[arg-type]

    def wait(self, state: Any, semaphore: View, amount: Any, decrement: bool, site: Site, op: Any) -> None:
        """A wait of either kind."""
        key = self.key(state, semaphore)
        self._add(state, Entry("wait", site, semaphore=key, amount=amount, decrement=decrement, op=op))

    def count(self, state: Any, semaphore: View, unknown: terms.Term) -> terms.Term:
        """What a read of a semaphore can give: its own signals are counted at once, its copies' as they move."""
        if not self.is_alone or any(type(start) is not int for start, _, _ in semaphore.ranges):
            return unknown
        key = self.key(state, semaphore)
        assert key is not None
        counted = self._counted(state, key)
        if counted is None:
            return unknown
        low, high = counted
        if low == high:
            return high
        within = state.path.assume(terms.logical_and(terms.le(low, unknown), terms.le(unknown, high)))
        state.path = within or state.path
        return unknown

    def _counted(self, state: Any, key: SemaphoreKey) -> tuple[terms.Term, terms.Term] | None:
        """The least and the most that the semaphore holds now; None where that is not known."""
        total = moving = 0
        for entry in state.machine.entries:
            if entry.kind == "start":
                added = sum(amount for k, amount in counts_of(entry.copy) if k == key)
                total, moving = total + added, moving + added
            elif entry.semaphore == key and type(entry.amount) is not int:
                return None
            elif entry.semaphore == key and entry.kind == "signal":
                total += entry.amount
            elif entry.semaphore == key and entry.kind == "wait":
                moving = 0 if total == entry.amount else moving
                total -= entry.amount if entry.decrement else 0
        return max(0, total - moving), total

    def signal(self, state: Any, op: Any, site: Site) -> None:
        """A signal by the core, here or elsewhere."""
        self.check_semaphore_types(state, op, site)
        view = op.semaphore
        if op.device is not None or op.core is not None:
            view = self._moved(view, self.topology.target(state, op.device, site, op.core))
        self._add(state, Entry("signal", site, semaphore=self.key(state, view), amount=op.amount))

    def signal_key(self, state: Any, key: SemaphoreKey, amount: Any, site: Site) -> None:
        """A signal on a known semaphore."""
        self._add(state, Entry("signal", site, semaphore=key, amount=amount))

    def pipeline_start(self, state: Any, draft: CopyDraft, site: Site) -> None:
        """A copy that the block pipeline makes."""
        self._add(state, Entry("start", site, copy=draft))

    def pipeline_wait(self, state: Any, key: SemaphoreKey, amount: Any, site: Site) -> None:
        """A wait that the block pipeline makes."""
        self._add(state, Entry("wait", site, semaphore=key, amount=amount))

    def barrier(self, state: Any, gate: Gate) -> None:
        """Every core that comes to the gate waits for the others."""
        state.machine.barriers[gate] = len(state.machine.entries) - 1

    def subcore_barrier(self, state: Any, buffer: Buffer, members: int, site: Site) -> None:
        """Every subcore of a SparseCore comes here before any goes on."""
        trace: Trace = state.machine
        self._add(state, Entry("barrier", site, semaphore=SemaphoreKey(buffer, ()), amount=1))
        gate = Gate("barrier", state.call.number, state.place.device, buffer.core, 0, members)
        while gate in trace.barriers:
            gate = dataclasses.replace(gate, turn=gate.turn + 1)
        self.barrier(state, gate)

    def atomic(self, state: Any, view: View, device: int, core: Any, site: Site) -> None:
        """Memory of another core is changed in one step."""
        root = self.memory.counterpart(view.root, device, core)  # type: ignore[arg-type]
        region = view._with(root=root).region
        self._add(state, Entry("access", site, region=region, write=True, alike=ATOMIC))

    def mark(self, state: Any, kind: str, what: Any, buffers: Sequence[Buffer], site: Site) -> None:
        """Enter, exit, allocate, free."""
        self._add(state, Entry(kind, site, what=what, buffers=tuple(buffers)))

    def check_bounds(self, state: Any, view: View, site: Site) -> None:
        """A view outside its memory: a finding where the path forces it, an assumption where symbols may avoid it."""
        assume_sizes(state, view)
        outside = view.region.out_of_bounds()
        if outside is False:
            return
        if not self.policy.avoid(state, outside):
            self.problem(state, out_of_bounds(view, site))

    def check_semaphore_types(self, state: Any, op: Any, site: Site) -> None:
        """AO304: a DMA semaphore signalled by hand, a regular one given to a copy."""
        problem = semaphore_type_problem(op, site)
        if problem is not None:
            self.problem(state, problem)


def assume_sizes(state: Any, view: View) -> None:
    """No slice has a negative size, whatever says how long it is."""
    for _, size, _ in view.ranges:
        if type(size) is not int:
            state.path = state.path.assume(terms.le(0, size)) or state.path


def further(op: Any, state: Any) -> tuple[tuple[Region, ...], Hashable]:
    """What else a copy reads, and what its writes are ``alike``: SparseCores add in steps of their own."""
    on_sparse_core = state.place.core is not None and state.place.core.kind.startswith("sc")
    return tuple(view.region for view in op.indices), ATOMIC if op.add and on_sparse_core else None


def out_of_bounds(view: View, site: Site) -> Problem:
    """AO305 for a view."""
    buffer: Buffer = view.root  # type: ignore[assignment]
    what = "semaphore index" if buffer.is_semaphore else "slice"
    shape = ",".join(map(str, buffer.type.shape))

    def message(model: Mapping[Any, int]) -> str:
        moment = str(placed(site, model).moment)
        region = view.region.substituted(model)
        when = f" at {moment}" if moment else ""
        return f"{what} {region} lies outside {buffer.name}, whose shape is [{shape}]{when}"

    return Problem(
        "AO305",
        message,
        site,
        f"guard the access, or clamp the index so that it stays below the size of {buffer.name}",
        test=lambda model: view.region.substituted(model).out_of_bounds() is True,
        subject=lambda model: ("outside", buffer, str(view.region.substituted(model))),
    )


def _not_for_copies(semaphore: View, site: Site) -> Problem:
    kind = semaphore.type.semaphore
    return Problem(
        "AO304",
        f"a copy signals {semaphore.root}, which is a {kind.value if kind else 'plain'} semaphore",
        site,
        f"declare {semaphore.root} as SemaphoreType.DMA",
        test=lambda model: kind is not SemaphoreKind.DMA,
    )


def semaphore_type_problem(op: Any, site: Site) -> Problem | None:
    """The AO304 finding of a copy or signal, if its semaphore has the wrong type."""
    if hasattr(op, "source_semaphore"):
        views = (v for v in (op.source_semaphore, op.destination_semaphore) if v is not None)
        return next(
            (_not_for_copies(v, site) for v in views if v.type.semaphore is not SemaphoreKind.DMA), None
        )
    kind = op.semaphore.type.semaphore
    if kind is SemaphoreKind.DMA:
        return Problem(
            "AO304", f"{op.semaphore.root} is a DMA semaphore, but is signalled by hand", site,
            f"declare {op.semaphore.root} as SemaphoreType.REGULAR, or let the copy signal it",
            test=lambda model: kind is SemaphoreKind.DMA,
        )  # fmt: skip
    return None


# -- concrete programs ------------------------------------------------------------------------------------------------


def _value(x: Any, model: Mapping[Any, int]) -> int:
    x = terms.substitute(x, model) if not isinstance(x, int) else x
    return x if type(x) is int else int(terms.interval(x)[0] or 0)


def placed(site: Site, model: Mapping[Any, int]) -> Site:
    """The site as text: the values of a model put into its moment and label."""
    moment: Any = site.moment
    label: Any = site.label
    if model and getattr(moment, "frames", ()):
        moment = dataclasses.replace(
            moment, frames=tuple((what, _known(v, model)) for what, v in moment.frames)
        )
    if isinstance(label, View):
        label = label.region.substituted(model)
    return dataclasses.replace(site, moment=str(moment), label=str(label))


def _known(x: Any, model: Mapping[Any, int]) -> Any:
    if isinstance(x, tuple):
        return tuple(_known(y, model) for y in x)
    return terms.substitute(x, model) if isinstance(x, terms.Linear) else x


def _region(region: Region | None, model: Mapping[Any, int]) -> Box | None:
    return None if region is None else box_of(region.substituted(model))


def _copy(draft: CopyDraft, model: Mapping[Any, int], made: dict[int, events.Copy]) -> events.Copy:
    copy = made.get(id(draft))
    if copy is None:
        copy = made[id(draft)] = events.Copy(
            _region(draft.source, model), _region(draft.destination, model), _placed_key(draft.source_semaphore, model),
            _placed_key(draft.destination_semaphore, model), _value(draft.source_amount, model),
            _value(draft.destination_amount, model),
            draft.accumulate, draft.kind, placed(draft.site, model), _copy_name(draft, model),
            tuple(box_of(r.substituted(model)) for r in draft.indices), draft.alike,
        )  # fmt: skip
    return copy


def _is_empty(copy: events.Copy) -> bool:
    """True for a copy of no element, which is over when it starts."""
    return all(
        box is not None and any(n <= 0 for _, n, _ in box.dims) for box in (copy.source, copy.destination)
    )


def _copy_name(draft: CopyDraft, model: Mapping[Any, int]) -> str:
    ends = (draft.source, draft.destination)
    return " -> ".join("?" if r is None else str(r.substituted(model)) for r in ends)


def _semaphores(buffer: Buffer) -> list[SemaphoreKey]:
    index: list[tuple[int, ...]] = [()]
    for n in buffer.type.shape:
        index = [(*i, k) for i in index for k in range(n)]
    return [SemaphoreKey(buffer, i) for i in index]


def _event(
    entry: Entry, model: Mapping[Any, int], made: dict[int, events.Copy], is_closed: bool = False
) -> events.Event:
    site = placed(entry.site, model)
    if is_closed and entry.kind == "barrier":
        return events.Wait(entry.semaphore, 1, True, site)
    if entry.kind == "access":
        box = _region(entry.region, model)
        return events.Access(box, entry.write, site, entry.alike)  # type: ignore[arg-type]
    if entry.kind == "start":
        copy = _copy(entry.copy, model, made)
        return events.Mark("nothing", None, site=site) if _is_empty(copy) else events.Start(copy, site)
    if entry.kind == "signal":
        return events.Signal(_placed_key(entry.semaphore, model), _value(entry.amount, model), site)
    if entry.kind == "wait":
        return events.Wait(
            _placed_key(entry.semaphore, model), _value(entry.amount, model), entry.decrement, site
        )
    memory = tuple(box_of(b.whole().region) for b in entry.buffers if not b.is_semaphore)
    semaphores = tuple(k for b in entry.buffers if b.is_semaphore for k in _semaphores(b))
    return events.Mark(entry.kind, entry.what, memory, semaphores, site)


def _placed_key(key: Any, model: Mapping[Any, int]) -> Any:
    if key is None or all(type(i) is int for i in key.index):
        return key
    return SemaphoreKey(key.buffer, tuple(_value(i, model) for i in key.index))


def finish(traces: Sequence[Trace], models: Sequence[Mapping[Any, int]]) -> events.Program:
    """The concrete program of the traces, each with the values of its symbols."""
    made: dict[int, events.Copy] = {}
    gates: dict[Gate, list[tuple[int, int]]] = defaultdict(list)
    for c, trace in enumerate(traces):
        for gate, index in trace.barriers.items():
            gates[gate].append((c, index))
    # A barrier that some core never comes to holds the others for ever, like a wait that nobody signals.
    closed = {point for gate, points in gates.items() if len(points) < gate.members for point in points}
    is_alone = len({t.device for t in traces}) == 1
    cores = tuple(
        events.Core(
            t.device,
            tuple(_event(e, m, made, (c, i) in closed) for i, e in enumerate(t.entries)),
            t.slot,
            _core_name(t, is_alone),
        )
        for c, (t, m) in enumerate(zip(traces, models))
    )
    barriers = tuple(tuple(points) for points in gates.values() if len(points) > 1)
    return events.Program(cores, tuple(b for b in barriers if not closed.intersection(b)))


def _core_name(trace: Trace, is_alone: bool) -> str:
    core = next((e.core for e in trace.entries if e.core is not None), None)
    if core is None:
        return f"device {trace.device}"
    return str(core) if is_alone else f"device {trace.device} {core}"
