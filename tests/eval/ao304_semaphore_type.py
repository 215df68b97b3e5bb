"""A copy is given a semaphore that counts signals, not bytes."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import asyncops

ROWS = jax.ShapeDtypeStruct((8, 128), jnp.float32)


def counts_signals(x_hbm, o_ref, buf, sem):
    pltpu.make_async_copy(x_hbm, buf, sem).start()  # expect: AO304
    pl.semaphore_wait(sem, 1)
    o_ref[...] = buf[...]


def counts_bytes(x_hbm, o_ref, buf, sem):
    copy = pltpu.make_async_copy(x_hbm, buf, sem)
    copy.start()
    copy.wait()
    o_ref[...] = buf[...]


def call(kernel, semaphore):
    return pl.pallas_call(
        kernel,
        out_shape=ROWS,
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec(memory_space=pltpu.VMEM),
        scratch_shapes=[pltpu.VMEM((8, 128), jnp.float32), semaphore],
    )


asyncops.lint_target(ROWS, name="counts_signals")(call(counts_signals, pltpu.SemaphoreType.REGULAR(())))
asyncops.lint_target(ROWS, name="counts_bytes")(call(counts_bytes, pltpu.SemaphoreType.DMA(())))
