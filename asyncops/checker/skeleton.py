"""The scalar skeleton of a program: a jaxpr compiled to steps, and their interpreter.

Only what steers memory and semaphores is run: equations with effects, the control flow around them, and the integer
arithmetic they depend on (:mod:`.scalars`). Arithmetic on large or floating arrays has no step at all. What a
step does to
memory is told to a *machine* (:mod:`.recording` writes events down; :mod:`.tracking` keeps what is in flight); how a
condition over symbols is decided is the *policy*'s business. A step has one result or, where the policy explores both
sides of a condition, several; the rest of the body runs for each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from jax import lax

from asyncops.checker import scalars
from asyncops.checker.events import Location, Site
from asyncops.checker.memory import Buffer, Cells, Memory
from stateful import higher_order as ho
from stateful import signatures, terms
from stateful._jax import jaxprs, names
from stateful._jax import primitives as p
from stateful.types import RefType, View, ref_type

Outcome = tuple[tuple[Any, ...], "State"]

LONGEST_POLL = 2000
"""Iterations of a loop on the count of a semaphore after which a run gives up."""

COUNT = "count of "  # how the names of counts that are read begin


class ArrayValue:
    """An array of the program: the buffer it lives in, and its elements where known."""

    __slots__ = ("buffer", "data")

    def __init__(self, buffer: Buffer, data: Any = None):
        self.buffer, self.data = buffer, data


@dataclass(frozen=True, slots=True)
class Moment:
    """Where in loops and grids an event happens; ``str()`` is in the user's terms."""

    frames: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        return ", ".join(f"{what} {value}" for what, value in self.frames)

    def __bool__(self) -> bool:
        return bool(self.frames)

    def inside(self, what: str, value: Any) -> Moment:
        """One frame deeper."""
        return Moment((*self.frames, (what, value)))


@dataclass(frozen=True, slots=True)
class Place:
    """The device and core that runs, and where it sits on the mesh axes in scope.

    ``core`` is the core of a kernel over a mesh of cores (:mod:`.cores`), None elsewhere. ``slot`` numbers the cores
    that run the program: in each kernel the core of that number, if it has so many.
    """

    device: int = 0
    core: Any = None
    axes: tuple[tuple[str, int, int], ...] = ()  # (name, index, size), mesh axes then core axes
    core_axes: tuple[str, ...] = ()
    slot: int = 0

    def axis(self, name: str) -> tuple[int, int]:
        """(index, size) along a named axis."""
        for axis, index, size in self.axes:
            if axis == name:
                return index, size
        raise KeyError(name)


class State:
    """What changes while a core runs. ``machine`` is the machine's own data; ``path`` the policy's."""

    __slots__ = (
        "call", "calls", "cells", "grid", "in_use", "machine", "moment", "path", "place", "step", "windows",
    )  # fmt: skip

    def __init__(self, place: Place, cells: Cells, path: Any, machine: Any):
        self.place, self.cells, self.path, self.machine = place, cells, path, machine
        self.moment = Moment()
        self.grid: tuple[tuple[Any, Any], ...] = ()  # (program id, number of programs) per grid axis
        self.calls = 0
        self.in_use: frozenset[int] = (
            frozenset()
        )  # numbers of calls in loops whose memory may still be in use
        self.call: Any = None  # the kernel call that is running
        self.windows: tuple[Any, ...] = ()  # where its block windows stand
        self.step: Any = 0  # the number of its grid step

    def fork(self) -> State:
        """An independent copy."""
        new = State(self.place, self.cells.fork(), self.path, self.machine.fork())
        new.moment, new.grid, new.calls, new.call = self.moment, self.grid, self.calls, self.call
        new.windows, new.step, new.in_use = self.windows, self.step, self.in_use
        return new


class Policy(Protocol):
    """How conditions over symbols are decided."""

    def decide(self, state: State, predicate: terms.Predicate) -> list[tuple[bool, State]]:
        """The sides to take; the given state may be returned for one of them."""
        ...


class Unmodelled(Exception):
    """Something has no model: the verdict is unknown. The text names the primitive and the line."""

    def __init__(self, what: str, location: Location | None = None):
        super().__init__(f"{location}: {what}" if location else what)
        self.what, self.location = what, location


class PathEnds(Exception):
    """The path goes no further: a wait never returns, or the values exclude it."""


