"""The amounts waited for on a semaphore balance no set of copies."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from asyncops.bench.cases import (
    DMA,
    PAIR,
    ROWS,
    Draft,
    Program,
    ints,
    pair,
    slots,
    stack,
    zeros,
)

KIND = "wrong-wait-size"


@pair("AO104", "AO301", "AO201")
def waits_for_one_page_of_four(draft: Draft) -> Program:
    def kernel(table, pool_hbm, o_ref, buf, sem):
        for i in range(4):
            pltpu.make_async_copy(pool_hbm.at[table[i]], buf.at[i], sem).start()
        arrived = buf.at[0] if draft.wrong else buf
        pltpu.make_async_copy(arrived, arrived, sem).wait()  # BUG
        o_ref[...] = jnp.sum(buf[...], axis=0)

    return draft.call(kernel, [ints(3, 1, 0, 2), stack(6)], [slots(4), DMA])


@pair("AO104", "AO303")
def waits_for_more_than_comes(draft: Draft) -> Program:
    def kernel(x_hbm, o_ref, buf, sem):
        pltpu.make_async_copy(x_hbm, buf.at[0], sem).start()
        arrived = buf if draft.wrong else buf.at[0]
        pltpu.make_async_copy(arrived, arrived, sem).wait()  # BUG
        o_ref[...] = buf[0]

    return draft.call(kernel, [ROWS], [PAIR, DMA])


@pair("AO104", "AO301", "AO201")
def takes_half_twice_but_once(draft: Draft) -> Program:
    """A copy may be retired in pieces, but in all of them."""

    def kernel(x_hbm, o_ref, buf, sem):
        pltpu.make_async_copy(x_hbm, buf, sem).start()
        for i in range(1 if draft.wrong else 2):
            half = buf.at[pl.ds(8 * i, 8)]
            pltpu.make_async_copy(half, half, sem).wait()  # BUG
        o_ref[...] = buf[...]

    array = jax.ShapeDtypeStruct((16, 128), jnp.float32)
    return draft.call(kernel, [array], [pltpu.VMEM((16, 128), jnp.float32), DMA], out=array)


@pair("AO104", "AO303", "AO301")
def counts_elements_of_another_type(draft: Draft) -> Program:
    """As many elements, half as many bytes."""

    def kernel(x_hbm, o_ref, buf, narrow, sem):
        pltpu.make_async_copy(x_hbm, buf, sem).start()
        arrived = narrow if draft.wrong else buf
        pltpu.make_async_copy(arrived, arrived, sem).wait()  # BUG
        o_ref[...] = buf[...]

    array = jax.ShapeDtypeStruct((16, 128), jnp.float32)
    scratch = [pltpu.VMEM((16, 128), jnp.float32), pltpu.VMEM((16, 128), jnp.bfloat16), DMA]
    return draft.call(kernel, [array], scratch, out=array)


@pair("AO104", "AO301", "AO201")
def waits_for_a_row_less(draft: Draft) -> Program:
    """The number of rows comes from the caller; the wait rounds it down."""

    def kernel(count, x_hbm, o_ref, buf, sem):
        zeros(buf)
        n = jnp.clip(count[0], 1, 4)

        def page(i):
            return pltpu.make_async_copy(x_hbm.at[i], buf.at[i], sem)

        lax.fori_loop(0, n, lambda i, _: page(i).start(), None)
        lax.fori_loop(1 if draft.wrong else 0, n, lambda i, _: page(i).wait(), None)  # BUG
        o_ref[...] = buf[0]  # BUG

    return draft.call(kernel, [ints(3), stack(4)], [slots(4), DMA])
