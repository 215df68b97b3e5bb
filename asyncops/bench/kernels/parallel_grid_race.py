"""Steps of a parallel grid dimension, which may run on different cores, meet."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from asyncops.bench.cases import (
    BUFFER,
    DMA,
    HBM,
    PAIR,
    Draft,
    Program,
    dmas,
    pair,
    stack,
    zeros,
)

KIND = "parallel-grid-race"
STEPS = 4


def _semantics(draft: Draft) -> str:
    return "parallel" if draft.wrong else "arbitrary"


@pair("AO207", cores=2)
def sums_into_one_output_block(draft: Draft) -> Program:
    def kernel(x_ref, o_ref):
        pl.when(pl.program_id(0) == 0)(lambda: zeros(o_ref))
        o_ref[...] += x_ref[...]  # BUG

    array = jax.ShapeDtypeStruct((STEPS * 8, 128), jnp.float32)
    shared = pl.BlockSpec((8, 128), lambda i: (0, 0))  # BUG
    return draft.call(
        kernel, [array], ins=[pl.BlockSpec((8, 128), lambda i: (i, 0))], outs=shared, grid=(STEPS,),
        dimension_semantics=(_semantics(draft),),
    )  # fmt: skip


@pair("AO207", cores=2)
def carries_a_sum_through_scratch(draft: Draft) -> Program:
    def kernel(x_ref, o_ref, total):
        pl.when(pl.program_id(0) == 0)(lambda: zeros(total))
        total[...] += x_ref[...]  # BUG
        o_ref[...] = total[...]

    array = jax.ShapeDtypeStruct((STEPS * 8, 128), jnp.float32)
    row = pl.BlockSpec((8, 128), lambda i: (i, 0))
    return draft.call(
        kernel,
        [array],
        [BUFFER],
        ins=[row],
        out=array,
        outs=row,
        grid=(STEPS,),
        dimension_semantics=(_semantics(draft),),
    )


@pair("AO207", cores=2)
def stores_every_block_to_the_same_rows(draft: Draft) -> Program:
    def kernel(x_ref, o_hbm, sem):
        rows = pl.ds(0 if draft.wrong else pl.program_id(0) * 8, 8)
        store = pltpu.make_async_copy(x_ref, o_hbm.at[rows], sem)
        store.start()  # BUG
        store.wait()

    array = jax.ShapeDtypeStruct((STEPS * 8, 128), jnp.float32)
    return draft.call(
        kernel, [array], [DMA], ins=[pl.BlockSpec((8, 128), lambda i: (i, 0))], out=array, outs=HBM,
        grid=(STEPS,), dimension_semantics=("parallel",),
    )  # fmt: skip


@pair("AO207", "AO101", "AO103", cores=2)
def hands_a_copy_to_the_next_step(draft: Draft) -> Program:
    """Each core has scratch of its own, so the next step may not be there to wait for the copy."""

    def kernel(x_hbm, o_ref, buf, sems):
        step = pl.program_id(0)

        def copy(i):
            return pltpu.make_async_copy(x_hbm.at[i], buf.at[lax.rem(i, 2)], sems.at[lax.rem(i, 2)])

        pl.when(step == 0)(lambda: copy(step).start())
        pl.when(step + 1 < STEPS)(lambda: copy(step + 1).start())
        copy(step).wait()  # BUG
        o_ref[...] = buf[lax.rem(step, 2)]

    return draft.call(
        kernel, [stack(STEPS)], [PAIR, dmas(2)], out=stack(STEPS),
        outs=pl.BlockSpec((None, 8, 128), lambda i: (i, 0, 0)), grid=(STEPS,), dimension_semantics=(_semantics(draft),),
    )  # fmt: skip


@pair("AO207", cores=2)
def declares_the_reduction_parallel_too(draft: Draft) -> Program:
    """Rows are independent; the sum along the second dimension is not."""

    def kernel(x_ref, o_ref):
        pl.when(pl.program_id(1) == 0)(lambda: zeros(o_ref))
        o_ref[...] += x_ref[...]  # BUG

    second = "parallel" if draft.wrong else "arbitrary"
    shared = pl.BlockSpec((None, 8, 128), lambda r, c: (r, 0, 0))  # BUG
    return draft.call(
        kernel, [stack(2, 3)], ins=[pl.BlockSpec((None, None, 8, 128), lambda r, c: (r, c, 0, 0))], out=stack(2),
        outs=shared, grid=(2, 3), dimension_semantics=("parallel", second),
    )  # fmt: skip
