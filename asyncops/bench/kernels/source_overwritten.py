"""A copy's source is written while the copy may still be reading it."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from asyncops.bench.cases import (
    BUFFER,
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
    slots,
    stack,
)

KIND = "source-overwritten"


@pair("AO202")
def clears_what_is_being_stored(draft: Draft) -> Program:
    def kernel(x_ref, o_hbm, buf, sem):
        buf[...] = x_ref[...] + 1.0
        store = pltpu.make_async_copy(buf, o_hbm, sem)
        store.start()
        if not draft.wrong:
            store.wait()
        buf[...] = jnp.zeros_like(buf)  # BUG
        if draft.wrong:
            store.wait()

    return draft.call(kernel, [ROWS], [BUFFER, DMA], ins=[VMEM], outs=HBM)


@pair("AO202")
def refills_the_slot_before_its_wait(draft: Draft) -> Program:
    def kernel(x_ref, o_hbm, buf, sems):
        def store(i, slot):
            return pltpu.make_async_copy(buf.at[slot], o_hbm.at[i], sems.at[slot])

        for i in range(5):
            if i >= 2 and not draft.wrong:
                store(i - 2, i % 2).wait()
            buf[i % 2] = x_ref[i] * 3.0  # BUG
            if i >= 2 and draft.wrong:
                store(i - 2, i % 2).wait()
            store(i, i % 2).start()
        for i in (3, 4):
            store(i, i % 2).wait()

    return draft.call(kernel, [stack(5)], [PAIR, dmas(2)], ins=[VMEM], out=stack(5), outs=HBM)


@pair("AO202", "AO204")
def loads_into_what_is_being_stored(draft: Draft) -> Program:
    def kernel(x_hbm, o_hbm, buf, in_sem, out_sem):
        def load(i):
            return pltpu.make_async_copy(x_hbm.at[i], buf, in_sem)

        def store(i):
            return pltpu.make_async_copy(buf, o_hbm.at[i], out_sem)

        load(0).start()
        load(0).wait()
        store(0).start()
        if not draft.wrong:
            store(0).wait()
        load(1).start()  # BUG
        load(1).wait()
        if draft.wrong:
            store(0).wait()
        store(1).start()
        store(1).wait()

    return draft.call(kernel, [stack(2)], [BUFFER, DMA, DMA], out=stack(2), outs=HBM)


@pair("AO202")
def sums_into_the_page_that_leaves(draft: Draft) -> Program:
    """A running sum is stored in every step of a loop whose length the caller gives."""

    def kernel(count_ref, x_ref, o_hbm, total, sem):
        store = pltpu.make_async_copy(total, o_hbm, sem)
        total[...] = jnp.zeros_like(total)
        store.start()

        def body(i, _):
            if not draft.wrong:
                store.wait()
            total[...] += x_ref[...]  # BUG
            if draft.wrong:
                store.wait()
            store.start()

        lax.fori_loop(0, count_ref[0], body, None)
        store.wait()

    specs = [pl.BlockSpec(memory_space=pltpu.SMEM), VMEM]
    return draft.call(kernel, [ints(3), ROWS], [BUFFER, DMA], ins=specs, outs=HBM)


@pair("AO202")
def scatters_from_one_staging_row(draft: Draft) -> Program:
    def kernel(table, x_ref, pool_hbm, staging, sem):
        def scatter(i):
            return pltpu.make_async_copy(staging, pool_hbm.at[table[i]], sem)

        def body(i, _):
            if not draft.wrong:
                pl.when(i > 0)(lambda: scatter(i - 1).wait())
            staging[...] = x_ref[i]  # BUG
            if draft.wrong:
                pl.when(i > 0)(lambda: scatter(i - 1).wait())
            scatter(i).start()

        lax.fori_loop(0, 4, body, None)
        scatter(3).wait()

    return draft.call(
        kernel, [ints(2, 0, 3, 1), stack(4)], [BUFFER, DMA], ins=[pl.BlockSpec(memory_space=pltpu.SMEM), VMEM],
        out=stack(4), outs=HBM,
    )  # fmt: skip


@pair("AO202")
def writes_one_row_of_a_sent_block(draft: Draft) -> Program:
    def kernel(x_ref, o_hbm, buf, sem):
        buf[...] = x_ref[...]
        send = pltpu.make_async_copy(buf.at[1], o_hbm, sem)
        send.start()
        buf[1 if draft.wrong else 0, pl.ds(3, 1), :] = jnp.ones((1, 128), jnp.float32)  # BUG
        send.wait()

    return draft.call(kernel, [stack(2)], [PAIR, DMA], ins=[VMEM], outs=HBM)


@pair("AO202")
def leaves_the_last_step_unguarded(draft: Draft) -> Program:
    """The write-back of a grid step is awaited two steps later, but the buffers alternate over three."""

    def kernel(x_ref, o_hbm, buf, sems):
        step, depth = pl.program_id(0), 2 if draft.wrong else 3
        slot = lax.rem(step, depth)

        def store(i):
            return pltpu.make_async_copy(buf.at[lax.rem(i, depth)], o_hbm.at[i], sems.at[lax.rem(i, 3)])

        buf[slot] = x_ref[...]  # BUG
        store(step).start()
        pl.when(step >= 2)(lambda: store(step - 2).wait())

        @pl.when(step == pl.num_programs(0) - 1)
        def _():
            store(step - 1).wait()
            store(step).wait()

    return draft.call(
        kernel, [stack(7)], [slots(3), dmas(3)], ins=[pl.BlockSpec((None, 8, 128), lambda i: (i, 0, 0))],
        out=stack(7), outs=HBM, grid=(7,),
    )  # fmt: skip
