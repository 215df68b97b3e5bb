"""An output block is left, and needed again later."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from asyncops.bench.cases import (
    Draft,
    Program,
    pair,
    zeros,
)

KIND = "output-revisit"


@pair("AO208")
def alternates_between_two_sums(draft: Draft) -> Program:
    def kernel(x_ref, o_ref):
        step = pl.program_id(0)
        first = step < 2 if draft.wrong else lax.rem(step, 2) == 0
        pl.when(first)(lambda: zeros(o_ref))
        o_ref[...] += x_ref[...]  # BUG

    def block(i):
        return (lax.rem(i, 2) if draft.wrong else lax.div(i, 2), 0)

    array = jax.ShapeDtypeStruct((32, 128), jnp.float32)
    return draft.call(
        kernel, [array], ins=[pl.BlockSpec((8, 128), lambda i: (i, 0))],
        out=jax.ShapeDtypeStruct((16, 128), jnp.float32), outs=pl.BlockSpec((8, 128), block), grid=(4,),
    )  # fmt: skip


@pair("AO208")
def has_the_reduction_outside(draft: Draft) -> Program:
    """A matrix product with the contracted dimension outermost."""
    contracted, columns = (0, 1) if draft.wrong else (1, 0)

    def kernel(x_ref, y_ref, o_ref):
        pl.when(pl.program_id(contracted) == 0)(lambda: zeros(o_ref))
        o_ref[...] += jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32)  # BUG

    def spec(shape, index):
        return pl.BlockSpec(shape, lambda *ids: index(ids[contracted], ids[columns]))

    def array(*shape):
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    return draft.call(
        kernel, [array(128, 256), array(256, 256)],
        ins=[spec((128, 128), lambda k, n: (0, k)), spec((128, 128), lambda k, n: (k, n))], out=array(128, 256),
        outs=spec((128, 128), lambda k, n: (0, n)), grid=(2, 2),
    )  # fmt: skip


@pair("AO208")
def writes_half_a_block_a_visit(draft: Draft) -> Program:
    """Upper halves of two blocks, then the lower halves: the second visit writes a part only."""

    def kernel(x_ref, o_ref):
        half = lax.div(pl.program_id(0), 2) if draft.wrong else lax.rem(pl.program_id(0), 2)
        o_ref[pl.ds(half * 8, 8)] = x_ref[...]  # BUG

    def block(i):
        return (lax.rem(i, 2) if draft.wrong else lax.div(i, 2), 0)

    array = jax.ShapeDtypeStruct((32, 128), jnp.float32)
    return draft.call(
        kernel, [array], ins=[pl.BlockSpec((8, 128), lambda i: (i, 0))], out=array,
        outs=pl.BlockSpec((16, 128), block), grid=(4,),
    )  # fmt: skip
