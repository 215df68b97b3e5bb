"""A race that the order cannot exclude, but no schedule has, is no finding."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import asyncops

DEVICES = 3


def exchange(barriers: int) -> Any:
    """Clears its mailbox, meets everybody, writes into the right neighbour's mailbox, and meets everybody again.

    A full barrier that is used twice holds by a circular argument: nobody can be a round ahead of anybody.
    """

    def kernel(x_ref: Any, o_ref: Any, mail: Any, sent: Any, arrived: Any) -> None:
        me = lax.axis_index("x")
        barrier = pltpu.get_barrier_semaphore()

        def meet() -> None:
            for step in range(1, DEVICES):
                pl.semaphore_signal(barrier, 1, device_id={"x": lax.rem(me + step, DEVICES)})
            pl.semaphore_wait(barrier, DEVICES - 1)

        def send() -> None:
            right = lax.rem(me + 1, DEVICES)
            copy = pltpu.make_async_remote_copy(x_ref, mail, sent, arrived, device_id={"x": right})
            copy.start()
            copy.wait()

        mail[...] = jnp.zeros_like(mail)
        for _ in range(barriers):
            meet()
        send()
        o_ref[...] = mail[...]
        meet()

    call = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((8, 128), jnp.float32),
        in_specs=[pl.BlockSpec(memory_space=pltpu.VMEM)],
        out_specs=pl.BlockSpec(memory_space=pltpu.VMEM),
        scratch_shapes=[pltpu.VMEM((8, 128), jnp.float32), pltpu.SemaphoreType.DMA, pltpu.SemaphoreType.DMA],
        compiler_params=pltpu.CompilerParams(collective_id=0),
    )
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:DEVICES]), ("x",))
    spec = jax.sharding.PartitionSpec("x")
    return jax.shard_map(call, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)


@pytest.mark.parametrize(("barriers", "verdict"), [(0, "findings"), (1, "clean")])
def test_a_full_barrier_used_twice_holds(barriers: int, verdict: str) -> None:
    report = asyncops.check(exchange(barriers), jax.ShapeDtypeStruct((DEVICES * 8, 128), jnp.float32))
    assert report.verdict == verdict, str(report)
