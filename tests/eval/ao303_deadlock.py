"""The wait asks for two, one is signalled: it never returns."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import asyncops

ROWS = jax.ShapeDtypeStruct((8, 128), jnp.float32)


def waits_for_two(x_ref, o_ref, sem):
    pl.semaphore_signal(sem, 1)
    o_ref[...] = x_ref[...]
    pl.semaphore_wait(sem, 2)  # expect: AO303


def waits_for_one(x_ref, o_ref, sem):
    pl.semaphore_signal(sem, 1)
    o_ref[...] = x_ref[...]
    pl.semaphore_wait(sem, 1)


def call(kernel):
    return pl.pallas_call(kernel, out_shape=ROWS, scratch_shapes=[pltpu.SemaphoreType.REGULAR(())])


for kernel in waits_for_two, waits_for_one:
    asyncops.lint_target(ROWS, name=kernel.__name__)(call(kernel))
