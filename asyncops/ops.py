"""The two primitives behind every asynchronous operation on arrays, and how they transform.

``start`` takes a buffer and gives the three leaves of a future: the source, kept alive; the destination, being
written; the semaphores. ``done`` takes the three and gives what arrived. All leaves have a type of their own
(`stateful._jax.inflight`), so nothing else in a program can touch them.

Both carry an effect: no transformation may drop, merge or duplicate them. Both are linear, and the transpose of one
is the other, of the transposed movement: the source of the cotangents' future stands where the destination of the
tangents' one does, and the other way round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.interpreters import ad

from asyncops.origins import NOWHERE, Origin
from asyncops.transfers import Copy, Transfer
from stateful._jax import ops as _jax
from stateful._jax.inflight import InFlight
from stateful.errors import InFlightMovedError, UnmodelledError

SEMAPHORES = 2  # one counts what has been sent, one what has arrived

# -- types ------------------------------------------------------------------------------------------------------------


def leaf_dtypes(transfer: Transfer, shape: Sequence[int], dtype: Any) -> tuple[InFlight, InFlight, InFlight]:
    """Element types of source, destination and semaphores of a future that moves a buffer of this shape and dtype."""
    source, landing = tuple(shape), transfer.landing(tuple(shape))
    differentiable = jnp.issubdtype(dtype, jnp.inexact)
    moved = source if transfer.tangent is transfer else landing
    return (
        InFlight(source, dtype, tangent_element=moved if differentiable else None),
        InFlight(landing, dtype, tangent_element=landing if differentiable else None),
        InFlight((SEMAPHORES,), jnp.int32, True, (SEMAPHORES,) if differentiable else None),
    )


def _start_type(x: Any, *, transfer: Transfer, batch: int, origin: Origin, ordered: bool) -> Any:
    source, destination, semaphores = leaf_dtypes(transfer, x.shape[batch:], x.dtype)
    stacked = x.shape[:batch]
    leaves = [
        _jax.in_flight_type(x, stacked, source),
        _jax.in_flight_type(x, stacked, destination),
        _jax.in_flight_type(x, (), semaphores),
    ]
    return leaves, {_jax.async_effect, *_jax.axis_effects(transfer.axes)}


def _done_type(
    source: Any,
    destination: Any,
    semaphores: Any,
    *,
    transfer: Transfer,
    batch: int,
    origin: Origin,
    ordered: bool,
    placed: bool,
) -> Any:
    shape = (*destination.shape[:batch], *destination.dtype.element)
    effects = {_jax.async_effect, *_jax.axis_effects(transfer.axes)}
    return [_jax.retyped(destination, shape, destination.dtype.physical)], effects


start_p = _jax.new_primitive("async_start", _start_type)
done_p = _jax.new_primitive("async_done", _done_type)


def start(
    x: jax.Array, transfer: Transfer, origin: Origin, batch: int = 0, ordered: bool = False
) -> list[Any]:
    """Starts ``transfer`` of ``x``, an array of any dtype and at least one dimension; gives the future's leaves.

    ``ordered``: `asyncops.program_order` has seen to it that nothing moves ``x``, or else the start must.
    """
    return start_p.bind(x, transfer=transfer, batch=batch, origin=origin, ordered=ordered)


def done(
    leaves: Sequence[Any], transfer: Transfer, origin: Origin, batch: int = 0, ordered: bool = False
) -> jax.Array:
    """Waits for a future given by its leaves; gives the array that arrived.

    ``ordered``: `asyncops.program_order` has seen to it that no loop or branch around moved the leaves. It also binds
    dones that are ``placed``: what arrived will be sent, and nothing may move it meanwhile.
    """
    (result,) = done_p.bind(
        *leaves, transfer=transfer, batch=batch, origin=origin, ordered=ordered, placed=False
    )
    return result


def _resume_type(y: Any, *, transfer: Transfer, batch: int, source: tuple[int, ...]) -> Any:
    before, after, semaphores = leaf_dtypes(transfer, source, y.dtype)
    stacked = y.shape[:batch]
    leaves = [
        _jax.in_flight_type(y, stacked, before),
        _jax.in_flight_type(y, stacked, after),
        _jax.in_flight_type(y, (), semaphores),
    ]
    return leaves, {_jax.async_effect}


resume_p = _jax.new_primitive("async_resume", _resume_type)


def resume(y: jax.Array, transfer: Transfer, batch: int, source: tuple[int, ...]) -> list[Any]:
    """The leaves of a future of ``transfer`` (of a buffer of shape ``source``) from which ``y`` will arrive.

    It stands for one that was finished early, where a compiler could have moved what was in flight.
    """
    return resume_p.bind(y, transfer=transfer, batch=batch, source=source)


# -- derivatives ------------------------------------------------------------------------------------------------------


def _start_jvp(
    primals: Any, tangents: Any, *, transfer: Transfer, batch: int, origin: Origin, ordered: bool
) -> Any:
    (x,), (dx,) = primals, tangents
    leaves = start(x, transfer, origin, batch)
    if type(dx) is ad.Zero:
        return leaves, [ad.Zero(jax.typeof(leaf).to_tangent_aval()) for leaf in leaves]
    return leaves, start(transfer.widen(dx, batch), transfer.tangent, origin, batch)


def _done_jvp(
    primals: Any,
    tangents: Any,
    *,
    transfer: Transfer,
    batch: int,
    origin: Origin,
    ordered: bool,
    placed: bool,
) -> Any:
    result = done(primals, transfer, origin, batch)
    if all(type(t) is ad.Zero for t in tangents):
        return [result], [ad.Zero(jax.typeof(result).to_tangent_aval())]
    leaves = [ad.instantiate_zeros(t) for t in tangents]
    return [result], [done(leaves, transfer.tangent, origin, batch)]


def _start_transpose(
    cts: Any, x: Any, *, transfer: Transfer, batch: int, origin: Origin, ordered: bool
) -> Any:
    if all(type(ct) is ad.Zero for ct in cts):
        return [ad.Zero(x.aval.to_cotangent_aval())]
    back_destination, back_source, semaphores = (ad.instantiate_zeros(ct) for ct in cts)
    ct = done((back_source, back_destination, semaphores), transfer.transposed, origin, batch)
    return [transfer.narrow(ct, batch)]


def _done_transpose(
    cts: Any, *leaves: Any, transfer: Transfer, batch: int, origin: Origin, ordered: bool, placed: bool
) -> Any:
    (ct,) = cts
    if type(ct) is ad.Zero:
        return [ad.Zero(leaf.aval.to_cotangent_aval()) for leaf in leaves]
    back_source, back_destination, semaphores = start(ct, transfer.transposed, origin, batch)
    return [back_destination, back_source, semaphores]


def _resume_jvp(
    primals: Any, tangents: Any, *, transfer: Transfer, batch: int, source: tuple[int, ...]
) -> Any:
    (y,), (dy,) = primals, tangents
    leaves = resume(y, transfer, batch, source)
    if type(dy) is ad.Zero:
        return leaves, [ad.Zero(jax.typeof(leaf).to_tangent_aval()) for leaf in leaves]
    moved = leaves[0].dtype.tangent_element
    return leaves, resume(dy, transfer.tangent, batch, moved)


def _resume_transpose(cts: Any, y: Any, *, transfer: Transfer, batch: int, source: tuple[int, ...]) -> Any:
    """The cotangents come back by the transposed movement and must be moved forth: a done undoes no movement."""
    if all(type(ct) is ad.Zero for ct in cts):
        return [ad.Zero(y.aval.to_cotangent_aval())]
    back_destination, back_source, semaphores = (ad.instantiate_zeros(ct) for ct in cts)
    came_back = done((back_source, back_destination, semaphores), transfer.transposed, NOWHERE, batch)
    return [done(start(came_back, transfer, NOWHERE, batch), transfer, NOWHERE, batch)]


ad.primitive_jvps[resume_p] = _resume_jvp
ad.primitive_transposes[resume_p] = _resume_transpose
ad.primitive_jvps[start_p] = _start_jvp
ad.primitive_jvps[done_p] = _done_jvp
ad.primitive_transposes[start_p] = _start_transpose
ad.primitive_transposes[done_p] = _done_transpose

# -- vmap -------------------------------------------------------------------------------------------------------------


def _start_batch(
    size: int,
    name: Any,
    operands: Any,
    dims: Any,
    *,
    transfer: Transfer,
    batch: int,
    origin: Origin,
    ordered: bool,
) -> Any:
    (x,), (dim,) = operands, dims
    over_devices = name not in transfer.axes
    if not _jax.is_mapped(dim) and over_devices:
        return start(x, transfer, origin, batch), [None] * 3
    x = jnp.moveaxis(x, dim, 0) if _jax.is_mapped(dim) else jnp.broadcast_to(x, (size, *x.shape))
    if not over_devices:
        x, transfer = transfer.mapped(x, batch), _within_device(transfer, name)
    return start(x, transfer, origin, batch + 1), [0, 0, None]


def _done_batch(
    size: int,
    name: Any,
    operands: Any,
    dims: Any,
    *,
    transfer: Transfer,
    batch: int,
    origin: Origin,
    ordered: bool,
    placed: bool,
) -> Any:
    if name in transfer.axes:
        transfer = _within_device(transfer, name)
    if not any(map(_jax.is_mapped, dims)):
        return [done(operands, transfer, origin, batch)], [None]
    source, destination = (
        jnp.moveaxis(x, d, 0) if _jax.is_mapped(d) else jnp.broadcast_to(x, (size, *x.shape))
        for x, d in zip(operands[:2], dims[:2], strict=True)
    )
    semaphores = operands[2]
    if _jax.is_mapped(dims[2]):  # the broadcast handle of one and the same operation
        semaphores = lax.index_in_dim(semaphores, 0, dims[2], keepdims=False)
    return [done((source, destination, semaphores), transfer, origin, batch + 1)], [0]


def _within_device(transfer: Transfer, name: Any) -> Copy:
    if transfer.axes != (name,):
        raise UnmodelledError(
            f"axis_name={transfer.axes!r}: an operation over a vmap's axis ({name!r}) together with others; "
            "use lax's collective there"
        )
    return Copy()


def _resume_batch(
    size: int, name: Any, operands: Any, dims: Any, *, transfer: Transfer, batch: int, source: Any
):
    if name in transfer.axes:
        transfer = _within_device(transfer, name)
    if not _jax.is_mapped(dims[0]):
        return resume(operands[0], transfer, batch, source), [None] * 3
    y = jnp.moveaxis(operands[0], dims[0], 0)
    return resume(y, transfer, batch + 1, source), [0, 0, None]


_jax.register_batching(resume_p, _resume_batch)
_jax.register_batching(start_p, _start_batch)
_jax.register_batching(done_p, _done_batch)

# -- lowering where there are no DMA engines to program ---------------------------------------------------------------


def in_memory(x: jax.Array, batch: int) -> jax.Array:
    """An array as the leaf that holds it lies in memory: with the leaf's own dimension between batch and buffer."""
    return lax.reshape(x, (*x.shape[:batch], 1, *x.shape[batch:]))


