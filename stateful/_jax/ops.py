"""What primitives of our own need from JAX and its public API lacks: effects, types, discharge rules, lowering."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
from jax._src import config, core, effects
from jax._src.lib.mlir import ir  # pyright: ignore[reportPrivateImportUsage]
from jax._src.pallas.mosaic import core as tpu_core
from jax._src.state import discharge, indexing
from jax._src.state import types as state_types
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir
from jax.interpreters.xla import apply_primitive
from jax.sharding import PartitionSpec

from stateful._jax.inflight import InFlight, is_handle

# -- effects ----------------------------------------------------------------------------------------------------------


class AsyncEffect(effects.Effect):
    """An operation is started or finished: the equation may be neither dropped nor duplicated.

    Effects are how JAX learns that; ``jax.extend.core`` has the class but not the registries below, which say where
    an effect may occur.
    """

    def __str__(self) -> str:
        return "Async"

    __repr__ = __str__


async_effect = AsyncEffect()
for _registry in (
    effects.lowerable_effects,
    effects.control_flow_allowed_effects,
    effects.remat_allowed_effects,
    effects.custom_derivatives_allowed_effects,
):
    _registry.add_type(AsyncEffect)


def axis_effects(axes: Sequence[str]) -> set[Any]:
    """The effects by which JAX notices that an equation uses mesh axes; there is no public class for them."""
    return {core.NamedAxisEffect(axis) for axis in axes}


def reads(position: int) -> Any:
    """Effect of an equation that reads the Ref among its operands at ``position``; no public class."""
    return state_types.ReadEffect(position)


def writes(position: int) -> Any:
    """Effect of an equation that writes the Ref among its operands at ``position``; no public class."""
    return state_types.WriteEffect(position)


# -- types ------------------------------------------------------------------------------------------------------------


def is_ref_type(aval: Any) -> bool:
    """True for the type of a Ref; no public class."""
    return isinstance(aval, state_types.AbstractRef)


def is_ref_view(x: Any) -> bool:
    """True for ``ref.at[...]``; no public class."""
    return isinstance(x, state_types.TransformedRef)


def retyped(aval: Any, shape: Sequence[int], dtype: Any) -> Any:
    """``aval`` with another shape and dtype and the same manual axes; shardings have no public rank change."""
    sharding = aval.sharding.update(spec=PartitionSpec(*[None] * len(shape)))
    return aval.update(shape=tuple(shape), dtype=dtype, weak_type=False, sharding=sharding)


def in_flight_type(aval: Any, batch: Sequence[int], dtype: InFlight) -> Any:
    """The type of a future's leaf made from an array of type ``aval``, below ``batch`` leading dimensions."""
    return retyped(aval, (*batch, 1), dtype)


def varying_axes(aval: Any) -> frozenset[str]:
    """Mesh axes along which ``aval`` may differ from device to device, as ``shard_map`` tracks them."""
    return frozenset(aval.mat.varying)


def tracked(axes: Sequence[str]) -> tuple[str, ...]:
    """Those of ``axes`` along which ``shard_map(check_vma=True)`` tracks who varies; the setting "
    "has no public reader."""
    if not config._check_vma.value:
        return ()
    manual = jax.sharding.get_abstract_mesh().manual_axes
    return tuple(axis for axis in axes if axis in manual)


def vary(x: jax.Array, axes: Sequence[str]) -> jax.Array:
    """``x`` as a value that may vary along ``axes``; JAX's collectives do this unasked."""
    missing = tuple(axis for axis in tracked(axes) if axis not in varying_axes(jax.typeof(x)))
    return jax.lax.pcast(x, missing, to="varying") if missing else x


def varying_as(x: Any, aval: Any) -> Any:
    """``x`` as a value that may vary along the same axes as one of type ``aval``."""
    missing = varying_axes(aval) - varying_axes(jax.typeof(x))
    return jax.lax.pcast(x, tuple(missing), to="varying") if missing else x


def without_varying(aval: Any, axes: Sequence[str]) -> Any:
    """``aval`` as a type that is the same on all devices along ``axes``."""
    return aval.update(manual_axis_type=aval.mat.update(varying=varying_axes(aval) - set(axes)))


# -- rules ------------------------------------------------------------------------------------------------------------


def new_primitive(name: str, abstract: Callable[..., Any]) -> Any:
    """A primitive with several results and effects. ``abstract(*avals, **params)`` gives (result avals, effects)."""
    primitive: Any = Primitive(name)
    primitive.multiple_results = True
    primitive.def_effectful_abstract_eval(abstract)
    primitive.def_impl(partial(apply_primitive, primitive))
    return primitive


def register_batching(primitive: Any, rule: Callable[..., Any]) -> None:
    """``rule(size, name, operands, dims, **params)``; ``name``: the vmap's axis name, which the public hook hides."""

    def fancy(axis_data: Any, operands: Any, dims: Any, **params: Any) -> Any:
        return rule(axis_data.size, axis_data.name, operands, dims, **params)

    batching.fancy_primitive_batchers[primitive] = fancy


def is_mapped(dim: Any) -> bool:
    """True unless ``dim`` says that an operand has no batch dimension."""
    return dim is not None


def register_discharge(primitive: Any, rule: Callable[..., Any]) -> None:
    """``rule(avals, *operands, **params)`` gives (new value or None for each operand, results), on values for Refs.

    There is no public registry, and JAX 0.12 hands rules a context where 0.10 hands types.
    """
    with_context = hasattr(discharge, "DischargeContext")

    def discharge_rule(first: Any, *rest: Any, **params: Any) -> Any:
        if with_context:
            return rule(first.in_avals, *rest, **params)
        _, *operands = rest
        return rule(first, *operands, **params)

    discharge.register_discharge_rule(primitive)(discharge_rule)  # pyright: ignore[reportArgumentType]


