"""Parameters of kernel calls, the same for every supported JAX version.

``pallas_call``, ``mpmd_map``, ``core_map`` and ``emit_pipeline`` keep their grids, block mappings, meshes and
compiler parameters in private classes whose fields differ between versions. Here they become plain records;
types and memory spaces are still JAX's, ``stateful.kernel_forms`` turns them into ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jax._src.pallas import core as _pallas
from jax._src.pallas.mosaic import pipeline as _pipeline
from jax._src.state import types as _state_types

from stateful._jax.jaxprs import Body, open_jaxpr, open_operand_jaxpr

tracing_registry: Any = vars(_pipeline)["tracing_registry"]


@dataclass(frozen=True)
class RawWindow:
    """A block mapping. ``dims`` are (kind, size, padding): blocked, squeezed, element, bounded, indirect."""

    dims: tuple[tuple[str, int, tuple[int, int]], ...]
    index_map: Body
    array: Any
    block: Any
    buffer_count: int | tuple[int, int] | None = None
    lookahead: bool = False
    revisit: str | None = None
    origin: str = ""


@dataclass(frozen=True)
class RawProgram:
    """The program of one kind of core; ``axes`` are the core axes it runs over."""

    body: Body
    core: str
    axes: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class RawKernel:
    """A kernel call. Operands are: closed-over constants, dynamic grid bounds, scalars, inputs, in this
    order.

    A grid entry is None where the bound is an operand.
    """

    name: str
    backend: str
    programs: tuple[RawProgram, ...]
    out_avals: tuple[Any, ...]
    n_constants: int = 0
    n_scalars: int = 0
    n_inputs: int = 0
    grid: tuple[int | None, ...] = ()
    grid_names: tuple[str | None, ...] = ()
    semantics: tuple[str | None, ...] = ()
    windows: tuple[RawWindow, ...] | None = None
    scratch: tuple[Any, ...] = ()
    aliases: tuple[tuple[int, int], ...] = ()
    collective_id: int | None = None
    skip_device_barrier: bool = False
    has_side_effects: bool = False
    vmem_limit: int | None = None
    interpret: Any = False
    mesh: Any = None
    vmapped: tuple[int, ...] = ()


@dataclass(frozen=True)
class RawPipeline:
    """An ``emit_pipeline`` equation; all entries called "atoms" are operands of the equation.

    ``refs`` are the windowed arrays: Ref atoms or JAX ``TransformedRef`` of atoms. The body's inputs are its
    constants, ``n_steps`` scalars (grid indices, then the local index, where the body asked for them) and one
    Ref per window.
    """

    body: Body
    body_constants: tuple[Any, ...]
    n_steps: int
    grid: tuple[Any, ...]
    offsets: tuple[Any, ...]
    windows: tuple[RawWindow, ...]
    index_constants: tuple[tuple[Any, ...], ...]
    refs: tuple[Any, ...]
    n_inputs: int
    semantics: tuple[str | None, ...]
    cores: int | None
    core_id: Any
    has_allocations: bool
    vmapped: tuple[int, ...] = ()


# -- pieces --------------------------------------------------------------------------------------------------


def _dim(dim: Any) -> tuple[str, int, tuple[int, int]]:
    if dim is None or isinstance(dim, _pallas.Squeezed):
        return "squeezed", 1, (0, 0)
    if isinstance(dim, int):
        return "blocked", dim, (0, 0)
    if isinstance(dim, _pallas.Element):
        low, high = dim.padding
        return "element", dim.block_size, (low, high)
    if isinstance(dim, _pallas.BoundedSlice):
        return "bounded", dim.block_size, (0, 0)
    kind = "blocked" if isinstance(dim, _pallas.Blocked) else "indirect"
    return kind, dim.block_size, (0, 0)


def _window(mapping: Any) -> RawWindow:
    mode = mapping.pipeline_mode
    revisit = getattr(mode, "revisit", None)
    return RawWindow(
        dims=tuple(_dim(d) for d in mapping.block_shape),
        index_map=open_jaxpr(mapping.index_map_jaxpr),
        array=mapping.array_aval,
        block=mapping.transformed_block_aval,
        buffer_count=getattr(mode, "buffer_count", None),
        lookahead=bool(getattr(mode, "use_lookahead", False)),
        revisit=None if revisit is None else str(revisit.value),
        origin=str(getattr(mapping, "origin", "") or ""),
    )


def _semantics(given: Any, rank: int) -> tuple[str | None, ...]:
    names = [None if s is None else str(getattr(s, "value", s)).lower() for s in given or ()]
    return tuple((names + [None] * rank)[:rank])


_BACKENDS = {"mosaic_gpu": "mosaic_gpu", "triton": "triton", "mosaic": "tpu"}


def _backend(compiler_params: Any, mesh: Any) -> str:
    """Which compiler a kernel is for; without compiler parameters the kernel may be for any, so the TPU's."""
    for thing in (compiler_params, mesh):
        parts = type(thing).__module__.split(".")
        for word, backend in _BACKENDS.items():
            if word in parts:
                return backend
    return "tpu"


