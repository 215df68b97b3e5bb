"""Two copies count on one semaphore: a wait for one may be satisfied by the other."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import asyncops

ROWS = jax.ShapeDtypeStruct((8, 128), jnp.float32)


def one_semaphore(x_hbm, o_ref, buf, sems):
    first = pltpu.make_async_copy(x_hbm, buf.at[0], sems.at[0])
    second = pltpu.make_async_copy(x_hbm, buf.at[1], sems.at[0])
    first.start()
    second.start()
    first.wait()
    o_ref[...] = buf[0]  # expect: AO201 (AO302)
    second.wait()
    o_ref[...] += buf[1]


def one_semaphore_each(x_hbm, o_ref, buf, sems):
    first = pltpu.make_async_copy(x_hbm, buf.at[0], sems.at[0])
    second = pltpu.make_async_copy(x_hbm, buf.at[1], sems.at[1])
    first.start()
    second.start()
    first.wait()
    o_ref[...] = buf[0]
    second.wait()
    o_ref[...] += buf[1]


def one_semaphore_both_waited_for(x_hbm, o_ref, buf, sems):
    first = pltpu.make_async_copy(x_hbm, buf.at[0], sems.at[0])
    second = pltpu.make_async_copy(x_hbm, buf.at[1], sems.at[0])
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


for kernel in one_semaphore, one_semaphore_each, one_semaphore_both_waited_for:
    asyncops.lint_target(ROWS, name=kernel.__name__)(call(kernel))
