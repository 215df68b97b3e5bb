"""The ring in value and in Ref form on CPU devices: results, derivatives, and the errors of misuse."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

import asyncops
from stateful.errors import StatefulError

AXIS = "x"


def ring(devices: int) -> list[tuple[int, int]]:
    """Every device sends to its right neighbour."""
    return [(i, (i + 1) % devices) for i in range(devices)]


def on_mesh(f: Any, devices: int) -> Any:
    """``f`` on every shard of the first axis."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:devices]), (AXIS,))
    return jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P(AXIS), out_specs=P(AXIS), check_vma=False))


def rows(devices: int) -> jax.Array:
    """A different block on each device."""
    return jnp.arange(devices * 8 * 128, dtype=jnp.float32).reshape(devices * 8, 128)


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
def test_a_permute_is_laxs(devices: int) -> None:
    def split(x: Any) -> Any:
        future = asyncops.ppermute_start(x, AXIS, ring(devices))
        y = x + 1
        return asyncops.ppermute_done(future) + y

    def fused(x: Any) -> Any:
        return lax.ppermute(x, AXIS, ring(devices)) + x + 1

    x = rows(devices)
    np.testing.assert_array_equal(on_mesh(split, devices)(x), on_mesh(fused, devices)(x))


def test_derivatives_are_those_of_the_fused_permute() -> None:
    def loss(permute: Any) -> Any:
        def local(x: Any) -> Any:
            return jnp.sin(permute(x)) * x

        return lambda x: on_mesh(local, 4)(x).sum()

    def split(x: Any) -> Any:
        return asyncops.ppermute_done(asyncops.ppermute_start(x, AXIS, ring(4)))

    x = rows(4) / 100
    fused = jax.grad(loss(lambda x: lax.ppermute(x, AXIS, ring(4))))(x)
    np.testing.assert_allclose(jax.grad(loss(split))(x), fused, rtol=1e-6)


def test_a_future_done_twice_is_an_error() -> None:
    def twice(x: Any) -> Any:
        future = asyncops.ppermute_start(x, AXIS, ring(2))
        return asyncops.ppermute_done(future) + asyncops.ppermute_done(future)

    with pytest.raises(StatefulError):
        on_mesh(twice, 2)(rows(2))


def test_a_list_that_is_no_permutation_is_an_error() -> None:
    def wrong(x: Any) -> Any:
        return asyncops.ppermute_done(asyncops.ppermute_start(x, AXIS, [(0, 1), (1, 1)]))

    with pytest.raises(StatefulError):
        on_mesh(wrong, 2)(rows(2))
