"""``emit_pipeline`` kept as one equation (``jax_use_emit_pipeline_primitive``), expanded to the loops it stands for.

JAX expands it when it lowers a kernel, with functions that are private in every version; by default it traces to the
same loops at once. Only JAX itself knows the schedule, so its own expansion is used.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
from jax._src import api_util as _api_util
from jax._src import core as _core
from jax._src import linear_util as _lu
from jax._src.interpreters import partial_eval as _pe
from jax._src.pallas import core as _pallas
from jax._src.pallas.mosaic import pipeline as _pipeline

from stateful._jax.jaxprs import Body, open_jaxpr, open_operand_jaxpr

_registry: Any = vars(_pipeline)["tracing_registry"]
_is_view: Any = vars(_pipeline)["is_transformed_ref"]


@dataclasses.dataclass(frozen=True)
class RawPipelineBody:
    """The user's body at one step of an expanded pipeline.

    ``body`` takes constants, then ``scalars``, then one Ref per window; ``refs`` are Ref atoms or JAX
    ``TransformedRef`` of atoms.
    """

    body: Body
    indices: tuple[Any, ...]
    consts: tuple[Any, ...]
    scalars: tuple[Any, ...]
    refs: tuple[Any, ...]


def expanded(eqn: Any, axes: Mapping[str, int]) -> Body:
    """The loops of an ``emit_pipeline`` equation, over its operands; ``axes``: the sizes of the named axes in scope."""
    avals = [v.aval for v in eqn.invars]
    since_012 = getattr(_pipeline, "emit_pipeline_to_jaxpr", None)
    if since_012 is not None:
        names, sizes = tuple(axes), tuple(axes.values())
        traced = since_012(avals, grid_names=names, grid_sizes=sizes, **eqn.params)
        return open_jaxpr(traced)
    return _expanded_010(eqn, avals, axes)


def _expanded_010(eqn: Any, avals: list[Any], axes: Mapping[str, int]) -> Body:
    def run(*operands: Any) -> tuple[()]:
        with _core.extend_axis_env_nd(list(axes.items())):
            _run_010(dict(eqn.params), list(operands))
        return ()

    info = _api_util.debug_info("emit_pipeline", run, avals, {})
    wrapped = _lu.wrap_init(run, debug_info=info)
    jaxpr, _, consts = _pe.trace_to_jaxpr_dynamic(wrapped, avals)
    return Body(jaxpr, tuple(consts))


def _run_010(params: dict[str, Any], operands: list[Any]) -> None:
    mapping, body = params.pop("grid_mapping"), params.pop("body_jaxpr")
    tree, offsets = params.pop("args_tree"), params.pop("_static_grid_offsets")
    dynamic_count = mapping.num_dynamic_grid_bounds + params.pop("_num_extra_dynamic")

    def take(n: int) -> list[Any]:
        head = operands[:n]
        del operands[:n]
        return head

    mappings = []
    for m in mapping.block_mappings:
        consts = take(len(m.index_map_jaxpr.consts))
        mappings.append(m.replace(index_map_jaxpr=_core.ClosedJaxpr(m.index_map_jaxpr.jaxpr, consts)))
    dynamic, consts = take(dynamic_count), take(params.pop("body_consts_len"))
    refs, _ = _registry.flatten(tree.unflatten(operands), _is_view)
    fill = iter(dynamic)
    grid, starts = (
        tuple(next(fill) if _pallas.is_dynamic_dim(d) else d for d in dims)
        for dims in (mapping.grid, offsets)
    )
    inner = tuple(d for i, d in enumerate(mapping.grid) if i not in mapping.vmapped_dims)

    def step(indices: Any, *windows: Any) -> Any:
        mine = tuple(x for i, x in enumerate(indices) if i not in mapping.vmapped_dims)
        flat, in_tree = _registry.flatten((mine, consts, windows))
        return _pipeline.pipeline_body_p.bind(
            *flat, jaxpr=body, in_tree=in_tree, num_inputs=mapping.num_inputs
        )

    specs = [m.to_block_spec() for m in mappings]
    with _pallas.tracing_grid_env(inner, ()):
        _pipeline._emit_pipeline(
            step, grid=grid, in_specs=specs[: mapping.num_inputs], out_specs=specs[mapping.num_inputs :],
            _grid_offsets=starts, _explicit_indices=True, **params,
        )(*refs)  # fmt: skip


def pipeline_body(eqn: Any) -> RawPipelineBody:
    """The parts of a ``pipeline_body`` equation."""
    step, consts, refs = eqn.params["in_tree"].unflatten(eqn.invars)
    windows, _ = _registry.flatten(refs, _is_view)
    indices = tuple(step) if isinstance(step, tuple) else tuple(step.index)
    scalars = tuple(jax.tree.leaves(step)) if eqn.params.get("_explicit_indices") else ()
    return RawPipelineBody(
        open_operand_jaxpr(eqn.params["jaxpr"]), indices, tuple(consts), scalars, tuple(windows)
    )
