"""A semaphore of another type than the operation needs."""

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
)

KIND = "semaphore-type"


@pair("AO304")
def gives_a_counter_to_a_copy(draft: Draft) -> Program:
    def kernel(x_hbm, o_ref, buf, sem):
        copy = pltpu.make_async_copy(x_hbm, buf, sem)
        copy.start()  # BUG
        if draft.wrong:
            pl.semaphore_wait(sem, 1)
        else:
            copy.wait()
        o_ref[...] = buf[...]

    return draft.call(kernel, [ROWS], [BUFFER, COUNTER if draft.wrong else DMA])


@pair("AO304")
def counts_arrivals_as_if_signalled(draft: Draft) -> Program:
    def kernel(x_ref, o_ref, send, receive):
        right = lax.rem(lax.axis_index("x") + 1, 4)
        copy = pltpu.make_async_remote_copy(x_ref, o_ref, send, receive, device_id={"x": right})
        copy.start()  # BUG
        copy.wait_send()
        if draft.wrong:
            pl.semaphore_wait(receive, 1)
        else:
            copy.wait_recv()

    return draft.on_mesh(kernel, [ROWS], [DMA, COUNTER if draft.wrong else DMA], ins=[VMEM])
