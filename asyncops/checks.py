"""Checks of arguments: each raises one clear error that names the argument and what is allowed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from asyncops.futures import Future
from stateful._jax import ops as _jax
from stateful._jax.inflight import is_in_flight
from stateful.errors import InvalidArgumentError

AxisName = str | tuple[str, ...]


def axes_of(function: str, axis_name: AxisName) -> tuple[tuple[str, ...], int]:
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


def check_permutation(
    function: str, perm: Iterable[tuple[int, int]], size: int
) -> tuple[tuple[int, int], ...]:
    """The pairs of a (partial) permutation of ``size`` devices, sorted."""
    try:
        pairs = tuple((int(s), int(d)) for s, d in perm)
    except (TypeError, ValueError):
        raise InvalidArgumentError(
            f"{function}: perm={perm!r}: expected pairs (source, destination) of device indices"
        ) from None
    for what, side in (("source", [s for s, _ in pairs]), ("destination", [d for _, d in pairs])):
        for i in side:
            if not 0 <= i < size:
                raise InvalidArgumentError(
                    f"{function}: perm has the {what} {i}, and the axis has the indices 0 to {size - 1}"
                )
            if side.count(i) > 1:
                raise InvalidArgumentError(
                    f"{function}: perm is not a permutation: {i} is a {what} more than once"
                )
    return tuple(sorted(pairs))


def check_array(function: str, x: Any) -> jax.Array:
    """``x`` as an array of a plain dtype."""
    if isinstance(x, Future) or is_in_flight(x):
        raise InvalidArgumentError(f"{function}: x is still in flight; call its done first")
    if isinstance(x, jax.Ref) or _jax.is_ref_view(x):
        raise InvalidArgumentError(f"{function}: x is a Ref; call {function}_ref, or pass x[...]")
    try:
        x = jnp.asarray(x)
    except TypeError:
        raise InvalidArgumentError(f"{function}: x must be an array, not {type(x).__name__}") from None
    check_dtype(function, "x", x.dtype)
    return x


def check_dtype(function: str, argument: str, dtype: Any) -> None:
    """Refuses dtypes without a plain layout in memory."""
    if jnp.issubdtype(dtype, jax.dtypes.extended):
        raise InvalidArgumentError(
            f"{function}: {argument} has the dtype {dtype}, which has no plain memory layout"
        )


def check_dimension(function: str, argument: str, value: int, ndim: int) -> int:
    """``value`` as a dimension of an array of ``ndim`` dimensions, counted from the front."""
    if not -ndim <= value < ndim:
        raise InvalidArgumentError(
            f"{function}: {argument}={value} is out of range for an array of {ndim} dimensions"
        )
    return value % ndim


def check_divisible(function: str, argument: str, length: int, size: int, tiled: bool) -> None:
    """Refuses a dimension that ``size`` devices cannot share."""
    if tiled and length % size:
        raise InvalidArgumentError(
            f"{function}: dimension {argument} has length {length}, which {size} devices do not divide"
        )
    if not tiled and length != size:
        raise InvalidArgumentError(
            f"{function}: dimension {argument} has length {length}; without tiled=True it must be the number of "
            f"devices, {size}"
        )
