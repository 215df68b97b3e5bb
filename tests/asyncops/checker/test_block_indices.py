"""Index maps that read scalars which bodies write, and copies that touch block windows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import asyncops

BLOCK = (8, 128)


def codes(fn: Any, *args: Any, **options: Any) -> set[str]:
    report = asyncops.check(fn, *args, **options)
    assert not report.unknowns
    return {d.code for d in report.diagnostics}


def looked_up(write: Any, steps: int, reads: Any) -> Any:
    """Blocks of an input chosen by a table, to which the body does ``write(table, step)``."""

    def kernel(table, x, y):
        y[...] = x[...]
        write(table, pl.program_id(0))

    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((steps * BLOCK[0], BLOCK[1]), jnp.float32),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(steps,),
            in_specs=[pl.BlockSpec(BLOCK, lambda i, table: (reads(i, table), 0))],
            out_specs=pl.BlockSpec(BLOCK, lambda i, table: (i, 0)),
        ),
    )


def store(offset: int) -> Any:
    def write(table, step):
        @pl.when(step + offset < table.shape[0])
        def _():
            table[step + offset] = 0

    return write


NEXT, THIS, AFTER = store(1), store(0), store(2)
FEW, MANY = 4, 5000


@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize(
    ("write", "looks", "steps", "found"),
    [
        (NEXT, True, FEW, {"AO206"}),
        (THIS, True, FEW, set()),  # its step is over
        (AFTER, True, FEW, set()),  # early enough
        (NEXT, False, FEW, set()),  # nobody asks
        (NEXT, False, MANY, set()),  # and the table, which never repeats, is forgotten
    ],
)
def test_a_body_may_write_what_no_index_map_has_read(write, looks, steps, found, values):
    table = np.arange(steps, dtype=np.int32)
    x = jax.ShapeDtypeStruct((steps * BLOCK[0], BLOCK[1]), jnp.float32)
    fn = looked_up(write, steps, (lambda i, table: table[i]) if looks else (lambda i, table: i))
    assert codes(fn, table, x, values=values) == found


def copied_into(window: str, moves: bool) -> Any:
    """The body copies into a block window whose block moves, or not, from step to step."""

    def kernel(x_hbm, x, y, buf, sem):
        source, destination = (x_hbm.at[pl.ds(0, 8)], x) if window == "input" else (x, buf)
        copy = pltpu.make_async_copy(source, destination, sem)
        copy.start()
        copy.wait()
        y[...] = x[...]

    block = pl.BlockSpec(BLOCK, (lambda i: (i, 0)) if moves else (lambda i: (0, 0)))
    out = jax.ShapeDtypeStruct((4 * BLOCK[0], BLOCK[1]), jnp.float32)
    return pl.pallas_call(
        kernel,
        grid=(4,),
        out_shape=out,
        in_specs=[pl.BlockSpec(memory_space=pl.ANY), block],
        out_specs=pl.BlockSpec(BLOCK, lambda i: (i, 0)),
        scratch_shapes=[pltpu.VMEM(BLOCK, jnp.float32), pltpu.SemaphoreType.DMA(())],
    ), (out, out)


@pytest.mark.parametrize(
    ("window", "moves", "found"),
    [("input", False, {"AO209"}), ("input", True, set()), ("scratch", False, set())],
)
def test_a_copy_into_a_window_is_a_write_to_its_block(window, moves, found):
    fn, args = copied_into(window, moves)
    assert codes(fn, *args) == found
