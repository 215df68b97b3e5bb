"""A scoped buffer ends its life while a copy still fills it."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import asyncops

ROWS = jax.ShapeDtypeStruct((8, 128), jnp.float32)


def waits_after_the_scope(x_hbm, o_ref, sem):
    def scope(buf):
        pltpu.make_async_copy(x_hbm, buf, sem).start()  # expect: AO205

    pl.run_scoped(scope, pltpu.VMEM((8, 128), jnp.float32))
    o_ref[...] = jnp.zeros_like(o_ref)
    pltpu.make_async_copy(x_hbm, o_ref, sem).wait()


def waits_inside_the_scope(x_hbm, o_ref, sem):
    def scope(buf):
        copy = pltpu.make_async_copy(x_hbm, buf, sem)
        copy.start()
        copy.wait()
        o_ref[...] = buf[...]

    pl.run_scoped(scope, pltpu.VMEM((8, 128), jnp.float32))


def call(kernel):
    return pl.pallas_call(
        kernel,
        out_shape=ROWS,
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec(memory_space=pltpu.VMEM),
        scratch_shapes=[pltpu.SemaphoreType.DMA(())],
    )


for kernel in waits_after_the_scope, waits_inside_the_scope:
    asyncops.lint_target(ROWS, name=kernel.__name__)(call(kernel))
