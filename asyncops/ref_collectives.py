"""Asynchronous copies and collectives on Refs: ``fut = *_start_ref(x, y, ...)``, then ``*_done_ref(fut)``.

The operation reads the Ref ``x`` and writes the Ref ``y``, in place; each may be one slot, ``ref.at[i]``, of a
Ref whose
first dimension counts slots (`asyncops.slots` makes a pair). ``x`` must not be written, and ``y`` neither read nor
written, until the done: `asyncops.program_order` refuses that. The lifetimes of both are plain: they live
until the done.

A future's leaves are semaphores. Inside the function that started it, ``done_ref(fut)`` knows its Refs; across
a boundary
(a loop's carry, a result) they are given again: ``done_ref(fut, x, y)``.

All `jax.Ref` s made by ``jax.new_ref`` are accepted, of any plain dtype. Nothing here is differentiable; the
functions on
arrays are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp

from asyncops import dma_into as dma_into  # registers how the primitives run on a TPU
from asyncops import operations, ops, origins, ref_ops
from asyncops.checks import AxisName, check_dimension, check_dtype
from asyncops.futures import Future, require_future
from asyncops.operations import Operation
from asyncops.places import Place, place
from asyncops.transfers import Permute, Shape
from stateful._jax import ops as _jax
from stateful.errors import InvalidArgumentError


@dataclass(frozen=True)
class RefOperation:
    """What a Ref future belongs to.

    Args:
        value: the same operation on arrays.
        in_place: whether the movement goes from Ref to Ref. Else it goes to a buffer of the future's own, and the
            done stores the result.
    """

    value: Operation
    in_place: bool
    form: str = "_ref"

    @property
    def name(self) -> str:
        """``"ppermute"`` and so on."""
        return self.value.name


# -- checks of arguments ------------------------------------------------------------------------------


def _places(function: str, x_ref: Any, y_ref: Any) -> tuple[Place, Place]:
    source, destination = place(function, "x_ref", x_ref), place(function, "y_ref", y_ref)
    if source.ref is destination.ref and (source.index is None or destination.index is None):
        raise InvalidArgumentError(
            f"{function}: x_ref and y_ref are the same Ref; an operation cannot receive into what it sends. Use two "
            "Refs, or two slots of one (asyncops.slots)"
        )
    if source.dtype != destination.dtype:
        raise InvalidArgumentError(
            f"{function}: x_ref is of dtype {source.dtype} and y_ref of {destination.dtype}; they must be the same"
        )
    check_dtype(function, "x_ref", source.dtype)
    return source, destination


def _require_shape(function: str, destination: Place, shapes: Sequence[Shape]) -> None:
    if destination.shape not in shapes:
        allowed = " or ".join(map(str, dict.fromkeys(shapes)))
        raise InvalidArgumentError(
            f"{function}: y_ref has the shape {destination.shape}, and receives {allowed}"
        )


# -- start and done -----------------------------------------------------------------------------------


def _start(function: str, operation: Operation, in_place: bool, source: Place, destination: Place) -> Future:
    of_refs = RefOperation(operation, in_place)
    origin = origins.here()
    refs = (source, destination)
    axes = operation.transfer.axes
    for argument, x in (("x_ref", source), ("y_ref", destination)):
        fixed = [a for a in _jax.tracked(axes) if a not in _jax.varying_axes(x.type)]
        if fixed and (in_place or argument == "y_ref"):
            raise InvalidArgumentError(
                f"{function}: {argument} holds what is the same on all devices along {fixed[0]!r}; make it of "
                f"jax.lax.pcast(x, {fixed[0]!r}, to='varying')"
            )
    if in_place:
        semaphores = ref_ops.start_ref(source, destination, operation.transfer, origin)
        return Future(of_refs, [semaphores], origin, refs)
    buffer = _jax.vary(operation.buffer(source.read()), axes)
    return Future(of_refs, ops.start(buffer, operation.transfer, origin), origin, refs)


def _done(name: str, fut: Any, x_ref: Any, y_ref: Any) -> None:
    function = f"{name}_done_ref"
    fut = require_future(fut, function)
    origin = origins.here()
    if (x_ref is None) != (y_ref is None):
        raise InvalidArgumentError(f"{function}: give both x_ref and y_ref, or none of them")
    if x_ref is None and not fut.refs:
        raise InvalidArgumentError(
            f"{function}: this future has crossed a loop or a function, and no longer knows its Refs; pass x_ref and "
            "y_ref, those that it was started with"
        )
    source, destination = fut.refs if x_ref is None else _places(function, x_ref, y_ref)
    leaves = fut.consume(function, origin)
    operation: Any = fut.operation
    transfer = operation.value.transfer
    if operation.in_place:
        ref_ops.done_ref(leaves[0], source, destination, transfer, origin)
    else:
        destination.write(operation.value.result(ops.done(leaves, transfer, origin)))


def _lies_ready(shape: Shape, parts: bool) -> bool:
    """Whether a buffer of this shape lies in a TPU's memory as an operation needs it.

    A row lies differently there with and without a dimension above it, and a part of a buffer must have two.
    """
    return len(shape) >= (3 if parts else 2)


def async_copy_start_ref(x_ref: jax.Ref, y_ref: jax.Ref, *, memory_space: Literal["hbm"] = "hbm") -> Future:
    """Starts to copy ``x_ref`` to ``y_ref`` within the device.

    Args:
        x_ref: Ref, or slot of one, to copy; must not be written until the done.
        y_ref: Ref, or slot of one, of the same shape and dtype; must not be used until the done.
        memory_space: only ``"hbm"``; for symmetry with `asyncops.async_copy_start`.

    Returns:
        A future for `async_copy_done_ref`.

    Raises:
        InvalidArgumentError: an argument is no Ref, or shapes or dtypes differ.
    """
    function = "async_copy_start_ref"
    source, destination = _places(function, x_ref, y_ref)
    if memory_space != "hbm":
        raise InvalidArgumentError(f"{function}: memory_space={memory_space!r}: Refs lie in 'hbm'")
    _require_shape(function, destination, [source.shape])
    operation = operations.async_copy(source.shape)
    return _start(function, operation, _lies_ready(source.shape, False), source, destination)


def async_copy_done_ref(fut: Future, x_ref: jax.Ref | None = None, y_ref: jax.Ref | None = None) -> None:
    """Waits for `async_copy_start_ref`; ``y_ref`` holds the copy afterwards."""
    _done("async_copy", fut, x_ref, y_ref)


def ppermute_start_ref(
    x_ref: jax.Ref, y_ref: jax.Ref, axis_name: AxisName, perm: Sequence[tuple[int, int]]
) -> Future:
    """Starts `jax.lax.ppermute` from ``x_ref`` to ``y_ref``.

    Args:
        x_ref: Ref, or slot of one, to send; must not be written until the done.
        y_ref: Ref, or slot of one, of the same shape and dtype, that receives; must not be used until the done.
        axis_name: mesh axis, or several, that the indices count along.
        perm: pairs (source, destination); each index at most once on either side. Who receives nothing gets zeros.

    Returns:
        A future for `ppermute_done_ref`.

    Raises:
        InvalidArgumentError: an argument is no Ref, shapes or dtypes differ, the axis is not bound, or ``perm`` is no
            (partial) permutation.
    """
    function = "ppermute_start_ref"
    source, destination = _places(function, x_ref, y_ref)
    operation = operations.ppermute(function, source.shape, axis_name, perm)
    _require_shape(function, destination, [source.shape])
    complete = isinstance(operation.transfer, Permute) and operation.transfer.complete
    in_place = complete and _lies_ready(source.shape, False)
    return _start(function, operation, in_place, source, destination)


def ppermute_done_ref(fut: Future, x_ref: jax.Ref | None = None, y_ref: jax.Ref | None = None) -> None:
    """Waits for `ppermute_start_ref`; ``y_ref`` holds what arrived afterwards."""
    _done("ppermute", fut, x_ref, y_ref)


def all_gather_start_ref(
    x_ref: jax.Ref, y_ref: jax.Ref, axis_name: AxisName, *, tiled: bool = False
) -> Future:
    """Starts `jax.lax.all_gather`, along dimension 0, from ``x_ref`` to ``y_ref``.

    Args:
        x_ref: Ref, or slot of one, with this device's part; must not be written until the done.
        y_ref: Ref, or slot of one, that receives: of shape ``(n, *x.shape)``, or ``(n * m, ...)`` if ``tiled`` and
            ``x`` has ``m`` rows; must not be used until the done.
        axis_name: mesh axis, or several, to gather over: ``n`` devices.
        tiled: concatenate the parts instead of stacking them.

    Returns:
        A future for `all_gather_done_ref`.

    Raises:
        InvalidArgumentError: an argument is no Ref, shapes or dtypes do not fit, or the axis is not bound.
    """
    function = "all_gather_start_ref"
    source, destination = _places(function, x_ref, y_ref)
    if tiled:
        check_dimension(function, "x_ref, to concatenate along", 0, len(source.shape))
    operation = operations.all_gather(function, source.shape, axis_name, 0, tiled)
    stacked = operation.transfer.landing(source.shape)
    shape = (stacked[0] * stacked[1], *stacked[2:]) if tiled else stacked
    _require_shape(function, destination, [shape])
    # Rows that are split off lie in a buffer of their own only where they fill whole tiles, of every dtype.
    whole_tiles = not tiled or source.shape[0] % 32 == 0
    return _start(function, operation, _lies_ready(stacked, True) and whole_tiles, source, destination)


def all_gather_done_ref(fut: Future, x_ref: jax.Ref | None = None, y_ref: jax.Ref | None = None) -> None:
    """Waits for `all_gather_start_ref`; ``y_ref`` holds the gathered array afterwards."""
    _done("all_gather", fut, x_ref, y_ref)


def all_to_all_start_ref(x_ref: jax.Ref, y_ref: jax.Ref, axis_name: AxisName) -> Future:
    """Starts `jax.lax.all_to_all`, along dimension 0, from ``x_ref`` to ``y_ref``.

    Args:
        x_ref: Ref, or slot of one, of shape ``(n, ...)``: row ``j`` goes to device ``j``; must not be written until the
            done.
        y_ref: Ref, or slot of one, of the same shape and dtype: row ``i`` comes from device ``i``; must not be used
            until the done.
        axis_name: mesh axis, or several: ``n`` devices.

    Returns:
        A future for `all_to_all_done_ref`.

    Raises:
        InvalidArgumentError: an argument is no Ref, shapes or dtypes do not fit, or the axis is not bound.
    """
    function = "all_to_all_start_ref"
    source, destination = _places(function, x_ref, y_ref)
    check_dimension(function, "x_ref, to split along", 0, len(source.shape))
    operation = operations.all_to_all(function, source.shape, axis_name, 0, 0, False)
    _require_shape(function, destination, [source.shape])
    return _start(function, operation, _lies_ready(source.shape, True), source, destination)


def all_to_all_done_ref(fut: Future, x_ref: jax.Ref | None = None, y_ref: jax.Ref | None = None) -> None:
    """Waits for `all_to_all_start_ref`; ``y_ref`` holds the rows that arrived afterwards."""
    _done("all_to_all", fut, x_ref, y_ref)


def psum_scatter_start_ref(
    x_ref: jax.Ref, y_ref: jax.Ref, axis_name: AxisName, *, tiled: bool = False
) -> Future:
    """Starts `jax.lax.psum_scatter`, along dimension 0, from ``x_ref`` to ``y_ref``.

    The parts travel to a buffer of the future's own; the done adds them into ``y_ref``.

    Args:
        x_ref: Ref, or slot of one, with this device's summand.
        y_ref: Ref, or slot of one, that the done writes: ``x.shape[1:]``, or with dimension 0 divided by ``n`` if
            ``tiled``.
        axis_name: mesh axis, or several, to sum over: ``n`` devices.
        tiled: keep dimension 0, shorter, instead of dropping it.

    Returns:
        A future for `psum_scatter_done_ref`.

    Raises:
        InvalidArgumentError: an argument is no Ref, shapes or dtypes do not fit, or the axis is not bound.
    """
    function = "psum_scatter_start_ref"
    source, destination = _places(function, x_ref, y_ref)
    operation = operations.psum_scatter(function, source.shape, axis_name, 0, tiled)
    _require_shape(function, destination, [operation.part])
    return _start(function, operation, False, source, destination)


def psum_scatter_done_ref(fut: Future, x_ref: jax.Ref | None = None, y_ref: jax.Ref | None = None) -> None:
    """Waits for `psum_scatter_start_ref`; ``y_ref`` holds this device's part of the sum afterwards."""
    _done("psum_scatter", fut, x_ref, y_ref)


