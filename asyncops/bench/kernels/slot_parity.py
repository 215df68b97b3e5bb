"""The rotation of the slots does not fit the distance of the prefetch."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from asyncops.bench.cases import (
    HBM,
    PAIR,
    Draft,
    Program,
    dmas,
    pair,
    slots,
    stack,
    zeros,
)

KIND = "slot-parity"


@pair("AO204", "AO201", "AO202", "AO203")
def looks_as_far_ahead_as_it_has_slots(draft: Draft) -> Program:
    def kernel(x_hbm, o_ref, buf, sems):
        def copy(i):
            return pltpu.make_async_copy(x_hbm.at[i], buf.at[lax.rem(i, 3)], sems.at[lax.rem(i, 3)])

        zeros(o_ref)
        ahead = 3 if draft.wrong else 2
        for i in range(ahead):
            copy(i).start()

        def body(i, _):
            pl.when(i + ahead < 9)(lambda: copy(i + ahead).start())  # BUG
            copy(i).wait()
            o_ref[...] += buf[lax.rem(i, 3)]

        lax.fori_loop(0, 9, body, None)

    return draft.call(kernel, [stack(9)], [slots(3), dmas(3)])


@pair("AO204", "AO201", "AO202", "AO203")
def fetches_before_it_has_read(draft: Draft) -> Program:
    """As far ahead as there are slots is right after the slot was read, and wrong before."""

    def kernel(x_hbm, o_ref, buf, sems):
        def copy(i):
            return pltpu.make_async_copy(x_hbm.at[i], buf.at[lax.rem(i, 2)], sems.at[lax.rem(i, 2)])

        zeros(o_ref)
        copy(0).start()
        copy(1).start()

        def body(i, _):
            copy(i).wait()

            def fetch():
                pl.when(i + 2 < 7)(lambda: copy(i + 2).start())  # BUG

            if draft.wrong:
                fetch()
            o_ref[...] += buf[lax.rem(i, 2)]  # BUG
            if not draft.wrong:
                fetch()

        lax.fori_loop(0, 7, body, None)

    return draft.call(kernel, [stack(7)], [PAIR, dmas(2)])


@pair("AO204", "AO201", "AO202", "AO203", "AO101", "AO103", "AO303")
def restarts_its_slots_in_every_row(draft: Draft) -> Program:
    """The last block of a row of five lies in slot 0, where the first of the next row goes."""
    rows, blocks = 3, 5 if draft.wrong else 4

    def kernel(x_hbm, o_ref, buf, sems):
        def copy(row, i):
            slot = lax.rem(i, 2)
            return pltpu.make_async_copy(x_hbm.at[row, i], buf.at[slot], sems.at[slot])

        zeros(o_ref)
        copy(0, 0).start()

        def body(t, _):
            row, i = lax.div(t, blocks), lax.rem(t, blocks)
            pl.when(i + 1 < blocks)(lambda: copy(row, i + 1).start())
            pl.when((i + 1 == blocks) & (row + 1 < rows))(lambda: copy(row + 1, 0).start())  # BUG
            copy(row, i).wait()
            o_ref[...] += buf[lax.rem(i, 2)]

        lax.fori_loop(0, rows * blocks, body, None)

    return draft.call(kernel, [stack(rows, blocks)], [PAIR, dmas(2)])


@pair("AO202", "AO204")
def counts_its_slot_in_memory_and_forgets_to(draft: Draft) -> Program:
    """The slot is kept in SMEM between grid steps."""

    def kernel(x_ref, o_hbm, slot_ref, buf, sems):
        step, last = pl.program_id(0), pl.num_programs(0) - 1

        @pl.when(step == 0)
        def _():
            slot_ref[0] = 0

        slot = slot_ref[0]

        def store(i, where):
            return pltpu.make_async_copy(buf.at[where], o_hbm.at[i], sems.at[lax.rem(i, 2)])

        buf[slot] = x_ref[...]  # BUG
        store(step, slot).start()
        pl.when(step > 0)(lambda: store(step - 1, 1 - slot).wait())
        if not draft.wrong:
            slot_ref[0] = 1 - slot
        pl.when(step == last)(lambda: store(step, slot).wait())

    return draft.call(
        kernel, [stack(6)], [pltpu.SMEM((1,), jnp.int32), PAIR, dmas(2)],
        ins=[pl.BlockSpec((None, 8, 128), lambda i: (i, 0, 0))], out=stack(6), outs=HBM, grid=(6,),
    )  # fmt: skip