def out_of_memory(x: jax.Array, batch: int) -> jax.Array:
    """Inverse of `in_memory`."""
    return lax.reshape(x, (*x.shape[:batch], *x.shape[batch + 1 :]))


def _start_at_once(
    site: Any, x: jax.Array, *, transfer: Transfer, batch: int, origin: Origin, ordered: bool
) -> list[Any]:
    landed = transfer.synchronous(x, batch)
    return [in_memory(x, batch), in_memory(landed, batch), jnp.zeros((1, SEMAPHORES), jnp.int32)]


def _done_at_once(
    site: Any, source: Any, destination: Any, semaphores: Any, *, transfer: Transfer, batch: int, origin: Origin,
    ordered: bool, placed: bool,
) -> list[Any]:  # fmt: skip
    # The result depends on the semaphores, so that what is ordered before the done stays before it.
    destination, _ = lax.optimization_barrier((destination, semaphores))
    return [out_of_memory(destination, batch)]


def _resume_at_once(
    site: Any, y: Any, *, transfer: Transfer, batch: int, source: tuple[int, ...]
) -> list[Any]:
    sent = jnp.zeros((*y.shape[:batch], 1, *source), y.dtype)
    return [sent, in_memory(y, batch), jnp.zeros((1, SEMAPHORES), jnp.int32)]


