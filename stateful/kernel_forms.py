"""Kernel calls in one form: programs, grid, block windows, scratch, aliasing.

``pallas_call``, ``mpmd_map`` and ``core_map`` all become a :class:`KernelForm`. A program's inputs are, in
this order: closed-over constants, scalar prefetch operands, inputs, outputs, scratch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stateful._jax import kernels as jk
from stateful._jax.jaxprs import Body
from stateful.types import MemorySpace, RefType, ref_type


@dataclass(frozen=True, slots=True)
class BlockDim:
    """One dimension of a block.

    ``kind``: ``"blocked"`` (the index map gives the block's number), ``"squeezed"`` (size one, no axis inside
    the kernel), ``"element"`` (the index map gives the first element), ``"bounded"`` (a slice of at most
    ``size`` elements) or ``"indirect"`` (a gather). ``padding`` is what an element dimension may reach over
    the array.
    """

    kind: str
    size: int
    padding: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class BlockWindow:
    """How one operand or result is seen by the kernel.

    ``pipelined`` is False where the whole array is passed in ``space`` (ANY, HBM, SEMAPHORE, or a call
    without a grid).
    """

    block: tuple[BlockDim, ...]
    index_map: Body | None
    array: RefType
    ref: RefType
    space: MemorySpace
    operand_space: MemorySpace
    pipelined: bool
    buffer_count: int | tuple[int, int] = 2
    lookahead: bool = False
    revisit: str | None = None
    origin: str = ""

    @property
    def block_shape(self) -> tuple[int | None, ...]:
        """The sizes of the block, None where the dimension is squeezed."""
        return tuple(None if d.kind == "squeezed" else d.size for d in self.block)

    @property
    def covers_array(self) -> bool:
        """True when one block is the whole array, so that every step sees the same block."""
        return all(d.size == n for d, n in zip(self.block, self.array.shape, strict=True))


@dataclass(frozen=True, slots=True)
class Program:
    """What one kind of core runs: ``core`` is ``"tc"``, ``"sc_scalar_subcore"``, ``"sc_vector_subcore"`` or
    ``"gpu"``; ``axes`` are the core axes it is spread over, with their sizes."""

    body: Body
    core: str = "tc"
    axes: tuple[tuple[str, int], ...] = ()

    @property
    def mesh_axes(self) -> dict[str, int]:
        """The core axes as a dictionary, in order."""
        return dict(self.axes)


@dataclass(frozen=True, eq=False)
class KernelForm:
    """Everything static about a kernel call.

    ``grid`` holds None where the bound is an operand of the equation (``Kernel.grid`` has the atom).
    ``aliases`` map a position in ``inputs`` to a position in ``outputs``. ``constants`` counts the
    closed-over Refs and arrays. ``vmapped`` are the grid dimensions that ``vmap`` added: index maps get their
    index, ``program_id`` does not.
    """

    name: str
    backend: str
    programs: tuple[Program, ...]
    grid: tuple[int | None, ...]
    grid_names: tuple[str | None, ...]
    dimension_semantics: tuple[str | None, ...]
    constants: int
    scalar_prefetch: int
    windows: tuple[BlockWindow, ...]
    inputs: tuple[RefType, ...]
    outputs: tuple[RefType, ...]
    scratch: tuple[RefType, ...]
    aliases: dict[int, int]
    collective_id: int | None
    skip_device_barrier: bool
    has_side_effects: bool
    out_avals: tuple[Any, ...]
    vmem_limit: int | None
    interpret: Any
    mesh: Any
    vmapped: tuple[int, ...] = ()

    @property
    def program_axes(self) -> tuple[int, ...]:
        """The grid dimensions that ``program_id`` counts: those that ``vmap`` did not add."""
        return tuple(d for d in range(len(self.grid)) if d not in self.vmapped)

    @property
    def jaxpr(self) -> Body:
        """The body of the only program; with several programs, of the first."""
        return self.programs[0].body

    @property
    def dynamic_bounds(self) -> int:
        """How many grid bounds are operands."""
        return self.grid.count(None)

    def split_inputs(self, program: Program) -> dict[str, tuple[Any, ...]]:
        """The program's variables by role: constants, scalars, inputs, outputs, scratch."""
        sizes = {
            "constants": self.constants,
            "scalars": self.scalar_prefetch,
            "inputs": len(self.inputs),
            "outputs": len(self.outputs),
        }
        rest, found = program.body.inputs, {}
        for role, n in sizes.items():
            found[role], rest = rest[:n], rest[n:]
        return {**found, "scratch": rest}