class OutOfBudget(Exception):
    """The run was longer than it may be; the text names the line where that was seen."""

    def __init__(self, what: str, location: Location | None = None):
        super().__init__(f"{location}: {what}" if location else what)
        self.what, self.location = what, location


# -- compiling --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Body:
    """A jaxpr as steps over numbered slots."""

    jaxpr: Any
    inputs: list[int] = field(default_factory=list)
    constants: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    template: list[Any] = field(default_factory=list)
    steps: list[tuple[Callable[..., Any], list[int]]] = field(default_factory=list)
    equations: list[Any] = field(default_factory=list)  # of the steps


_HANDLERS: dict[type, str] = {
    ho.Call: "run_call", ho.Branch: "run_branch", ho.While: "run_while", ho.Scan: "run_scan",
    ho.ParallelLoop: "run_parallel_loop", ho.Scoped: "run_scoped", ho.RunState: "run_state",
    ho.Kernel: "run_kernel", ho.ShardMap: "run_shard_map", ho.Pipeline: "run_pipeline",
    ho.PipelineBody: "run_pipeline_body",
}  # fmt: skip


def bodies_of(form: Any) -> tuple[Any, ...]:
    """The bodies of a higher-order equation."""
    if isinstance(form, ho.Branch):
        return form.branches
    if isinstance(form, ho.While):
        return form.cond, form.body
    if isinstance(form, ho.Kernel):
        return tuple(program.body for program in form.form.programs)
    return (form.form.body,) if isinstance(form, ho.Pipeline) else (form.jaxpr,)


def location_of(eqn: Any) -> tuple[Location | None, tuple[Location, ...]]:
    """The user's line of an equation, and the lines that called it, innermost first."""
    stack = tuple(Location(*place) for place in jaxprs.user_places(eqn))
    return (stack[0] if stack else None), stack


class Compiler:
    """Compiles jaxprs once each; keeps them alive, since they are known by identity."""

    def __init__(self) -> None:
        self._bodies: dict[int, Body] = {}
        self._effectful: dict[int, tuple[Any, bool]] = {}
        self._forms: dict[int, tuple[Any, Any]] = {}

    def form(self, eqn: Any) -> Any:
        """The normal form of a higher-order equation, None for others."""
        found = self._forms.get(id(eqn))
        if found is None:
            found = self._forms[id(eqn)] = (eqn, ho.normal_form(eqn))
        return found[1]

    def body(self, opened: Any) -> Body:
        """The compiled form of an opened jaxpr."""
        found = self._bodies.get(id(opened.jaxpr))
        if found is None:
            found = self._bodies[id(opened.jaxpr)] = self._compile(opened)
        return found

    def is_effectful(self, eqn: Any) -> bool:
        """True where an equation has to run for what it does, not for its results."""
        found = self._effectful.get(id(eqn))
        if found is None:
            found = self._effectful[id(eqn)] = (eqn, self._has_effect(eqn))
        return found[1]

    def has_effects(self, jaxpr: Any) -> bool:
        """True where any equation of the jaxpr, however deep, has to run for what it does."""
        return any(self.is_effectful(e) for e in jaxpr.eqns)

    def _has_effect(self, eqn: Any) -> bool:
        if any(jaxprs.is_ref(v.aval) for v in (*eqn.invars, *eqn.outvars)):
            return True
        form = self.form(eqn)
        if isinstance(form, ho.Kernel):
            return True
        if form is not None:
            return any(self.has_effects(b.jaxpr) for b in bodies_of(form))
        return not signatures.is_known_pure(eqn.primitive)

    def reads_a_count(self, jaxpr: Any) -> bool:
        """True where the jaxpr, however deep, reads the count of a semaphore."""
        return any(
            e.primitive is p.semaphore_read
            or (
                (form := self.form(e)) is not None
                and any(self.reads_a_count(b.jaxpr) for b in bodies_of(form))
            )
            for e in jaxpr.eqns
        )

    def _compile(self, opened: Any) -> Body:
        jaxpr = opened.jaxpr
        body = Body(jaxpr)
        slots: dict[Any, int] = {}

        def slot(atom: Any) -> int:
            if isinstance(atom, jaxprs.Literal):
                body.template.append(scalars.concrete(atom.val))
                return len(body.template) - 1
            if atom not in slots:
                slots[atom] = len(body.template)
                body.template.append(None)
            return slots[atom]

        body.constants = [slot(v) for v in jaxpr.constvars]
        body.inputs = [slot(v) for v in opened.inputs]
        for eqn in self._needed(jaxpr):
            operands = [slot(v) for v in eqn.invars]
            results = [slot(v) for v in eqn.outvars]
            body.steps.append((self._step(eqn, operands, results), results))
            body.equations.append(eqn)
        body.outputs = [slot(v) for v in jaxpr.outvars]
        return body

    def _needed(self, jaxpr: Any) -> list[Any]:
        """The equations that have effects or compute small integers that something needed depends on."""
        wanted = {v for v in jaxpr.outvars if isinstance(v, jaxprs.Var)}
        kept: list[Any] = []
        for eqn in reversed(jaxpr.eqns):
            effectful = self.is_effectful(eqn)
            useful = any(v in wanted for v in eqn.outvars) and (
                self.form(eqn) is not None or _follows_values(eqn)
            )
            if effectful or useful:
                kept.append(eqn)
                wanted.update(v for v in eqn.invars if isinstance(v, jaxprs.Var))
        return kept[::-1]

    def _step(self, eqn: Any, operands: list[int], results: list[int]) -> Callable[..., Any]:
        form = self.form(eqn)
        if form is not None:
            return _higher_order_step(eqn, form, operands)
        if self.is_effectful(eqn):
            return _effect_step(eqn, operands, results)
        if eqn.primitive in _CONTEXT_READERS:
            return _context_step(eqn, results)
        return _pure_step(eqn, operands, results)


