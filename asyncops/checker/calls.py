"""Kernel calls: from the operands of a ``pallas_call`` to the events of its grid steps.

A kernel's Refs are bound to buffers (the caller's arrays where they are passed whole, memory of the call's own for
windows, scratch and scalars), then its body runs once per grid step, in row-major order, with the block pipeline of
:mod:`.pipelines` around it.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

from asyncops.checker import pipelines, scalars
from asyncops.checker.cores import Station, any_station, is_first, owner, stations
from asyncops.checker.events import Location, Site
from asyncops.checker.memory import Buffer, Cells, holds_integers
from asyncops.checker.parallel import parallel_axes
from asyncops.checker.recording import Gate
from asyncops.checker.skeleton import (
    ArrayValue,
    Interpreter,
    Outcome,
    PathEnds,
    State,
    Unmodelled,
    bodies_of,
)  # fmt: skip
from stateful import higher_order as ho
from stateful import signatures
from stateful._jax import jaxprs, names
from stateful._jax import primitives as p
from stateful.types import MemorySpace, RefType, View

FIRST_IN_LOOPS = 1 << 20
"""The first number of calls in loops that are explored to a fixpoint: later iterations use them again."""


@dataclass(eq=False, slots=True)
class KernelCall:
    """One run of a kernel on one device: ``number`` counts the kernel calls of that device's program."""

    number: int
    form: Any
    location: Location | None
    stack: tuple[Location, ...]
    windows: tuple[pipelines.Window, ...] = ()
    buffers: list[Buffer] = field(default_factory=list)
    has_copies: bool = True
    pipeline: Any = None
    unused: frozenset[int] = frozenset()  # results that the program drops
    at_entry: Cells | None = None  # what the call's own memory held when it was entered
    station: Station | None = None  # the core of a mesh that runs it

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.form.name

    @property
    def body(self) -> Any:
        """What the core runs."""
        return (self.station.program if self.station is not None else self.form.programs[0]).body


