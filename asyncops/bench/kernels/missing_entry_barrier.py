"""A remote write or signal can reach a device that has not entered the kernel."""

from __future__ import annotations

from typing import Any

from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from asyncops.bench.cases import (
    COUNTER,
    DMA,
    ROWS,
    VMEM,
    Draft,
    Program,
    pair,
)

KIND = "missing-entry-barrier"
N = 4


def _greet(*peers: Any) -> None:
    """Tells the peers that this device is in the kernel, and waits for as many."""
    barrier = pltpu.get_barrier_semaphore()
    for peer in peers:
        pl.semaphore_signal(barrier, 1, device_id={"x": peer})
    pl.semaphore_wait(barrier, len(peers))


@pair("AO401")
def greets_after_the_copy(draft: Draft) -> Program:
    def kernel(x_ref, o_ref, send, receive):
        me = lax.axis_index("x")
        left, right = lax.rem(me + N - 1, N), lax.rem(me + 1, N)
        if not draft.wrong:
            _greet(left, right)
        copy = pltpu.make_async_remote_copy(x_ref, o_ref, send, receive, device_id={"x": right})
        copy.start()  # BUG
        copy.wait()
        if draft.wrong:
            _greet(left, right)

    return draft.on_mesh(kernel, [ROWS], [DMA, DMA], ins=[VMEM], barrier=True)


@pair("AO401")
def turns_the_barrier_off(draft: Draft) -> Program:
    def kernel(x_ref, o_ref, send, receive):
        right = lax.rem(lax.axis_index("x") + 1, N)
        copy = pltpu.make_async_remote_copy(x_ref, o_ref, send, receive, device_id={"x": right})
        copy.start()  # BUG
        copy.wait()

    return draft.on_mesh(kernel, [ROWS], [DMA, DMA], ins=[VMEM], skip_device_barrier=draft.wrong)


@pair("AO401")
def greets_the_left_and_sends_to_the_far_side(draft: Draft) -> Program:
    """The handshake is with the neighbours; the copy goes two devices on."""

    def kernel(x_ref, o_ref, send, receive):
        me = lax.axis_index("x")
        if draft.wrong:
            _greet(lax.rem(me + N - 1, N), lax.rem(me + 1, N))
        else:
            _greet(lax.rem(me + 2, N))
        copy = pltpu.make_async_remote_copy(x_ref, o_ref, send, receive, device_id={"x": lax.rem(me + 2, N)})
        copy.start()  # BUG
        copy.wait()

    return draft.on_mesh(kernel, [ROWS], [DMA, DMA], ins=[VMEM], barrier=True)


@pair("AO401")
def signals_scratch_of_one_that_may_be_late(draft: Draft) -> Program:
    def kernel(x_ref, o_ref, sem):
        me = lax.axis_index("x")
        left, right = lax.rem(me + N - 1, N), lax.rem(me + 1, N)
        _greet(*((left,) if draft.wrong else (left, right)))
        pl.semaphore_signal(sem, 1, device_id={"x": left})  # BUG
        o_ref[...] = x_ref[...]
        pl.semaphore_wait(sem, 1)

    return draft.on_mesh(kernel, [ROWS], [COUNTER], ins=[VMEM], barrier=True)


@pair("AO401")
def greets_its_row_and_sends_down_its_column(draft: Draft) -> Program:
    """A grid of two by two devices."""

    def kernel(x_ref, o_ref, send, receive):
        x, y = lax.axis_index("x"), lax.axis_index("y")
        below: Any = {"x": 1 - x, "y": y}
        beside: Any = {"x": x, "y": 1 - y}
        barrier = pltpu.get_barrier_semaphore()
        pl.semaphore_signal(barrier, 1, device_id=beside if draft.wrong else below)
        pl.semaphore_wait(barrier, 1)
        copy = pltpu.make_async_remote_copy(x_ref, o_ref, send, receive, device_id=below)
        copy.start()  # BUG
        copy.wait()

    return draft.on_mesh(kernel, [ROWS], [DMA, DMA], shape=(2, 2), ins=[VMEM], barrier=True)