_jax.register_lowering(resume_p, _resume_at_once)
_jax.register_lowering(start_p, _start_at_once)
_jax.register_lowering(done_p, _done_at_once)


# -- a value that is the same on all devices, and known to be -----------------------------------------


def _unvary_type(x: Any, *, axes: tuple[str, ...]) -> Any:
    return [_jax.without_varying(x, axes)], set()


def _unvary_batch(size: int, name: Any, operands: Any, dims: Any, *, axes: tuple[str, ...]) -> Any:
    return [unvary(operands[0], axes)], dims


def _unvary_jvp(primals: Any, tangents: Any, *, axes: tuple[str, ...]) -> Any:
    (x,), (dx,) = primals, tangents
    result = unvary(x, axes)
    if type(dx) is ad.Zero:
        return [result], [ad.Zero(jax.typeof(result).to_tangent_aval())]
    return [result], [unvary(dx, axes)]


def _unvary_transpose(cts: Any, x: Any, *, axes: tuple[str, ...]) -> Any:
    (ct,) = cts
    return [ad.Zero(x.aval.to_cotangent_aval()) if type(ct) is ad.Zero else _jax.vary(ct, axes)]


unvary_p = _jax.new_primitive("async_unvary", _unvary_type)
ad.primitive_jvps[unvary_p] = _unvary_jvp
ad.primitive_transposes[unvary_p] = _unvary_transpose
_jax.register_batching(unvary_p, _unvary_batch)
_jax.register_lowering(unvary_p, lambda site, x, *, axes: [x])