class KernelInterpreter(Interpreter):
    """Runs kernels as well as bodies."""

    live_results: Mapping[int, set[int]] = MappingProxyType(
        {}
    )  # per kernel equation, the results that are used

    cores_are_symbols = False  # one run stands for every core of a mesh

    @cached_property
    def stations_of(self) -> dict[int, Station]:
        """The core that ran each call of a kernel over a mesh of cores."""
        return {}

    @cached_property
    def kernel_names(self) -> dict[str, None]:
        """The kernels that were run, in order."""
        return {}

    def run_kernel(
        self, form: Any, value: Any, state: State, eqn: Any, location: Any, stack: Any
    ) -> list[Outcome]:
        """A kernel call: binds its Refs, enters, runs the grid, exits."""
        static = form.form
        if static.backend != "tpu":
            raise Unmodelled(f"kernel {static.name} is for {static.backend}, which is not modelled", location)
        self.kernel_names[static.name] = None
        call = KernelCall(self.call_number(eqn, state), static, location, stack)
        outer_place, everybody = state.place, stations(static)
        takes_part = state.place.slot < max(1, len(everybody))
        if everybody:
            number = state.place.slot if takes_part else 0
            call.station = any_station(static, call.number) if self.cores_are_symbols else everybody[number]
            self.stations_of[call.number] = call.station
            state.place = call.station.seen_from(state.place)
        live = self.live_results.get(id(eqn), range(len(eqn.outvars)))
        call.unused = frozenset(i for i in range(len(eqn.outvars)) if i not in live)
        outer_call, outer_moment, outer_grid = state.call, state.moment, state.grid
        state.call = call
        if 0 < call.number < FIRST_IN_LOOPS:
            state.moment = outer_moment.inside("call", call.number)
        arguments, outputs = self._bind(call, form, value, state)
        call.at_entry = state.cells.fork()
        paths = [state]
        if takes_part:
            self.enter(state, call)
            paths = self._grid(call, form, value, arguments, state)
        results: list[Outcome] = []
        for path in paths:
            if takes_part:
                self.leave(path, call)
            path.place = outer_place
            path.call, path.moment, path.grid = outer_call, outer_moment, outer_grid
            results.append((outputs, path))
        return results

    def call_number(self, eqn: Any, state: State) -> int:
        """The number of the next kernel call."""
        state.calls += 1
        return state.calls - 1

    def enter(self, state: State, call: KernelCall) -> None:
        """The kernel starts on this core. The cores of a mesh start together."""
        site = Site(call.location, state.moment, call.name, call.stack)  # type: ignore[arg-type]
        self.machine.mark(state, "enter", call, self.marked(call.buffers, state), site)
        if call.station is not None:
            self.machine.barrier(state, Gate("enter", call.number, state.place.device))
        if has_entry_barrier(call.form):
            self.machine.barrier(state, Gate("enter", call.number))

    def leave(self, state: State, call: KernelCall) -> None:
        """The kernel ends on this core: on a mesh, when all of its cores have come to their end."""
        site = Site(call.location, state.moment, call.name, call.stack)  # type: ignore[arg-type]
        if call.station is not None:
            self.machine.barrier(state, Gate("exit", call.number, state.place.device))
        # A semaphore that the kernel returns is a future: it may hold a count, and lives on.
        own = [b for b in call.buffers if b.role != "operand" and not (b.role == "result" and b.is_semaphore)]
        self.machine.mark(state, "exit", call, self.marked(own, state), site)

    def owner(self, type_: RefType, state: State, shared_along: Sequence[Any] = ()) -> Any:
        """Whose memory a new Ref of this type is."""
        return owner(type_, state.place, shared_along)

    def marked(self, buffers: Sequence[Buffer], state: State) -> Sequence[Buffer]:
        """What cores share, the first of them tells of."""
        call, core = state.call, state.place.core
        if core is None or call is None or call.station is None or self.cores_are_symbols:
            return buffers
        everybody = stations(call.form)
        return [b for b in buffers if b.core == core or is_first(call.station, b.core, everybody)]

    # -- binding --

    def _bind(
        self, call: KernelCall, form: Any, value: Any, state: State
    ) -> tuple[list[Any], tuple[Any, ...]]:
        static, body = form.form, call.body
        labels = names.variable_names(body.jaxpr)
        call.has_copies = uses_copies(body.jaxpr)
        arguments: list[Any] = [
            self._constant(a, value, call, i, state) for i, a in enumerate(form.constants)
        ]
        position = len(arguments)
        for i, atom in enumerate(form.scalars):
            variable = body.inputs[position + i]
            arguments.append(
                self._scalar(value(atom), variable, labels[position + i], call, i, state).whole()
            )
        position += len(form.scalars)
        given = [value(a) for a in form.inputs]
        operands = [
            self._operand(v, static.windows[i], labels[position + i], call, i, state)
            for i, v in enumerate(given)
        ]
        results = self._results(call, static, operands, labels, position + len(given), state)
        windows = [
            self._window(call, w, buffer, labels[position + i], i, len(given), static, state)
            for i, (w, buffer) in enumerate(zip(static.windows, [*operands, *results]))
        ]
        for i, (handed, variable) in enumerate(zip(given, body.inputs[position:])):
            windows[i] = dataclasses.replace(windows[i], given=_as_given(handed, variable, state))
        call.windows = tuple(windows)
        arguments += [None] * len(call.windows)
        position += len(static.windows)
        for i, type_ in enumerate(static.scratch):
            label = labels[position + i] or f"scratch{i}"
            arguments.append(self._own(call, label, type_, ("scratch", i), state, "scratch").whole())
        return arguments, tuple(ArrayValue(b) for b in results)

    def _own(
        self, call: KernelCall, name: str, type_: RefType, path: tuple[Any, ...], state: State, role: str
    ) -> Buffer:
        place, core = state.place, self.owner(type_, state)
        buffer = self.memory.buffer(name, type_, place.device, core, ("call", call.number, *path), role)
        call.buffers.append(buffer)
        state.cells.contents.pop(buffer, None)
        return buffer

    def _constant(self, atom: Any, value: Any, call: KernelCall, i: int, state: State) -> Any:
        given = value(atom)
        if isinstance(given, ArrayValue):
            return given.buffer.whole()
        return given

    def _scalar(self, given: Any, variable: Any, name: str, call: KernelCall, i: int, state: State) -> Buffer:
        from stateful.types import ref_type

        type_ = ref_type(variable.aval)
        buffer = self._own(call, name or f"scalar{i}", type_, ("scalar", i), state, "scalar")
        self._contents(buffer, given, state)
        return buffer

    def _contents(self, buffer: Buffer, given: Any, state: State) -> None:
        """What the buffer holds when the kernel starts: the operand's elements, where known."""
        state.cells.contents.pop(buffer, None)
        if isinstance(given, ArrayValue):
            buffer.source = given.buffer.source or given.buffer.name
            buffer.promised_like(given.buffer)
            held = state.cells.contents.get(given.buffer)
            if held is not None and given.buffer.type.shape == buffer.type.shape:
                state.cells.contents[buffer] = held.copy()
                return
            given = given.data
        elif buffer.source is None:
            buffer.source = buffer.name
        if given is not None:
            state.cells.initialise(buffer, given)

    def _operand(self, given: Any, window: Any, name: str, call: KernelCall, i: int, state: State) -> Buffer:
        """The caller's array behind an input."""
        if isinstance(given, View):
            return given.root  # type: ignore[return-value]
        if isinstance(given, ArrayValue):
            call.buffers.append(given.buffer)
            if name and given.buffer.name.startswith(_ANONYMOUS):
                given.buffer.name = name
            return given.buffer
        buffer = self._own(call, name or f"input{i}", window.array, ("operand", i), state, "operand")
        self._contents(buffer, given, state)
        return buffer

    def _results(
        self, call: KernelCall, static: Any, operands: list[Buffer], labels: list[str], at: int, state: State
    ) -> list[Buffer]:
        aliased = {o: i for i, o in static.aliases.items()}
        results = []
        for o, window in enumerate(static.windows[len(operands) :]):
            if o in aliased and aliased[o] < len(operands):
                results.append(operands[aliased[o]])
                state.cells.disturb(results[-1])
                continue
            name = labels[at + o] or f"output{o}"
            buffer = self._own(call, name, window.array, ("result", o), state, "result")
            self.tell_apart(buffer, call, state)
            results.append(buffer)
        return results

    def tell_apart(self, result: Buffer, call: KernelCall, state: State) -> None:
        """What two calls return are different unknown values, also where the kernels call them by one name."""
        if call.number and holds_integers(result):
            result.source = f"{result.name}'{call.number + 1}"

    def _window(
        self,
        call: KernelCall,
        window: Any,
        array: Buffer,
        name: str,
        i: int,
        inputs: int,
        static: Any,
        state: State,
    ) -> pipelines.Window:
        is_input = i < inputs
        name = name or (f"input{i}" if is_input else f"output{i - inputs}")
        whole = window.space in (MemorySpace.ANY, MemorySpace.HBM, MemorySpace.SEMAPHORE, MemorySpace.HOST)
        if not window.pipelined and (whole or window.ref.semaphore is not None):
            return pipelines.Window(i, is_input, window, array, (array,), None)
        count = pipelines.slot_count(window) if window.pipelined else 1
        slots = tuple(
            self._own(call, name, window.ref, ("window", i, k), state, "window") for k in range(count)
        )
        if is_input and not window.pipelined:
            for slot in slots:
                self._contents(slot, ArrayValue(array), state)
        semaphore = None
        if window.pipelined and call.has_copies:
            type_ = RefType((count,), "dma_sem", MemorySpace.SEMAPHORE, pipelines.DMA)
            path = ("call", call.number, "pipeline", i)
            semaphore = self.memory.buffer(
                f"the pipeline of {name}", type_, state.place.device, state.place.core, path, "pipeline"
            )
        return pipelines.Window(i, is_input, window, array, slots, semaphore)

    # -- the grid --

    def _grid(
        self, call: KernelCall, form: Any, value: Any, arguments: list[Any], state: State
    ) -> list[State]:
        sizes = [g if isinstance(g, int) else value(g) for g in form.grid]
        return self.run_grid(call, sizes, arguments, state)

    def run_grid(self, call: KernelCall, sizes: list[Any], arguments: list[Any], state: State) -> list[State]:
        """All grid steps in order."""
        sizes = [self.policy.concretise(state, scalars.as_term(n)) for n in sizes]  # type: ignore[attr-defined]
        steps = list(itertools.islice(itertools.product(*(range(n) for n in sizes)), 200_001))
        if len(steps) > 200_000:
            raise Unmodelled(f"grid of {call.name} has more than 200,000 steps", call.location)
        outer = state.moment
        flow = pipelines.Flow(self, call, arguments)
        call.pipeline = flow
        state.windows = tuple(pipelines.WindowState() for _ in call.windows)
        paths = [state]
        axes = parallel_axes(call.form)
        for number, step in enumerate(steps):
            if number and any(step[a] != steps[number - 1][a] for a in axes):
                for path in paths:
                    self.fresh_core(path, call)
            following = steps[number + 1] if number + 1 < len(steps) else None
            reached: list[State] = []
            for path in paths:
                path.grid, path.step = tuple(zip(step, sizes)), number
                path.moment = (
                    outer.inside("grid step", step[0] if len(step) == 1 else step) if sizes else outer
                )
                reached += flow.run_step(path, number, step, following)
            paths = reached
        for path in paths:
            flow.finish(path)
            path.moment = outer
        return paths

    def fresh_core(self, state: State, call: KernelCall) -> None:
        """The next step has other coordinates in a parallel dimension, so it may run on a core that has not run yet:
        what the kernel keeps in memory of its own is again what it was at entry."""
        assert call.at_entry is not None
        for buffer in call.buffers:
            if buffer.role in _PER_CORE:
                state.cells.contents.pop(buffer, None)
                if buffer in call.at_entry.contents:
                    state.cells.contents[buffer] = call.at_entry.contents[buffer].copy()

    def run_body(self, call: KernelCall, arguments: list[Any], state: State) -> list[State]:
        """One grid step's body."""
        return [path for _, path in self.run(call.body, arguments, state)]

    def load(self, op: Any, eqn: Any, value: Any, state: State, site: Site) -> Any:
        """A load; the pipeline hears of loads from windows."""
        self._tell_pipeline(op.view, False, False, state, site)
        return super().load(op, eqn, value, state, site)

    def store(self, op: Any, eqn: Any, value: Any, state: State, site: Site) -> Any:
        """A store; the pipeline hears of stores to windows."""
        self._tell_pipeline(op.view, True, op.masked, state, site)
        return super().store(op, eqn, value, state, site)

    def accumulate(self, op: Any, eqn: Any, value: Any, state: State, site: Site) -> Any:
        """A read and a store."""
        self._tell_pipeline(op.view, False, False, state, site)
        self._tell_pipeline(op.view, True, False, state, site)
        return super().accumulate(op, eqn, value, state, site)

    def start_copy(self, op: Any, eqn: Any, value: Any, state: State, site: Site) -> Any:
        """A copy reads and writes windows as loads and stores do; what it writes on another device is not here."""
        self._tell_pipeline(op.source, False, False, state, site)
        if op.device is None:
            if op.add:
                self._tell_pipeline(op.destination, False, False, state, site)
            self._tell_pipeline(op.destination, True, False, state, site)
        return super().start_copy(op, eqn, value, state, site)

    def _tell_pipeline(self, view: View, write: bool, masked: bool, state: State, site: Site) -> None:
        flow = state.call.pipeline if state.call is not None else None
        role = view.root.role  # type: ignore[attr-defined]
        if flow is not None and role == "window":
            flow.touched(state, view, write, masked, site)
        elif flow is not None and role == "scalar" and write:
            flow.changed_scalar = site

    def index_map(
        self, window: Any, step: Sequence[Any], arguments: list[Any], call: KernelCall, state: State
    ) -> tuple[Any, ...]:
        """The block index of a window at a grid step."""
        body = window.index_map
        static = call.form
        scalars_ = arguments[static.constants : static.constants + static.scalar_prefetch]
        outer = state.grid
        outcomes = self.run(body, [*step, *scalars_][: len(body.inputs)], state)
        state.grid = outer
        if not outcomes:
            raise PathEnds
        # An index map that branches on a symbol has no single index: each unknown one is a symbol of its own.
        values = outcomes[0][0] if len(outcomes) == 1 else (None,) * len(body.outputs)
        return tuple(
            self.unknown(v.aval, _NoEquation, state) if x is None else scalars.as_term(x)
            for x, v in zip(values, body.outputs)
        )


