"""One of two signals is never waited for: the count stays behind for the next call."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import asyncops

ROWS = jax.ShapeDtypeStruct((8, 128), jnp.float32)


def leaves_one(x_ref, o_ref, sem):
    pl.semaphore_signal(sem, 2)  # expect: AO301
    o_ref[...] = x_ref[...]
    pl.semaphore_wait(sem, 1)


def leaves_none(x_ref, o_ref, sem):
    pl.semaphore_signal(sem, 2)
    o_ref[...] = x_ref[...]
    pl.semaphore_wait(sem, 1)
    pl.semaphore_wait(sem, 1)


def call(kernel):
    return pl.pallas_call(kernel, out_shape=ROWS, scratch_shapes=[pltpu.SemaphoreType.REGULAR(())])


for kernel in leaves_one, leaves_none:
    asyncops.lint_target(ROWS, name=kernel.__name__)(call(kernel))