def _follows_values(eqn: Any) -> bool:
    return any(scalars.is_small_integer(v.aval) for v in eqn.outvars) or eqn.primitive in _PASS_THROUGH


_PASS_THROUGH = {lax.optimization_barrier_p}
_CONTEXT_READERS = {
    p.program_id: "program_id",
    p.num_programs: "num_programs",
    lax.axis_index_p: "axis_index",
}


def _pure_step(eqn: Any, operands: list[int], results: list[int]) -> Callable[..., Any]:
    if eqn.primitive in _PASS_THROUGH:

        def forward(run: Interpreter, env: list[Any], state: State) -> None:
            for source, target in zip(operands, results):
                env[target] = env[source]

        return forward
    if len(results) != 1:
        return _multiple_results_step(eqn, operands, results)
    both = scalars.ELEMENTWISE.get(eqn.primitive)
    out = results[0]
    if both is not None and len(operands) == 2:
        on_terms, (left, right) = both[0], operands

        def binary(run: Interpreter, env: list[Any], state: State) -> None:
            a, b = env[left], env[right]
            if type(a) is int and type(b) is int:
                env[out] = on_terms(a, b)
            else:
                env[out] = run.evaluate(eqn, (a, b), state)

        return binary

    def general(run: Interpreter, env: list[Any], state: State) -> None:
        env[out] = run.evaluate(eqn, tuple(env[o] for o in operands), state)

    def select(run: Interpreter, env: list[Any], state: State) -> list[Outcome]:
        return run.select(eqn, tuple(env[o] for o in operands), state)

    return select if eqn.primitive is lax.select_n_p and len(operands) == 3 else general


def _multiple_results_step(eqn: Any, operands: list[int], results: list[int]) -> Callable[..., Any]:
    def step(run: Interpreter, env: list[Any], state: State) -> None:
        for out, var in zip(results, eqn.outvars):
            env[out] = run.unknown(var.aval, eqn, state)

    return step


def _context_step(eqn: Any, results: list[int]) -> Callable[..., Any]:
    name = _CONTEXT_READERS[eqn.primitive]

    def step(run: Interpreter, env: list[Any], state: State) -> None:
        env[results[0]] = run.context(name, eqn, state)

    return step


def _effect_step(eqn: Any, operands: list[int], results: list[int]) -> Callable[..., Any]:
    place = {v: s for v, s in zip(eqn.invars, operands) if isinstance(v, jaxprs.Var)}
    location, stack = location_of(eqn)

    def step(run: Interpreter, env: list[Any], state: State) -> Any:
        def value(atom: Any) -> Any:
            if isinstance(atom, jaxprs.Literal):
                return scalars.concrete(atom.val)
            return env[place[atom]]

        return run.effects(eqn, value, env, results, state, location, stack)

    return step


