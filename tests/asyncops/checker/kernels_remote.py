"""Small kernels of a ring of devices, each wrong in one place, and right where that place is edited.

The line of the finding ends in ``# finds AO...``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

Program = tuple[Callable[..., Any], tuple[Any, ...]]
Build = Callable[[bool], Program]

DEVICES = 5  # with fewer, the barriers of a ring of neighbours cannot be a call apart
ROWS = jax.ShapeDtypeStruct((8, 128), jnp.float32)
BUFFER = pltpu.VMEM((8, 128), jnp.float32)
DMA, COUNTER = pltpu.SemaphoreType.DMA(()), pltpu.SemaphoreType.REGULAR(())


def ring(kernel: Callable[..., Any], scratch: Sequence[Any], *, has_barrier: bool = False) -> Program:
    """The kernel on every device of a ring."""
    fn = pl.pallas_call(
        kernel, out_shape=ROWS, scratch_shapes=list(scratch),
        compiler_params=pltpu.CompilerParams(collective_id=0 if has_barrier else None),
    )  # fmt: skip
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:DEVICES]), ("x",))
    spec = jax.sharding.PartitionSpec("x")
    mapped = jax.shard_map(fn, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    return mapped, (jax.ShapeDtypeStruct((DEVICES * 8, 128), jnp.float32),)


def neighbours() -> tuple[Any, Any]:
    """The devices on the left and on the right."""
    me = lax.axis_index("x")
    return lax.rem(me + DEVICES - 1, DEVICES), lax.rem(me + 1, DEVICES)


def hears_from_the_wrong_neighbour(wrong: bool) -> Program:
    def kernel(x_ref, o_ref, send, receive):
        left, right = neighbours()
        barrier = pltpu.get_barrier_semaphore()
        pl.semaphore_signal(barrier, 1, device_id={"x": right if wrong else left})
        pl.semaphore_wait(barrier, 1)
        copy = pltpu.make_async_remote_copy(x_ref, o_ref, send, receive, device_id={"x": right})
        copy.start()  # finds AO401
        copy.wait()

    return ring(kernel, [DMA, DMA], has_barrier=True)


def sends_before_the_slot_is_free(wrong: bool) -> Program:
    def kernel(x_ref, o_ref, slot, send, receive, capacity):
        left, right = neighbours()
        for step in range(3):
            copy = pltpu.make_async_remote_copy(x_ref, slot, send, receive.at[step], device_id={"x": right})
            if step and not wrong:
                pl.semaphore_wait(capacity, 1)
            copy.start()  # finds AO402
            copy.wait()
            o_ref[...] += slot[...]
            if step < 2 and not wrong:
                pl.semaphore_signal(capacity, 1, device_id={"x": left})

    return ring(kernel, [BUFFER, DMA, pltpu.SemaphoreType.DMA((3,)), COUNTER])


def leaves_before_the_copy_came(wrong: bool) -> Program:
    def kernel(x_ref, o_ref, send, receive):
        _, right = neighbours()
        copy = pltpu.make_async_remote_copy(x_ref, o_ref, send, receive, device_id={"x": right})
        copy.start()  # finds AO403
        copy.wait_send()
        if not wrong:
            copy.wait_recv()

    return ring(kernel, [DMA, DMA])


def _handshake(semaphore: Any) -> None:
    for device in neighbours():
        pl.semaphore_signal(semaphore, 1, device_id={"x": device})
    pl.semaphore_wait(semaphore, 2)


def meets_its_own_barrier(wrong: bool) -> Program:
    def greeting(x_ref, o_ref):
        _handshake(pltpu.get_barrier_semaphore())
        o_ref[...] = x_ref[...]

    def exchange(x_ref, o_ref, send, receive, done):
        _handshake(pltpu.get_barrier_semaphore())
        _, right = neighbours()
        copy = pltpu.make_async_remote_copy(x_ref, o_ref, send, receive, device_id={"x": right})
        copy.start()  # finds AO404
        copy.wait()
        if not wrong:
            _handshake(done)

    first, args = ring(greeting, [], has_barrier=True)
    fn, _ = ring(exchange, [DMA, DMA, COUNTER], has_barrier=True)
    return (lambda x: fn(fn(first(x)))), args


CASES: dict[str, tuple[Build, ...]] = {
    "AO401": (hears_from_the_wrong_neighbour,),
    "AO402": (sends_before_the_slot_is_free,),
    "AO403": (leaves_before_the_copy_came,),
    "AO404": (meets_its_own_barrier,),
}
