"""The wait names another semaphore than the copy."""

from __future__ import annotations

from jax import lax
from jax.experimental.pallas import tpu as pltpu

from asyncops.bench.cases import (
    BUFFER,
    DMA,
    HBM,
    PAIR,
    ROWS,
    VMEM,
    Draft,
    Program,
    dmas,
    pair,
    stack,
    zeros,
)

KIND = "wrong-semaphore"


@pair("AO105", "AO201")
def exchanges_two_semaphores(draft: Draft) -> Program:
    def kernel(x_hbm, y_hbm, o_ref, buf, sems):
        a, b = (1, 0) if draft.wrong else (0, 1)
        pltpu.make_async_copy(x_hbm, buf.at[0], sems.at[0]).start()
        pltpu.make_async_copy(y_hbm, buf.at[1], sems.at[1]).start()
        pltpu.make_async_copy(x_hbm, buf.at[0], sems.at[a]).wait()  # BUG
        o_ref[...] = buf[0]
        pltpu.make_async_copy(y_hbm, buf.at[1], sems.at[b]).wait()  # BUG
        o_ref[...] += buf[1]

    return draft.call(kernel, [ROWS, ROWS], [PAIR, dmas(2)])


@pair("AO105", "AO303", "AO101")
def waits_for_the_store_on_the_load(draft: Draft) -> Program:
    def kernel(x_hbm, o_hbm, buf, in_sem, out_sem):
        load = pltpu.make_async_copy(x_hbm, buf, in_sem)
        load.start()
        load.wait()
        pltpu.make_async_copy(buf, o_hbm, out_sem).start()
        pltpu.make_async_copy(buf, o_hbm, in_sem if draft.wrong else out_sem).wait()  # BUG

    return draft.call(kernel, [ROWS], [BUFFER, DMA, DMA], outs=HBM)


@pair("AO105", "AO303", "AO101")
def uses_the_semaphore_of_the_other_slot(draft: Draft) -> Program:
    def kernel(x_hbm, o_ref, buf, sems):
        zeros(o_ref)

        def body(i, _):
            slot = lax.rem(i, 2)
            copy = pltpu.make_async_copy(x_hbm.at[i], buf.at[slot], sems.at[slot])
            copy.start()
            other = sems.at[1 - slot if draft.wrong else slot]
            pltpu.make_async_copy(x_hbm.at[i], buf.at[slot], other).wait()  # BUG
            o_ref[...] += buf[slot]

        lax.fori_loop(0, 4, body, None)

    return draft.call(kernel, [stack(4)], [PAIR, dmas(2)])


@pair("AO105", "AO103", "AO101", "AO303")
def sends_on_the_receiving_semaphore(draft: Draft) -> Program:
    """The halves of a remote copy the other way round."""

    def kernel(x_ref, o_ref, sems):
        right = lax.rem(lax.axis_index("x") + 1, 4)

        def copy(send, receive):
            return pltpu.make_async_remote_copy(
                x_ref, o_ref, sems.at[send], sems.at[receive], device_id={"x": right}
            )

        copy(0, 1).start()
        copy(0, 2 if draft.wrong else 1).wait()  # BUG

    return draft.on_mesh(kernel, [ROWS], [dmas(3)], ins=[VMEM])
