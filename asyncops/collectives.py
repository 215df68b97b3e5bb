"""Asynchronous copies and collectives on arrays: ``fut = *_start(x, ...)``, then ``y = *_done(fut)``.

The results are those of the fused operations of ``jax.lax`` with the same names. Between the two calls the operation
runs: ``x`` may be read, and stays alive, without threading it anywhere; the result does not exist yet.

Every function here works on arrays of any plain dtype and shape, inside ``jax.shard_map`` (the copies anywhere), under
``jit``, ``grad``, ``jvp``, ``vmap`` and ``remat``; futures may be carried by loops. What is written between start and
done stays there in the compiled program under `asyncops.program_order`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import lax

from asyncops import dma as dma  # registers how the primitives run on a TPU
from asyncops import ops, origins
from asyncops.futures import Future, require_future
from asyncops.transfers import Copy, Exchange, Gather, Permute, Replicate, Shape, Transfer
from stateful._jax import ops as _jax
from stateful._jax.inflight import is_in_flight
from stateful.errors import InvalidArgumentError

AxisName = str | tuple[str, ...]


@dataclass(frozen=True)
class Collective:
    """What a value future belongs to: a movement, and what the done makes of that which arrived.

    Args:
        name: ``"ppermute"`` and so on.
        transfer: the movement.
        shape: of the array that was given to the start.
        dimension: the dimension that is gathered, scattered or split.
        other_dimension: of ``all_to_all``: the dimension that receives.
        tiled: whether parts are concatenated, or stacked in a dimension of their own.
        invariant: whether ``shard_map`` is to know the result for the same on all devices.
    """

    name: str
    transfer: Transfer
    shape: Shape
    dimension: int = 0
    other_dimension: int = 0
    tiled: bool = False
    invariant: bool = False


# -- checks of arguments ------------------------------------------------------------------------------


def _axes(function: str, axis_name: AxisName) -> tuple[tuple[str, ...], int]:
    """The axis names as a tuple, and the number of devices along them."""
    axes = axis_name if isinstance(axis_name, tuple) else (axis_name,)
    if not axes or not all(isinstance(a, str) for a in axes) or len(set(axes)) != len(axes):
        raise InvalidArgumentError(
            f"{function}: axis_name={axis_name!r}: expected the name of a mesh axis, or a tuple of different names"
        )
    try:
        return axes, math.prod(lax.axis_size(a) for a in axes)
    except NameError:
        raise InvalidArgumentError(
            f"{function}: axis_name={axis_name!r} is not bound here; call it inside jax.shard_map over a mesh with "
            "that axis"
        ) from None


def _permutation(function: str, perm: Any, size: int) -> tuple[tuple[int, int], ...]:
    try:
        pairs = tuple((int(s), int(d)) for s, d in perm)
    except (TypeError, ValueError):
        raise InvalidArgumentError(
            f"{function}: perm={perm!r}: expected pairs (source, destination) of device indices"
        ) from None
    for what, side in (("source", [s for s, _ in pairs]), ("destination", [d for _, d in pairs])):
        outside = [i for i in side if not 0 <= i < size]
        if outside:
            raise InvalidArgumentError(
                f"{function}: perm has the {what} {outside[0]}, and the axis has the indices 0 to {size - 1}"
            )
        repeated = [i for i in side if side.count(i) > 1]
        if repeated:
            raise InvalidArgumentError(
                f"{function}: perm is not a permutation: {repeated[0]} is a {what} more than once"
            )
    return tuple(sorted(pairs))


def _array(function: str, x: Any) -> jax.Array:
    if isinstance(x, Future) or is_in_flight(x):
        raise InvalidArgumentError(f"{function}: x is still in flight; call its done first")
    if isinstance(x, jax.Ref) or _jax.is_ref_view(x):
        raise InvalidArgumentError(f"{function}: x is a Ref; call {function}_ref, or pass x[...]")
    try:
        x = jnp.asarray(x)
    except TypeError:
        raise InvalidArgumentError(f"{function}: x must be an array, not {type(x).__name__}") from None
    if jnp.issubdtype(x.dtype, jax.dtypes.extended):
        raise InvalidArgumentError(f"{function}: x has the dtype {x.dtype}, which has no plain memory layout")
    return x


def _dimension(function: str, argument: str, value: int, ndim: int) -> int:
    if not -ndim <= value < ndim:
        raise InvalidArgumentError(
            f"{function}: {argument}={value} is out of range for an array of {ndim} dimensions"
        )
    return value % ndim


def _divisible(function: str, argument: str, length: int, size: int, tiled: bool) -> None:
    if tiled and length % size:
        raise InvalidArgumentError(
            f"{function}: dimension {argument} has length {length}, which {size} devices do not divide"
        )
    if not tiled and length != size:
        raise InvalidArgumentError(
            f"{function}: dimension {argument} has length {length}; without tiled=True it must be the number of "
            f"devices, {size}"
        )


# -- start and done -----------------------------------------------------------------------------------


def _start(operation: Collective, buffer: jax.Array) -> Future:
    transfer = operation.transfer
    buffer = _jax.vary(buffer, transfer.axes)
    origin = origins.here()
    return Future(operation, ops.start(buffer, transfer, origin), origin)


def _done(name: str, fut: Any) -> tuple[Any, jax.Array]:
    """The operation of a future, and the buffer that arrived."""
    function = f"{name}_done"
    fut = require_future(fut, function)
    origin = origins.here()
    leaves = fut.consume(function, origin)
    operation: Any = fut.operation
    return operation, ops.done(leaves, operation.transfer, origin)


def _flat(x: jax.Array) -> jax.Array:
    """A buffer needs a dimension: a scalar gets one."""
    return x.reshape(1) if x.ndim == 0 else x


def _rows(x: jax.Array, leading: int = 0) -> jax.Array:
    """A part of a buffer that is addressed alone needs two dimensions: a DMA cannot write a part of a row."""
    missing = max(0, 2 - (x.ndim - leading))
    return x.reshape((*x.shape[:leading], *[1] * missing, *x.shape[leading:]))


def async_copy_start(x: jax.Array, *, memory_space: Literal["hbm", "vmem"] = "hbm") -> Future:
    """Starts to copy ``x`` within the device.

    Args:
        x: array to copy; may be read until the done, stays alive until then.
        memory_space: memory of a TPU that receives the copy (``"vmem"`` prefetches); no meaning elsewhere.

    Returns:
        A future; `async_copy_done` gives the copy.

    Raises:
        InvalidArgumentError: ``x`` is no array, or there is no such memory.
    """
    function = "async_copy_start"
    if memory_space not in ("hbm", "vmem"):
        raise InvalidArgumentError(f"{function}: memory_space={memory_space!r}: expected 'hbm' or 'vmem'")
    x = _array(function, x)
    return _start(Collective("async_copy", Copy(space=memory_space), x.shape), _flat(x))


def async_copy_done(fut: Future) -> jax.Array:
    """Waits for `async_copy_start`; gives the copy, of the shape and dtype of its argument."""
    operation, landed = _done("async_copy", fut)
    return landed.reshape(operation.shape)


def ppermute_start(x: jax.Array, axis_name: AxisName, perm: Sequence[tuple[int, int]]) -> Future:
    """Starts `jax.lax.ppermute`: device ``s`` sends ``x`` to ``d`` for each pair ``(s, d)``.

    Args:
        x: array to send, the same shape on all devices; may be read until the done, stays alive until then.
        axis_name: mesh axis, or several, that the indices count along.
        perm: pairs (source, destination); each index at most once on either side. Who receives nothing gets zeros.

    Returns:
        A future; `ppermute_done` gives what arrived.

    Raises:
        InvalidArgumentError: the axis is not bound, or ``perm`` is no (partial) permutation of its indices.
    """
    function = "ppermute_start"
    x = _array(function, x)
    axes, size = _axes(function, axis_name)
    transfer = Permute(axes, _permutation(function, perm, size), size)
    return _start(Collective("ppermute", transfer, x.shape), _flat(x))


def ppermute_done(fut: Future) -> jax.Array:
    """Waits for `ppermute_start`; gives the array that arrived, of the shape and dtype of the one sent."""
    operation, landed = _done("ppermute", fut)
    return landed.reshape(operation.shape)


def all_gather_start(x: jax.Array, axis_name: AxisName, *, axis: int = 0, tiled: bool = False) -> Future:
    """Starts `jax.lax.all_gather`.

    Args:
        x: this device's part; may be read until the done, stays alive until then.
        axis_name: mesh axis, or several, to gather over.
        axis: dimension of the result that counts the devices.
        tiled: concatenate along ``axis`` instead of inserting a dimension.

    Returns:
        A future; `all_gather_done` gives the gathered array.

    Raises:
        InvalidArgumentError: the axis is not bound, or ``axis`` is out of range.
    """
    function = "all_gather_start"
    x = _array(function, x)
    axes, size = _axes(function, axis_name)
    axis = _dimension(function, "axis", axis, x.ndim if tiled else x.ndim + 1)
    operation = Collective("all_gather", Gather(axes, size), x.shape, axis, tiled=tiled)
    return _start(operation, _rows(x))


def all_gather_done(fut: Future) -> jax.Array:
    """Waits for `all_gather_start`; gives the same array on all devices, of the dtype of the part sent."""
    operation, landed = _done("all_gather", fut)
    parts = landed.reshape((operation.transfer.size, *operation.shape))
    return _spread(parts, operation.dimension, operation.tiled)


def _spread(parts: jax.Array, dimension: int, tiled: bool) -> jax.Array:
    """Moves the dimension that counts devices, now first, to ``dimension``, or merges it into that one."""
    moved = jnp.moveaxis(parts, 0, dimension)
    if not tiled:
        return moved
    shape = parts.shape[1:]
    merged = (*shape[:dimension], parts.shape[0] * shape[dimension], *shape[dimension + 1 :])
    return moved.reshape(merged)


def _split(x: jax.Array, dimension: int, size: int, tiled: bool) -> jax.Array:
    """Inverse of `_spread`: a first dimension that counts devices, made from ``dimension``."""
    if tiled:
        shape = (*x.shape[:dimension], size, x.shape[dimension] // size, *x.shape[dimension + 1 :])
        x = x.reshape(shape)
    return jnp.moveaxis(x, dimension, 0)


def psum_scatter_start(
    x: jax.Array, axis_name: AxisName, *, scatter_dimension: int = 0, tiled: bool = False
) -> Future:
    """Starts `jax.lax.psum_scatter`: the sum over the devices, of which each keeps its part.

    The parts travel while the future is open; the done adds them.

    Args:
        x: summand; may be read until the done, stays alive until then.
        axis_name: mesh axis, or several, to sum over.
        scatter_dimension: dimension that is split over the devices.
        tiled: keep the dimension, shorter, instead of dropping it (then its length must be the number of devices).

    Returns:
        A future; `psum_scatter_done` gives this device's part of the sum.

    Raises:
        InvalidArgumentError: the axis is not bound, or the dimension does not exist or does not divide.
    """
    function = "psum_scatter_start"
    x = _array(function, x)
    axes, size = _axes(function, axis_name)
    dimension = _dimension(function, "scatter_dimension", scatter_dimension, x.ndim)
    _divisible(function, "scatter_dimension", x.shape[dimension], size, tiled)
    parts = _split(x, dimension, size, tiled)
    operation = Collective("psum_scatter", Exchange(axes, size), parts.shape[1:], dimension, tiled=tiled)
    return _start(operation, _rows(parts, 1))


def psum_scatter_done(fut: Future) -> jax.Array:
    """Waits for `psum_scatter_start` and adds what arrived; gives this device's part of the sum."""
    operation, landed = _done("psum_scatter", fut)
    return _sum(landed).reshape(operation.shape)


