"""Two copies in flight write the same rows; either may come last."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import asyncops

ROWS = jax.ShapeDtypeStruct((8, 128), jnp.float32)


def same_rows(x_hbm, o_ref, buf, sems):
    first = pltpu.make_async_copy(x_hbm, buf.at[0], sems.at[0])
    second = pltpu.make_async_copy(x_hbm, buf.at[0], sems.at[1])
    first.start()
    second.start()  # expect: AO204
    first.wait()
    second.wait()
    o_ref[...] = buf[0]


def rows_of_their_own(x_hbm, o_ref, buf, sems):
    first = pltpu.make_async_copy(x_hbm, buf.at[0], sems.at[0])
    second = pltpu.make_async_copy(x_hbm, buf.at[1], sems.at[1])
    first.start()
    second.start()
    first.wait()
    second.wait()
    o_ref[...] = buf[0] + buf[1]


def call(kernel):
    return pl.pallas_call(
        kernel,
        out_shape=ROWS,
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec(memory_space=pltpu.VMEM),
        scratch_shapes=[pltpu.VMEM((2, 8, 128), jnp.float32), pltpu.SemaphoreType.DMA((2,))],
    )


for kernel in same_rows, rows_of_their_own:
    asyncops.lint_target(ROWS, name=kernel.__name__)(call(kernel))
