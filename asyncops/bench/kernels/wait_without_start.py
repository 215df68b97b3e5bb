"""A wait has no start on some path."""

from __future__ import annotations

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
    stack,
    zeros,
)

KIND = "wait-without-start"


@pair("AO103", "AO303")
def waits_unconditionally(draft: Draft) -> Program:
    def kernel(flag, x_hbm, o_ref, buf, sem):
        copy = pltpu.make_async_copy(x_hbm, buf, sem)
        zeros(buf)
        pl.when(flag[0] > 0)(copy.start)
        if draft.wrong:
            copy.wait()  # BUG
        else:
            pl.when(flag[0] > 0)(copy.wait)
        o_ref[...] = buf[...]

    return draft.call(kernel, [ints(1), ROWS], [BUFFER, DMA])


@pair("AO103", "AO303")
def assumes_that_there_is_a_block(draft: Draft) -> Program:
    """With no blocks at all the first copy is never started."""

    def kernel(count, x_hbm, o_ref, buf, sem):
        zeros(o_ref)
        copy = pltpu.make_async_copy(x_hbm.at[0], buf, sem)
        pl.when(count[0] >= 1)(copy.start)

        @pl.when(count[0] >= (0 if draft.wrong else 1))
        def _():
            copy.wait()  # BUG
            o_ref[...] = buf[...]

    return draft.call(kernel, [ints(2), stack(2)], [BUFFER, DMA])


@pair("AO103", "AO303")
def waits_for_the_step_before_the_first(draft: Draft) -> Program:
    def kernel(x_ref, o_hbm, buf, sem):
        step = pl.program_id(0)

        def store(i):
            return pltpu.make_async_copy(buf, o_hbm.at[i], sem)

        if draft.wrong:
            store(step).wait()  # BUG
        else:
            pl.when(step > 0)(lambda: store(step - 1).wait())
        buf[...] = x_ref[...]
        store(step).start()
        pl.when(step == pl.num_programs(0) - 1)(lambda: store(step).wait())

    return draft.call(
        kernel, [stack(3)], [BUFFER, DMA], ins=[pl.BlockSpec((None, 8, 128), lambda i: (i, 0, 0))], out=stack(3),
        outs=HBM, grid=(3,),
    )  # fmt: skip


@pair("AO103", "AO303")
def builds_the_copy_and_forgets_to_start_it(draft: Draft) -> Program:
    def kernel(x_hbm, y_hbm, o_ref, buf, sems):
        x_copy = pltpu.make_async_copy(x_hbm, buf.at[0], sems.at[0])
        y_copy = pltpu.make_async_copy(y_hbm, buf.at[1], sems.at[1])
        x_copy.start()
        if not draft.wrong:
            y_copy.start()
        x_copy.wait()
        y_copy.wait()  # BUG
        o_ref[...] = buf[0] + buf[1]

    return draft.call(kernel, [ROWS, ROWS], [PAIR, dmas(2)])