def _higher_order_step(eqn: Any, form: Any, operands: list[int]) -> Callable[..., Any]:
    place = {v: s for v, s in zip(eqn.invars, operands) if isinstance(v, jaxprs.Var)}
    handler = _HANDLERS[type(form)]
    location, stack = location_of(eqn)

    def step(run: Interpreter, env: list[Any], state: State) -> list[Outcome]:
        def value(atom: Any) -> Any:
            if isinstance(atom, jaxprs.Literal):
                return scalars.concrete(atom.val)
            return env[place[atom]] if atom in place else atom

        outer = run.enclosing
        if location is not None:
            run.enclosing = (location, stack)
        outcomes = getattr(run, handler)(form, value, state, eqn, location, stack)
        run.enclosing = outer
        return outcomes

    return step


# -- running ----------------------------------------------------------------------------------------------------------


class Machine(Protocol):
    """Is told what a core does. ``site`` says where."""

    def access(self, state: Any, view: View, write: bool, site: Site, is_program: bool) -> None:
        """A load or store."""

    def start(self, state: Any, op: Any, site: Site) -> None:
        """A copy starts."""

    def wait(self, state: Any, semaphore: View, amount: Any, decrement: bool, site: Site, op: Any) -> None:
        """A wait of either kind."""

    def signal(self, state: Any, op: Any, site: Site) -> None:
        """A signal, here or elsewhere."""

    def count(self, state: Any, semaphore: View, unknown: terms.Term) -> terms.Term:
        """What a core reads of a semaphore: a number where it is known, else ``unknown`` in its range."""
        ...

    def barrier(self, state: Any, gate: Any) -> None:
        """Every core that comes to the gate waits for the others."""

    def subcore_barrier(self, state: Any, buffer: Buffer, members: int, site: Site) -> None:
        """Every subcore of a SparseCore comes here before any goes on."""

    def atomic(self, state: Any, view: View, device: int, core: Any, site: Site) -> None:
        """Memory of another core is changed in one step."""

    def mark(self, state: Any, kind: str, what: Any, buffers: Sequence[Buffer], site: Site) -> None:
        """Enter, exit, allocate, free."""

    def check_bounds(self, state: Any, view: View, site: Site) -> None:
        """A view is about to be used."""

    def assume(self, text: str) -> None:
        """The verdict rests on something that is not checked."""