def _compiler(p: Any) -> dict[str, Any]:
    effects = getattr(p, "has_side_effects", False)
    return {
        "collective_id": getattr(p, "collective_id", None),
        "skip_device_barrier": bool(getattr(p, "skip_device_barrier", False)),
        "has_side_effects": effects is True or getattr(effects, "name", "PURE") != "PURE",
        "vmem_limit": getattr(p, "vmem_limit_bytes", None),
    }


def _name(params: dict[str, Any], jaxpr: Any) -> str:
    if params.get("name"):
        return str(params["name"])
    return jaxpr.debug_info.func_src_info.split(" at ")[0] or "kernel"


def _core_kind(mesh: Any) -> str:
    kind = getattr(mesh, "core_type", None)
    return str(getattr(kind, "value", kind) or "tc")


def _axes(mesh: Any) -> tuple[tuple[str, int], ...]:
    return tuple((str(k), int(v)) for k, v in mesh.shape.items())


def _program(mesh: Any, jaxpr: Any) -> RawProgram:
    return RawProgram(open_operand_jaxpr(jaxpr), _core_kind(mesh), _axes(mesh) if mesh is not None else ())


# -- the four calls ------------------------------------------------------------------------------------------


def pallas_call(params: dict[str, Any]) -> RawKernel:
    """``pallas_call``: a grid of block windows, one program."""
    mapping, jaxpr, mesh = params["grid_mapping"], params["jaxpr"], params["mesh"]
    compiler_params = params["compiler_params"]
    windows = tuple(_window(m) for m in mapping.block_mappings)
    body = open_operand_jaxpr(jaxpr)
    inner = mapping.num_index_operands + len(windows) + len(mapping.scratch_avals)
    semantics = getattr(compiler_params, "dimension_semantics", None) or getattr(
        mesh, "dimension_semantics", None
    )
    rank = len(mapping.grid)
    return RawKernel(
        name=_name(params, jaxpr),
        backend=_backend(compiler_params, mesh),
        programs=(RawProgram(body, _core_kind(mesh)),),
        out_avals=tuple(params["out_avals"]),
        n_constants=len(body.inputs) - inner,
        n_scalars=mapping.num_index_operands,
        n_inputs=mapping.num_inputs,
        grid=tuple(g if isinstance(g, int) else None for g in mapping.grid),
        grid_names=tuple(None if n is None else str(n) for n in mapping.grid_names or (None,) * rank),
        semantics=_semantics(semantics, rank),
        windows=windows,
        scratch=tuple(mapping.scratch_avals),
        aliases=tuple((i - mapping.num_index_operands, o) for i, o in params["input_output_aliases"]),
        interpret=params["interpret"],
        mesh=mesh,
        vmapped=tuple(mapping.vmapped_dims),
        **_compiler(compiler_params),
    )


def mpmd_map(params: dict[str, Any], n_operands: int) -> RawKernel:
    """``mpmd_map``: several programs, one for each kind of core; arrays are passed whole."""
    meshes, jaxprs = params["meshes"], params["jaxprs"]
    compiler_params = params["compiler_params"]
    programs = tuple(_program(m, j) for m, j in zip(meshes, jaxprs, strict=True))
    outer = n_operands + len(params["out_avals"])
    return RawKernel(
        name=_name(params, jaxprs[0]),
        backend=_backend(compiler_params, meshes[0]),
        programs=programs,
        out_avals=tuple(params["out_avals"]),
        n_inputs=n_operands,
        scratch=tuple(v.aval for v in programs[0].body.inputs[outer:]),
        aliases=tuple(sorted(params["input_output_aliases"].items())),
        interpret=params["interpret"],
        mesh=meshes[0],
        **_compiler(compiler_params),
    )


