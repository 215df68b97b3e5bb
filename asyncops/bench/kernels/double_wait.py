"""One copy is waited for twice."""

from __future__ import annotations

from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from asyncops.bench.cases import (
    BUFFER,
    DMA,
    HBM,
    ROWS,
    VMEM,
    Draft,
    Program,
    ints,
    pair,
    stack,
)

KIND = "double-wait"


@pair("AO102", "AO303")
def waits_where_it_reads_and_at_the_end(draft: Draft) -> Program:
    def kernel(x_hbm, o_ref, buf, sem):
        copy = pltpu.make_async_copy(x_hbm, buf, sem)
        copy.start()
        copy.wait()
        o_ref[...] = buf[...]
        if draft.wrong:
            copy.wait()  # BUG

    return draft.call(kernel, [ROWS], [BUFFER, DMA])


@pair("AO102", "AO303")
def drains_what_the_loop_has_drained(draft: Draft) -> Program:
    def kernel(x_ref, o_hbm, sem):
        def store(i):
            return pltpu.make_async_copy(x_ref.at[i], o_hbm.at[i], sem)

        def body(i, _):
            store(i).start()
            store(i).wait()

        lax.fori_loop(0, 4, body, None)
        if draft.wrong:
            store(3).wait()  # BUG

    return draft.call(kernel, [stack(4)], [DMA], ins=[VMEM], out=stack(4), outs=HBM)


@pair("AO102", "AO303")
def waits_again_if_asked_to_check(draft: Draft) -> Program:
    def kernel(check, x_hbm, o_ref, buf, sem):
        copy = pltpu.make_async_copy(x_hbm, buf, sem)
        copy.start()
        copy.wait()

        @pl.when(check[0] != 0)
        def _():
            if draft.wrong:
                copy.wait()  # BUG
            buf[...] += 1.0

        o_ref[...] = buf[...]

    return draft.call(kernel, [ints(0), ROWS], [BUFFER, DMA])


@pair("AO102", "AO303")
def waits_for_the_departure_once_more(draft: Draft) -> Program:
    """wait() on a remote copy has waited for both halves."""

    def kernel(x_ref, o_ref, send, receive):
        right = lax.rem(lax.axis_index("x") + 1, 4)
        copy = pltpu.make_async_remote_copy(x_ref, o_ref, send, receive, device_id={"x": right})
        copy.start()
        copy.wait()
        if draft.wrong:
            copy.wait_send()  # BUG

    return draft.on_mesh(kernel, [ROWS], [DMA, DMA], ins=[VMEM])
