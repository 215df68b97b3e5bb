"""The wait names half of what is copied, and half of the bytes are never waited for."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import asyncops

ROWS = jax.ShapeDtypeStruct((16, 128), jnp.float32)


def waits_for_half(x_hbm, o_ref, buf, sem):
    pltpu.make_async_copy(x_hbm, buf, sem).start()
    half = pl.ds(0, 8)
    pltpu.make_async_copy(x_hbm.at[half], buf.at[half], sem).wait()  # expect: AO104
    o_ref[...] = jnp.zeros_like(o_ref)


def waits_for_both_halves(x_hbm, o_ref, buf, sem):
    pltpu.make_async_copy(x_hbm, buf, sem).start()
    for half in pl.ds(0, 8), pl.ds(8, 8):
        pltpu.make_async_copy(x_hbm.at[half], buf.at[half], sem).wait()
    o_ref[...] = buf[...]


def call(kernel):
    return pl.pallas_call(
        kernel,
        out_shape=ROWS,
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec(memory_space=pltpu.VMEM),
        scratch_shapes=[pltpu.VMEM((16, 128), jnp.float32), pltpu.SemaphoreType.DMA(())],
    )


for kernel in waits_for_half, waits_for_both_halves:
    asyncops.lint_target(ROWS, name=kernel.__name__)(call(kernel))