@dataclass(frozen=True, eq=False)
class PipelineForm:
    """The static part of an ``emit_pipeline`` equation; ``steps`` counts the body's leading scalars.

    ``vmapped`` are the grid dimensions that ``vmap`` added: ``program_id`` does not count them.
    """

    body: Body
    steps: int
    windows: tuple[BlockWindow, ...]
    n_inputs: int
    dimension_semantics: tuple[str | None, ...]
    cores: int | None
    has_allocations: bool
    vmapped: tuple[int, ...] = ()


_WHOLE = {MemorySpace.ANY, MemorySpace.HBM, MemorySpace.SEMAPHORE, MemorySpace.HOST}


def _window(raw: jk.RawWindow, has_grid: bool, backend: str) -> BlockWindow:
    ref, array = ref_type(raw.block), ref_type(raw.array)
    space = ref.space
    if space is MemorySpace.DEFAULT:
        # A block without a memory space is in VMEM on a TPU, in the accelerator's global memory elsewhere.
        space = MemorySpace.VMEM if backend == "tpu" else MemorySpace.GMEM
        ref = RefType(ref.shape, ref.dtype, space, ref.semaphore)
    pipelined = has_grid and backend == "tpu" and space not in _WHOLE and ref.semaphore is None
    return BlockWindow(
        block=tuple(BlockDim(*d) for d in raw.dims),
        index_map=raw.index_map,
        array=array,
        ref=ref,
        space=space,
        operand_space=array.space,
        pipelined=pipelined,
        buffer_count=2 if raw.buffer_count is None else raw.buffer_count,
        lookahead=raw.lookahead,
        revisit=raw.revisit,
        origin=raw.origin,
    )


def _whole_window(aval: Any, outer: Any) -> BlockWindow:
    """A window for an array that is passed whole, as ``mpmd_map`` does."""
    ref = ref_type(aval)
    block = tuple(BlockDim("blocked", n) for n in ref.shape)
    return BlockWindow(block, None, ref_type(outer), ref, ref.space, ref_type(outer).space, False)


def kernel_form(raw: jk.RawKernel) -> KernelForm:
    """Our form of a kernel call's parameters."""
    programs = tuple(Program(p.body, p.core, p.axes) for p in raw.programs)
    windows = _windows(raw)
    return KernelForm(
        name=raw.name,
        backend=raw.backend,
        programs=programs,
        grid=raw.grid,
        grid_names=raw.grid_names,
        dimension_semantics=raw.semantics,
        constants=raw.n_constants,
        scalar_prefetch=raw.n_scalars,
        windows=windows,
        inputs=tuple(w.ref for w in windows[: raw.n_inputs]),
        outputs=tuple(w.ref for w in windows[raw.n_inputs :]),
        scratch=tuple(ref_type(a) for a in raw.scratch),
        aliases=dict(raw.aliases),
        collective_id=raw.collective_id,
        skip_device_barrier=raw.skip_device_barrier,
        has_side_effects=raw.has_side_effects,
        out_avals=raw.out_avals,
        vmem_limit=raw.vmem_limit,
        interpret=raw.interpret,
        mesh=raw.mesh,
        vmapped=raw.vmapped,
    )


def _windows(raw: jk.RawKernel) -> tuple[BlockWindow, ...]:
    if raw.windows is not None:
        return tuple(_window(w, bool(raw.grid), raw.backend) for w in raw.windows)
    count = raw.n_inputs + len(raw.out_avals)
    inner = raw.programs[0].body.inputs[raw.n_constants : raw.n_constants + count]
    return tuple(_whole_window(v.aval, v.aval) for v in inner)


def pipeline_form(raw: jk.RawPipeline) -> PipelineForm:
    """Our form of an ``emit_pipeline`` equation's parameters."""
    return PipelineForm(
        body=raw.body,
        steps=raw.n_steps,
        windows=tuple(_window(w, True, "tpu") for w in raw.windows),
        n_inputs=raw.n_inputs,
        dimension_semantics=raw.semantics,
        cores=raw.cores,
        has_allocations=raw.has_allocations,
        vmapped=raw.vmapped,
    )
