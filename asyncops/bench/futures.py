"""Copies that one kernel starts and another finishes, as people write them by hand with ``pallas_call``."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

SHAPE = (512, 1024)
ARRAY = jax.ShapeDtypeStruct(SHAPE, jnp.float32)
PINNED = pltpu.HBM(SHAPE, jnp.float32)
_ANY = pl.BlockSpec(memory_space=pl.ANY)
_SEM = pl.BlockSpec(memory_space=pltpu.SEMAPHORE)


def start(x: Any, *, interpret: Any = False, marked: bool = True, pinned: bool = True) -> Any:
    """A copy of ``x``, an array of ``SHAPE``, left in flight: (source, destination, semaphore).

    marked: the kernel is marked as having side effects. pinned: its results are kept in HBM.
    """

    def kernel(_: Any, source: Any, target: Any, sem: Any) -> None:
        pltpu.make_async_copy(source, target, sem).start()

    array = PINNED if pinned else ARRAY
    return pl.pallas_call(
        kernel, out_shape=(array, array, pltpu.SemaphoreType.DMA(())), in_specs=[_ANY],
        out_specs=(_ANY, _ANY, _SEM), input_output_aliases={0: 0}, interpret=interpret, name="start",
        compiler_params=pltpu.CompilerParams(has_side_effects=marked),
    )(x)  # fmt: skip


def start_from(x: Any, *, interpret: Any = False) -> Any:
    """The same without taking ``x`` over: (destination, semaphore)."""

    def kernel(source: Any, target: Any, sem: Any) -> None:
        pltpu.make_async_copy(source, target, sem).start()

    return pl.pallas_call(
        kernel, out_shape=(PINNED, pltpu.SemaphoreType.DMA(())), in_specs=[_ANY], out_specs=(_ANY, _SEM),
        interpret=interpret, name="start_from", compiler_params=pltpu.CompilerParams(has_side_effects=True),
    )(x)  # fmt: skip


def done(source: Any, target: Any, sem: Any, *, interpret: Any = False, pinned: bool = True) -> Any:
    """What has arrived."""

    def kernel(source: Any, target: Any, sem: Any, _: Any) -> None:
        pltpu.make_async_copy(source, target, sem).wait()

    return pl.pallas_call(
        kernel, out_shape=PINNED if pinned else ARRAY, in_specs=[_ANY, _ANY, _SEM], out_specs=_ANY,
        input_output_aliases={1: 0}, interpret=interpret, name="done",
        compiler_params=pltpu.CompilerParams(has_side_effects=True),
    )(source, target, sem)  # fmt: skip


def done_without_source(target: Any, sem: Any, *, interpret: Any = False) -> Any:
    """What has arrived, without keeping the source alive until then."""

    def kernel(target: Any, sem: Any, _: Any) -> None:
        pltpu.make_async_copy(target, target, sem).wait()

    return pl.pallas_call(
        kernel, out_shape=PINNED, in_specs=[_ANY, _SEM], out_specs=_ANY, input_output_aliases={0: 0},
        interpret=interpret, name="done", compiler_params=pltpu.CompilerParams(has_side_effects=True),
    )(target, sem)  # fmt: skip
