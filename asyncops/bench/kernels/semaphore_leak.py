"""A semaphore is not zero again at the end."""

from __future__ import annotations

from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from asyncops.bench.cases import (
    COUNTER,
    ROWS,
    SMEM,
    VMEM,
    Draft,
    Program,
    ints,
    pair,
)

KIND = "semaphore-leak"


@pair("AO301")
def signals_once_more_when_told(draft: Draft) -> Program:
    def kernel(flag, x_ref, o_ref, sem):
        pl.semaphore_signal(sem, 1)
        pl.when(flag[0] > 0)(lambda: pl.semaphore_signal(sem, 1))  # BUG
        o_ref[...] = x_ref[...]
        pl.semaphore_wait(sem, 1)
        if not draft.wrong:
            pl.when(flag[0] > 0)(lambda: pl.semaphore_wait(sem, 1))

    return draft.call(kernel, [ints(0), ROWS], [COUNTER], ins=[SMEM, VMEM])


@pair("AO301")
def tests_without_taking(draft: Draft) -> Program:
    def kernel(x_ref, o_ref, sem):
        pl.semaphore_signal(sem, 2)  # BUG
        pl.semaphore_wait(sem, 2, decrement=not draft.wrong)
        o_ref[...] = x_ref[...]

    return draft.call(kernel, [ROWS], [COUNTER], ins=[VMEM])


@pair("AO301")
def grants_room_that_nobody_takes(draft: Draft) -> Program:
    """After every step a device grants its left neighbour room; the last grant is one too many."""
    steps = 3

    def kernel(x_ref, o_ref, capacity):
        left = lax.rem(lax.axis_index("x") + 3, 4)

        def body(i, _):
            pl.when(i > 0)(lambda: pl.semaphore_wait(capacity, 1))
            o_ref[...] = x_ref[...]
            grant = pl.when(i < (steps if draft.wrong else steps - 1))
            grant(lambda: pl.semaphore_signal(capacity, 1, device_id={"x": left}))  # BUG

        lax.fori_loop(0, steps, body, None)

    return draft.on_mesh(kernel, [ROWS], [COUNTER], ins=[VMEM])


@pair("AO301")
def answers_the_barrier_twice(draft: Draft) -> Program:
    def kernel(x_ref, o_ref):
        me = lax.axis_index("x")
        barrier = pltpu.get_barrier_semaphore()
        for shift in (1, 3):
            peer = lax.rem(me + shift, 4)
            pl.semaphore_signal(barrier, 1, device_id={"x": peer})  # BUG
        pl.semaphore_wait(barrier, 1 if draft.wrong else 2)
        o_ref[...] = x_ref[...]

    return draft.on_mesh(kernel, [ROWS], ins=[VMEM], barrier=True)
