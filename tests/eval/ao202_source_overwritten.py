"""The staging buffer is written again while it is still being sent."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import asyncops

ROWS = jax.ShapeDtypeStruct((8, 128), jnp.float32)


def reuses_too_early(x_ref, o_hbm, buf, sem):
    buf[...] = x_ref[...] * 2.0
    copy = pltpu.make_async_copy(buf, o_hbm, sem)
    copy.start()
    buf[...] = jnp.zeros_like(buf)  # expect: AO202
    copy.wait()


def reuses_after_the_wait(x_ref, o_hbm, buf, sem):
    buf[...] = x_ref[...] * 2.0
    copy = pltpu.make_async_copy(buf, o_hbm, sem)
    copy.start()
    copy.wait()
    buf[...] = jnp.zeros_like(buf)


def call(kernel):
    return pl.pallas_call(
        kernel,
        out_shape=ROWS,
        in_specs=[pl.BlockSpec(memory_space=pltpu.VMEM)],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[pltpu.VMEM((8, 128), jnp.float32), pltpu.SemaphoreType.DMA(())],
    )


for kernel in reuses_too_early, reuses_after_the_wait:
    asyncops.lint_target(ROWS, name=kernel.__name__)(call(kernel))
