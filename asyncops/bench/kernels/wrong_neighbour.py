"""A copy or a signal goes to the wrong device."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
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
)

KIND = "wrong-neighbour"
N = 4


@pair("AO401", "AO402", "AO303", "AO201")
def greets_the_right_and_sends_to_the_right(draft: Draft) -> Program:
    """The device that waits must be told by the one it sends to, its right neighbour."""

    def kernel(x_ref, o_ref, send, receive):
        me = lax.axis_index("x")
        left, right = lax.rem(me + N - 1, N), lax.rem(me + 1, N)
        barrier = pltpu.get_barrier_semaphore()
        pl.semaphore_signal(barrier, 1, device_id={"x": right if draft.wrong else left})
        pl.semaphore_wait(barrier, 1)
        copy = pltpu.make_async_remote_copy(x_ref, o_ref, send, receive, device_id={"x": right})
        copy.start()  # BUG
        copy.wait()

    return draft.on_mesh(kernel, [ROWS], [DMA, DMA], ins=[VMEM], barrier=True)


@pair("AO402", "AO401", "AO201", "AO204")
def grants_room_to_the_wrong_side(draft: Draft) -> Program:
    def kernel(x_ref, o_ref, inbox, send, receive, room):
        me = lax.axis_index("x")
        left, right = lax.rem(me + N - 1, N), lax.rem(me + 1, N)
        for i in range(2):
            if i:
                pl.semaphore_wait(room, 1)
            copy = pltpu.make_async_remote_copy(x_ref.at[i], inbox, send, receive, device_id={"x": right})
            copy.start()  # BUG
            copy.wait()
            o_ref[i] = inbox[...]  # BUG
            if not i:
                pl.semaphore_signal(room, 1, device_id={"x": right if draft.wrong else left})

    return draft.on_mesh(kernel, [stack(2)], [BUFFER, DMA, DMA, COUNTER], ins=[VMEM], out=stack(2))


@pair("AO303", "AO301", "AO403", "AO103", "AO402", "AO204")
def sends_to_the_device_of_its_row(draft: Draft) -> Program:
    """A grid of two by two devices: a column's exchange of which one device sends along its row."""

    def kernel(x_ref, o_ref, send, receive):
        x, y = lax.axis_index("x"), lax.axis_index("y")
        column: Any = {"x": 1 - x, "y": y}
        if draft.wrong:
            stray = (x == 0) & (y == 0)
            column = {"x": jnp.where(stray, x, 1 - x), "y": jnp.where(stray, 1 - y, y)}
        copy = pltpu.make_async_remote_copy(x_ref, o_ref, send, receive, device_id=column)
        copy.start()  # BUG
        copy.wait()  # BUG

    return draft.on_mesh(kernel, [ROWS], [DMA, DMA], shape=(2, 2), ins=[VMEM])
