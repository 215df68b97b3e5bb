"""Refs, and slots of Refs, as operands of operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from asyncops.transfers import Shape
from stateful._jax import ops as _jax
from stateful.errors import InvalidArgumentError


@dataclass(frozen=True)
class Place:
    """A Ref, or one slot of a Ref whose first dimension counts slots.

    Args:
        ref: the Ref.
        index: int32 scalar, which slot; None for the whole Ref.
    """

    ref: Any
    index: Any = None

    @property
    def shape(self) -> Shape:
        """Of what lies there."""
        shape = tuple(self.ref.shape)
        return shape if self.index is None else shape[1:]

    @property
    def dtype(self) -> Any:
        """Of what lies there."""
        return self.ref.dtype

    @property
    def type(self) -> Any:
        """The type of the Ref's value."""
        aval: Any = jax.typeof(self.ref)
        return aval.inner_aval

    def read(self) -> jax.Array:
        """What lies there now."""
        return self.ref[...] if self.index is None else self.ref[self.index]

    def write(self, value: jax.Array) -> None:
        """Stores ``value`` there."""
        self.ref[... if self.index is None else self.index] = value


def place(function: str, argument: str, x: Any) -> Place:
    """The place that ``x``, a Ref or ``ref.at[index]``, stands for.

    Raises:
        InvalidArgumentError: it is neither, or another kind of view, or in the memory of a kernel.
    """
    ref, index = x, None
    if _jax.is_ref_view(x):
        slot = _jax.leading_slot(x)
        if slot is None:
            raise InvalidArgumentError(
                f"{function}: {argument} must be a Ref or one slot of it, ref.at[index], not another view"
            )
        ref, index = slot[0], jnp.asarray(slot[1], jnp.int32)
    if not isinstance(ref, jax.Ref):
        raise InvalidArgumentError(
            f"{function}: {argument} must be a Ref (jax.new_ref), not {type(x).__name__}; "
            f"for arrays call {function.removesuffix('_ref')}"
        )
    space = getattr(jax.typeof(ref), "memory_space", None)
    if space is not None and str(space).lower() not in _OUTSIDE_KERNELS:
        raise InvalidArgumentError(
            f"{function}: {argument} is in the memory {space} of a kernel; inside kernels use asyncops.kernels"
        )
    return Place(ref, index)


_OUTSIDE_KERNELS = ("hbm", "device", "any", "memoryspace.device", "memoryspace.any")
