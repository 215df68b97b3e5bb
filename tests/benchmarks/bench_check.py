"""What a check costs beside tracing, and beside JAX's race detector, in one run. A benchmark, not a test.

    python tests/benchmarks/bench_check.py [--detector STEPS]

Prints seconds to trace and to check (which traces, too) and their ratio for a double-buffered loop and a
double-buffered grid of 8, 2,048 and 1,000,000 steps, and the events followed. ``--detector`` also runs the loop of so
many steps under TPU interpret mode with race detection (its cost grows faster than the number of steps).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import asyncops

SCRATCH = [pltpu.VMEM((2, 8, 128), jnp.float32), pltpu.SemaphoreType.DMA((2,))]
Program = tuple[Callable[..., Any], tuple[Any, ...]]


def loop(steps: int, interpret: Any = False) -> Program:
    """A double-buffered sum in one kernel."""

    def kernel(x_hbm: Any, o_ref: Any, buf: Any, sems: Any) -> None:
        def copy(i: Any, slot: Any) -> Any:
            return pltpu.make_async_copy(x_hbm.at[i], buf.at[slot], sems.at[slot])

        copy(0, 0).start()
        o_ref[...] = jnp.zeros_like(o_ref)

        def body(i: Any, _: None) -> None:
            slot = lax.rem(i, 2)
            pl.when(i + 1 < steps)(lambda: copy(i + 1, 1 - slot).start())
            copy(i, slot).wait()
            o_ref[...] += buf[slot]

        lax.fori_loop(0, steps, body, None)

    call = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((8, 128), jnp.float32),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        scratch_shapes=SCRATCH,
        interpret=interpret,
    )
    return call, (jax.ShapeDtypeStruct((steps, 8, 128), jnp.float32),)


def grid(steps: int) -> Program:
    """The same over a grid."""

    def kernel(x_hbm: Any, o_ref: Any, buf: Any, sems: Any) -> None:
        i = pl.program_id(0)
        slot = lax.rem(i, 2)

        def copy(i: Any, slot: Any) -> Any:
            return pltpu.make_async_copy(x_hbm.at[i], buf.at[slot], sems.at[slot])

        pl.when(i == 0)(lambda: copy(0, 0).start())
        pl.when(i + 1 < steps)(lambda: copy(i + 1, 1 - slot).start())
        copy(i, slot).wait()
        o_ref[...] = buf[slot]

    call = pl.pallas_call(
        kernel,
        grid=(steps,),
        out_shape=jax.ShapeDtypeStruct((steps * 8, 128), jnp.float32),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec((8, 128), lambda i: (i, 0)),
        scratch_shapes=SCRATCH,
    )
    return call, (jax.ShapeDtypeStruct((steps, 8, 128), jnp.float32),)


def seconds(run: Callable[[], Any], repeats: int = 5) -> float:
    """The median of a few runs, JAX's caches cleared before each."""
    times = []
    for _ in range(repeats):
        jax.clear_caches()
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def compare(name: str, program: Program) -> float:
    """One line: tracing, checking, their ratio; the seconds to check."""
    fn, args = program
    traced = seconds(lambda: jax.make_jaxpr(lambda *a: fn(*a))(*args))
    checked = seconds(lambda: asyncops.check(lambda *a: fn(*a), *args))
    report = asyncops.check(fn, *args)
    events = sum(kernel.events for kernel in report.kernels)
    ratio = checked / traced
    print(f"{name:<22}{traced:>9.4f}{checked:>9.4f}{ratio:>8.2f}{events:>9}  {report.verdict}")
    return checked


def detector(steps: int) -> None:
    """JAX's race detector on the loop, against a check of it."""
    fn, (shape,) = loop(steps, pltpu.InterpretParams(detect_races=True))
    x = jnp.zeros(shape.shape, shape.dtype)
    jax.block_until_ready(jax.jit(fn)(x))
    start = time.perf_counter()
    jax.block_until_ready(jax.jit(fn)(x))
    detected = time.perf_counter() - start
    checked = seconds(lambda: asyncops.check(*_flat(loop(steps))))
    print(f"\nrace detector, {steps} steps: {detected:.2f} s, {detected / checked:.0f} times the check")


def _flat(program: Program) -> tuple[Any, ...]:
    fn, args = program
    return (fn, *args)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--detector", type=int, default=0, metavar="STEPS")
    options = parser.parse_args()
    compare("warm-up", loop(8))
    print(f"\n{'':<22}{'trace s':>9}{'check s':>9}{'ratio':>8}{'events':>9}")
    for make in (loop, grid):
        for steps in (8, 2048, 1_000_000):
            compare(f"{make.__name__}, {steps:,} steps", make(steps))
    if options.detector:
        detector(options.detector)


if __name__ == "__main__":
    main()
