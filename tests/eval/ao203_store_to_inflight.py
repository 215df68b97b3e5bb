"""A buffer is cleared after the copy into it has started: the zeros may land last."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import asyncops

ROWS = jax.ShapeDtypeStruct((8, 128), jnp.float32)


def clears_too_late(x_hbm, o_ref, buf, sem):
    copy = pltpu.make_async_copy(x_hbm, buf, sem)
    copy.start()
    buf[...] = jnp.zeros_like(buf)  # expect: AO203
    copy.wait()
    o_ref[...] = buf[...]


def clears_first(x_hbm, o_ref, buf, sem):
    buf[...] = jnp.zeros_like(buf)
    copy = pltpu.make_async_copy(x_hbm, buf, sem)
    copy.start()
    copy.wait()
    o_ref[...] = buf[...]


def call(kernel):
    return pl.pallas_call(
        kernel,
        out_shape=ROWS,
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec(memory_space=pltpu.VMEM),
        scratch_shapes=[pltpu.VMEM((8, 128), jnp.float32), pltpu.SemaphoreType.DMA(())],
    )


for kernel in clears_too_late, clears_first:
    asyncops.lint_target(ROWS, name=kernel.__name__)(call(kernel))
