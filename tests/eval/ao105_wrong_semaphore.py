"""The copy counts on one semaphore, the wait looks at the other."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import asyncops

ROWS = jax.ShapeDtypeStruct((8, 128), jnp.float32)


def waits_on_the_other(x_hbm, o_ref, buf, sems):
    pltpu.make_async_copy(x_hbm, buf, sems.at[0]).start()
    pltpu.make_async_copy(x_hbm, buf, sems.at[1]).wait()  # expect: AO105
    o_ref[...] = buf[...] * 2.0


def waits_on_its_own(x_hbm, o_ref, buf, sems):
    pltpu.make_async_copy(x_hbm, buf, sems.at[1]).start()
    pltpu.make_async_copy(x_hbm, buf, sems.at[1]).wait()
    o_ref[...] = buf[...] * 2.0


def call(kernel):
    return pl.pallas_call(
        kernel,
        out_shape=ROWS,
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec(memory_space=pltpu.VMEM),
        scratch_shapes=[pltpu.VMEM((8, 128), jnp.float32), pltpu.SemaphoreType.DMA((2,))],
    )


for kernel in waits_on_the_other, waits_on_its_own:
    asyncops.lint_target(ROWS, name=kernel.__name__)(call(kernel))
