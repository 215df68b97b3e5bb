"""Asynchronous copies and collectives on arrays: ``fut = *_start(x, ...)``, then ``y = *_done(fut)``.

The results are those of the fused operations of ``jax.lax`` with the same names. Between the two calls the operation
runs: ``x`` may be read, and stays alive, without threading it anywhere; the result does not exist yet.

Every function here works on arrays of any shape and plain dtype (on a TPU not bool, float16 and complex64), inside
``jax.shard_map`` (the copies anywhere), under ``jit``, ``grad``, ``jvp``, ``vmap`` and ``remat``. What is written
between start and done stays there in the compiled program under `asyncops.program_order`, which also lets loops carry
futures and branches return them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import jax

from asyncops import dma as dma  # registers how the primitives run on a TPU
from asyncops import operations, ops, origins
from asyncops.checks import AxisName, check_array
from asyncops.futures import Future, require_future
from asyncops.operations import Operation
from stateful._jax import ops as _jax
from stateful.errors import InvalidArgumentError


def start(operation: Operation, x: jax.Array) -> Future:
    """Starts ``operation`` on ``x``."""
    buffer = _jax.vary(operation.buffer(x), operation.transfer.axes)
    origin = origins.here()
    return Future(operation, ops.start(buffer, operation.transfer, origin), origin)


def done(name: str, fut: Any) -> jax.Array:
    """Waits for a future of the operation of this name."""
    function = f"{name}_done"
    fut = require_future(fut, function)
    origin = origins.here()
    leaves = fut.consume(function, origin)
    operation: Any = fut.operation
    return operation.result(ops.done(leaves, operation.transfer, origin))


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
    x = check_array(function, x)
    return start(operations.async_copy(x.shape, memory_space), x)


def async_copy_done(fut: Future) -> jax.Array:
    """Waits for `async_copy_start`; gives the copy, of the shape and dtype of its argument."""
    return done("async_copy", fut)


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
    x = check_array("ppermute_start", x)
    return start(operations.ppermute("ppermute_start", x.shape, axis_name, perm), x)


def ppermute_done(fut: Future) -> jax.Array:
    """Waits for `ppermute_start`; gives the array that arrived, of the shape and dtype of the one sent."""
    return done("ppermute", fut)


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
    x = check_array("all_gather_start", x)
    return start(operations.all_gather("all_gather_start", x.shape, axis_name, axis, tiled), x)


def all_gather_done(fut: Future) -> jax.Array:
    """Waits for `all_gather_start`; gives the same array on all devices, of the dtype of the part sent."""
    return done("all_gather", fut)


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
    x = check_array(function, x)
    return start(operations.psum_scatter(function, x.shape, axis_name, scatter_dimension, tiled), x)


def psum_scatter_done(fut: Future) -> jax.Array:
    """Waits for `psum_scatter_start` and adds what arrived; gives this device's part of the sum."""
    return done("psum_scatter", fut)


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
    x = check_array(function, x)
    return start(operations.all_to_all(function, x.shape, axis_name, split_axis, concat_axis, tiled), x)


def all_to_all_done(fut: Future) -> jax.Array:
    """Waits for `all_to_all_start`; gives the array of the parts that arrived, of the dtype of the one sent."""
    return done("all_to_all", fut)


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
    x = check_array("psum_start", x)
    return start(operations.psum("psum_start", x.shape, axis_name), x)


def psum_done(fut: Future) -> jax.Array:
    """Waits for `psum_start` and adds what arrived; gives the same sum on all devices (booleans as integers)."""
    return done("psum", fut)
