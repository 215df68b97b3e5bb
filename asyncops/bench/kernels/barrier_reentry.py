"""A barrier can be passed on a signal that was meant for another passage."""

from __future__ import annotations

from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from asyncops.bench.cases import (
    BUFFER,
    COUNTER,
    DMA,
    ROWS,
    VMEM,
    Draft,
    Program,
    pair,
    stack,
    zeros,
)

KIND = "barrier-reuse"


@pair("AO404", "AO401")
def calls_a_ring_kernel_twice(draft: Draft) -> Program:
    """A fast neighbour's signal of the second call can stand in for a slow one's of the first."""
    n = 5

    def kernel(x_ref, o_ref, send, receive, done):
        me = lax.axis_index("x")
        left, right = lax.rem(me + n - 1, n), lax.rem(me + 1, n)
        barrier = pltpu.get_barrier_semaphore()
        for peer in (left, right):
            pl.semaphore_signal(barrier, 1, device_id={"x": peer})
        pl.semaphore_wait(barrier, 2)
        copy = pltpu.make_async_remote_copy(x_ref, o_ref, send, receive, device_id={"x": right})
        copy.start()  # BUG
        copy.wait()
        if not draft.wrong:
            for peer in (left, right):
                pl.semaphore_signal(done, 1, device_id={"x": peer})
            pl.semaphore_wait(done, 2)

    once = draft.on_mesh(kernel, [ROWS], [DMA, DMA, COUNTER], shape=(n,), ins=[VMEM], barrier=True)
    return Program(lambda x: once.fn(once.fn(x)), once.args)


@pair("AO401", "AO402", "AO201", "AO204")
def meets_twice_at_one_barrier(draft: Draft) -> Program:
    """Two exchanges in a kernel, each behind a barrier of neighbours."""
    n = 5

    def kernel(x_ref, o_ref, inbox, send, receive, second):
        me = lax.axis_index("x")
        left, right = lax.rem(me + n - 1, n), lax.rem(me + 1, n)
        first = pltpu.get_barrier_semaphore()
        zeros(inbox)
        for i, sem in enumerate((first, first if draft.wrong else second)):
            for peer in (left, right):
                pl.semaphore_signal(sem, 1, device_id={"x": peer})
            pl.semaphore_wait(sem, 2)
            copy = pltpu.make_async_remote_copy(x_ref.at[i], inbox, send, receive, device_id={"x": right})
            copy.start()  # BUG
            copy.wait()
            o_ref[i] = inbox[...]  # BUG

    return draft.on_mesh(
        kernel, [stack(2)], [BUFFER, DMA, DMA, COUNTER], shape=(n,), ins=[VMEM], out=stack(2), barrier=True
    )
