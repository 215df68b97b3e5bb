"""A pipeline by hand whose first step waits for a copy that nobody has started."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import asyncops

STEPS = 4
STACK = jax.ShapeDtypeStruct((STEPS, 8, 128), jnp.float32)


def load(x_hbm, buf, sems, step):
    slot = jax.lax.rem(step, 2)
    return pltpu.make_async_copy(x_hbm.at[step], buf.at[slot], sems.at[slot])


def without_warm_up(x_hbm, o_ref, buf, sems):
    step = pl.program_id(0)

    @pl.when(step + 1 < STEPS)
    def _():
        load(x_hbm, buf, sems, step + 1).start()

    load(x_hbm, buf, sems, step).wait()  # expect: AO103
    o_ref[0] = buf[jax.lax.rem(step, 2)] * 2.0


def with_warm_up(x_hbm, o_ref, buf, sems):
    step = pl.program_id(0)

    @pl.when(step == 0)
    def _():
        load(x_hbm, buf, sems, step).start()

    @pl.when(step + 1 < STEPS)
    def _():
        load(x_hbm, buf, sems, step + 1).start()

    load(x_hbm, buf, sems, step).wait()
    o_ref[0] = buf[jax.lax.rem(step, 2)] * 2.0


def call(kernel):
    return pl.pallas_call(
        kernel,
        grid=(STEPS,),
        out_shape=STACK,
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec((1, 8, 128), lambda step: (step, 0, 0)),
        scratch_shapes=[pltpu.VMEM((2, 8, 128), jnp.float32), pltpu.SemaphoreType.DMA((2,))],
    )


for kernel in without_warm_up, with_warm_up:
    asyncops.lint_target(STACK, name=kernel.__name__)(call(kernel))
