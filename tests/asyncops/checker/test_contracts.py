"""``requires``: what a kernel's contract promises of its arguments, and what cannot be promised."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import asyncops
from stateful.errors import InvalidArgumentError

BLOCK = jax.ShapeDtypeStruct((8, 128), jnp.float32)


def conditional_wait(flags: Any, x: Any) -> Any:
    """Waits for its copy only where the first flag is positive."""

    def kernel(flags_ref: Any, x_hbm: Any, o_ref: Any, buf: Any, sem: Any) -> None:
        copy = pltpu.make_async_copy(x_hbm, buf, sem)
        copy.start()
        o_ref[...] = jnp.zeros_like(o_ref)

        @pl.when(flags_ref[0] > 0)
        def _() -> None:
            copy.wait()

    return pl.pallas_call(
        kernel,
        out_shape=BLOCK,
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec(memory_space=pl.ANY)],
        scratch_shapes=[pltpu.VMEM((8, 128), jnp.float32), pltpu.SemaphoreType.DMA],
    )(flags, x)


def prefetching_sum(n: Any, x: Any) -> Any:
    """Starts the first copy whatever ``n`` is: wrong for ``n == 0`` alone."""

    def kernel(n_ref: Any, x_hbm: Any, o_ref: Any, buf: Any, sems: Any) -> None:
        def copy(i: Any, slot: Any) -> Any:
            return pltpu.make_async_copy(x_hbm.at[i], buf.at[slot], sems.at[slot])

        copy(0, 0).start()
        o_ref[...] = jnp.zeros_like(o_ref)

        def body(i: Any, _: None) -> None:
            slot = lax.rem(i, 2)

            @pl.when(i + 1 < n_ref[0])
            def _() -> None:
                copy(i + 1, 1 - slot).start()

            copy(i, slot).wait()
            o_ref[...] += buf[slot]

        lax.fori_loop(0, n_ref[0], body, None)

    return pl.pallas_call(
        kernel,
        out_shape=BLOCK,
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec(memory_space=pl.ANY)],
        scratch_shapes=[pltpu.VMEM((2, 8, 128), jnp.float32), pltpu.SemaphoreType.DMA((2,))],
    )(n, x)


FLAGS = (jax.ShapeDtypeStruct((1,), jnp.int32), BLOCK)
COUNT = (jax.ShapeDtypeStruct((1,), jnp.int32), jax.ShapeDtypeStruct((64, 8, 128), jnp.float32))


@pytest.mark.parametrize(
    ("requires", "verdict"),
    [
        (None, "findings"),
        (lambda flags, x: flags[0] > 0, "clean"),
        (lambda flags, x: [flags[0] >= 1, flags[0] != 7], "clean"),
        (lambda flags, x: flags.between(1, None), "clean"),
        (lambda flags, x: flags.between(0, None), "findings"),
        (lambda flags, x: flags[0] * 2 - 1 > 0, "clean"),
        (lambda flags, x: flags[0] % 4 == 3, "findings"),
        (lambda flags, x: (flags[0] >= 1) & (flags[0] < 9), "clean"),
        (lambda flags, x: (flags[0] == 1) | (flags[0] == 3), "clean"),
        (lambda flags, x: ~(flags[0] <= 0), "clean"),
        (lambda flags, x: (flags[0] >= 0) & (flags[0] < 9), "findings"),
    ],
)
def test_promises_decide(requires: Any, verdict: str) -> None:
    assert asyncops.check(conditional_wait, *FLAGS, requires=requires).verdict == verdict


def test_a_promised_trip_count_holds_for_every_value() -> None:
    assert asyncops.check(prefetching_sum, *COUNT).verdict == "findings"
    assert asyncops.check(prefetching_sum, *COUNT, requires=lambda n, x: n[0] >= 1).verdict == "clean"


@pytest.mark.parametrize(
    ("requires", "message"),
    [
        (lambda flags, x: x.between(0, 1), "not an integer array"),
        (lambda flags, x: 3, "must return promises"),
        (lambda flags, x: flags[0, 0] > 1, "has shape"),
        (lambda flags, x: flags[0] > 1.5, "compares integers"),
        (lambda flags, x: [flags[0] > 1, flags[0] < 0], "no argument values satisfy"),
        (lambda flags, x: flags[0] > 1 and flags[0] < 5, "join them with &"),
        (lambda flags, x: 1 < flags[0] < 5, "join them with &"),
        (lambda flags, x: (flags[0] > 1) & flags.between(0, 5), "as promises of their own"),
    ],
)
def test_bad_promises_say_what_is_wrong(requires: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        asyncops.check(conditional_wait, *FLAGS, requires=requires)


def test_the_chip_is_answered_for() -> None:
    def lanes(x: Any) -> Any:
        assert pltpu.get_tpu_info().num_lanes == 128
        return pl.pallas_call(lambda x_ref, o_ref: o_ref.__setitem__(..., x_ref[...]), out_shape=BLOCK)(x)

    assert asyncops.check(lanes, BLOCK, target="v5e").verdict == "clean"
    with pytest.raises(InvalidArgumentError, match="target must be one of"):
        asyncops.check(lanes, BLOCK, target="v99")


@pytest.mark.parametrize(("flags", "verdict"), [([1], "clean"), ([0], "findings")])
def test_declared_values_are_relied_on(flags: list[int], verdict: str) -> None:
    values = np.array(flags, np.int32)
    assert asyncops.check(conditional_wait, values, BLOCK, values=True).verdict == verdict
