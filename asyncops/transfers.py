"""What an asynchronous operation moves, between which devices: the part of it that a DMA engine does.

Few movements are enough. A gather or a permutation needs nothing else; a reduction is a movement followed by a local
sum, which belongs to the done. Each movement says what it does in ordinary collectives (that is how it runs where
there is no TPU), what moves the tangents, and what moves the cotangents back.

Shapes: a *buffer* has the shape that one operation moves on one device. ``batch`` counts leading dimensions that
``jax.vmap`` added: one movement carries all of them.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Transfer(abc.ABC):
    """One movement of a buffer over the devices along ``axes`` (names of a mesh, major first)."""

    axes: tuple[str, ...]

    @abc.abstractmethod
    def landing(self, source: Shape) -> Shape:
        """Shape of the buffer that receives, given that of the buffer sent."""

    @abc.abstractmethod
    def synchronous(self, x: jax.Array, batch: int) -> jax.Array:
        """The same movement as one ordinary collective; any dtype, ``batch`` leading dimensions left alone."""

    @abc.abstractmethod
    def mapped(self, x: jax.Array, batch: int) -> jax.Array:
        """The movement when ``axes`` are one axis of a ``vmap`` instead of devices: dimension 0 of ``x``."""

    @property
    def tangent(self) -> Transfer:
        """What moves the tangent of the source (after `widen`)."""
        return self

    def widen(self, x: jax.Array, batch: int) -> jax.Array:
        """The buffer that `tangent` sends for the tangent ``x`` of the source."""
        return x

    def narrow(self, x: jax.Array, batch: int) -> jax.Array:
        """Transpose of `widen`."""
        return x

    @property
    @abc.abstractmethod
    def transposed(self) -> Transfer:
        """What moves cotangents back, for a movement that is its own `tangent`."""


@dataclass(frozen=True)
class Copy(Transfer):
    """A copy on the device itself. ``space``: memory that receives it, ``"hbm"`` or ``"vmem"``."""

    axes: tuple[str, ...] = ()
    space: str = "hbm"

    def landing(self, source: Shape) -> Shape:
        return source

    def synchronous(self, x: jax.Array, batch: int) -> jax.Array:
        return x

    def mapped(self, x: jax.Array, batch: int) -> jax.Array:
        return x

    @property
    def transposed(self) -> Transfer:
        return Copy()


@dataclass(frozen=True)
class Permute(Transfer):
    """Device ``s`` sends to ``d`` for each ``(s, d)`` of ``perm``; who receives nothing gets zeros."""

    perm: tuple[tuple[int, int], ...]
    size: int

    def landing(self, source: Shape) -> Shape:
        return source

    def synchronous(self, x: jax.Array, batch: int) -> jax.Array:
        return lax.ppermute(x, self.axes, self.perm)

    def mapped(self, x: jax.Array, batch: int) -> jax.Array:
        if not self.perm:
            return jnp.zeros_like(x)
        senders, receivers = (jnp.array(side) for side in zip(*self.perm, strict=True))
        return jnp.zeros_like(x).at[receivers].set(x[senders])

    @property
    def transposed(self) -> Permute:
        return Permute(self.axes, tuple((d, s) for s, d in self.perm), self.size)

    @property
    def shift(self) -> int | None:
        """``k`` if every device ``i`` sends to ``(i + k) % size``; None for other permutations."""
        shifts = {(d - s) % self.size for s, d in self.perm}
        return shifts.pop() if len(self.perm) == self.size and len(shifts) == 1 else None

    @property
    def complete(self) -> bool:
        """True when every device sends and receives."""
        return len(self.perm) == self.size


@dataclass(frozen=True)
class Exchange(Transfer):
    """Device ``i`` sends part ``j`` of its buffer to device ``j``, which stores it as part ``i``."""

    size: int

    def landing(self, source: Shape) -> Shape:
        return source

    def synchronous(self, x: jax.Array, batch: int) -> jax.Array:
        return lax.all_to_all(x, self.axes, split_axis=batch, concat_axis=batch, tiled=True)

    def mapped(self, x: jax.Array, batch: int) -> jax.Array:
        return jnp.swapaxes(x, 0, 1 + batch)

    @property
    def transposed(self) -> Transfer:
        return self


@dataclass(frozen=True)
class Gather(Transfer):
    """Every device sends its buffer to all; they are stored in the order of the devices, in a new first dimension.

    Its tangent moves by an `Exchange` of copies: an exchange is its own transpose, and the cotangents of a gather are
    exchanged and summed, which needs room for one part per device on both sides.
    """

    size: int

    def landing(self, source: Shape) -> Shape:
        return (self.size, *source)

    def synchronous(self, x: jax.Array, batch: int) -> jax.Array:
        return lax.all_gather(x, self.axes, axis=batch, tiled=False)

    def mapped(self, x: jax.Array, batch: int) -> jax.Array:
        gathered = jnp.moveaxis(x, 0, batch)
        return jnp.broadcast_to(gathered, (x.shape[0], *gathered.shape))

    @property
    def tangent(self) -> Transfer:
        return Exchange(self.axes, self.size)

    def widen(self, x: jax.Array, batch: int) -> jax.Array:
        shape = (*x.shape[:batch], self.size, *x.shape[batch:])
        kept = [d for d in range(len(shape)) if d != batch]
        return lax.broadcast_in_dim(x, shape, kept)

    def narrow(self, x: jax.Array, batch: int) -> jax.Array:
        return x.sum(axis=batch)

    @property
    def transposed(self) -> Transfer:
        return self.tangent.transposed


@dataclass(frozen=True)
class Replicate(Gather):
    """A gather whose parts are summed to a value that ``shard_map`` knows to be the same on all devices.

    Then its cotangent is the same on all devices, too, and need not travel: it is a part of itself.
    """

    @property
    def tangent(self) -> Transfer:
        return self

    def widen(self, x: jax.Array, batch: int) -> jax.Array:
        return x

    def narrow(self, x: jax.Array, batch: int) -> jax.Array:
        return x

    @property
    def transposed(self) -> Transfer:
        return Own(self.axes, self.size)


@dataclass(frozen=True)
class Own(Transfer):
    """Device ``i`` keeps part ``i`` of its buffer: a copy on the device itself."""

    size: int

    def landing(self, source: Shape) -> Shape:
        return source[1:]

    def synchronous(self, x: jax.Array, batch: int) -> jax.Array:
        return lax.dynamic_index_in_dim(x, lax.axis_index(self.axes), batch, keepdims=False)

    def mapped(self, x: jax.Array, batch: int) -> jax.Array:
        return jnp.moveaxis(jnp.diagonal(x, axis1=0, axis2=1 + batch), -1, 0)

    @property
    def transposed(self) -> Transfer:
        return Replicate(self.axes, self.size)