def core_map(params: dict[str, Any], n_operands: int) -> RawKernel:
    """``core_map`` (0.10): one program over a mesh of cores that touches closed-over Refs only."""
    jaxpr, mesh = params["jaxpr"], params["mesh"]
    program = _program(mesh, jaxpr)
    return RawKernel(
        name=_name(params, jaxpr),
        backend=_backend(params["compiler_params"], mesh),
        programs=(program,),
        out_avals=(),
        n_constants=n_operands,
        scratch=tuple(v.aval for v in program.body.inputs[n_operands:]),
        interpret=params["interpret"],
        mesh=mesh,
        **_compiler(params["compiler_params"]),
    )


def emit_pipeline(params: dict[str, Any], operands: list[Any]) -> RawPipeline:
    """``emit_pipeline`` kept as one equation (``jax_use_emit_pipeline_primitive``)."""
    parts = _parts_since_012(params, operands) if "refs_tree" in params else _parts_010(params, operands)
    mapping = params["grid_mapping"]
    index_constants, rest = [], list(parts.index_constants)
    for m in mapping.block_mappings:
        n = len(open_jaxpr(m.index_map_jaxpr).consts)
        index_constants.append(tuple(rest[:n]))
        rest = rest[n:]
    windows = tuple(_window(m) for m in mapping.block_mappings)
    body = open_operand_jaxpr(params["body_jaxpr"])
    return RawPipeline(
        body=body,
        body_constants=parts.body_constants,
        n_steps=len(body.inputs) - len(parts.body_constants) - len(windows),
        grid=parts.grid,
        offsets=parts.offsets,
        windows=windows,
        index_constants=tuple(index_constants),
        refs=parts.refs,
        n_inputs=mapping.num_inputs,
        semantics=_semantics(params["dimension_semantics"], len(parts.grid)),
        cores=params.get("num_cores"),
        core_id=parts.core_id,
        has_allocations=parts.has_allocations,
        vmapped=tuple(mapping.vmapped_dims),
    )


@dataclass(frozen=True)
class _Parts:
    index_constants: tuple[Any, ...]
    grid: tuple[Any, ...]
    offsets: tuple[Any, ...]
    body_constants: tuple[Any, ...]
    refs: tuple[Any, ...]
    core_id: Any = None
    has_allocations: bool = False


def _is_view(x: Any) -> bool:
    return isinstance(x, _state_types.TransformedRef)


def _fill(grid: tuple[Any, ...], dynamic: list[Any]) -> tuple[Any, ...]:
    return tuple(dynamic.pop(0) if _pallas.is_dynamic_dim(d) else d for d in grid)


def _parts_010(params: dict[str, Any], operands: list[Any]) -> _Parts:
    mapping = params["grid_mapping"]
    rest = list(operands)

    def take(n: int) -> list[Any]:
        head = rest[:n]
        del rest[:n]
        return head

    constants = take(sum(len(open_jaxpr(m.index_map_jaxpr).consts) for m in mapping.block_mappings))
    dynamic = take(mapping.num_dynamic_grid_bounds + params["_num_extra_dynamic"])
    grid = _fill(tuple(mapping.grid), dynamic)
    offsets = _fill(tuple(params["_static_grid_offsets"]), dynamic)
    body_constants = take(params["body_consts_len"])
    refs, _ = tracing_registry.flatten(params["args_tree"].unflatten(rest), _is_view)
    return _Parts(tuple(constants), grid, offsets, tuple(body_constants), tuple(refs))


def _parts_since_012(params: dict[str, Any], operands: list[Any]) -> _Parts:
    given = params["args_tree"].unflatten(operands)
    mapping = params["grid_mapping"]
    refs, _ = tracing_registry.flatten(params["refs_tree"].unflatten(given.refs_flat), _is_view)
    grid = _fill(tuple(mapping.grid), list(given.dynamic_grid_spec))
    return _Parts(
        tuple(given.all_index_map_consts),
        grid,
        (0,) * len(grid),
        tuple(given.body_consts),
        tuple(refs),
        given.core_id,
        given.allocations is not None,
    )