def _as_given(handed: Any, variable: Any, state: State) -> Any:
    """What a kernel sees of an operand that is not an array of its own: a part of a Ref, or a number."""
    if isinstance(handed, View):
        return None if handed == handed.root.whole() else handed  # type: ignore[attr-defined]
    if jaxprs.is_ref(variable.aval):
        return None
    return handed if handed is not None else scalars.fresh(f"argument {variable}", variable.aval.dtype)


class _NoEquation:
    """Names the symbol of a block index that is not known."""

    class primitive:
        name = "block index"


_PER_CORE = ("scratch", "scalar", "window", "scoped")

_ANONYMOUS = ("args[", "argument")  # what JAX calls arguments without a name

_ASYNCHRONOUS = frozenset({p.dma_start, p.dma_wait, p.semaphore_signal, p.semaphore_wait})
_BARRIER = frozenset({p.get_barrier_semaphore})
_USES: dict[tuple[int, Any], tuple[Any, bool]] = {}


def uses(jaxpr: Any, test: Callable[[Any], bool]) -> bool:
    """True where an equation of the body, however deep, passes the test."""
    found = _USES.get((id(jaxpr), test))
    if found is None:
        answer = any(_equation_uses(e, test) for e in jaxpr.eqns)
        found = _USES[id(jaxpr), test] = (jaxpr, answer)
    return found[1]


