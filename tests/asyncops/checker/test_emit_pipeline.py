"""``emit_pipeline``: traced to loops, or kept as one equation and expanded; right pipelines and wrong ones."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

sys.path.insert(0, str(Path(__file__).parent))

import kernels_cores as cores

from asyncops.checker.session import check

Program = tuple[Callable[..., Any], tuple[Any, ...]]
HBM = pl.BlockSpec(memory_space=pl.ANY)


def rows(count: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((count * 8, 128), jnp.float32)


BLOCK = pl.BlockSpec((8, 128), lambda i: (i, 0))


@pytest.fixture(params=[False, True], ids=["loops", "equation"])
def _form(request: pytest.FixtureRequest) -> Iterator[None]:
    """Both forms that a pipeline may have in a jaxpr."""
    name = "jax_use_emit_pipeline_primitive"
    before = getattr(jax.config, name)
    jax.config.update(name, request.param)
    yield
    jax.config.update(name, before)


def in_a_kernel(body: Callable[..., Any], *shapes: Any, out: Any, scratch: Any = ()) -> Program:
    """The kernel over arrays passed whole."""
    fn = pl.pallas_call(
        body, in_specs=[HBM] * len(shapes), out_specs=HBM, out_shape=out, scratch_shapes=list(scratch)
    )
    return fn, shapes


def copies(wrong: bool, steps: int = 12) -> Program:
    """Or reads the array that the pipeline is writing."""

    def kernel(x_ref, o_ref):
        def body(x, o):
            o[...] = x[...]
            if wrong:
                pltpu.sync_copy(o_ref.at[pl.ds(0, 8)], o)

        pltpu.emit_pipeline(body, grid=(steps,), in_specs=[BLOCK], out_specs=[BLOCK])(x_ref, o_ref)

    return in_a_kernel(kernel, rows(steps), out=rows(steps))


def follows_itself(wrong: bool) -> Program:
    """In place; or reads the block before, whose write-back may be on its way."""

    def kernel(x_ref, o_ref):
        behind = pl.BlockSpec((8, 128), lambda i: (jnp.maximum(i - 1, 0), 0))
        source = pl.BlockSpec((8, 128), lambda i: (i, 0))

        def body(x, o):
            o[...] = x[...] + 1

        before = [behind if wrong else source]
        pltpu.emit_pipeline(body, grid=(12,), in_specs=before, out_specs=[BLOCK])(o_ref, o_ref)

    return in_a_kernel(kernel, rows(12), out=rows(12))


def multiplies(wrong: bool) -> Program:
    """Sums in the output block; or starts a copy into it that nobody waits for."""

    def kernel(x_ref, y_ref, o_ref, sem):
        def body(x, y, o):
            @pl.when(pl.program_id(2) == 0)
            def _():
                o[...] = jnp.zeros_like(o)

            o[...] += x[...] @ y[...]
            if wrong:
                pltpu.make_async_copy(x_ref.at[pl.ds(0, 128), pl.ds(0, 128)], o, sem).start()

        pltpu.emit_pipeline(
            body, grid=(2, 2, 3),
            in_specs=[
                pl.BlockSpec((128, 128), lambda i, j, k: (i, k)), pl.BlockSpec((128, 128), lambda i, j, k: (k, j)),
            ],
            out_specs=[pl.BlockSpec((128, 128), lambda i, j, k: (i, j))],
        )(x_ref, y_ref, o_ref)  # fmt: skip

    shape = jax.ShapeDtypeStruct
    left, right = shape((256, 384), jnp.float32), shape((384, 256), jnp.float32)
    out = shape((256, 256), jnp.float32)
    return in_a_kernel(kernel, left, right, out=out, scratch=[pltpu.SemaphoreType.DMA(())])


def nests(wrong: bool) -> Program:
    """A pipeline in the body of another; or one that reads what the outer one writes."""

    def kernel(x_ref, o_ref):
        def outer(o):
            def inner(x, into):
                into[...] = x[...]

            def use(buffer):
                pltpu.emit_pipeline(inner, grid=(3,), in_specs=[BLOCK], out_specs=[BLOCK])(
                    (o_ref if wrong else x_ref).at[pl.ds(0, 24)], buffer
                )
                o[...] = buffer[pl.ds(0, 8)]

            pl.run_scoped(use, pltpu.VMEM((24, 128), jnp.float32))

        pltpu.emit_pipeline(outer, grid=(6,), out_specs=[BLOCK])(o_ref)

    return in_a_kernel(kernel, rows(6), out=rows(6))


def over_cores(wrong: bool) -> Program:
    """Steps dealt to two cores; or all of them write one block."""

    def program(x):
        def kernel(x_ref, o_ref):
            def body(x, o):
                o[...] = x[...]

            target = pl.BlockSpec((8, 128), lambda i: (i * (not wrong), 0))
            pltpu.emit_pipeline(
                body, grid=(12,), in_specs=[BLOCK], out_specs=[target], core_axis_name="core",
                dimension_semantics=(pltpu.PARALLEL,),
            )(x_ref, o_ref)  # fmt: skip

        return cores.kernel(kernel, rows(12), cores.tensor_cores())(x)

    return program, (rows(12),)


def as_long_as_it_says(wrong: bool) -> Program:
    """The number of steps is an argument."""

    def kernel(n_ref, x_ref, o_ref):
        def body(x, o):
            o[...] = x[...]
            if wrong:
                pltpu.sync_copy(o_ref.at[pl.ds(0, 8)], o)

        pltpu.emit_pipeline(body, grid=(n_ref[0],), in_specs=[BLOCK], out_specs=[BLOCK])(x_ref, o_ref)

    spec = pltpu.PrefetchScalarGridSpec(num_scalar_prefetch=1, grid=(1,), in_specs=[HBM], out_specs=HBM)
    fn = pl.pallas_call(kernel, grid_spec=spec, out_shape=rows(12))
    return fn, (jax.ShapeDtypeStruct((1,), jnp.int32), rows(12))


BUILDS = {
    copies: {"AO201", "AO202"}, follows_itself: {"AO201", "AO202"},
    multiplies: {"AO101", "AO201", "AO202", "AO203", "AO204", "AO205"},
    nests: {"AO201", "AO202"}, over_cores: {"AO204"},
}  # fmt: skip


@pytest.mark.usefixtures("_form")
@pytest.mark.parametrize("build", BUILDS)
def test_the_right_pipeline_is_clean(build: Any) -> None:
    fn, args = build(False)
    report = check(fn, *args, target="v6e")
    assert report.verdict == "clean", str(report)


@pytest.mark.usefixtures("_form")
@pytest.mark.parametrize(("build", "codes"), BUILDS.items())
def test_the_wrong_pipeline_is_found(build: Any, codes: set[str]) -> None:
    fn, args = build(True)
    report = check(fn, *args, target="v6e")
    assert report.verdict == "findings", str(report)
    assert report.diagnostics[0].code in codes, str(report)
    assert report.diagnostics[0].confirmed


def test_many_steps_cost_what_few_cost() -> None:
    few, many = (check(fn, *args, target="v6e") for fn, args in (copies(False, 64), copies(False, 1 << 14)))
    assert few.ok
    assert many.ok
    assert few.kernels[0].events == many.kernels[0].events


def test_the_number_of_steps_may_be_unknown() -> None:
    fn, args = as_long_as_it_says(False)
    assert check(fn, *args, target="v6e").verdict != "findings"
    fn, args = as_long_as_it_says(True)
    assert check(fn, *args, target="v6e").verdict == "findings"


def test_buffers_may_be_passed_in() -> None:
    def kernel(x_ref, o_ref):
        def body(x, o):
            o[...] = x[...]

        pipeline, allocate = pltpu.emit_pipeline_with_allocations(
            body, grid=(4,), in_specs=[BLOCK], out_specs=[BLOCK]
        )

        def twice(allocations):
            pipeline(x_ref, o_ref, allocations=allocations)
            pipeline(x_ref, o_ref, allocations=allocations)

        pl.run_scoped(twice, allocate(x_ref, o_ref))

    fn, args = in_a_kernel(kernel, rows(4), out=rows(4))
    assert check(fn, *args, target="v6e").verdict == "clean"
