"""Results leave through a copy that nobody waits for."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import asyncops

ROWS = jax.ShapeDtypeStruct((8, 128), jnp.float32)
FLAG = jax.ShapeDtypeStruct((1,), jnp.int32)


def never_waited(x_ref, o_hbm, buf, sem):
    buf[...] = x_ref[...] * 2.0
    pltpu.make_async_copy(buf, o_hbm, sem).start()  # expect: AO101


def waited(x_ref, o_hbm, buf, sem):
    buf[...] = x_ref[...] * 2.0
    copy = pltpu.make_async_copy(buf, o_hbm, sem)
    copy.start()
    copy.wait()


def waited_on_one_path(flag_ref, x_ref, o_hbm, buf, sem):
    buf[...] = x_ref[...] * 2.0
    copy = pltpu.make_async_copy(buf, o_hbm, sem)
    copy.start()  # expect: AO101

    @pl.when(flag_ref[0] > 0)
    def _():
        copy.wait()


def started_and_waited_on_one_path(flag_ref, x_ref, o_hbm, buf, sem):
    buf[...] = x_ref[...] * 2.0
    copy = pltpu.make_async_copy(buf, o_hbm, sem)

    @pl.when(flag_ref[0] > 0)
    def _():
        copy.start()

    @pl.when(flag_ref[0] > 0)
    def _():
        copy.wait()


def call(kernel, *in_spaces):
    return pl.pallas_call(
        kernel,
        out_shape=ROWS,
        in_specs=[pl.BlockSpec(memory_space=space) for space in in_spaces],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[pltpu.VMEM((8, 128), jnp.float32), pltpu.SemaphoreType.DMA(())],
    )


for kernel in never_waited, waited:
    asyncops.lint_target(ROWS, name=kernel.__name__)(call(kernel, pltpu.VMEM))
for kernel in waited_on_one_path, started_and_waited_on_one_path:
    asyncops.lint_target(FLAG, ROWS, name=kernel.__name__)(call(kernel, pltpu.SMEM, pltpu.VMEM))
