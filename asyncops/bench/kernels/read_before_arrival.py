"""A buffer is read while the copy into it may still be running."""

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
    Draft,
    Program,
    dmas,
    ints,
    pair,
    slots,
    stack,
    zeros,
)

KIND = "read-before-arrival"


@pair("AO201")
def adds_a_bias_before_it_came(draft: Draft) -> Program:
    def kernel(x_hbm, bias_hbm, o_ref, x, bias, sems):
        loads = [
            pltpu.make_async_copy(s, d, sems.at[i]) for i, (s, d) in enumerate([(x_hbm, x), (bias_hbm, bias)])
        ]
        for load in loads:
            load.start()
        loads[0].wait()
        if not draft.wrong:
            loads[1].wait()
        o_ref[...] = x[...] + bias[...]  # BUG
        if draft.wrong:
            loads[1].wait()

    return draft.call(kernel, [ROWS, ROWS], [BUFFER, BUFFER, dmas(2)])


@pair("AO201")
def takes_the_later_copy_for_proof(draft: Draft) -> Program:
    """Copies need not finish in the order in which they started."""

    def kernel(x_hbm, o_ref, buf, sems):
        copies = [pltpu.make_async_copy(x_hbm.at[i], buf.at[i], sems.at[i]) for i in range(3)]
        for copy in copies:
            copy.start()
        order = (2, 1, 0) if draft.wrong else (0, 1, 2)
        total = jnp.zeros((8, 128), jnp.float32)
        for i in range(3):
            copies[order[i]].wait()
            total += buf[i]  # BUG
        o_ref[...] = total

    return draft.call(kernel, [stack(3)], [slots(3), dmas(3)])


@pair("AO201")
def forwards_what_has_not_come(draft: Draft) -> Program:
    def kernel(x_hbm, o_hbm, buf, in_sem, out_sem):
        load = pltpu.make_async_copy(x_hbm, buf, in_sem)
        store = pltpu.make_async_copy(buf, o_hbm, out_sem)
        load.start()
        if not draft.wrong:
            load.wait()
        store.start()  # BUG
        if draft.wrong:
            load.wait()
        store.wait()

    return draft.call(kernel, [ROWS], [BUFFER, DMA, DMA], outs=HBM)


@pair("AO201")
def reads_the_other_half_too(draft: Draft) -> Program:
    """Two copies fill the halves of a buffer; the reader of the whole has waited for one of them."""

    def kernel(x_hbm, o_ref, buf, sems):
        upper = pltpu.make_async_copy(x_hbm.at[0], buf.at[pl.ds(0, 8)], sems.at[0])
        lower = pltpu.make_async_copy(x_hbm.at[1], buf.at[pl.ds(8, 8)], sems.at[1])
        upper.start()
        lower.start()
        upper.wait()
        rows = pl.ds(4, 8) if draft.wrong else pl.ds(0, 8)
        o_ref[...] = buf[rows]  # BUG
        lower.wait()

    return draft.call(kernel, [stack(2)], [pltpu.VMEM((16, 128), jnp.float32), dmas(2)])


@pair("AO201")
def looks_at_the_slot_of_the_prefetch(draft: Draft) -> Program:
    def kernel(x_hbm, o_ref, buf, sems):
        def copy(i, slot):
            return pltpu.make_async_copy(x_hbm.at[i], buf.at[slot], sems.at[slot])

        zeros(o_ref)
        copy(0, 0).start()

        def body(i, _):
            slot = lax.rem(i, 2)

            @pl.when(i + 1 < 6)
            def _():
                copy(i + 1, 1 - slot).start()

            copy(i, slot).wait()
            o_ref[...] += buf[1 - slot if draft.wrong else slot]  # BUG

        lax.fori_loop(0, 6, body, None)

    return draft.call(kernel, [stack(6)], [PAIR, dmas(2)])


@pair("AO201")
def skips_the_wait_when_told_to(draft: Draft) -> Program:
    """The path on which the wait is late is not the one that the example arguments take."""

    def kernel(late_ref, x_hbm, o_ref, buf, sem):
        copy = pltpu.make_async_copy(x_hbm, buf, sem)
        copy.start()
        late = late_ref[0] > 0

        if draft.wrong:
            pl.when(jnp.logical_not(late))(copy.wait)
        else:
            copy.wait()

        o_ref[...] = buf[...] * 2.0  # BUG

        if draft.wrong:
            pl.when(late)(copy.wait)

    return draft.call(kernel, [ints(0), ROWS], [BUFFER, DMA])


@pair("AO201")
def gathers_pages_by_a_table(draft: Draft) -> Program:
    def kernel(table, pool_hbm, o_ref, buf, sems):
        def page(i):
            return pltpu.make_async_copy(pool_hbm.at[table[i]], buf.at[i], sems.at[i])

        for i in range(4):
            page(i).start()
        for i in range(4):
            if draft.wrong:
                o_ref[i] = buf[i]  # BUG
            page(i).wait()
            if not draft.wrong:
                o_ref[i] = buf[i]

    return draft.call(kernel, [ints(5, 0, 3, 2), stack(8)], [slots(4), dmas(4)], out=stack(4))


@pair("AO201")
def reads_in_the_step_before_the_wait(draft: Draft) -> Program:
    """A copy that one grid step starts and the next one waits for, through scratch."""

    def kernel(x_hbm, o_ref, buf, sem):
        step, last = pl.program_id(0), pl.num_programs(0) - 1
        copy = pltpu.make_async_copy(x_hbm, buf, sem)
        pl.when(step == 0)(copy.start)
        if not draft.wrong:
            pl.when(step == last)(copy.wait)

        @pl.when(step == last)
        def _():
            o_ref[...] = buf[...]  # BUG

        if draft.wrong:
            pl.when(step == last)(copy.wait)

    return draft.call(kernel, [ROWS], [BUFFER, DMA], grid=(3,))
