"""Some wait can never return."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from asyncops.bench.cases import (
    COUNTER,
    DMA,
    ROWS,
    SMEM,
    VMEM,
    Draft,
    Program,
    ints,
    pair,
)

KIND = "deadlock"


@pair("AO303")
def waits_for_three_of_two(draft: Draft) -> Program:
    def kernel(x_ref, o_ref):
        me = lax.axis_index("x")
        barrier = pltpu.get_barrier_semaphore()
        for shift in (1, 3):
            pl.semaphore_signal(barrier, 1, device_id={"x": lax.rem(me + shift, 4)})
        pl.semaphore_wait(barrier, 3 if draft.wrong else 2)  # BUG
        o_ref[...] = x_ref[...]

    return draft.on_mesh(kernel, [ROWS], ins=[VMEM], barrier=True)


@pair("AO303", "AO103")
def has_a_root_that_waits_for_itself(draft: Draft) -> Program:
    def kernel(x_ref, o_ref, send, receive):
        me = lax.axis_index("x")

        def copy(peer):
            return pltpu.make_async_remote_copy(x_ref, o_ref, send, receive, device_id={"x": peer})

        @pl.when(me == 0)
        def _():
            o_ref[...] = x_ref[...]
            for peer in range(1, 4):
                copy(peer).start()
            for peer in range(1, 4):
                copy(peer).wait_send()

        @pl.when(me >= (0 if draft.wrong else 1))
        def _():
            copy(me).wait_recv()  # BUG

    return draft.on_mesh(kernel, [ROWS], [DMA, DMA], ins=[VMEM])


@pair("AO303")
def waits_before_it_signals(draft: Draft) -> Program:
    """Each device waits for its neighbour's word before it gives its own."""

    def kernel(x_ref, o_ref, sem):
        right = lax.rem(lax.axis_index("x") + 1, 4)
        if not draft.wrong:
            pl.semaphore_signal(sem, 1, device_id={"x": right})
        pl.semaphore_wait(sem, 1)  # BUG
        if draft.wrong:
            pl.semaphore_signal(sem, 1, device_id={"x": right})
        o_ref[...] = x_ref[...]

    return draft.on_mesh(kernel, [ROWS], [COUNTER], ins=[VMEM])


@pair("AO303")
def counts_on_absent_devices(draft: Draft) -> Program:
    def kernel(x_ref, o_ref):
        me = lax.axis_index("x")
        barrier = pltpu.get_barrier_semaphore()
        o_ref[...] = x_ref[...]

        @pl.when(me < 2)
        def _():
            for peer in range(2):
                pl.semaphore_signal(barrier, 1, device_id={"x": peer})
            pl.semaphore_wait(barrier, 4 if draft.wrong else 2)  # BUG

    return draft.on_mesh(kernel, [ROWS], ins=[VMEM], barrier=True)


@pair("AO303", "AO301")
def signals_along_the_wrong_axis(draft: Draft) -> Program:
    """A grid of two by two devices; a row's barrier of which one device tells its column."""

    def kernel(x_ref, o_ref):
        x, y = lax.axis_index("x"), lax.axis_index("y")
        barrier = pltpu.get_barrier_semaphore()
        row: Any = {"x": x, "y": 1 - y}
        column: Any = {"x": 1 - x, "y": y}
        odd = (x == 0) & (y == 0)
        pl.when(odd)(lambda: pl.semaphore_signal(barrier, 1, device_id=column if draft.wrong else row))  # BUG
        pl.when(jnp.logical_not(odd))(lambda: pl.semaphore_signal(barrier, 1, device_id=row))
        pl.semaphore_wait(barrier, 1)  # BUG
        o_ref[...] = x_ref[...]

    return draft.on_mesh(kernel, [ROWS], shape=(2, 2), ins=[VMEM], barrier=True)


@pair("AO303")
def waits_for_a_flag_of_its_own_loop(draft: Draft) -> Program:
    def kernel(count, x_ref, o_ref, sem):
        n = jnp.maximum(count[0], 0)
        lax.fori_loop(0, n, lambda i, _: pl.semaphore_signal(sem, 1), None)
        o_ref[...] = x_ref[...]
        pl.semaphore_wait(sem, n + (1 if draft.wrong else 0))  # BUG

    return draft.call(kernel, [ints(2), ROWS], [COUNTER], ins=[SMEM, VMEM])
