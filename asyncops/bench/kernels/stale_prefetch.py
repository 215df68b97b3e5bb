"""A step reads an input window that was fetched before an earlier step's result was stored there."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from asyncops.bench.cases import (
    Draft,
    Program,
    ints,
    pair,
)

KIND = "alias-stale-prefetch"
STEPS = 5


def _row(offset: int) -> pl.BlockSpec:
    return pl.BlockSpec((8, 128), lambda i: (i + offset, 0))


@pair("AO206")
def scans_in_place_by_one_block(draft: Draft) -> Program:
    """Block i+1 becomes what block i gives; it was fetched while block i was being computed."""

    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] * 0.5  # BUG

    array = jax.ShapeDtypeStruct((STEPS * 8, 128), jnp.float32)
    return draft.call(
        kernel, [array], ins=[_row(0)], out=array, outs=_row(1 if draft.wrong else 0), grid=(STEPS - 1,),
        aliases={0: 0},
    )  # fmt: skip


@pair("AO206")
def reads_what_the_step_before_stored(draft: Draft) -> Program:
    back = 1 if draft.wrong else 0

    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] + 1.0  # BUG

    array = jax.ShapeDtypeStruct((STEPS * 8, 128), jnp.float32)
    return draft.call(
        kernel, [array], ins=[pl.BlockSpec((8, 128), lambda i: (jnp.maximum(i - back, 0), 0))],
        out=array, outs=_row(0), grid=(STEPS,), aliases={0: 0},
    )  # fmt: skip


@pair("AO206", "AO208")
def accumulates_over_an_outer_dimension(draft: Draft) -> Program:
    """Two blocks take turns; each is fetched again before its sum is back."""

    def kernel(acc_ref, x_ref, o_ref):
        if draft.wrong:
            o_ref[...] = acc_ref[...] + x_ref[...]  # BUG
        else:

            @pl.when(pl.program_id(1) == 0)
            def _():
                o_ref[...] = acc_ref[...]

            o_ref[...] += x_ref[...]

    outer_first = draft.wrong
    block = (lambda s, b: (b, 0)) if outer_first else (lambda b, s: (b, 0))
    slab = (lambda s, b: (s, b, 0)) if outer_first else (lambda b, s: (s, b, 0))
    array = jax.ShapeDtypeStruct((16, 128), jnp.float32)
    slabs = jax.ShapeDtypeStruct((3, 16, 128), jnp.float32)
    return draft.call(
        kernel, [array, slabs], ins=[pl.BlockSpec((8, 128), block), pl.BlockSpec((None, 8, 128), slab)],
        out=array, outs=pl.BlockSpec((8, 128), block), grid=(3, 2) if outer_first else (2, 3), aliases={0: 0},
    )  # fmt: skip


@pair("AO206")
def shifts_rows_down_in_place(draft: Draft) -> Program:
    """From the last block up it is right: what is stored is not read again."""

    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...]  # BUG

    def source(i):
        return (i if draft.wrong else STEPS - 2 - i, 0)

    def target(i):
        return (i + 1 if draft.wrong else STEPS - 1 - i, 0)

    array = jax.ShapeDtypeStruct((STEPS * 8, 128), jnp.float32)
    return draft.call(
        kernel, [array], ins=[pl.BlockSpec((8, 128), source)], out=array, outs=pl.BlockSpec((8, 128), target),
        grid=(STEPS - 1,), aliases={0: 0},
    )  # fmt: skip


@pair("AO206")
def picks_blocks_by_a_table_that_it_changes(draft: Draft) -> Program:
    """The index map of the next step has read the table before this step's body changes it."""

    def kernel(table, x_ref, o_ref):
        o_ref[...] = x_ref[...]  # BUG
        step = pl.program_id(0)
        if draft.wrong:

            @pl.when(step + 1 < STEPS)
            def _():
                table[step + 1] = STEPS - 1 - step  # BUG

    array = jax.ShapeDtypeStruct((STEPS * 8, 128), jnp.float32)
    chosen = pl.BlockSpec((8, 128), lambda i, table: (table[i], 0))  # BUG
    return draft.call(
        kernel, [ints(*range(STEPS)), array], ins=[chosen], out=array,
        outs=pl.BlockSpec((8, 128), lambda i, table: (i, 0)), grid=(STEPS,), prefetched=1,
    )  # fmt: skip
