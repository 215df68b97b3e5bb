"""The lowering of operations on Refs to TPU kernels, once JAX has turned the Refs into values.

The destination's buffer goes into the kernel and comes back as its result, in place. The source goes in as it is: that
keeps it alive, and claims nothing about it (`asyncops.dma`); only what the compiler might compute again or move gets a
place of its own before (`asyncops.placing`), where the done finds it, too. A slot's index is a scalar operand, so a
loop may change slots without being unrolled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from asyncops.dma import kernels, pinned, require_kernel_dtype
from asyncops.ops import SEMAPHORES
from asyncops.origins import Origin
from asyncops.placing import pin
from asyncops.ref_ops import Layout, finish_into_p, start_into_p
from asyncops.transfers import Transfer
from stateful._jax import ops as _jax

_HBM = pl.BlockSpec(memory_space=pltpu.HBM)
_SMEM = pl.BlockSpec(memory_space=pltpu.SMEM)
_SEMAPHORES = pl.BlockSpec(memory_space=pltpu.SEMAPHORE)
_PARAMS = pltpu.CompilerParams(has_side_effects=True)


class _Buffers:
    """The operands of one call as the kernel gets them: with one leading dimension that counts slots."""

    def __init__(self, operands: Sequence[jax.Array], layout: Layout) -> None:
        source, from_slot, destination, to_slot = layout.unpack(operands)
        self._layout = layout
        self._shape = destination.shape
        slots = [jnp.int32(0) if slot is None else slot for slot in (from_slot, to_slot)]
        self.slots = jnp.stack(slots)
        sent = _with_slots(source, layout.source, layout.from_slot)
        received = _with_slots(destination, layout.landing, layout.to_slot)
        self.arrays = [received] if layout.same else [sent, received]

    @property
    def landing(self) -> Any:
        """Type of the destination's buffer, pinned."""
        return pltpu.HBM(self.arrays[-1].shape, self.arrays[-1].dtype)

    def views(self, slots: Any, refs: Sequence[Any]) -> tuple[Any, Any]:
        """Source and destination inside the kernel."""
        source = refs[0].at[pl.ds(slots[0], 1)]
        return source, refs[-1].at[pl.ds(slots[1], 1)]

    def restore(self, received: jax.Array) -> jax.Array:
        """The destination's buffer in the shape in which it was given."""
        return received.reshape(self._shape)


def _with_slots(x: jax.Array, part: Sequence[int], has_slots: bool) -> jax.Array:
    return x.reshape((x.shape[0] if has_slots else 1, *part))


def _call(
    kernel: Callable[..., None], buffers: _Buffers, before: Sequence[Any], results: Any, name: str
) -> Any:
    """Calls ``kernel(slots, *before, *buffers, *results)`` with the destination's buffer aliased to result 0."""
    aliased = len(before) + len(buffers.arrays)
    return pl.pallas_call(
        kernel,
        out_shape=results,
        in_specs=[_SMEM, *[_SEMAPHORES] * len(before), *[_HBM] * len(buffers.arrays)],
        out_specs=(_HBM, *[_SEMAPHORES] * (len(results) - 1)),
        input_output_aliases={aliased: 0},
        compiler_params=_PARAMS,
        name=name,
    )(buffers.slots, *before, *map(pinned, buffers.arrays))


def _start_on_tpu(
    site: Any, *operands: jax.Array, transfer: Transfer, layout: Layout, origin: Origin
) -> list[Any]:
    require_kernel_dtype(operands[0].dtype, origin)
    if not layout.same and not site.stays(0):
        operands = (pin(operands[0]), *operands[1:])
    buffers = _Buffers(operands, layout)

    def kernel(slots: Any, *refs: Any) -> None:
        *given, received, semaphores = refs
        source, destination = buffers.views(slots, [*given[:-1], received])
        kernels(transfer)[0](transfer, 0, source, destination, semaphores)

    results = (buffers.landing, pltpu.SemaphoreType.DMA((1, SEMAPHORES)))
    received, semaphores = _call(kernel, buffers, (), results, f"{_name(transfer)}_start_ref")
    return [buffers.restore(received), semaphores, *([] if layout.same else operands[:1])]


def _finish_on_tpu(
    site: Any,
    semaphores: jax.Array,
    *operands: jax.Array,
    transfer: Transfer,
    layout: Layout,
    origin: Origin,
) -> list[Any]:
    buffers = _Buffers(operands, layout)

    def kernel(slots: Any, semaphores: Any, *refs: Any) -> None:
        *given, received = refs
        source, destination = buffers.views(slots, [*given[:-1], received])
        kernels(transfer)[1](transfer, 0, source, destination, semaphores)

    (received,) = _call(kernel, buffers, (semaphores,), (buffers.landing,), f"{_name(transfer)}_done_ref")
    return [buffers.restore(received)]


def _name(transfer: Transfer) -> str:
    return type(transfer).__name__.lower()


_jax.register_untracked_lowering(start_into_p, _start_on_tpu, "tpu")
_jax.register_untracked_lowering(finish_into_p, _finish_on_tpu, "tpu")