def _equation_uses(eqn: Any, test: Callable[[Any], bool]) -> bool:
    form = ho.normal_form(eqn)
    if isinstance(form, ho.Pipeline) and test is _is_asynchronous:
        return True
    if form is not None:
        return any(uses(b.jaxpr, test) for b in bodies_of(form))
    return test(eqn)


def _is_asynchronous(eqn: Any) -> bool:
    return eqn.primitive in _ASYNCHRONOUS


def _names_barrier(eqn: Any) -> bool:
    return eqn.primitive in _BARRIER


def uses_copies(jaxpr: Any) -> bool:
    """True where a body starts a copy or touches a semaphore itself, however deep."""
    return uses(jaxpr, _is_asynchronous)


def has_entry_barrier(form: Any) -> bool:
    """True where the compiler adds a barrier at entry: the kernel communicates and names no barrier semaphore itself.

    (JAX doc `pallas/tpu/distributed`, "Barrier Semaphores".) A scratch semaphore of barrier type is none of these: the
    compiler accepts no ``collective_id`` for a kernel that has only that, and keeps its own barrier.
    """
    bodies = [program.body.jaxpr for program in form.programs]
    if form.skip_device_barrier or any(uses(b, _names_barrier) for b in bodies):
        return False
    return any(uses(b, signatures.is_remote) for b in bodies)