def register_lowering(primitive: Any, fn: Callable[..., Any]) -> None:
    """Lowers ``primitive`` as the JAX function ``fn(site, *arrays, **params)``, on arrays as they lie in memory."""

    def rule(ctx: Any, *operands: Any, **params: Any) -> Any:
        physical = [core.physical_aval(aval) for aval in ctx.avals_in]
        return _lower_as(partial(fn, LoweringSite(operands), **params), ctx, physical, operands)

    mlir.register_lowering(primitive, rule, cacheable=False)


def register_untracked_lowering(primitive: Any, fn: Callable[..., Any], platform: str | None = None) -> None:
    """Like `register_lowering`, for an ``fn`` that minds not, or may not be told, along which axes arrays vary.

    Semaphores are arrays of Pallas' semaphores. Pallas kernels are such functions: they would ask for the axes of
    their results, and the primitive has taken care of those.
    """

    def rule(ctx: Any, *operands: Any, **params: Any) -> Any:
        avals = [_untracked(aval) for aval in ctx.avals_in]
        with config._check_vma(False):
            return _lower_as(partial(fn, LoweringSite(operands), **params), ctx, avals, operands)

    mlir.register_lowering(primitive, rule, platform=platform, cacheable=False)


def _lower_as(fn: Callable[..., Any], ctx: Any, avals: list[Any], operands: Sequence[Any]) -> Any:
    lowered = mlir.lower_fun(fn, multiple_results=True)
    return lowered(ctx.replace(avals_in=avals, avals_out=None), *operands)


def _untracked(aval: Any) -> Any:
    physical = core.physical_aval(aval)
    if is_handle(aval):
        return core.ShapedArray(physical.shape, tpu_core.DMASemaphore())  # pyright: ignore[reportAttributeAccessIssue]
    return core.ShapedArray(physical.shape, physical.dtype)  # pyright: ignore[reportAttributeAccessIssue]


# The whole program, and the functions that JAX makes of the bodies of scans (0.10, 0.12).
_ENTRIES = ("main", "closed_call", "eval_jaxpr")


class LoweringSite:
    """Where an equation is lowered: the program text around it."""

    def __init__(self, operands: Sequence[Any]) -> None:
        self._operands = operands

    def maker(self, position: int) -> str:
        """Name of the operation that made an operand, or in whose body it is an argument."""
        return _operation(self._operands[position]).name

    def is_programs_argument(self, position: int) -> bool:
        """True where an operand is an argument of the whole program, perhaps in another shape."""
        value = self._operands[position]
        while True:
            op = _operation(value)
            if op.name == "func.func":
                return ir.StringAttr(op.attributes["sym_name"]).value == "main"
            if op.name in ("stablehlo.reshape", "stablehlo.optimization_barrier"):
                value = op.operands[ir.OpResult(value).result_number]
            else:
                return False

    def stays(self, position: int) -> bool:
        """True where the compiler neither computes an operand again nor moves it: what a kernel has made, what a loop
        carries into its body, and arguments of the whole program.
        """
        value = self._operands[position]
        while True:
            op = _operation(value)
            is_argument = isinstance(value.owner, ir.Block)
            if op.name in ("stablehlo.reshape", "stablehlo.optimization_barrier") and not is_argument:
                value = op.operands[ir.OpResult(value).result_number]
            elif op.name == "sdy.manual_computation" and is_argument:
                value = op.operands[ir.BlockArgument(value).arg_number]
            elif op.name == "func.func":
                return ir.StringAttr(op.attributes["sym_name"]).value.startswith(_ENTRIES)
            else:
                kernel = op.name == "stablehlo.custom_call" and "tpu_custom_call" in str(
                    op.attributes["call_target_name"]
                )
                return kernel or (op.name == "stablehlo.while" and is_argument)


def _operation(value: Any) -> Any:
    """What made a value, or has it as an argument of a body."""
    owner = value.owner
    return owner.owner.operation if isinstance(owner, ir.Block) else owner


def abstract_results(fn: Callable[..., Any], *avals: Any) -> list[Any]:
    """Types of the results of ``fn``; like ``jax.eval_shape``, which loses the manual axes."""
    return list(jax.make_jaxpr(fn)(*avals).out_avals)


# -- Refs ---------------------------------------------------------------------------------------------


def leading_slot(view: Any) -> tuple[Any, Any] | None:
    """The Ref and the index of ``ref.at[index]``; None for any other view. The parts of a view have no public names."""
    if len(view.transforms) != 1 or not isinstance(view.transforms[0], indexing.NDIndexer):
        return None
    first, *rest = view.transforms[0].indices
    whole = all(isinstance(i, indexing.Slice) and _is_whole(i, n) for i, n in zip(rest, view.ref.shape[1:]))  # pyright: ignore[reportPrivateImportUsage]
    if isinstance(first, indexing.Slice) or jax.numpy.ndim(first) or not whole:  # pyright: ignore[reportPrivateImportUsage]
        return None
    return view.ref, first


def _is_whole(index: Any, size: int) -> bool:
    return index.start == 0 and index.size == size and index.stride == 1


def kernel_memory(ref: Any) -> str:
    """Name of the memory in which a Ref of a kernel, or a view of one, lies; "any" where the compiler chooses."""
    aval = jax.typeof(ref.ref if is_ref_view(ref) else ref)
    return str(getattr(aval, "memory_space", None) or "any").lower()
