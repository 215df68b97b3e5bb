"""What each operation on arrays sends, and what its done makes of what arrives.

An operation is a movement (`asyncops.transfers`) with ordinary JAX on either side: splitting before, moving
dimensions or
summing after. Ordinary JAX has derivatives and batching of its own, so only movements need rules.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from asyncops import ops
from asyncops.checks import (
    AxisName,
    axes_of,
    check_dimension,
    check_divisible,
    check_permutation,
)
from asyncops.transfers import Copy, Exchange, Gather, Permute, Replicate, Shape, Transfer
from stateful._jax import ops as _jax


@dataclass(frozen=True)
class Operation(abc.ABC):
    """One operation with its arguments; equal for two futures that are interchangeable.

    Args:
        transfer: the movement.
        shape: of the array that is given to the start.
    """

    transfer: Transfer
    shape: Shape

    name: ClassVar[str]

    @property
    def form(self) -> str:
        """Suffix of its functions."""
        return ""

    @abc.abstractmethod
    def buffer(self, x: jax.Array) -> jax.Array:
        """What is sent for ``x``."""

    @abc.abstractmethod
    def result(self, landed: jax.Array) -> jax.Array:
        """The operation's result, from what arrived."""


# -- buffers ------------------------------------------------------------------------------------------


def _flat(x: jax.Array) -> jax.Array:
    """A buffer needs a dimension: a scalar gets one."""
    return x.reshape(1) if x.ndim == 0 else x


def _rows(x: jax.Array, leading: int = 0) -> jax.Array:
    """A part of a buffer that is addressed alone needs two dimensions: a DMA cannot write a part of a row."""
    missing = max(0, 2 - (x.ndim - leading))
    return x.reshape((*x.shape[:leading], *[1] * missing, *x.shape[leading:]))


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
        x = x.reshape((*x.shape[:dimension], size, x.shape[dimension] // size, *x.shape[dimension + 1 :]))
    return jnp.moveaxis(x, dimension, 0)


def _sum(parts: jax.Array) -> jax.Array:
    """Sum over the first dimension, in its own dtype, booleans as integers (as ``lax.psum`` has it)."""
    if parts.dtype == jnp.bool_:
        return parts.astype(jnp.int32).sum(0)
    return parts.sum(0, dtype=parts.dtype)


def _parts_shape(shape: Shape, dimension: int, size: int, tiled: bool) -> Shape:
    """Shape of one part of an array that is split along ``dimension``."""
    kept = (shape[dimension] // size,) if tiled else ()
    return (*shape[:dimension], *kept, *shape[dimension + 1 :])


# -- operations ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AsyncCopy(Operation):
    """Copies within the device."""

    name = "async_copy"

    def buffer(self, x: jax.Array) -> jax.Array:
        return _flat(x)

    def result(self, landed: jax.Array) -> jax.Array:
        return landed.reshape(self.shape)


@dataclass(frozen=True)
class PPermute(AsyncCopy):
    """Permutes over devices."""

    name = "ppermute"


@dataclass(frozen=True)
class AllGather(Operation):
    """Gathers along ``dimension``."""

    dimension: int
    tiled: bool

    name = "all_gather"

    def buffer(self, x: jax.Array) -> jax.Array:
        return _rows(x)

    def result(self, landed: jax.Array) -> jax.Array:
        return _spread(landed.reshape((landed.shape[0], *self.shape)), self.dimension, self.tiled)


@dataclass(frozen=True)
class AllToAll(Operation):
    """Splits along ``split``, concatenates along ``concat``."""

    split: int
    concat: int
    tiled: bool

    name = "all_to_all"

    def buffer(self, x: jax.Array) -> jax.Array:
        return _rows(_split(x, self.split, _size(self.transfer), self.tiled), 1)

    def result(self, landed: jax.Array) -> jax.Array:
        size = landed.shape[0]
        part = _parts_shape(self.shape, self.split, size, self.tiled)
        return _spread(landed.reshape((size, *part)), self.concat, self.tiled)


@dataclass(frozen=True)
class PSumScatter(Operation):
    """Sums over devices and splits along ``dimension``."""

    dimension: int
    tiled: bool

    name = "psum_scatter"

    @property
    def part(self) -> Shape:
        """Shape of the result."""
        return _parts_shape(self.shape, self.dimension, _size(self.transfer), self.tiled)

    def buffer(self, x: jax.Array) -> jax.Array:
        return _rows(_split(x, self.dimension, _size(self.transfer), self.tiled), 1)

    def result(self, landed: jax.Array) -> jax.Array:
        return _sum(landed).reshape(self.part)


@dataclass(frozen=True)
class PSum(Operation):
    """Sums over devices. ``invariant``: axes along which ``shard_map`` is to know the sum for the same."""

    invariant: tuple[str, ...] = ()

    name = "psum"

    def buffer(self, x: jax.Array) -> jax.Array:
        return _rows(x)

    def result(self, landed: jax.Array) -> jax.Array:
        total = _sum(landed).reshape(self.shape)
        return ops.unvary(total, self.invariant) if self.invariant else total

    def varying(self) -> PSum:
        """The same with a result that may vary, such as one that is stored in a Ref."""
        return replace(self, invariant=(), transfer=Gather(self.transfer.axes, _size(self.transfer)))


def _size(transfer: Any) -> int:
    return transfer.size


# -- from arguments -----------------------------------------------------------------------------------


def ppermute(function: str, shape: Shape, axis_name: AxisName, perm: Any) -> PPermute:
    """The operation for these arguments of ``function``, checked."""
    axes, size = axes_of(function, axis_name)
    return PPermute(Permute(axes, check_permutation(function, perm, size), size), shape)


def all_gather(function: str, shape: Shape, axis_name: AxisName, axis: int, tiled: bool) -> AllGather:
    """The operation for these arguments of ``function``, checked."""
    axes, size = axes_of(function, axis_name)
    axis = check_dimension(function, "axis", axis, len(shape) + (not tiled))
    return AllGather(Gather(axes, size), shape, axis, tiled)


def all_to_all(
    function: str, shape: Shape, axis_name: AxisName, split: int, concat: int, tiled: bool
) -> AllToAll:
    """The operation for these arguments of ``function``, checked."""
    axes, size = axes_of(function, axis_name)
    split = check_dimension(function, "split_axis", split, len(shape))
    concat = check_dimension(function, "concat_axis", concat, len(shape))
    check_divisible(function, "split_axis", shape[split], size, tiled)
    return AllToAll(Exchange(axes, size), shape, split, concat, tiled)


def psum_scatter(
    function: str, shape: Shape, axis_name: AxisName, dimension: int, tiled: bool
) -> PSumScatter:
    """The operation for these arguments of ``function``, checked."""
    axes, size = axes_of(function, axis_name)
    dimension = check_dimension(function, "scatter_dimension", dimension, len(shape))
    check_divisible(function, "scatter_dimension", shape[dimension], size, tiled)
    return PSumScatter(Exchange(axes, size), shape, dimension, tiled)


def psum(function: str, shape: Shape, axis_name: AxisName) -> PSum:
    """The operation for these arguments of ``function``, checked."""
    axes, size = axes_of(function, axis_name)
    invariant = _jax.tracked(axes)
    return PSum((Replicate if invariant else Gather)(axes, size), shape, invariant)


def async_copy(shape: Shape, space: str = "hbm") -> AsyncCopy:
    """A copy within the device to the memory ``space``."""
    return AsyncCopy(Copy(space=space), shape)
