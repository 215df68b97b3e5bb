"""What cores of a mesh do besides running a kernel's body: barriers, atomics, and memory that others change.

Also Refs that a program makes itself (``jax.new_ref``, ``run_state``), by which ``core_map`` and kernels over Refs
share arrays, and ``emit_pipeline`` kept as one equation.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import Any

from asyncops.checker import scalars
from asyncops.checker.calls import KernelInterpreter
from asyncops.checker.cores import VECTOR_SUBCORE, Core, sparse_core, stations
from asyncops.checker.events import Site
from asyncops.checker.memory import Buffer
from asyncops.checker.skeleton import ArrayValue, Outcome, State, Unmodelled
from stateful import terms
from stateful._jax import chips, names, pipelines
from stateful.recipes import Recipe
from stateful.types import MemorySpace, RefType, SemaphoreKind, View, item_bits

_CHIP = "v5e"
_BARRIER = RefType((), "barrier_semaphore", MemorySpace.SEMAPHORE, SemaphoreKind.BARRIER)


class MeshInterpreter(KernelInterpreter):
    """Runs kernels on each core of a mesh."""

    @cached_property
    def expansions(self) -> dict[Any, Any]:
        """Pipelines kept as one equation, expanded once for each set of axes."""
        return {}

    # -- cores of one kernel --

    def subcore_barrier(self, op: Any, eqn: Any, value: Any, state: State, site: Site) -> Any:
        """All vector subcores of the SparseCore come together."""
        core = state.place.core
        if core is None or core.kind != VECTOR_SUBCORE:
            raise Unmodelled("a barrier of subcores on another kind of core", site.location)
        group = sparse_core(core.index[0])
        path = ("call", state.call.number, "subcore barrier")
        buffer = self.memory.buffer(
            "the barrier of the subcores", _BARRIER, state.place.device, group, path, "barrier"
        )
        members = sum(
            s.core.kind == VECTOR_SUBCORE and s.core.index[0] == core.index[0]
            for s in stations(state.call.form)
        )
        self.machine.subcore_barrier(state, buffer, members, site)

    def fetch_and_add(self, op: Any, eqn: Any, value: Any, state: State, site: Site) -> Any:
        """An addition to another subcore's memory; what was there is not known."""
        core = state.place.core
        if core is None or core.kind != VECTOR_SUBCORE:
            raise Unmodelled("an atomic addition on another kind of core", site.location)
        self.machine.check_bounds(state, op.view, site)
        subcore = self.policy.concretise(state, op.subcore, 0)  # type: ignore[attr-defined]
        self.memory.volatile.add(op.view.root.path)
        self.machine.atomic(
            state, op.view, state.place.device, Core(core.kind, (core.index[0], subcore)), site
        )

    def load(self, op: Any, eqn: Any, value: Any, state: State, site: Site) -> Any:
        """A load; what other cores can change meanwhile is another value each time."""
        known = super().load(op, eqn, value, state, site)
        core = state.place.core
        if core is None or known is None:
            return known
        buffer: Buffer = op.view.root  # type: ignore[assignment]
        foreign = buffer.core != core and buffer.role not in ("operand", "scalar")
        return None if foreign or buffer.path in self.memory.volatile else known

    def start_copy(self, op: Any, eqn: Any, value: Any, state: State, site: Site) -> Any:
        """SparseCores count plain bytes: their memory is not tiled."""
        if _is_on_sparse_core(state):
            op = dataclasses.replace(
                op, source_amount=_plain_bytes(op.source), destination_amount=_plain_bytes(op.destination)
            )
        return super().start_copy(op, eqn, value, state, site)

    def wait_copy(self, op: Any, eqn: Any, value: Any, state: State, site: Site) -> Any:
        """As for the start."""
        if _is_on_sparse_core(state):
            op = dataclasses.replace(op, amount=_plain_bytes(op.view))
        return super().wait_copy(op, eqn, value, state, site)

    # -- Refs that a program makes --

    def allocate(self, op: Any, eqn: Any, value: Any, state: State, site: Site) -> Any:
        """``new_ref`` and ``empty_ref``: memory of the kernel they stand in, else of the program."""
        call = state.call
        given = None if op.value is None else value(op.value)
        if call is None and isinstance(given, ArrayValue) and self._is_handed_over(given.buffer, eqn):
            return given.buffer.whole()
        name = self._ref_name(eqn, site)
        type_ = op.type
        if type_.space is MemorySpace.DEFAULT:
            type_ = dataclasses.replace(type_, space=MemorySpace.HBM if call is None else MemorySpace.VMEM)
        path = ("ref", call.number if call is not None else -1, id(eqn))
        role = "operand" if call is None else "scoped"
        buffer = self.memory.buffer(name, type_, state.place.device, self.owner(type_, state), path, role)
        if call is not None:
            call.buffers.append(buffer)
            self.machine.mark(state, "allocate", id(eqn), self.own([buffer], state), site)
        self._fill(buffer, given, state)
        if call is not None and op.value is not None:
            self.machine.access(state, buffer.whole(), True, site, False)
        return buffer.whole()

    def _is_handed_over(self, buffer: Buffer, eqn: Any) -> bool:
        """A semaphore stays what it is, and so does what a kernel made the first time that a Ref is made of it."""
        if buffer.is_semaphore:
            return True
        return buffer.role == "result" and self.memory.ref_of.setdefault(buffer, id(eqn)) == id(eqn)

    def _ref_name(self, eqn: Any, site: Site) -> str:
        known = self.memory.ref_names.get(id(eqn))
        if known is None:
            place = site.location
            found = self.memory.namer.assigned((place.file, place.line, "")) if place else None
            known = self.memory.ref_names[id(eqn)] = found or "a Ref"
        return known

    def free(self, op: Any, eqn: Any, value: Any, state: State, site: Site) -> Any:
        """``freeze`` gives the array back; ``free_ref`` only ends the Ref."""
        buffer: Buffer = op.view.root  # type: ignore[assignment]
        if state.call is not None:
            if op.read:
                self.machine.access(state, op.view, False, site, False)
            self.machine.mark(state, "free", id(eqn), self.own([buffer], state), site)
            return None
        return ArrayValue(buffer) if op.read else None

    def run_state(
        self, form: Any, value: Any, state: State, eqn: Any, location: Any, stack: Any
    ) -> list[Outcome]:
        """Operands become Refs for the body; their final contents are the results."""
        refs: list[Any] = []
        labels = names.variable_names(form.jaxpr.jaxpr)
        for i, (type_, atom, is_given) in enumerate(zip(form.types, form.operands, form.is_initialized)):
            given = value(atom)
            refs.append(given if isinstance(given, View) else self._state_ref(
                type_, labels[i] or f"state{i}", ("state", id(eqn), i), given if is_given else None, state
            ))  # fmt: skip
        results: list[Outcome] = []
        for _, after in self.run(form.jaxpr, refs, state):
            results.append((tuple(ArrayValue(r.root) for r in refs[: len(eqn.outvars)]), after))
        return results

    def _state_ref(self, type_: RefType, name: str, path: tuple[Any, ...], given: Any, state: State) -> View:
        call = state.call
        if type_.space is MemorySpace.DEFAULT:
            type_ = dataclasses.replace(type_, space=MemorySpace.HBM if call is None else MemorySpace.VMEM)
        where = ("call", call.number if call is not None else -1)
        role = "operand" if call is None else "scoped"
        core = self.owner(type_, state)
        buffer = self.memory.buffer(name, type_, state.place.device, core, (*where, *path), role)
        self._fill(buffer, given, state)
        return buffer.whole()

    def _fill(self, buffer: Buffer, given: Any, state: State) -> None:
        self._contents(buffer, given, state)
        if given is None:
            state.cells.disturb(buffer)

    # -- emit_pipeline as one equation --

    def run_pipeline(
        self, form: Any, value: Any, state: State, eqn: Any, location: Any, stack: Any
    ) -> list[Outcome]:
        """``emit_pipeline`` as the loops that JAX makes of it."""
        key = (id(eqn), tuple((name, size) for name, _, size in state.place.axes))
        found = self.expansions.get(key)
        if found is None:
            found = self.expansions[key] = (eqn, self._expanded(eqn, dict(key[1]), location))
        outer = state.grid
        mine = [g for d, g in enumerate(form.grid) if d not in form.form.vmapped]
        sizes = [g if isinstance(g, int) else scalars.as_term(value(g)) for g in mine]
        state.grid = tuple((0, n) for n in sizes)
        results = self.run(found[1], [value(a) for a in eqn.invars], state)
        for _, path in results:
            path.grid = outer
        return [((), path) for _, path in results]

    def _expanded(self, eqn: Any, axes: dict[str, int], location: Any) -> Any:
        """The loops; where JAX asks which chip they are for, and none is known, those for one of them."""
        try:
            return pipelines.expanded(eqn, axes)
        except ValueError:
            self.machine.assume(f"blocks of pipelines are cut as for a {_CHIP}")
        try:
            with chips.pretend(_CHIP):
                return pipelines.expanded(eqn, axes)
        except (ValueError, TypeError, NotImplementedError) as e:
            raise Unmodelled(f"emit_pipeline as one equation: {e}", location) from e

    def run_pipeline_body(
        self, form: Any, value: Any, state: State, eqn: Any, location: Any, stack: Any
    ) -> list[Outcome]:
        """The user's body at one step of such a pipeline."""
        outer = state.grid
        indices = [scalars.as_term(value(i)) for i in form.indices]
        state.grid = tuple((i, n) for i, (_, n) in zip(indices, outer))
        given = [value(a) for a in (*form.consts, *form.scalars)]
        windows = [Recipe.of(ref)(value) for ref in form.refs]
        results = self.run(form.jaxpr, [*given, *windows], state)
        for _, path in results:
            path.grid = outer
        return [((), path) for _, path in results]


def _is_on_sparse_core(state: State) -> bool:
    core = state.place.core
    return core is not None and core.kind.startswith("sc")


def _plain_bytes(view: View) -> Any:
    total: Any = item_bits(view.dtype)
    for n in view.shape:
        total = terms.mul(total, n)
    return terms.floordiv(total, 8)
