"""The buffer is read before the copy into it has arrived."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import asyncops

ROWS = jax.ShapeDtypeStruct((8, 128), jnp.float32)
STEPS = 4
STACK = jax.ShapeDtypeStruct((STEPS, 8, 128), jnp.float32)


def reads_too_early(x_hbm, o_ref, buf, sem):
    copy = pltpu.make_async_copy(x_hbm, buf, sem)
    copy.start()
    o_ref[...] = buf[...] * 2.0  # expect: AO201
    copy.wait()


def reads_after_the_wait(x_hbm, o_ref, buf, sem):
    copy = pltpu.make_async_copy(x_hbm, buf, sem)
    copy.start()
    copy.wait()
    o_ref[...] = buf[...] * 2.0


def load(x_hbm, buf, sems, step):
    slot = jax.lax.rem(step, 2)
    return pltpu.make_async_copy(x_hbm.at[step], buf.at[slot], sems.at[slot])


def reads_the_slot_that_is_being_filled(x_hbm, o_ref, buf, sems):
    load(x_hbm, buf, sems, 0).start()
    for step in range(STEPS):
        if step + 1 < STEPS:
            load(x_hbm, buf, sems, step + 1).start()
        load(x_hbm, buf, sems, step).wait()
        o_ref[step] = buf[(step + 1) % 2] * 2.0  # expect: AO201


def reads_the_slot_that_is_full(x_hbm, o_ref, buf, sems):
    load(x_hbm, buf, sems, 0).start()
    for step in range(STEPS):
        if step + 1 < STEPS:
            load(x_hbm, buf, sems, step + 1).start()
        load(x_hbm, buf, sems, step).wait()
        o_ref[step] = buf[step % 2] * 2.0


def call(kernel, out_shape, slots=()):
    return pl.pallas_call(
        kernel,
        out_shape=out_shape,
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec(memory_space=pltpu.VMEM),
        scratch_shapes=[pltpu.VMEM((*slots, 8, 128), jnp.float32), pltpu.SemaphoreType.DMA(slots)],
    )


for kernel in reads_too_early, reads_after_the_wait:
    asyncops.lint_target(ROWS, name=kernel.__name__)(call(kernel, ROWS))
for kernel in reads_the_slot_that_is_being_filled, reads_the_slot_that_is_full:
    asyncops.lint_target(STACK, name=kernel.__name__)(call(kernel, STACK, (2,)))
