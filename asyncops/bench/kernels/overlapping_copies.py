"""Two copies in flight write a common region."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from asyncops.bench.cases import (
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

KIND = "dma-write-overlap"


@pair("AO204")
def loads_two_blocks_into_one(draft: Draft) -> Program:
    def kernel(x_hbm, o_ref, buf, sems):
        first = pltpu.make_async_copy(x_hbm.at[0], buf.at[0], sems.at[0])
        second = pltpu.make_async_copy(x_hbm.at[1], buf.at[0 if draft.wrong else 1], sems.at[1])
        first.start()
        second.start()  # BUG
        first.wait()
        second.wait()
        o_ref[...] = buf[0]

    return draft.call(kernel, [stack(2)], [PAIR, dmas(2)])


@pair("AO204")
def stores_rows_that_overlap(draft: Draft) -> Program:
    def kernel(x_ref, o_hbm, sems):
        stride = 7 if draft.wrong else 8
        stores = [
            pltpu.make_async_copy(x_ref.at[i], o_hbm.at[pl.ds(i * stride, 8)], sems.at[i]) for i in range(3)
        ]
        for store in stores:
            store.start()  # BUG
        for store in stores:
            store.wait()

    return draft.call(kernel, [stack(3)], [dmas(3)], ins=[VMEM], out=jnp.zeros((24, 128)).aval, outs=HBM)


@pair("AO204", "AO202")
def never_switches_the_slot(draft: Draft) -> Program:
    def kernel(x_hbm, o_ref, buf, sems):
        def copy(i):
            slot = 0 if draft.wrong else lax.rem(i, 2)
            return pltpu.make_async_copy(x_hbm.at[i], buf.at[slot], sems.at[lax.rem(i, 2)])

        zeros(o_ref)
        copy(0).start()

        def body(i, _):
            pl.when(i + 1 < 4)(lambda: copy(i + 1).start())  # BUG
            copy(i).wait()
            if not draft.wrong:
                o_ref[...] += buf[lax.rem(i, 2)]

        lax.fori_loop(0, 4, body, None)

    return draft.call(kernel, [stack(4)], [PAIR, dmas(2)])


@pair("AO204")
def scatters_to_one_place_twice(draft: Draft) -> Program:
    """Two destinations from a table with nothing to keep them apart."""

    def kernel(table, x_ref, pool_hbm, sems):
        def scatter(i):
            return pltpu.make_async_copy(x_ref.at[i], pool_hbm.at[table[0 if draft.wrong else i]], sems.at[i])

        scatter(0).start()
        if not draft.wrong:
            scatter(0).wait()
        scatter(1).start()  # BUG
        if draft.wrong:
            scatter(0).wait()
        scatter(1).wait()

    return draft.call(
        kernel, [ints(4, 1), stack(2)], [dmas(2)], ins=[pl.BlockSpec(memory_space=pltpu.SMEM), VMEM],
        out=stack(6), outs=HBM,
    )  # fmt: skip


@pair("AO204")
def writes_both_halves_to_one(draft: Draft) -> Program:
    """Nested views: row ranges of a range."""

    def kernel(x_ref, o_hbm, sems):
        middle = o_hbm.at[pl.ds(8, 16)]
        upper = pltpu.make_async_copy(x_ref, middle.at[pl.ds(0, 8)], sems.at[0])
        lower = pltpu.make_async_copy(x_ref, middle.at[pl.ds(4 if draft.wrong else 8, 8)], sems.at[1])
        upper.start()
        lower.start()  # BUG
        upper.wait()
        lower.wait()

    return draft.call(kernel, [ROWS], [dmas(2)], ins=[VMEM], out=jnp.zeros((32, 128)).aval, outs=HBM)