def _sum(parts: jax.Array) -> jax.Array:
    """Sum over the first dimension, in its own dtype, booleans as integers (as ``lax.psum`` has it)."""
    if parts.dtype == jnp.bool_:
        return parts.astype(jnp.int32).sum(0)
    return parts.sum(0, dtype=parts.dtype)


def all_to_all_start(
    x: jax.Array, axis_name: AxisName, split_axis: int, concat_axis: int, *, tiled: bool = False
) -> Future:
    """Starts `jax.lax.all_to_all`: part ``j`` of device ``i`` becomes part ``i`` of device ``j``.

    Args:
        x: array to split; may be read until the done, stays alive until then.
        axis_name: mesh axis, or several.
        split_axis: dimension that is split over the devices.
        concat_axis: dimension of the result that counts where the parts came from.
        tiled: split and concatenate dimensions that stay, instead of dropping ``split_axis`` (then its length must be
            the number of devices) and inserting ``concat_axis``.

    Returns:
        A future; `all_to_all_done` gives the result.

    Raises:
        InvalidArgumentError: the axis is not bound, or a dimension does not exist or does not divide.
    """
    function = "all_to_all_start"
    x = _array(function, x)
    axes, size = _axes(function, axis_name)
    split = _dimension(function, "split_axis", split_axis, x.ndim)
    concat = _dimension(function, "concat_axis", concat_axis, x.ndim)
    _divisible(function, "split_axis", x.shape[split], size, tiled)
    parts = _split(x, split, size, tiled)
    operation = Collective("all_to_all", Exchange(axes, size), parts.shape[1:], split, concat, tiled)
    return _start(operation, _rows(parts, 1))


