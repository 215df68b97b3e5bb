"""A buffer is stored to while a copy may still be writing it."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from asyncops.bench.cases import (
    BUFFER,
    DMA,
    PAIR,
    ROWS,
    Draft,
    Program,
    dmas,
    ints,
    pair,
    stack,
    zeros,
)

KIND = "store-to-inflight-dst"


@pair("AO203")
def clears_the_buffer_too_late(draft: Draft) -> Program:
    def kernel(x_hbm, o_ref, buf, sem):
        copy = pltpu.make_async_copy(x_hbm, buf, sem)
        if not draft.wrong:
            zeros(buf)
        copy.start()
        if draft.wrong:
            buf[...] = jnp.zeros_like(buf)  # BUG
        copy.wait()
        o_ref[...] = buf[...]

    return draft.call(kernel, [ROWS], [BUFFER, DMA])


@pair("AO203")
def pads_over_the_edge(draft: Draft) -> Program:
    """Eight rows arrive in the middle of a padded buffer; the padding reaches a row too far."""

    def kernel(x_hbm, o_ref, buf, sem):
        copy = pltpu.make_async_copy(x_hbm, buf.at[pl.ds(8, 8)], sem)
        copy.start()
        size = 9 if draft.wrong else 8
        buf[pl.ds(0, size)] = jnp.zeros((size, 128), jnp.float32)  # BUG
        buf[pl.ds(16, 8)] = jnp.zeros((8, 128), jnp.float32)
        copy.wait()
        o_ref[...] = buf[...]

    out = pltpu.VMEM((24, 128), jnp.float32)
    return draft.call(kernel, [ROWS], [out, DMA], out=jnp.zeros((24, 128)).aval)


@pair("AO203")
def marks_the_wrong_slot_as_used(draft: Draft) -> Program:
    def kernel(x_hbm, o_ref, buf, sems):
        def copy(i):
            return pltpu.make_async_copy(x_hbm.at[i], buf.at[lax.rem(i, 2)], sems.at[lax.rem(i, 2)])

        zeros(o_ref)
        copy(0).start()

        def body(i, _):
            pl.when(i + 1 < 5)(lambda: copy(i + 1).start())
            copy(i).wait()
            o_ref[...] += buf[lax.rem(i, 2)]
            used = lax.rem(i + 1, 2) if draft.wrong else lax.rem(i, 2)
            buf[used] = jnp.zeros((8, 128), jnp.float32)  # BUG

        lax.fori_loop(0, 5, body, None)

    return draft.call(kernel, [stack(5)], [PAIR, dmas(2)])


@pair("AO203")
def masks_rows_past_a_length(draft: Draft) -> Program:
    """Rows past a length that the caller gives are cleared, where a copy is on its way, if there are any."""

    def kernel(length, x_hbm, o_ref, buf, sem):
        copy = pltpu.make_async_copy(x_hbm, buf, sem)
        copy.start()
        if not draft.wrong:
            copy.wait()

        @pl.when(length[0] < 8)
        def _():
            buf[pl.ds(7, 1)] = jnp.zeros((1, 128), jnp.float32)  # BUG

        if draft.wrong:
            copy.wait()
        o_ref[...] = buf[...]

    return draft.call(kernel, [ints(8), ROWS], [BUFFER, DMA])
