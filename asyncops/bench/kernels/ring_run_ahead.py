"""A device runs ahead of its neighbour and writes where that one is not done."""

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
    PAIR,
    ROWS,
    VMEM,
    Draft,
    Program,
    dmas,
    pair,
    slots,
    stack,
    zeros,
)

KIND = "ring-run-ahead"
N = 4


def _neighbours() -> tuple[Any, Any]:
    me = lax.axis_index("x")
    return lax.rem(me + N - 1, N), lax.rem(me + 1, N)


@pair("AO402", "AO204", "AO202", "AO201")
def reduces_round_the_ring_without_room(draft: Draft) -> Program:
    """Two slots; a device sends the next block when its own has come, whatever its neighbour still holds."""

    def kernel(x_ref, o_ref, comm, send, receive, capacity):
        left, right = _neighbours()
        comm[0] = x_ref[...]
        o_ref[...] = x_ref[...]

        def body(step, _):
            slot, following = lax.rem(step, 2), lax.rem(step + 1, 2)
            if not draft.wrong:
                pl.when(step > 0)(lambda: pl.semaphore_wait(capacity, 1))
            copy = pltpu.make_async_remote_copy(
                comm.at[slot],
                comm.at[following],
                send.at[slot],
                receive.at[following],
                device_id={"x": right},
            )
            copy.start()  # BUG
            copy.wait()
            if not draft.wrong:
                grant = pl.when(step < N - 2)
                grant(lambda: pl.semaphore_signal(capacity, 1, device_id={"x": left}))
            o_ref[...] += comm[following]  # BUG

        lax.fori_loop(0, N - 1, body, None)

    return draft.on_mesh(kernel, [ROWS], [PAIR, dmas(2), dmas(2), COUNTER], ins=[VMEM])


@pair("AO402", "AO204", "AO203")
def clears_its_mailbox_after_the_barrier(draft: Draft) -> Program:
    def kernel(x_ref, o_ref, mail, send, receive):
        me = lax.axis_index("x")
        if not draft.wrong:
            zeros(mail)
        barrier = pltpu.get_barrier_semaphore()
        for peer in range(N):
            pl.semaphore_signal(barrier, 1, device_id={"x": peer})
        pl.semaphore_wait(barrier, N)
        if draft.wrong:
            mail[...] = jnp.zeros_like(mail)  # BUG
        puts = [
            pltpu.make_async_remote_copy(
                x_ref, mail.at[me], send, receive, device_id={"x": lax.rem(me + shift, N)}
            )
            for shift in range(1, N)
        ]
        for put in puts:
            put.start()  # BUG
        for put in puts:
            put.wait()
        o_ref[...] = jnp.sum(mail[...], axis=0)

    return draft.on_mesh(kernel, [ROWS], [slots(N), DMA, DMA], ins=[VMEM], barrier=True)


@pair("AO402", "AO201", "AO204")
def sends_the_next_block_before_it_was_read(draft: Draft) -> Program:
    """Two exchanges through one buffer; the reader says when it has read the first, or does not."""

    def kernel(x_ref, o_ref, inbox, send, receive, read):
        left, right = _neighbours()
        for i in range(2):
            if i == 1 and not draft.wrong:
                pl.semaphore_wait(read, 1)
            copy = pltpu.make_async_remote_copy(x_ref.at[i], inbox, send, receive, device_id={"x": right})
            copy.start()  # BUG
            copy.wait()
            o_ref[i] = inbox[...]  # BUG
            if i == 0 and not draft.wrong:
                pl.semaphore_signal(read, 1, device_id={"x": left})

    return draft.on_mesh(kernel, [stack(2)], [BUFFER, DMA, DMA, COUNTER], ins=[VMEM], out=stack(2))


@pair("AO402", "AO201", "AO204")
def grants_room_before_it_has_read(draft: Draft) -> Program:
    def kernel(x_ref, o_ref, inbox, send, receive, room):
        left, right = _neighbours()

        def body(i, _):
            pl.when(i > 0)(lambda: pl.semaphore_wait(room, 1))
            copy = pltpu.make_async_remote_copy(x_ref.at[i], inbox, send, receive, device_id={"x": right})
            copy.start()  # BUG
            copy.wait()

            def grant():
                pl.when(i < 3)(lambda: pl.semaphore_signal(room, 1, device_id={"x": left}))

            if draft.wrong:
                grant()
            o_ref[i] = inbox[...]  # BUG
            if not draft.wrong:
                grant()

        lax.fori_loop(0, 4, body, None)

    return draft.on_mesh(kernel, [stack(4)], [BUFFER, DMA, DMA, COUNTER], ins=[VMEM], out=stack(4))