def all_to_all_done(fut: Future) -> jax.Array:
    """Waits for `all_to_all_start`; gives the array of the parts that arrived, of the dtype of the one sent."""
    operation, landed = _done("all_to_all", fut)
    parts = landed.reshape((operation.transfer.size, *operation.shape))
    return _spread(parts, operation.other_dimension, operation.tiled)


def psum_start(x: jax.Array, axis_name: AxisName) -> Future:
    """Starts `jax.lax.psum` of an array.

    The summands travel while the future is open (each device receives all: memory for that many is held until the
    done); the done adds them. All devices add in the same order, so they get the same bits.

    Args:
        x: summand; may be read until the done, stays alive until then.
        axis_name: mesh axis, or several, to sum over.

    Returns:
        A future; `psum_done` gives the sum.

    Raises:
        InvalidArgumentError: the axis is not bound.
    """
    function = "psum_start"
    x = _array(function, x)
    axes, size = _axes(function, axis_name)
    invariant = bool(_jax.tracked(axes))
    transfer = (Replicate if invariant else Gather)(axes, size)
    return _start(Collective("psum", transfer, x.shape, invariant=invariant), _rows(x))


def psum_done(fut: Future) -> jax.Array:
    """Waits for `psum_start` and adds what arrived; gives the same sum on all devices (booleans as integers)."""
    operation, landed = _done("psum", fut)
    total = _sum(landed).reshape(operation.shape)
    return ops.unvary(total, operation.transfer.axes) if operation.invariant else total