def psum_start_ref(x_ref: jax.Ref, y_ref: jax.Ref, axis_name: AxisName) -> Future:
    """Starts `jax.lax.psum` from ``x_ref`` to ``y_ref``.

    The summands travel to a buffer of the future's own; the done adds them into ``y_ref``.

    Args:
        x_ref: Ref, or slot of one, with this device's summand.
        y_ref: Ref, or slot of one, of the same shape and dtype, that the done writes.
        axis_name: mesh axis, or several, to sum over.

    Returns:
        A future for `psum_done_ref`.

    Raises:
        InvalidArgumentError: an argument is no Ref, shapes or dtypes differ, or the axis is not bound.
    """
    function = "psum_start_ref"
    source, destination = _places(function, x_ref, y_ref)
    operation = operations.psum(function, source.shape, axis_name).varying()
    _require_shape(function, destination, [source.shape])
    return _start(function, operation, False, source, destination)


def psum_done_ref(fut: Future, x_ref: jax.Ref | None = None, y_ref: jax.Ref | None = None) -> None:
    """Waits for `psum_start_ref`; ``y_ref`` holds the sum afterwards."""
    _done("psum", fut, x_ref, y_ref)


# -- slots --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Slots:
    """Two buffers that take turns: what one iteration receives, the next one sends.

    Example::

        slots = asyncops.slots(x)

        def step(i, _):
            fut = ppermute_start_ref(slots.sending(i), slots.receiving(i), "x", ring)
            ...  # may read slots.sending(i)
            ppermute_done_ref(fut)

        fori_loop(0, n, step, None)
        return slots.sending(n)[...]
    """

    ref: jax.Ref

    def sending(self, i: Any) -> Any:
        """The slot that iteration ``i`` sends from: what iteration ``i - 1`` received."""
        return self.ref.at[i % 2]

    def receiving(self, i: Any) -> Any:
        """The slot that iteration ``i`` receives into."""
        return self.ref.at[(i + 1) % 2]


def slots(x: jax.Array) -> Slots:
    """A Ref of shape ``(2, *x.shape)`` as a pair of buffers, with ``x`` in the one that iteration 0 sends."""
    x = jnp.asarray(x)
    return Slots(jax.new_ref(jnp.stack([x, jnp.zeros_like(x)])))