class Interpreter:
    """Runs bodies. Kernel calls and pipelines are added by :class:`asyncops.checker.calls.KernelInterpreter`."""

    def __init__(self, policy: Policy, machine: Machine, memory: Memory, compiler: Compiler):
        self.policy, self.machine, self.memory, self.compiler = policy, machine, memory, compiler
        self.steps_left = 5_000_000
        self.patience = getattr(policy, "patience", None)
        self._fresh = 0
        # The nearest equation around with a line of the user's: JAX traces the bodies of its own helpers without one.
        self.enclosing: tuple[Location | None, tuple[Location, ...]] = (None, ())

    # -- bodies --

    def run(self, opened: Any, arguments: Sequence[Any], state: State) -> list[Outcome]:
        """Runs an opened jaxpr: the results and the state after it, one per path."""
        body = self.compiler.body(opened)
        env = body.template.copy()
        for slot, value in zip(body.constants, opened.consts):
            env[slot] = scalars.concrete(value)
        for slot, value in zip(body.inputs, arguments):
            env[slot] = value
        return self._run_from(body, 0, env, state)

    def _run_from(self, body: Body, i: int, env: list[Any], state: State) -> list[Outcome]:
        steps = body.steps
        self.steps_left -= len(steps) - i
        if self.steps_left < 0:
            raise OutOfBudget("too many steps")
        if self.patience is not None:
            self.patience.count(len(steps) - i)
        while i < len(steps):
            step, results = steps[i]
            try:
                outcomes = step(self, env, state)
            except PathEnds:
                return []
            except terms.TermTooLargeError:
                where = location_of(body.equations[i])[0]
                raise OutOfBudget("a scalar expression grew too large to be followed", where) from None
            except OutOfBudget as e:
                raise e if e.location else OutOfBudget(e.what, location_of(body.equations[i])[0]) from None
            i += 1
            if outcomes is None:
                continue
            if len(outcomes) != 1:
                return self._fan_out(body, i, env, results, outcomes)
            values, state = outcomes[0]
            for slot, value in zip(results, values):
                env[slot] = value
        return [(tuple(env[o] for o in body.outputs), state)]

    def _fan_out(
        self, body: Body, i: int, env: list[Any], results: list[int], outcomes: list[Outcome]
    ) -> list[Outcome]:
        finished: list[Outcome] = []
        for values, state in outcomes:
            branch = env.copy()
            for slot, value in zip(results, values):
                branch[slot] = value
            finished += self._run_from(body, i, branch, state)
        return self.merge(finished)

    def merge(self, outcomes: list[Outcome]) -> list[Outcome]:
        """Joins outcomes that are the same; a policy that explores both sides does so."""
        return outcomes

    # -- values --

    def unknown(self, aval: Any, eqn: Any, state: State) -> Any:
        """A value about which nothing is known."""
        if not scalars.is_small_integer(aval) or scalars.element_count(aval) != 1:
            return None
        return scalars.fresh(eqn.primitive.name, aval.dtype, (), self._next_fresh())

    def _next_fresh(self) -> int:
        self._fresh += 1
        return self._fresh

    def evaluate(self, eqn: Any, args: tuple[Any, ...], state: State) -> Any:
        """A pure equation with one result."""
        known = tuple(a.data if isinstance(a, ArrayValue) else a for a in args)
        value = scalars.evaluate(eqn, known)
        return self.unknown(eqn.outvars[0].aval, eqn, state) if value is None else value

    def select(self, eqn: Any, args: tuple[Any, ...], state: State) -> list[Outcome]:
        """``select_n`` between two values."""
        return [((self.evaluate(eqn, args, state),), state)]

    def context(self, name: str, eqn: Any, state: State) -> Any:
        """``program_id``, ``num_programs`` and ``axis_index`` where they are known."""
        if name == "axis_index":
            axes = eqn.params["axis_name"]
            axes = axes if isinstance(axes, tuple | list) else (axes,)
            index: terms.Term = 0
            for axis in axes:
                try:
                    position, size = state.place.axis(axis)
                except KeyError:
                    return self.unknown(eqn.outvars[0].aval, eqn, state)
                index = terms.add(terms.scale(index, size), position)
            return index
        axis = eqn.params["axis"]
        if axis >= len(state.grid):
            return self.unknown(eqn.outvars[0].aval, eqn, state)
        return state.grid[axis][0 if name == "program_id" else 1]

    # -- effects --

    def effects(
        self, eqn: Any, value: Callable[[Any], Any], env: list[Any], results: list[int], state: State,
        location: Location | None, stack: tuple[Location, ...],
    ) -> None:  # fmt: skip
        """An equation with effects: tells the machine, binds what it loads."""
        if location is None:
            location, stack = self.enclosing
        for operation in signatures.operations(eqn, value):
            handler = _OPERATIONS.get(type(operation))
            if handler is None:
                raise Unmodelled(getattr(operation, "reason", eqn.primitive.name), location)
            site = Site(location, state.moment, _label(operation), stack)  # type: ignore[arg-type]
            result = getattr(self, handler)(operation, eqn, value, state, site)
            if result is not None and results:
                env[results[0]] = result
        for slot, var in zip(results, eqn.outvars):
            if env[slot] is None:
                env[slot] = self.unknown(var.aval, eqn, state)

    def load(self, op: Any, eqn: Any, value: Any, state: State, site: Site) -> Any:
        self.machine.check_bounds(state, op.view, site)
        self.machine.access(state, op.view, False, site, False)
        aval = eqn.outvars[0].aval
        if not scalars.is_small_integer(aval):
            return None
        if scalars.element_count(aval) == 1:
            ordered = state.cells.order(op.view)
            if ordered is not True:
                state.path = state.path.assume(ordered) or state.path
            return state.cells.load(op.view)
        return _known_part(state.cells, op.view, aval)

    def store(self, op: Any, eqn: Any, value: Any, state: State, site: Site) -> Any:
        self.machine.check_bounds(state, op.view, site)
        self.machine.access(state, op.view, True, site, False)
        new = None if op.masked or op.value is None else value(op.value)
        state.cells.store(op.view, new)
        return None

    def accumulate(self, op: Any, eqn: Any, value: Any, state: State, site: Site) -> Any:
        self.machine.check_bounds(state, op.view, site)
        self.machine.access(state, op.view, False, site, False)
        self.machine.access(state, op.view, True, site, False)
        state.cells.store(op.view, None)
        return None

    def start_copy(self, op: Any, eqn: Any, value: Any, state: State, site: Site) -> Any:
        for view in (op.source, op.destination, op.source_semaphore, op.destination_semaphore, *op.indices):
            if view is not None:
                self.machine.check_bounds(state, view, site)
        self.machine.start(state, op, site)
        return None

    def wait_copy(self, op: Any, eqn: Any, value: Any, state: State, site: Site) -> Any:
        if op.semaphore is not None:
            self.machine.check_bounds(state, op.semaphore, site)
            self.machine.wait(state, op.semaphore, op.amount, True, site, op)
        return None

    def wait_semaphore(self, op: Any, eqn: Any, value: Any, state: State, site: Site) -> Any:
        self.machine.check_bounds(state, op.semaphore, site)
        self.machine.wait(state, op.semaphore, op.amount, op.decrement, site, op)
        return None

    def signal(self, op: Any, eqn: Any, value: Any, state: State, site: Site) -> Any:
        self.machine.check_bounds(state, op.semaphore, site)
        self.machine.signal(state, op, site)
        return None

    def read_semaphore(self, op: Any, eqn: Any, value: Any, state: State, site: Site) -> Any:
        count = terms.element(f"{COUNT}{op.semaphore}", (), self._next_fresh(), 0)
        return self.machine.count(state, op.semaphore, count)

    def barrier_semaphore(self, op: Any, eqn: Any, value: Any, state: State, site: Site) -> Any:
        type_ = ref_type(eqn.outvars[0].aval)
        identity = state.call.form.collective_id if state.call is not None else None
        path = ("barrier", identity)
        place = state.place
        buffer = self.memory.buffer("barrier semaphore", type_, place.device, place.core, path, "barrier")
        return buffer.whole()

    def subcore_barrier(self, op: Any, eqn: Any, value: Any, state: State, site: Site) -> Any:
        raise Unmodelled("a barrier of subcores outside a kernel over a mesh of cores", site.location)

    def fetch_and_add(self, op: Any, eqn: Any, value: Any, state: State, site: Site) -> Any:
        raise Unmodelled("an atomic addition outside a kernel over a mesh of cores", site.location)

    def allocate(self, op: Any, eqn: Any, value: Any, state: State, site: Site) -> Any:
        raise Unmodelled("a new Ref outside a kernel", site.location)

    def free(self, op: Any, eqn: Any, value: Any, state: State, site: Site) -> Any:
        raise Unmodelled("the end of a Ref outside a kernel", site.location)

    def pure(self, op: Any, eqn: Any, value: Any, state: State, site: Site) -> Any:
        return None

    # -- control flow --

    def run_call(
        self, form: Any, value: Any, state: State, eqn: Any, location: Any, stack: Any
    ) -> list[Outcome]:
        """A jitted or otherwise wrapped body."""
        return self.run(form.jaxpr, [value(o) for o in form.operands], state)

    def run_branch(
        self, form: Any, value: Any, state: State, eqn: Any, location: Any, stack: Any
    ) -> list[Outcome]:
        """``cond``: the branch, or both where the policy explores them."""
        operands = [value(o) for o in form.operands]
        finished: list[Outcome] = []
        for number, taken in self._choose(value(form.index), len(form.branches), eqn, state):
            finished += self.run(form.branches[number], operands, taken)
        return self.merge(finished) if len(finished) > 1 else finished

    def _choose(self, index: Any, count: int, eqn: Any, state: State) -> list[tuple[int, State]]:
        if index is None:
            index = self.unknown(eqn.invars[0].aval, eqn, state)
        index = scalars.as_term(index)
        chosen: list[tuple[int, State]] = []
        rest = [state]
        for number in range(count - 1):
            is_this = terms.le(index, 0) if number == 0 else terms.eq(index, number)
            following: list[State] = []
            for candidate in rest:
                for answer, taken in self.decide(candidate, is_this):
                    if answer:
                        chosen.append((number, taken))
                    else:
                        following.append(taken)
            rest = following
        return chosen + [(count - 1, s) for s in rest]

    def decide(self, state: State, predicate: terms.Predicate) -> list[tuple[bool, State]]:
        """The sides of a condition to take."""
        if isinstance(predicate, bool):
            return [(predicate, state)]
        return self.policy.decide(state, predicate)

    def run_scan(
        self, form: Any, value: Any, state: State, eqn: Any, location: Any, stack: Any
    ) -> list[Outcome]:
        """``scan`` and counted ``fori_loop``: as many iterations as it says."""
        consts = [value(c) for c in form.consts]
        xs = [value(x) for x in form.xs]
        paths: list[Outcome] = [(tuple(value(c) for c in form.carry), state)]
        order = range(form.length - 1, -1, -1) if form.reverse else range(form.length)
        outer = state.moment
        for k in order:
            following: list[Outcome] = []
            for carry, path in paths:
                path.moment = outer.inside("iteration", k)
                following += self.run(form.jaxpr, [*consts, *carry, *(_element(x, k) for x in xs)], path)
            paths = [(outs[: len(form.carry)], path) for outs, path in following]
        for _, path in paths:
            path.moment = outer
        stacked = len(eqn.outvars) - len(form.carry)
        return [(tuple(carry) + (None,) * stacked, path) for carry, path in paths]

    def run_parallel_loop(
        self, form: Any, value: Any, state: State, eqn: Any, location: Any, stack: Any
    ) -> list[Outcome]:
        """A counted loop whose iterations may overlap: taken for independent, as it demands, and run in order."""
        where = f" ({location})" if location else ""
        self.machine.assume(f"iterations of parallel_loop touch nothing that another one writes{where}")
        outer = state.moment
        consts = [value(c) for c in form.consts]
        upper, by = scalars.as_term(value(form.upper)), scalars.as_term(value(form.step))
        carry = (scalars.as_term(value(form.lower)), *(value(c) for c in form.carry))

        def test(now: tuple[Any, ...], at: State) -> list[tuple[tuple[Any, ...], State, bool]]:
            return [(now, s, goes_on) for goes_on, s in self.decide(at, terms.lt(now[0], upper))]

        def step(now: tuple[Any, ...], at: State) -> list[Outcome]:
            at.moment = outer.inside("iteration", now[0])
            results = self.run(form.jaxpr, [*consts, *now], at)
            return [((terms.add(now[0], by), *outs), s) for outs, s in results]

        exits = self.loop(carry, state, test, step, False)
        for _, s in exits:
            s.moment = outer
        return [(done[1:], s) for done, s in exits]

    def loop(self, carry: tuple[Any, ...], state: State, test: Any, step: Any, short: bool) -> list[Outcome]:
        """Runs ``step`` while ``test`` says so; the states in which the loop ends."""
        finished: list[Outcome] = []
        work: list[Outcome] = [(carry, state)]
        while work:
            for now, at, goes_on in test(*work.pop()):
                if goes_on:
                    work += step(now, at)
                else:
                    finished.append((now, at))
        return self.merge(finished)

    def run_while(
        self, form: Any, value: Any, state: State, eqn: Any, location: Any, stack: Any
    ) -> list[Outcome]:
        """``while``: iterations as long as the condition holds."""
        cond_consts = [value(c) for c in form.cond_consts]
        body_consts = [value(c) for c in form.body_consts]
        outer = state.moment
        open_paths: list[Outcome] = [(tuple(value(c) for c in form.carry), state)]
        finished: list[Outcome] = []
        k = 0
        polls = self.compiler.reads_a_count(form.cond.jaxpr)
        while open_paths:
            if polls and k > LONGEST_POLL:
                raise OutOfBudget(f"a semaphore is polled more than {LONGEST_POLL} times", location)
            following: list[Outcome] = []
            for carry, path in open_paths:
                path.moment = outer.inside("iteration", k)
                for (holds,), after in self.run(form.cond, [*cond_consts, *carry], path):
                    predicate = self._as_condition(holds, eqn, after)
                    for answer, taken in self.decide(after, predicate):
                        if answer:
                            following += self.run(form.body, [*body_consts, *carry], taken)
                        else:
                            taken.moment = outer
                            finished.append((carry, taken))
            open_paths = following
            k += 1
        return self.merge(finished)

    def _as_condition(self, holds: Any, eqn: Any, state: State) -> terms.Predicate:
        if holds is None:
            return terms.ne(terms.element("condition", (), self._next_fresh(), 0, 1), 0)
        return scalars.as_predicate(holds)

    # -- scopes --

    def run_scoped(
        self, form: Any, value: Any, state: State, eqn: Any, location: Any, stack: Any
    ) -> list[Outcome]:
        """``run_scoped``: memory that lives for the body; its instances in a loop are the same memory."""
        buffers = [self._scoped_buffer(form, i, t, state, eqn) for i, t in enumerate(form.allocations)]
        site = Site(location, state.moment, "", stack)  # type: ignore[arg-type]
        self.machine.mark(state, "allocate", id(eqn), self.own(buffers, state), site)
        for buffer in buffers:
            state.cells.disturb(buffer)
        results = self.run(
            form.jaxpr, [value(o) for o in form.operands] + [b.whole() for b in buffers], state
        )
        for _, after in results:
            after_site = Site(location, after.moment, "", stack)  # type: ignore[arg-type]
            self.machine.mark(after, "free", id(eqn), self.own(buffers, after), after_site)
        return results

    def owner(self, type_: RefType, state: State, shared_along: Sequence[Any] = ()) -> Any:
        """Whose memory a new Ref of this type is: the core that runs, or None where the device shares it.

        ``shared_along``: core axes along which the cores get one Ref between them.
        """
        return state.place.core

    def own(self, buffers: Sequence[Buffer], state: State) -> Sequence[Buffer]:
        """Of the buffers of a scope, those that end with it: what cores share lives until the last has left."""
        core = state.place.core
        return buffers if core is None else [b for b in buffers if b.core == core]

    def _scoped_buffer(self, form: Any, i: int, type_: RefType, state: State, eqn: Any) -> Buffer:
        call = state.call.number if state.call is not None else -1
        name = names.variable_names(form.jaxpr.jaxpr)[len(form.operands) + i] or f"scoped{i}"
        path = ("call", call, "scoped", id(eqn), i)
        core = self.owner(type_, state, form.collective_axes)
        return self.memory.buffer(name, type_, state.place.device, core, path, "scoped")

    def run_state(
        self, form: Any, value: Any, state: State, eqn: Any, location: Any, stack: Any
    ) -> list[Outcome]:
        """``run_state``: operands become Refs for the body; their final contents are the results."""
        raise Unmodelled("run_state", location)

    def run_shard_map(
        self, form: Any, value: Any, state: State, eqn: Any, location: Any, stack: Any
    ) -> list[Outcome]:
        """The body as the device that runs sees it."""
        raise Unmodelled("shard_map inside a kernel", location)

    def run_kernel(
        self, form: Any, value: Any, state: State, eqn: Any, location: Any, stack: Any
    ) -> list[Outcome]:
        """A kernel call."""
        raise Unmodelled("kernel call", location)

    def run_pipeline(
        self, form: Any, value: Any, state: State, eqn: Any, location: Any, stack: Any
    ) -> list[Outcome]:
        """``emit_pipeline`` as one equation."""
        raise Unmodelled("emit_pipeline", location)


