"""Which kernels the compiler gives an entry barrier of its own: the machine model's source, compiled."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import asyncops

DEVICES = 4
SHARD = jax.ShapeDtypeStruct((8, 128), jnp.float32)


def shifted(barrier: str, collective_id: int | None) -> Any:
    """Each device's shard on its right neighbour, behind a barrier of some kind."""

    def kernel(x, y, send_sem, recv_sem, *semaphores):
        right = lax.rem(lax.axis_index("x") + 1, DEVICES)
        if barrier == "get_barrier_semaphore":
            semaphores = (pltpu.get_barrier_semaphore(),)
        for semaphore in semaphores:
            pl.semaphore_signal(semaphore, 1, device_id={"x": right})
            pl.semaphore_wait(semaphore, 1)
        copy = pltpu.make_async_remote_copy(x, y, send_sem, recv_sem, device_id={"x": right})
        copy.start()
        copy.wait()

    scratch = [pltpu.SemaphoreType.DMA, pltpu.SemaphoreType.DMA]
    if barrier == "scratch":
        scratch.append(pltpu.SemaphoreType.BARRIER)
    anywhere = pl.BlockSpec(memory_space=pl.ANY)
    call = pl.pallas_call(
        kernel,
        out_shape=SHARD,
        in_specs=[anywhere],
        out_specs=anywhere,
        scratch_shapes=scratch,
        compiler_params=pltpu.CompilerParams(collective_id=collective_id),
    )
    mesh = Mesh(np.array(jax.devices()[:DEVICES]), ("x",))
    return jax.shard_map(call, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False)


@pytest.mark.tpu_compile
@pytest.mark.parametrize(
    ("barrier", "collective_id", "is_custom"),
    [("none", None, False), ("get_barrier_semaphore", 0, True), ("scratch", None, False)],
)
def test_only_get_barrier_semaphore_replaces_the_entry_barrier(barrier, collective_id, is_custom):
    """A scratch semaphore of barrier type does not: the compiler takes no ``collective_id`` for such a kernel."""
    shape = jax.ShapeDtypeStruct((DEVICES * SHARD.shape[0], *SHARD.shape[1:]), SHARD.dtype)
    text = asyncops.compile_for("v5e:2x2", shifted(barrier, collective_id), shape).as_text()
    assert '"has_communication":true' in text
    assert ('"barrier_type":"CUSTOM"' in text) is is_custom
    # A signal from the left neighbour says nothing of the right one; the compiler's barrier speaks of all.
    codes = {d.code for d in asyncops.check(shifted(barrier, collective_id), shape).diagnostics}
    assert codes == ({"AO401"} if is_custom else set())
