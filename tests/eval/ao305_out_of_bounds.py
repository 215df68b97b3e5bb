"""The last step prefetches one block more than there are."""

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


def prefetches_past_the_end(x_hbm, o_ref, buf, sems):
    load(x_hbm, buf, sems, 0).start()

    def body(step, _):
        load(x_hbm, buf, sems, step + 1).start()  # expect: AO305
        load(x_hbm, buf, sems, step).wait()
        o_ref[step] = buf[jax.lax.rem(step, 2)] * 2.0
        return _

    jax.lax.fori_loop(0, STEPS, body, None)
    load(x_hbm, buf, sems, STEPS).wait()


def stops_at_the_end(x_hbm, o_ref, buf, sems):
    load(x_hbm, buf, sems, 0).start()

    def body(step, _):
        @pl.when(step + 1 < STEPS)
        def _prefetch():
            load(x_hbm, buf, sems, step + 1).start()

        load(x_hbm, buf, sems, step).wait()
        o_ref[step] = buf[jax.lax.rem(step, 2)] * 2.0
        return _

    jax.lax.fori_loop(0, STEPS, body, None)


def call(kernel):
    return pl.pallas_call(
        kernel,
        out_shape=STACK,
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec(memory_space=pltpu.VMEM),
        scratch_shapes=[pltpu.VMEM((2, 8, 128), jnp.float32), pltpu.SemaphoreType.DMA((2,))],
    )


for kernel in prefetches_past_the_end, stops_at_the_end:
    asyncops.lint_target(STACK, name=kernel.__name__)(call(kernel))
