"""An index or a device is out of range."""

from __future__ import annotations

import jax
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
    pair,
    slots,
    stack,
    zeros,
)

KIND = "prefetch-off-by-one"


@pair("AO305")
def prefetches_past_the_end(draft: Draft) -> Program:
    def kernel(x_hbm, o_ref, buf, sems):
        def copy(i):
            return pltpu.make_async_copy(x_hbm.at[i], buf.at[lax.rem(i, 2)], sems.at[lax.rem(i, 2)])

        zeros(o_ref)
        copy(0).start()

        def body(i, _):
            pl.when(i + (0 if draft.wrong else 1) < 4)(lambda: copy(i + 1).start())  # BUG
            copy(i).wait()
            o_ref[...] += buf[lax.rem(i, 2)]

        lax.fori_loop(0, 4, body, None)
        if draft.wrong:
            copy(4).wait()  # BUG

    return draft.call(kernel, [stack(4)], [PAIR, dmas(2)])


@pair("AO305")
def has_a_slot_too_few(draft: Draft) -> Program:
    def kernel(x_hbm, o_ref, buf, sems):
        zeros(o_ref)

        def body(i, _):
            slot = lax.rem(i, 3)
            copy = pltpu.make_async_copy(x_hbm.at[i], buf.at[slot], sems.at[slot])
            copy.start()  # BUG
            copy.wait()
            o_ref[...] += buf[slot]

        lax.fori_loop(0, 5, body, None)

    return draft.call(kernel, [stack(5)], [slots(2 if draft.wrong else 3), dmas(3)])


@pair("AO305")
def sends_past_the_last_device(draft: Draft) -> Program:
    def kernel(x_ref, o_ref, send, receive):
        me = lax.axis_index("x")
        right = me + 1 if draft.wrong else lax.rem(me + 1, 4)
        copy = pltpu.make_async_remote_copy(x_ref, o_ref, send, receive, device_id={"x": right})
        copy.start()  # BUG
        copy.wait()

    return draft.on_mesh(kernel, [ROWS], [DMA, DMA], ins=[VMEM])


@pair("AO305")
def copies_a_last_block_that_is_not_whole(draft: Draft) -> Program:
    """Blocks of 16 rows of an array of 40."""

    def kernel(x_hbm, o_hbm, sem):
        def body(i, _):
            start = i * 16 if draft.wrong else jnp.minimum(i * 16, 24)
            rows = pl.ds(pl.multiple_of(start, 8), 16)
            copy = pltpu.make_async_copy(x_hbm.at[rows], o_hbm.at[rows], sem)
            copy.start()  # BUG
            copy.wait()

        lax.fori_loop(0, 3, body, None)

    array = jax.ShapeDtypeStruct((40, 128), jnp.float32)
    return draft.call(kernel, [array], [DMA], out=array, outs=HBM)
