"""The events of a traced program for arguments that are known, by running it equation by equation.

A second way from kernels to events, so that the checker's can be held to it: nothing is symbolic, loops run trip by
trip, and every device runs on its own. What an operation of a kernel does to memory comes from ``stateful``; the rest
shares nothing with the checker. Left out, on purpose: the copies that ``pallas_call`` makes for block windows (a
window is memory of its own, and right), and what XLA does to arrays between kernels.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jax import lax

from asyncops.checker.events import Access, Box, Copy, Core, Event, Mark, Program, Signal, Start, Wait
from asyncops.explorer.arithmetic import Unknown, compute
from stateful import higher_order as ho
from stateful import operations as ops
from stateful import semaphores, signatures
from stateful._jax import jaxprs
from stateful._jax import primitives as p
from stateful.effects import DeviceId
from stateful.types import MemorySpace, RefType, SemaphoreKind, View, ref_type

LONGEST = 4000
_CONTEXT = {p.program_id: "ids", p.num_programs: "sizes"}


@dataclass(frozen=True)
class Unrolled:
    """What a program does for some arguments; ``faults`` is what is wrong with it in any schedule."""

    program: Program
    faults: tuple[str, ...]


@dataclass(frozen=True)
class Root:
    """A piece of memory: ``device`` has it, ``key`` is the same on every device."""

    device: int
    key: Hashable

    def on(self, device: int) -> Root:
        """Its counterpart on another device."""
        return Root(device, self.key)

    def __str__(self) -> str:
        return f"{self.key}@{self.device}"


@dataclass(frozen=True)
class Array:
    """An array of the program that a kernel has made: the memory that it lies in."""

    root: Root


@dataclass
class Mesh:
    """The devices, as their axes number them."""

    axes: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def size(self) -> int:
        """How many there are."""
        return int(np.prod(list(self.axes.values()) or [1]))

    def place(self, device: int) -> dict[str, int]:
        """The index of a device along each axis."""
        indices = np.unravel_index(device, tuple(self.axes.values())) if self.axes else ()
        return {name: int(i) for name, i in zip(self.axes, indices)}

    def find(self, device: int, which: DeviceId | None) -> int | None:
        """The device that an operation on ``device`` names; None where there is no such device."""
        if which is None:
            return device
        if which.kind == "logical" or not self.axes:
            number = _number(which.value)
            return number if 0 <= number < self.size else None
        place = self.place(device)
        if isinstance(which.value, dict):
            place.update({str(k): _number(v) for k, v in which.value.items()})
        else:
            given = which.value if isinstance(which.value, tuple) else (which.value,)
            place.update({name: _number(v) for name, v in zip(self.axes, given)})
        if any(not 0 <= i < self.axes[name] for name, i in place.items()):
            return None
        return int(np.ravel_multi_index(tuple(place[n] for n in self.axes), tuple(self.axes.values())))


def unroll(closed: Any, args: Sequence[Any]) -> Unrolled:
    """Runs a traced program on every device of its mesh.

    Args:
      closed: the jaxpr, its constants bound.
      args: its arguments; integers are used, of all others only the shape counts.

    Raises:
      Unknown: a value that steers the program is not known, or it does something that is not followed here.
    """
    opened = jaxprs.open_jaxpr(closed)
    mesh = Mesh(mesh_axes(opened.jaxpr))
    runs = [_Run(mesh, device) for device in range(mesh.size)]
    for run in runs:
        run.body(opened, [_known(a) for a in args], list(opened.consts))
    cores = tuple(Core(device, tuple(run.events), device) for device, run in enumerate(runs))
    barriers = tuple(
        tuple((device, run.entries[i]) for device, run in enumerate(runs))
        for i in range(len(runs[0].entries))
    )
    faults = tuple(dict.fromkeys(f for run in runs for f in run.faults))
    return Unrolled(Program(cores, barriers if mesh.size > 1 else ()), faults)


def mesh_axes(jaxpr: Any) -> dict[str, int]:
    """The axes of the only mesh in the program."""
    for eqn in jaxpr.eqns:
        form = ho.normal_form(eqn)
        if isinstance(form, ho.ShardMap):
            return dict(form.mesh)
        if isinstance(form, ho.Call):
            found = mesh_axes(form.jaxpr.jaxpr)
            if found:
                return found
    return {}


def _known(value: Any) -> Any:
    """The numbers of an integer array, None for others."""
    if isinstance(value, (np.ndarray, np.generic, int)) and np.asarray(value).dtype.kind in "iub":
        return np.asarray(value)
    return None


def _number(value: Any) -> int:
    if value is None:
        raise Unknown("an index is not known")
    return int(value)


class _Run:
    """One device running the program."""

    def __init__(self, mesh: Mesh, device: int) -> None:
        self.mesh, self.device = mesh, device
        self.events: list[Event] = []
        self.entries: list[int] = []
        self.faults: list[str] = []
        self._calls = 0
        self._scopes = 0
        self._cells: dict[Hashable, Any] = {}
        self._grid: dict[str, tuple[int, ...]] = {"ids": (), "sizes": ()}
        self._collective: int | None = None

    # -- jaxprs --

    def body(self, body: Any, inputs: Sequence[Any], consts: Sequence[Any] | None = None) -> list[Any]:
        """Runs a body; values are numbers, Views of Refs, or None where they are not known."""
        env: dict[Any, Any] = dict(zip(body.jaxpr.constvars, body.consts if consts is None else consts))
        env.update(zip(body.inputs if consts is None else body.jaxpr.invars, inputs))

        def value(atom: Any) -> Any:
            if isinstance(atom, jaxprs.Literal):
                return _known(np.asarray(atom.val))
            return env.get(atom)

        for eqn in body.jaxpr.eqns:
            results = self._equation(eqn, value)
            env.update(zip(eqn.outvars, results))
        return [value(v) for v in body.jaxpr.outvars]

    def _equation(self, eqn: Any, value: Any) -> Sequence[Any]:
        if len(self.events) > LONGEST:
            raise Unknown(f"more than {LONGEST} events on a device")
        form = ho.normal_form(eqn)
        if form is not None:
            return self._higher_order(eqn, form, value)
        if any(isinstance(value(v), View) for v in eqn.invars) or not signatures.is_known_pure(eqn.primitive):
            return self._effects(eqn, value)
        if eqn.primitive in _PASSES_ON:
            return [value(v) for v in eqn.invars]
        if eqn.primitive in _CONTEXT:
            return [np.int32(self._grid[_CONTEXT[eqn.primitive]][eqn.params["axis"]])]
        if eqn.primitive is p.axis_index:
            return [self._axis_index(eqn.params["axis_name"])]
        return compute(eqn, [_number_or_none(value(v)) for v in eqn.invars])

    def _axis_index(self, names: Any) -> np.int32:
        place, index = self.mesh.place(self.device), 0
        for name in names if isinstance(names, tuple) else (names,):
            index = index * self.mesh.axes[name] + place[name]
        return np.int32(index)

    def _higher_order(self, eqn: Any, form: Any, value: Any) -> Sequence[Any]:
        match form:
            case ho.Call() | ho.ShardMap():
                given = [value(v) for v in form.operands]
                return self.body(form.jaxpr, given)
            case ho.Branch():
                index = value(form.index)
                if index is None:
                    raise Unknown("a branch depends on what is not known")
                chosen = form.branches[min(max(int(index), 0), len(form.branches) - 1)]
                return self.body(chosen, [value(v) for v in form.operands])
            case ho.While():
                return self._while(form, value)
            case ho.Scan():
                return self._scan(eqn, form, value)
            case ho.Scoped():
                return self._scoped(eqn, form, value)
            case ho.Kernel():
                return self._kernel(eqn, form, value)
            case _:
                raise Unknown(f"{eqn.primitive.name} is not followed")

    def _while(self, form: ho.While, value: Any) -> Sequence[Any]:
        carry = [value(v) for v in form.carry]
        tested, looped = ([value(v) for v in atoms] for atoms in (form.cond_consts, form.body_consts))
        for _ in range(LONGEST):
            (go_on,) = self.body(form.cond, [*tested, *carry])
            if go_on is None:
                raise Unknown("a loop's condition depends on what is not known")
            if not go_on:
                return carry
            carry = self.body(form.body, [*looped, *carry])
        raise Unknown("a loop does not end")

    def _scan(self, eqn: Any, form: ho.Scan, value: Any) -> Sequence[Any]:
        carry = [value(v) for v in form.carry]
        consts, xs = ([value(v) for v in atoms] for atoms in (form.consts, form.xs))
        trips = range(form.length)
        for i in reversed(trips) if form.reverse else trips:
            given = [None if x is None else x[i] for x in xs]
            carry = self.body(form.jaxpr, [*consts, *carry, *given])[: len(carry)]
        return [*carry, *[None] * (len(eqn.outvars) - len(carry))]

    def _scoped(self, eqn: Any, form: ho.Scoped, value: Any) -> Sequence[Any]:
        self._scopes += 1
        key = f"scope{self._calls}.{id(eqn) % 10007}"
        fresh = [self._whole((key, k), type_) for k, type_ in enumerate(form.allocations)]
        memory, counts = _split(fresh)
        self.events.append(Mark("allocate", (key, self._scopes), memory, counts))
        results = self.body(form.jaxpr, [*[value(v) for v in form.operands], *fresh])
        self.events.append(Mark("free", (key, self._scopes), memory, counts))
        return results

    def _whole(self, key: Hashable, type_: RefType, contents: Any = None) -> View:
        root = Root(self.device, key)
        if contents is not None:
            self._cells[root] = np.array(contents)
        elif type_.space is MemorySpace.SMEM:
            self._cells[root] = None
        return View.whole(root, type_)

    # -- kernels --

    def _kernel(self, eqn: Any, form: ho.Kernel, value: Any) -> Sequence[Any]:
        self._calls += 1
        static = form.form
        if len(static.programs) != 1 or any(value(v) is None for v in form.bounds):
            raise Unknown("a kernel for several kinds of cores, or with a grid that is not known")
        grid = tuple(int(g if isinstance(g, int) else value(g)) for g in form.grid)
        refs = self._operands(form, value)
        enter = self._entered(static, refs)
        for ids in itertools.product(*map(range, grid)):
            axes = static.program_axes
            self._grid = {"ids": tuple(ids[a] for a in axes), "sizes": tuple(grid[a] for a in axes)}
            self.body(static.jaxpr, refs)
        self.events.append(Mark("exit", enter.what, enter.memory, enter.semaphores))
        results = refs[len(refs) - len(static.scratch) - len(eqn.outvars) :][: len(eqn.outvars)]
        return [Array(_root(view)) for view in results]

    def _operands(self, form: ho.Kernel, value: Any) -> list[Any]:
        """A View for every Ref of the kernel."""
        static, call = form.form, self._calls
        found: list[Any] = []
        for k, atom in enumerate((*form.constants, *form.scalars, *form.inputs)):
            var = static.jaxpr.inputs[k]
            given = value(atom)
            if isinstance(given, Array):
                found.append(View.whole(given.root, ref_type(var.aval)))
            else:
                found.append(self._whole((f"in{call}", k), ref_type(var.aval), given))
        inputs = found[len(form.constants) + len(form.scalars) :]
        taken = {o: i for i, o in static.aliases.items()}
        for k in range(len(static.outputs)):
            window = static.windows[len(static.inputs) + k]
            type_ = ref_type(static.jaxpr.inputs[len(found)].aval)
            shared = taken.get(k) if window.array.space in _SHARED and window.covers_array else None
            found.append(inputs[shared] if shared is not None else self._whole((f"out{call}", k), type_))
        for k, type_ in enumerate(static.scratch):
            found.append(self._whole((f"scratch{call}", k), type_))
        return found

    def _entered(self, static: ho.KernelForm, refs: list[Any]) -> Mark:
        # A kernel that hands over a future leaves a copy in flight on its operands and results.
        has_future = any(t.semaphore is not None for t in (*static.inputs, *static.outputs))
        own = refs[len(refs) - len(static.scratch) :] if has_future else refs[_outer(static) :]
        memory, counts = _split([r for r in own if isinstance(r, View)])
        mark = Mark("enter", f"call{self._calls}", memory, counts)
        self._collective = static.collective_id
        if _communicates(static.jaxpr.jaxpr) and not static.skip_device_barrier:
            self.entries.append(len(self.events))
        self.events.append(mark)
        return mark

    # -- operations --

    def _effects(self, eqn: Any, value: Any) -> Sequence[Any]:
        def read(atom: Any) -> Any:
            found = value(atom)
            return int(found) if isinstance(found, (np.ndarray, np.generic)) and found.ndim == 0 else found

        results: list[Any] = [None] * len(eqn.outvars)
        for operation in signatures.operations(eqn, read):
            for problem in semaphores.problems(operation):
                self.faults.append(problem)
            result = self._operation(operation, eqn, value)
            if result is not None:
                results[0] = result
        return results

    def _operation(self, operation: ops.Operation, eqn: Any, value: Any) -> Any:
        match operation:
            case ops.Load(view):
                self._touch(view, write=False)
                return self._loaded(view, eqn)
            case ops.Store(view, atom):
                self._touch(view, write=True)
                self._stored(view, None if atom is None else value(atom))
            case ops.Accumulate(view):
                self._touch(view, write=False)
                self._touch(view, write=True)
                self._stored(view, None)
            case ops.StartCopy():
                self._start(operation)
            case ops.WaitCopy(semaphore, amount):
                if semaphore is not None:
                    self._wait(semaphore, amount, decrement=True)
            case ops.Wait(semaphore, amount, decrement):
                self._wait(semaphore, amount, decrement=decrement)
            case ops.Signal(semaphore, amount, device):
                target = self.mesh.find(self.device, device)
                if target is None:
                    self.faults.append("a signal to a device that does not exist")
                else:
                    self.events.append(Signal(self._semaphore(semaphore, target), _number(amount)))
            case ops.BarrierSemaphore():
                type_ = RefType((), "barrier_semaphore", MemorySpace.SEMAPHORE, SemaphoreKind.BARRIER)
                return View.whole(Root(self.device, ("barrier", self._collective)), type_)
            case ops.Pure():
                return None
            case _:
                raise Unknown(f"{eqn.primitive.name} is not followed")
        return None

    def _start(self, operation: ops.StartCopy) -> None:
        target = self.mesh.find(self.device, operation.device)
        if target is None:
            self.faults.append("a copy to a device that does not exist")
            return
        sent, arrived = operation.source_semaphore, operation.destination_semaphore
        destination = self._box(operation.destination, target)
        self._cells.pop(destination.buffer, None)
        self.events.append(
            Start(
                Copy(
                    self._box(operation.source, self.device),
                    destination,
                    None if sent is None else self._semaphore(sent, self.device),
                    None if arrived is None else self._semaphore(arrived, target),
                    _number(operation.source_amount) if sent is not None else 0,
                    _number(operation.destination_amount) if arrived is not None else 0,
                    accumulate=operation.add,
                )
            )
        )

    def _wait(self, semaphore: View, amount: Any, *, decrement: bool) -> None:
        self.events.append(Wait(self._semaphore(semaphore, self.device), _number(amount), decrement))

    def _touch(self, view: View, *, write: bool) -> None:
        self.events.append(Access(self._box(view, self.device), write))

    def _box(self, view: View, device: int) -> Box:
        region = view.region
        if not region.is_known:
            raise Unknown(f"which part of {view.root} is meant is not known")
        if region.out_of_bounds():
            self.faults.append(f"{region} is out of bounds")
        if region.system != view.type.shape or not region.exact:
            raise Unknown(f"{view.root} is reshaped")
        return Box(_root(view).on(device), tuple((_number(s), _number(n), d) for s, n, d in region.ranges))

    def _semaphore(self, view: View, device: int) -> Hashable:
        """One semaphore, of an array perhaps."""
        box = self._box(view, device)
        if any(n != 1 for _, n, _ in box.dims):
            raise Unknown("several semaphores at once")
        return (box.buffer, tuple(s for s, _, _ in box.dims))

    # -- numbers in memory --

    def _loaded(self, view: View, eqn: Any) -> Any:
        data = self._cells.get(view.root)
        if data is None or not eqn.outvars:
            return None
        found = _slice(data, view)
        shape = eqn.outvars[0].aval.shape
        # Out of bounds there is nothing; that is a fault already.
        return np.array(found.reshape(shape)) if found.size == int(np.prod(shape)) else None

    def _stored(self, view: View, new: Any) -> None:
        if view.root not in self._cells:
            return
        data = self._cells[view.root]
        if data is None and new is not None:
            data = np.zeros(view.type.shape, np.int64)
        if data is None or new is None:
            self._cells[view.root] = None
            return
        part = _slice(data, view)
        if part.size == np.size(new):
            part[...] = np.asarray(new).reshape(part.shape)
        self._cells[view.root] = data


_SHARED = (MemorySpace.ANY, MemorySpace.HBM, MemorySpace.SEMAPHORE)
_PASSES_ON = {lax.optimization_barrier_p}


def _outer(static: ho.KernelForm) -> int:
    """How many operands belong to the program around the kernel, whenever it runs."""
    return static.constants + static.scalar_prefetch


def _number_or_none(value: Any) -> Any:
    return None if isinstance(value, Array) else value


def _root(view: View) -> Root:
    assert isinstance(view.root, Root)
    return view.root


def _slice(data: Any, view: View) -> Any:
    known = ((_number(s), _number(n), d) for s, n, d in view.region.ranges)
    return data[tuple(slice(s, s + n * d, d) for s, n, d in known)]


def _split(views: Sequence[View]) -> tuple[tuple[Box, ...], tuple[Hashable, ...]]:
    """The memory and the single semaphores of some Refs."""
    memory: list[Box] = []
    counts: list[Hashable] = []
    for view in views:
        if view.type.semaphore is None:
            memory.append(Box(view.root, tuple((0, n, 1) for n in view.type.shape)))
        else:
            counts += [(view.root, index) for index in np.ndindex(*view.type.shape)]
    return tuple(memory), tuple(counts)


def _communicates(jaxpr: Any) -> bool:
    """Whether a kernel reaches other devices without a barrier semaphore of its own: the compiler adds a barrier."""
    eqns = list(_all_equations(jaxpr))
    return any(map(signatures.is_remote, eqns)) and not any(
        e.primitive is p.get_barrier_semaphore for e in eqns
    )


def _all_equations(jaxpr: Any) -> Any:
    for eqn in jaxpr.eqns:
        yield eqn
        form = ho.normal_form(eqn)
        for body in () if form is None else ho.bodies(form):
            yield from _all_equations(body.jaxpr)
