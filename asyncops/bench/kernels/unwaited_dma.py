"""Nobody waits for a copy, on some path or on all."""

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
    SMEM,
    VMEM,
    Draft,
    Program,
    dmas,
    ints,
    pair,
    slots,
    stack,
    zeros,
)

KIND = "unwaited-dma"


@pair("AO101")
def forgets_the_last_store(draft: Draft) -> Program:
    def kernel(x_ref, o_hbm, buf, sems):
        def store(i):
            return pltpu.make_async_copy(buf.at[i % 2], o_hbm.at[i], sems.at[i % 2])

        for i in range(4):
            if i >= 2:
                store(i - 2).wait()
            buf[i % 2] = x_ref[i]
            store(i).start()  # BUG
        for i in range(2, 3 if draft.wrong else 4):
            store(i).wait()

    return draft.call(kernel, [stack(4)], [PAIR, dmas(2)], ins=[VMEM], out=stack(4), outs=HBM)


@pair("AO101")
def waits_in_one_branch_only(draft: Draft) -> Program:
    def kernel(flag, x_ref, o_hbm, sem):
        store = pltpu.make_async_copy(x_ref, o_hbm, sem)
        store.start()  # BUG

        def early():
            store.wait()

        def late():
            if not draft.wrong:
                store.wait()

        lax.cond(flag[0] > 3, early, late)

    return draft.call(kernel, [ints(7), ROWS], [DMA], ins=[SMEM, VMEM], outs=HBM)


@pair("AO101")
def leaves_the_loop_with_a_prefetch(draft: Draft) -> Program:
    """A search that stops at the first hit; the block that was being fetched is forgotten."""

    def kernel(stops, x_hbm, o_ref, buf, sems):
        def copy(i):
            return pltpu.make_async_copy(x_hbm.at[i], buf.at[lax.rem(i, 2)], sems.at[lax.rem(i, 2)])

        zeros(o_ref)
        copy(0).start()  # BUG

        def body(i):
            pl.when(i + 1 < 8)(lambda: copy(i + 1).start())  # BUG
            copy(i).wait()
            o_ref[...] += buf[lax.rem(i, 2)]
            return i + 1

        last = lax.while_loop(lambda i: (i < 8) & (stops[jnp.minimum(i, 7)] == 0), body, 0)
        if not draft.wrong:
            pl.when(last < 8)(lambda: copy(last).wait())

    return draft.call(kernel, [ints(0, 0, 0, 1, 0, 0, 0, 0), stack(8)], [PAIR, dmas(2)])


@pair("AO101")
def drains_all_steps_but_one(draft: Draft) -> Program:
    """Write-backs of a grid are drained in its last step."""

    def kernel(x_ref, o_hbm, buf, sems):
        step, last = pl.program_id(0), pl.num_programs(0) - 1

        def store(i):
            return pltpu.make_async_copy(buf.at[lax.rem(i, 2)], o_hbm.at[i], sems.at[lax.rem(i, 2)])

        pl.when(step >= 2)(lambda: store(step - 2).wait())
        buf[lax.rem(step, 2)] = x_ref[...]
        store(step).start()  # BUG

        @pl.when(step == last)
        def _():
            if not draft.wrong:
                store(step - 1).wait()
            store(step).wait()

    return draft.call(
        kernel, [stack(5)], [PAIR, dmas(2)], ins=[pl.BlockSpec((None, 8, 128), lambda i: (i, 0, 0))], out=stack(5),
        outs=HBM, grid=(5,),
    )  # fmt: skip


@pair("AO101")
def overwrites_the_handle(draft: Draft) -> Program:
    def kernel(x_hbm, o_ref, buf, sems):
        copies = {}
        for i in range(3):
            key = "next" if draft.wrong else i
            copies[key] = pltpu.make_async_copy(x_hbm.at[i], buf.at[i], sems.at[i])
            copies[key].start()  # BUG
        for copy in copies.values():
            copy.wait()
        o_ref[...] = buf[2]

    return draft.call(kernel, [stack(3)], [slots(3), dmas(3)])


@pair("AO101")
def starts_one_block_too_many(draft: Draft) -> Program:
    """The prefetch's guard is right only for an even number of blocks."""

    def kernel(count, x_hbm, o_ref, buf, sems):
        def copy(i):
            return pltpu.make_async_copy(x_hbm.at[i], buf.at[lax.rem(i, 2)], sems.at[lax.rem(i, 2)])

        zeros(o_ref)
        n = count[0]
        pl.when(n > 0)(lambda: copy(0).start())

        def body(i, _):
            limit = n + lax.rem(n, 2) if draft.wrong else n
            pl.when(i + 1 < limit)(lambda: copy(i + 1).start())  # BUG
            copy(i).wait()
            o_ref[...] += buf[lax.rem(i, 2)]

        lax.fori_loop(0, n, body, None)

    return draft.call(kernel, [ints(4), stack(9)], [PAIR, dmas(2)])