def unvary(x: jax.Array, axes: tuple[str, ...]) -> jax.Array:
    """``x``, which every device along ``axes`` computed from the same numbers in the same order, as one value.

    Its transpose gives each device the whole cotangent: that of a sum over the devices (`transfers.Replicate`).
    """
    (result,) = unvary_p.bind(x, axes=axes)
    return result


# -- reading what is being sent -----------------------------------------------------------------------


def _peek_type(source: Any, *, batch: int) -> Any:
    shape = (*source.shape[:batch], *source.dtype.element)
    return [_jax.retyped(source, shape, source.dtype.physical)], set()


def _peek_jvp(primals: Any, tangents: Any, *, batch: int) -> Any:
    (source,), (moving,) = primals, tangents
    result = peek(source, batch)
    if type(moving) is ad.Zero:
        return [result], [ad.Zero(jax.typeof(result).to_tangent_aval())]
    if moving.dtype.element != source.dtype.element:
        raise UnmodelledError("the tangent of a gathered array, read from its future; read the array itself")
    return [result], [peek(moving, batch)]


def _peek_batch(size: int, name: Any, operands: Any, dims: Any, *, batch: int) -> Any:
    if not _jax.is_mapped(dims[0]):
        return [peek(operands[0], batch)], [None]
    return [peek(jnp.moveaxis(operands[0], dims[0], 0), batch + 1)], [0]


peek_p = _jax.new_primitive("async_peek", _peek_type)
ad.primitive_jvps[peek_p] = _peek_jvp
_jax.register_batching(peek_p, _peek_batch)
_jax.register_lowering(peek_p, lambda site, source, *, batch: [out_of_memory(source, batch)])


def peek(source: Any, batch: int = 0) -> jax.Array:
    """The array that a future sends, read from its source, which stays the future's."""
    (result,) = peek_p.bind(source, batch=batch)
    return result


def _label_type(x: Any, *, dtype: InFlight, batch: int) -> Any:
    return [_jax.in_flight_type(x, x.shape[:batch], dtype)], set()


label_p = _jax.new_primitive("async_label", _label_type)
_jax.register_lowering(label_p, lambda site, x, *, dtype, batch: [in_memory(x, batch)])


def label(x: jax.Array, dtype: InFlight, batch: int = 0) -> Any:
    """An array under the type of a future's leaf: a buffer for one, in which nothing is in flight."""
    (result,) = label_p.bind(x, dtype=dtype, batch=batch)
    return result


# -- stacks of futures --------------------------------------------------------------------------------


def _stack_type(*leaves: Any, origin: Origin) -> Any:
    return list(leaves), set()


def _stack_jvp(primals: Any, tangents: Any, *, origin: Origin) -> Any:
    results = stack_p.bind(*primals, origin=origin)
    if any(type(t) is ad.Zero for t in tangents):
        return results, list(tangents)
    return results, stack_p.bind(*tangents, origin=origin)


def _stack_batch(size: int, name: Any, operands: Any, dims: Any, *, origin: Origin) -> Any:
    return stack_p.bind(*operands, origin=origin), dims


def _refuse_stack(site: Any, *leaves: Any, origin: Origin) -> list[Any]:
    raise InFlightMovedError(
        f"a stack of the futures started at {origin}: making it would move what is in flight. Use asyncops.scan, or "
        "asyncops.program_order around the function, which stack what arrived instead; under vmap, start and finish "
        "in one function"
    )


stack_p = _jax.new_primitive("async_stack", _stack_type)
ad.primitive_jvps[stack_p] = _stack_jvp
ad.primitive_transposes[stack_p] = lambda cts, *leaves, origin: cts
_jax.register_batching(stack_p, _stack_batch)
_jax.register_lowering(stack_p, lambda site, *leaves, origin: list(leaves))
_jax.register_untracked_lowering(stack_p, _refuse_stack, "tpu")


def stack(leaves: Sequence[Any], origin: Origin) -> list[Any]:
    """The leaves of futures that JAX has stacked: right where nothing is in flight, refused by TPUs."""
    return stack_p.bind(*leaves, origin=origin)
