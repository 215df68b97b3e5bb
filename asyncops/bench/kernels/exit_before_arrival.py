"""A device leaves the kernel while a remote copy into it is on its way."""

from __future__ import annotations

from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from asyncops.bench.cases import (
    BUFFER,
    DMA,
    HBM,
    ROWS,
    SMEM,
    VMEM,
    Draft,
    Program,
    dmas,
    ints,
    pair,
    stack,
)

KIND = "wait-recv-missing"
N = 4


@pair("AO403", "AO101", "AO301")
def waits_for_its_own_departure_only(draft: Draft) -> Program:
    def kernel(x_ref, o_hbm, send, receive):
        right = lax.rem(lax.axis_index("x") + 1, N)
        copy = pltpu.make_async_remote_copy(x_ref, o_hbm, send, receive, device_id={"x": right})
        copy.start()  # BUG
        copy.wait_send()
        if not draft.wrong:
            copy.wait_recv()

    return draft.on_mesh(kernel, [ROWS], [DMA, DMA], ins=[VMEM], outs=HBM)


@pair("AO403", "AO101", "AO301")
def leaves_when_a_flag_says_so(draft: Draft) -> Program:
    def kernel(flag, x_ref, o_hbm, send, receive):
        right = lax.rem(lax.axis_index("x") + 1, N)
        copy = pltpu.make_async_remote_copy(x_ref, o_hbm, send, receive, device_id={"x": right})
        copy.start()  # BUG
        copy.wait_send()
        if draft.wrong:
            pl.when(flag[0] == 0)(copy.wait_recv)
        else:
            copy.wait_recv()

    return draft.on_mesh(kernel, [ints(0), ROWS], [DMA, DMA], ins=[SMEM, VMEM], outs=HBM)


@pair("AO403", "AO101", "AO301")
def receives_three_of_four(draft: Draft) -> Program:
    """Everybody sends to device 0, which waits for one arrival too few."""

    def kernel(x_ref, o_hbm, sems):
        me = lax.axis_index("x")
        copy = pltpu.make_async_remote_copy(x_ref, o_hbm.at[me], sems.at[0], sems.at[1], device_id={"x": 0})
        copy.start()  # BUG
        copy.wait_send()

        @pl.when(me == 0)
        def _():
            for _ in range(N - 1 if draft.wrong else N):
                copy.wait_recv()

    return draft.on_mesh(kernel, [ROWS], [dmas(2)], ins=[VMEM], out=stack(N), outs=HBM)


@pair("AO403", "AO101", "AO202", "AO301")
def leaves_its_source_behind(draft: Draft) -> Program:
    """The departure is not awaited: the buffer may be reused while it is being sent."""

    def kernel(x_ref, o_hbm, buf, send, receive):
        right = lax.rem(lax.axis_index("x") + 1, N)
        buf[...] = x_ref[...] * 2.0
        copy = pltpu.make_async_remote_copy(buf, o_hbm, send, receive, device_id={"x": right})
        copy.start()  # BUG
        copy.wait_recv()
        if not draft.wrong:
            copy.wait_send()

    return draft.on_mesh(kernel, [ROWS], [BUFFER, DMA, DMA], ins=[VMEM], outs=HBM)
