"""The element type of a buffer that a copy may still be reading or writing.

JAX's public API has no way to define an element type, and a plain one would not do: arithmetic on a buffer in
flight must be a type error, a future's tangent must be a future (plain integers have no tangents), and the
semaphores must have a type that nothing else produces. The rules below are those that JAX asks of a type such as
that of random keys.

One array of this type, of shape ``(1,)``, is one buffer: the buffer's own shape belongs to the *element*. So a
stack of futures is an array of them, and ``shard_map`` may give each device its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax._src import core, dtypes, sharding_impls
from jax._src.earray import EArray
from jax._src.interpreters import pxla


class in_flight(dtypes.extended):
    """What ``jnp.issubdtype`` calls the buffers and semaphores of a future."""


class _Rules:
    """What JAX asks of an element type of ours; the names are JAX's."""

    allow_conversion = True

    @staticmethod
    def physical_element_aval(dtype: InFlight) -> Any:
        return core.ShapedArray(dtype.element, dtype.physical)

    @staticmethod
    def tangent_dtype(dtype: InFlight) -> Any:
        return dtypes.float0 if dtype.tangent is None else dtype.tangent

    @staticmethod
    def zero(dtype: InFlight) -> Any:
        """The tangent of a future whose operation carries zeros: no operation of its own stands behind it."""
        return lax.convert_element_type(jnp.zeros(dtype.element, dtype.physical), dtype)

    @staticmethod
    def add(dtype: Any, x: Any, y: Any) -> Any:
        raise TypeError(
            "a future reaches two dones: two cotangents meet at its start; consume each future once"
        )

    @staticmethod
    def physical_const(value: EArray) -> Any:
        return value._data

    @staticmethod
    def global_sharded_result_handler(aval: Any, sharding: Any, committed: bool) -> Any:
        physical = core.physical_aval(aval)
        make = pxla.global_result_handlers[core.ShapedArray]
        handler = make(physical, sharding_impls.physical_sharding(aval, sharding), committed)
        return handler.wrap(lambda buffers: EArray(aval, buffers))

    @staticmethod
    def make_sharded_array(aval: Any, sharding: Any, arrays: Any, committed: bool) -> Any:
        physical = core.physical_aval(aval)
        make = pxla.global_result_handlers[core.ShapedArray]
        handler = make(physical, sharding_impls.physical_sharding(aval, sharding), committed)
        return EArray(aval, handler([a._data for a in arrays]))


@dataclass(frozen=True)
class InFlight(dtypes.ExtendedDType):
    """A buffer of shape ``element`` that a copy owns, or the semaphores that count its progress.

    Args:
        element: shape of the buffer; at least one dimension.
        physical: its element type in memory.
        semaphores: True for the semaphores: the one leaf whose way through a program is that of the future.
        tangent: the type of the tangent's leaf; None where numbers of this type have none.
    """

    element: tuple[int, ...]
    physical: Any
    semaphores: bool = False
    tangent_element: tuple[int, ...] | None = None

    _rules = _Rules
    type = in_flight  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]

    def __post_init__(self) -> None:
        object.__setattr__(self, "physical", np.dtype(self.physical))

    @property
    def tangent(self) -> InFlight | None:
        """Type of the corresponding leaf of the tangent's future; itself for a tangent, None if there is none."""
        if self.tangent_element is None:
            return None
        return InFlight(self.tangent_element, self.physical, self.semaphores, self.tangent_element)

    @property
    def itemsize(self) -> int:
        return math.prod(self.element) * self.physical.itemsize

    @property
    def name(self) -> str:
        shape = ",".join(map(str, self.element))
        if self.semaphores:
            return f"semaphores[{shape}]"
        return f"inflight<{self.physical.name}[{shape}]>"

    def __repr__(self) -> str:
        return self.name


def is_in_flight(aval: Any) -> bool:
    """True for the type of a future's leaf."""
    return isinstance(getattr(aval, "dtype", None), InFlight)


def is_handle(aval: Any) -> bool:
    """True for the type of a future's semaphores."""
    return is_in_flight(aval) and aval.dtype.semaphores
