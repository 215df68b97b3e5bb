"""An input window is stored to, and a later step uses it without a new fetch."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from asyncops.bench.cases import (
    BUFFER,
    DMA,
    HBM,
    ROWS,
    Draft,
    Program,
    pair,
    stack,
)

KIND = "pipelined-input-mutated"


@pair("AO209")
def scales_the_shared_weights_in_place(draft: Draft) -> Program:
    def kernel(w_ref, x_ref, o_ref, tmp):
        scaled = w_ref if draft.wrong else tmp
        scaled[...] = w_ref[...] * 2.0  # BUG
        o_ref[...] = x_ref[...] * scaled[...]

    array = jax.ShapeDtypeStruct((32, 128), jnp.float32)
    row = pl.BlockSpec((8, 128), lambda i: (i, 0))
    return draft.call(
        kernel, [ROWS, array], [BUFFER], ins=[pl.BlockSpec((8, 128), lambda i: (0, 0)), row], out=array, outs=row,
        grid=(4,),
    )  # fmt: skip


@pair("AO209")
def counts_down_in_its_input(draft: Draft) -> Program:
    """The inner dimension stays on one block of the first operand."""

    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] + y_ref[...]
        if draft.wrong:
            x_ref[pl.ds(0, 1)] = jnp.zeros((1, 128), jnp.float32)  # BUG

    slow, fast = (
        pl.BlockSpec((None, 8, 128), index) for index in (lambda i, j: (i, 0, 0), lambda i, j: (j, 0, 0))
    )
    return draft.call(
        kernel, [stack(2), stack(3)], ins=[slow, fast],
        out=stack(2, 3), outs=pl.BlockSpec((None, None, 8, 128), lambda i, j: (i, j, 0, 0)), grid=(2, 3),
    )  # fmt: skip


@pair("AO209")
def loads_over_a_window(draft: Draft) -> Program:
    def kernel(x_ref, y_hbm, o_ref, spare, sem):
        target = x_ref if draft.wrong else spare
        o_ref[...] = x_ref[...]
        copy = pltpu.make_async_copy(y_hbm, target, sem)
        copy.start()  # BUG
        copy.wait()
        o_ref[...] += target[...]

    return draft.call(
        kernel, [ROWS, ROWS], [BUFFER, DMA], ins=[pl.BlockSpec((8, 128), lambda i: (0, 0)), HBM], out=stack(3),
        outs=pl.BlockSpec((None, 8, 128), lambda i: (i, 0, 0)), grid=(3,),
    )  # fmt: skip