def _label(operation: Any) -> Any:
    """What an event is about: a semaphore or a view; turned into text where it is shown."""
    semaphore = getattr(operation, "semaphore", None)
    return semaphore if semaphore is not None else getattr(operation, "view", "")


def _element(x: Any, k: int) -> Any:
    if isinstance(x, ArrayValue):
        x = x.data
    if x is None or not hasattr(x, "shape") or x.ndim == 0:
        return None
    return scalars.concrete(x[k])


def _known_part(cells: Cells, view: View, aval: Any) -> Any:
    initial = cells.initial(view.root)  # type: ignore[arg-type]
    region = view.region
    if initial is None or not region.exact or not region.is_known or region.system != initial.shape:
        return None
    part = initial[tuple(slice(s, s + n * d, d) for s, n, d in region.ranges)]  # type: ignore[operator,misc]
    return scalars.concrete(part.reshape(aval.shape)) if part.size == scalars.element_count(aval) else None


_OPERATIONS: dict[type, str] = {
    signatures.Load: "load",
    signatures.Store: "store",
    signatures.Accumulate: "accumulate",
    signatures.StartCopy: "start_copy",
    signatures.WaitCopy: "wait_copy",
    signatures.Wait: "wait_semaphore",
    signatures.Signal: "signal",
    signatures.ReadSemaphore: "read_semaphore",
    signatures.BarrierSemaphore: "barrier_semaphore",
    signatures.SubcoreBarrier: "subcore_barrier",
    signatures.FetchAndAdd: "fetch_and_add",
    signatures.Allocate: "allocate",
    signatures.Free: "free",
    signatures.Pure: "pure",
}
