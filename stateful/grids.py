"""Discharging a kernel call: its grid as a loop, its block windows as slices of the operands.

The semantics is the one that ``pallas_call`` documents, without overlap: before a step each window is
fetched, after it each output window is written back; aliased operands and results are one memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import jax.numpy as jnp
from jax import lax

from stateful import higher_order as ho
from stateful._jax.jaxprs import Body
from stateful.errors import UnmodelledError
from stateful.kernel_forms import BlockDim, BlockWindow
from stateful.stores import Cell, Store, Window
from stateful.types import MemorySpace, RefType, SemaphoreKind, ref_type

BARRIER = RefType((), "barrier_semaphore", MemorySpace.SEMAPHORE, SemaphoreKind.BARRIER)


class Runner(Protocol):
    """What runs bodies: the discharging interpreter."""

    grid: tuple[tuple[Any, Any], ...]
    axes: dict[str, Any]
    barrier: Window | None

    def run(self, body: Body, inputs: list[Any], store: Store, consts: list[Any] | None = None) -> list[Any]:
        """The results of a body."""
        ...


@dataclass(frozen=True)
class Operand:
    """A windowed array: the cell that holds it, padded so that every block lies inside."""

    window: BlockWindow
    backing: Window
    pads: tuple[tuple[int, int], ...]
    index_consts: list[Any] | None = None

    @property
    def is_whole(self) -> bool:
        """True when the kernel sees the array itself."""
        dims = self.window.block
        plain = all(d.kind == "blocked" for d in dims)
        return self.window.index_map is None or (plain and self.window.covers_array)

    def cropped(self, array: Any) -> Any:
        """The array without its padding."""
        sizes = self.window.array.shape
        return array[tuple(slice(low, low + n) for (low, _), n in zip(self.pads, sizes, strict=True))]


def pads_of(window: BlockWindow) -> tuple[tuple[int, int], ...]:
    """Padding (low, high) of each dimension of the array."""
    return tuple(_pad(d, n) for d, n in zip(window.block, window.array.shape, strict=True))


def _pad(dim: BlockDim, extent: int) -> tuple[int, int]:
    if dim.kind in ("bounded", "indirect"):
        raise UnmodelledError(f"a block dimension of kind {dim.kind!r} cannot be discharged")
    if dim.kind == "element":
        return dim.padding
    return 0, -extent % dim.size


def padded(array: Any, pads: tuple[tuple[int, int], ...]) -> Any:
    """The array with padding; what lies there is not defined, and zero here."""
    return jnp.pad(array, pads) if any(low or high for low, high in pads) else array


def run_grid(
    runner: Runner,
    store: Store,
    sizes: tuple[Any, ...],
    persistent: list[Cell],
    step: Callable[[tuple[Any, ...]], None],
) -> None:
    """Runs ``step(indices)`` for every point of the grid, last dimension fastest."""
    if all(isinstance(n, int) for n in sizes) and math.prod(sizes) == 1:
        step((0,) * len(sizes))
        return

    def body(k: Any, carried: tuple[Any, ...]) -> tuple[Any, ...]:
        outer = store.contents, store.failed
        store.contents = dict(outer[0])
        store.restore(persistent, carried)
        step(unravel(k, sizes))
        after = store.snapshot(persistent)
        store.contents, store.failed = outer
        return after

    total: Any = 1
    for n in sizes:
        total = total * n
    store.restore(persistent, lax.fori_loop(0, total, body, store.snapshot(persistent)))


def unravel(k: Any, sizes: tuple[Any, ...]) -> tuple[Any, ...]:
    """The indices of the k-th point of a grid."""
    indices: list[Any] = []
    for n in reversed(sizes):
        indices.append(lax.rem(k, jnp.asarray(n, k.dtype)))
        k = lax.div(k, jnp.asarray(n, k.dtype))
    return tuple(reversed(indices))


class Step:
    """The windows of one grid step."""

    def __init__(self, runner: Runner, store: Store, indices: tuple[Any, ...], scalars: list[Any]):
        self.runner, self.store, self.given = runner, store, [*indices, *scalars]
        self._made: list[tuple[Operand, Window, tuple[Any, ...]]] = []

    def fetch(self, operand: Operand, name: str, is_output: bool) -> Window:
        """The Ref that the body sees for an operand."""
        if operand.is_whole:
            return operand.backing
        start = self._start(operand)
        array = self.store.read(operand.backing)
        block = lax.dynamic_slice(array, start, [d.size for d in operand.window.block])
        squeezed = tuple(i for i, d in enumerate(operand.window.block) if d.kind == "squeezed")
        window = self.store.new(name, operand.window.ref, jnp.squeeze(block, squeezed))
        if is_output:
            self._made.append((operand, window, start))
        return window

    def write_back(self) -> None:
        """Puts the output blocks where they belong."""
        for operand, window, start in self._made:
            block = self.store.read(window).reshape([d.size for d in operand.window.block])
            array = self.store.read(operand.backing)
            self.store.write(operand.backing, lax.dynamic_update_slice(array, block, start))

    def _start(self, operand: Operand) -> tuple[Any, ...]:
        index_map = operand.window.index_map
        assert index_map is not None
        numbers = self.runner.run(index_map, self.given, self.store, operand.index_consts)
        blocks = zip(numbers, operand.window.block, strict=True)
        return tuple(jnp.asarray(i, jnp.int32) * (d.size if d.kind == "blocked" else 1) for i, d in blocks)


# -- kernel calls --------------------------------------------------------------------------------------------


def run_kernel(runner: Runner, form: ho.Kernel, value: Callable[[Any], Any], store: Store) -> list[Any]:
    """Carries out a kernel call; its results."""
    k = form.form
    sizes = tuple(g if isinstance(g, int) else value(g) for g in form.grid)
    inputs = [
        _operand(store, w, value(a), f"input{i}")
        for i, (w, a) in enumerate(zip(k.windows[: len(k.inputs)], form.inputs, strict=True))
    ]
    outputs = _outputs(form, inputs, store)
    names = k.split_inputs(k.programs[0])
    kinds = zip(names["scalars"], form.scalars, strict=True)
    scalars = [store.new("scalars", ref_type(v.aval), value(a)) for v, a in kinds]
    scratch = [store.new(f"scratch{i}", t) for i, t in enumerate(k.scratch)]
    constants = [value(a) for a in form.constants]
    outer = runner.grid, runner.axes, runner.barrier
    runner.barrier = store.new("barrier semaphore", BARRIER)
    touched = cells(
        [*(o.backing for o in (*inputs, *outputs)), *scalars, *scratch, *constants, runner.barrier]
    )

    for program, axes in _cores(form):

        def step(indices: tuple[Any, ...], program: ho.Program = program) -> None:
            runner.grid = tuple((indices[d], sizes[d]) for d in k.program_axes)
            one = Step(runner, store, indices, scalars)
            seen = [one.fetch(o, f"input{i}", False) for i, o in enumerate(inputs)]
            made = [one.fetch(o, f"output{i}", True) for i, o in enumerate(outputs)]
            runner.run(program.body, [*constants, *scalars, *seen, *made, *scratch], store)
            one.write_back()

        runner.axes = {**outer[1], **axes}
        run_grid(runner, store, sizes, touched, step)
    runner.grid, runner.axes, runner.barrier = outer
    return [o.cropped(store.read(o.backing)) for o in outputs]


def _operand(store: Store, window: BlockWindow, given: Any, name: str) -> Operand:
    if isinstance(given, Window):  # a Ref of the caller's
        return Operand(window, given, ((0, 0),) * len(window.array.shape))
    pads = pads_of(window)
    array = padded(given, pads)
    type_ = RefType(array.shape, window.array.dtype, window.operand_space, window.array.semaphore)
    return Operand(window, store.new(name, type_, array), pads)


def _outputs(form: ho.Kernel, inputs: list[Operand], store: Store) -> list[Operand]:
    """An operand for each result; an aliased one shares the cell of its input."""
    k = form.form
    source_of = {o: i for i, o in k.aliases.items()}
    found = []
    for o, window in enumerate(k.windows[len(k.inputs) :]):
        pads = pads_of(window)
        if o in source_of:
            source = inputs[source_of[o]]
            if source.pads != pads:
                raise UnmodelledError(
                    "an aliased operand and result with different block sizes cannot be discharged"
                )
            found.append(Operand(window, source.backing, pads))
            continue
        shape = tuple(n + low + high for n, (low, high) in zip(window.array.shape, pads, strict=True))
        type_ = RefType(shape, window.array.dtype, window.operand_space, window.array.semaphore)
        found.append(Operand(window, store.new(f"output{o}", type_), pads))
    return found


def cells(windows: list[Any]) -> list[Cell]:
    return list(dict.fromkeys(w.cell for w in windows if isinstance(w, Window)))


def _cores(form: ho.Kernel) -> list[tuple[ho.Program, dict[str, Any]]]:
    """Each program on each of its cores, one after the other."""
    found = []
    for program in form.form.programs:
        sizes = [size for _, size in program.axes]
        for number in range(math.prod(sizes)):
            indices, rest = [], number
            for size in reversed(sizes):
                indices.append(rest % size)
                rest //= size
            found.append((program, dict(zip((n for n, _ in program.axes), reversed(indices), strict=True))))
    return found


# -- emit_pipeline -------------------------------------------------------------------------------------------


def run_pipeline(
    runner: Runner,
    form: ho.Pipeline,
    value: Callable[[Any], Any],
    refs: list[Window],
    store: Store,
    touched: list[Cell],
) -> None:
    """Carries out an ``emit_pipeline`` equation over windows ``refs`` of the enclosing kernel's memory."""
    p = form.form
    if (p.cores or 1) != 1 or p.has_allocations or p.steps:
        raise UnmodelledError(
            "emit_pipeline over several cores, with allocations or with step objects cannot be discharged"
        )
    sizes = tuple(g if isinstance(g, int) else value(g) for g in form.grid)
    constants = [value(a) for a in form.constants]
    index_consts = [[value(a) for a in atoms] for atoms in form.index_constants]
    outer = runner.grid

    def step(indices: tuple[Any, ...]) -> None:
        runner.grid = tuple(zip(indices, sizes, strict=True)) + outer[len(indices) :]
        one = Step(runner, store, indices, [])
        seen = []
        for number, (window, ref, consts) in enumerate(zip(p.windows, refs, index_consts, strict=True)):
            operand = Operand(window, ref, _unpadded(window), consts)
            seen.append(one.fetch(operand, f"window{number}", number >= p.n_inputs))
        runner.run(p.body, [*constants, *seen], store)
        one.write_back()

    run_grid(runner, store, sizes, touched, step)
    runner.grid = outer


def _unpadded(window: BlockWindow) -> tuple[tuple[int, int], ...]:
    pads = pads_of(window)
    if any(low or high for low, high in pads):
        raise UnmodelledError("emit_pipeline whose blocks do not divide the array cannot be discharged")
    return pads
