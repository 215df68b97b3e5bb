"""A wait meant for one copy can be satisfied by another on the same semaphore."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from asyncops.bench.cases import (
    DMA,
    HBM,
    PAIR,
    ROWS,
    VMEM,
    Draft,
    Program,
    dmas,
    ints,
    pair,
    stack,
    zeros,
)

KIND = "shared-semaphore"


@pair("AO302", "AO201")
def loads_two_blocks_on_one(draft: Draft) -> Program:
    def kernel(x_hbm, y_hbm, o_ref, buf, sems):
        x_copy = pltpu.make_async_copy(x_hbm, buf.at[0], sems.at[0])
        y_copy = pltpu.make_async_copy(y_hbm, buf.at[1], sems.at[0 if draft.wrong else 1])
        x_copy.start()
        y_copy.start()
        x_copy.wait()
        o_ref[...] = buf[0]  # BUG
        y_copy.wait()
        o_ref[...] += buf[1]

    return draft.call(kernel, [ROWS, ROWS], [PAIR, dmas(2)])


@pair("AO302", "AO201")
def has_one_semaphore_for_both_slots(draft: Draft) -> Program:
    def kernel(x_hbm, o_ref, buf, sems):
        def copy(i):
            slot = lax.rem(i, 2)
            return pltpu.make_async_copy(x_hbm.at[i], buf.at[slot], sems.at[0 if draft.wrong else slot])

        zeros(o_ref)
        copy(0).start()

        def body(i, _):
            pl.when(i + 1 < 6)(lambda: copy(i + 1).start())
            copy(i).wait()
            o_ref[...] += buf[lax.rem(i, 2)]  # BUG

        lax.fori_loop(0, 6, body, None)

    return draft.call(kernel, [stack(6)], [PAIR, dmas(2)])


@pair("AO302", "AO201")
def streams_keys_and_values_on_one(draft: Draft) -> Program:
    def kernel(length, k_hbm, v_hbm, o_ref, k_buf, v_buf, sems):
        def copies(i):
            slot = lax.rem(i, 2)
            yield pltpu.make_async_copy(k_hbm.at[i], k_buf.at[slot], sems.at[0, slot])
            yield pltpu.make_async_copy(v_hbm.at[i], v_buf.at[slot], sems.at[0 if draft.wrong else 1, slot])

        def start(i):
            for copy in copies(i):
                copy.start()

        n = jnp.minimum(length[0], 6)
        zeros(o_ref)
        pl.when(n > 0)(lambda: start(0))

        def body(i, _):
            pl.when(i + 1 < n)(lambda: start(i + 1))
            k_copy, v_copy = copies(i)
            k_copy.wait()
            scores = k_buf[lax.rem(i, 2)]  # BUG
            v_copy.wait()
            o_ref[...] += scores * v_buf[lax.rem(i, 2)]

        lax.fori_loop(0, n, body, None)

    return draft.call(kernel, [ints(4), stack(6), stack(6)], [PAIR, PAIR, dmas(2, 2)])


@pair("AO302", "AO202")
def stores_two_rows_on_one(draft: Draft) -> Program:
    def kernel(x_ref, o_hbm, buf, sems):
        def store(i):
            return pltpu.make_async_copy(buf.at[i], o_hbm.at[i], sems.at[0 if draft.wrong else i])

        for i in range(2):
            buf[i] = x_ref[i]
            store(i).start()
        store(0).wait()
        buf[0] = x_ref[2]  # BUG
        store(1).wait()
        last = pltpu.make_async_copy(buf.at[0], o_hbm.at[2], sems.at[0])
        last.start()
        last.wait()

    return draft.call(kernel, [stack(3)], [PAIR, dmas(2)], ins=[VMEM], out=stack(3), outs=HBM)


@pair("AO302", "AO201")
def forwards_round_the_ring_on_one(draft: Draft) -> Program:
    """All-gather: the shard of the next step may be the one that has come."""

    def kernel(x_ref, o_ref, local, send, receive):
        me = lax.axis_index("x")
        left, right = lax.rem(me + 3, 4), lax.rem(me + 1, 4)
        barrier = pltpu.get_barrier_semaphore()
        for peer in (left, right):
            pl.semaphore_signal(barrier, 1, device_id={"x": peer})
        pl.semaphore_wait(barrier, 2)
        own = pltpu.make_async_copy(x_ref, o_ref.at[me], local)
        own.start()
        own.wait()
        for step in range(3):
            slot = lax.rem(me - step + 4, 4)
            copy = pltpu.make_async_remote_copy(
                o_ref.at[slot],
                o_ref.at[slot],
                send,
                receive.at[0 if draft.wrong else step],
                device_id={"x": right},
            )
            copy.start()  # BUG
            copy.wait()

    return draft.on_mesh(kernel, [ROWS], [DMA, DMA, dmas(3)], ins=[VMEM], out=stack(4), barrier=True)
