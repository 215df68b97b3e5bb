"""One device of several does something else."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from asyncops.bench.cases import (
    BUFFER,
    DMA,
    ROWS,
    VMEM,
    Draft,
    Program,
    pair,
)

KIND = "third-device-only"
N = 4


@pair("AO201")
def reads_early_on_device_two(draft: Draft) -> Program:
    def kernel(x_ref, o_ref, inbox, send, receive):
        me = lax.axis_index("x")
        copy = pltpu.make_async_remote_copy(x_ref, inbox, send, receive, device_id={"x": lax.rem(me + 1, N)})
        copy.start()
        copy.wait_send()
        if draft.wrong:
            pl.when(me != 2)(copy.wait_recv)
        else:
            copy.wait_recv()
        o_ref[...] = inbox[...]  # BUG
        if draft.wrong:
            pl.when(me == 2)(copy.wait_recv)

    return draft.on_mesh(kernel, [ROWS], [BUFFER, DMA, DMA], ins=[VMEM])


@pair("AO303", "AO103", "AO101", "AO403")
def has_no_partner_for_the_last(draft: Draft) -> Program:
    """Pairs of devices of three."""
    n = 3 if draft.wrong else 4

    def kernel(x_ref, o_ref, send, receive):
        me = lax.axis_index("x")
        even = lax.rem(me, 2) == 0
        partner = jnp.minimum(jnp.where(even, me + 1, me - 1), n - 1)

        def copy():
            return pltpu.make_async_remote_copy(x_ref, o_ref, send, receive, device_id={"x": partner})

        pl.when(partner != me)(lambda: copy().start())
        copy().wait()  # BUG

    return draft.on_mesh(kernel, [ROWS], [DMA, DMA], shape=(n,), ins=[VMEM])


@pair("AO202", "AO204")
def clears_its_source_on_the_first_device(draft: Draft) -> Program:
    def kernel(x_ref, o_ref, buf, send, receive):
        me = lax.axis_index("x")
        buf[...] = x_ref[...]
        copy = pltpu.make_async_remote_copy(buf, o_ref, send, receive, device_id={"x": lax.rem(me + 1, N)})
        copy.start()
        if not draft.wrong:
            copy.wait_send()

        @pl.when(me == 0)
        def _():
            buf[...] = jnp.zeros_like(buf)  # BUG

        if draft.wrong:
            copy.wait_send()
        copy.wait_recv()

    return draft.on_mesh(kernel, [ROWS], [BUFFER, DMA, DMA], ins=[VMEM])
