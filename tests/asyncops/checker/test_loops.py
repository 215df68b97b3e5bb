"""Loops and grids are followed to their fixpoint: one verdict for every count, at the cost of a period."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from asyncops.checker.report import Report
from asyncops.checker.session import check

COUNTS = (8, 2048, 1_000_000)
TABLE = jax.ShapeDtypeStruct((64,), jnp.int32)


def stack(n: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((n, 8, 128), jnp.float32)


def checked(
    kernel: Callable[..., Any], n: int, slots: int = 2, scalars: Sequence[Any] = (), **more: Any
) -> Report:
    """The report on a kernel over (scalars in SMEM, a stack in HBM, the result, slots, their semaphores)."""
    values = more.pop("values", None)
    fn = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((8, 128), jnp.float32),
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM)] * len(scalars) + [pl.BlockSpec(memory_space=pl.ANY)],
        scratch_shapes=[pltpu.VMEM((slots, 8, 128), jnp.float32), pltpu.SemaphoreType.DMA((slots,))],
        **more,
    )
    return check(fn, *(values if values is not None else scalars), stack(n), values=values is not None)


def load(x_hbm: Any, buf: Any, sems: Any, i: Any, slot: Any) -> Any:
    return pltpu.make_async_copy(x_hbm.at[i], buf.at[slot], sems.at[slot])


def buffered(n: int, slots: int = 2, wrong_at: Callable[[Any], Any] | None = None) -> Callable[..., Any]:
    """Loads ``slots - 1`` steps ahead; where ``wrong_at(i)`` holds, the wait comes after the use."""

    def kernel(x_hbm, o_ref, buf, sems):
        for i in range(slots - 1):
            load(x_hbm, buf, sems, i, i).start()

        def body(i, _):
            ahead = i + slots - 1

            @pl.when(ahead < n)
            def _next():
                load(x_hbm, buf, sems, ahead, lax.rem(ahead, slots)).start()

            slot = lax.rem(i, slots)
            early = wrong_at(i) if wrong_at is not None else i < 0

            @pl.when(jnp.logical_not(early))
            def _wait():
                load(x_hbm, buf, sems, i, slot).wait()

            o_ref[...] += buf[slot]

            @pl.when(early)
            def _late():
                load(x_hbm, buf, sems, i, slot).wait()

            return _

        lax.fori_loop(0, n, body, None)

    return kernel


def in_grid(n: int) -> Callable[..., Any]:
    def kernel(x_hbm, o_ref, buf, sems):
        i = pl.program_id(0)
        slot = lax.rem(i, 2)

        @pl.when(i == 0)
        def _first():
            load(x_hbm, buf, sems, 0, 0).start()

        @pl.when(i + 1 < n)
        def _next():
            load(x_hbm, buf, sems, i + 1, 1 - slot).start()

        load(x_hbm, buf, sems, i, slot).wait()
        o_ref[...] += buf[slot]

    return kernel


def events(report: Report) -> int:
    return report.kernels[0].events


def codes(report: Report) -> list[str]:
    return [d.code for d in report.diagnostics]


# -- the count of steps does not matter ---------------------------------------------------------------------


@pytest.mark.parametrize("slots", [2, 3])
def test_a_loop_costs_its_period_whatever_its_count(slots: int) -> None:
    reports = [checked(buffered(n, slots), n, slots) for n in COUNTS]
    assert [r.verdict for r in reports] == ["clean"] * 3
    assert events(reports[1]) == events(reports[2])
    assert events(reports[2]) < 300


def test_a_grid_costs_its_period_whatever_its_count() -> None:
    reports = [checked(in_grid(n), n, grid=(n,)) for n in COUNTS]
    assert [r.verdict for r in reports] == ["clean"] * 3
    assert events(reports[1]) == events(reports[2])
    assert events(reports[2]) < 300


@pytest.mark.parametrize("n", COUNTS)
@pytest.mark.parametrize("where", ["first", "middle", "last"])
def test_a_defect_in_one_iteration_is_found(n: int, where: str) -> None:
    at = {"first": 0, "middle": n // 2, "last": n - 1}[where]
    report = checked(buffered(n, wrong_at=lambda i: i == at), n)
    assert codes(report) == ["AO201"]
    assert f"iteration {at}" in report.diagnostics[0].message
    assert not report.unknowns


@pytest.mark.parametrize("n", COUNTS)
def test_one_prefetch_too_many_is_found(n: int) -> None:
    report = checked(buffered(n + 1), n)
    assert report.verdict == "findings"
    assert "AO305" in codes(report)


# -- counts that are not known ------------------------------------------------------------------------------


def counted(is_guarded: bool) -> Callable[..., Any]:
    def kernel(table, x_hbm, o_ref, buf, sems):
        n = jnp.minimum(table[0], 64)

        @pl.when(n > 0)
        def _first():
            load(x_hbm, buf, sems, 0, 0).start()

        def body(i, _):
            @pl.when(i + 1 < (n if is_guarded else 64))
            def _next():
                load(x_hbm, buf, sems, i + 1, lax.rem(i + 1, 2)).start()

            load(x_hbm, buf, sems, i, lax.rem(i, 2)).wait()
            o_ref[...] += buf[lax.rem(i, 2)]
            return _

        lax.fori_loop(0, n, body, None)

    return kernel


def test_a_count_from_an_argument_is_clean_for_every_count() -> None:
    report = checked(counted(True), 64, scalars=[TABLE])
    assert report.verdict == "clean", str(report)


def test_a_count_from_an_argument_that_leaves_a_copy_behind() -> None:
    report = checked(counted(False), 64, scalars=[TABLE])
    assert codes(report) == ["AO101"], str(report)


def test_a_first_copy_that_no_iteration_waits_for() -> None:
    def kernel(table, x_hbm, o_ref, buf, sems):
        n = jnp.minimum(table[0], 64)
        load(x_hbm, buf, sems, 0, 0).start()

        def body(i, _):
            load(x_hbm, buf, sems, i, 0).wait()
            o_ref[...] += buf[0]

            @pl.when(i + 1 < n)
            def _next():
                load(x_hbm, buf, sems, i + 1, 0).start()

            return _

        lax.fori_loop(0, n, body, None)

    report = checked(kernel, 64, scalars=[TABLE])
    assert codes(report) == ["AO101"], str(report)


# -- slots --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", COUNTS)
@pytest.mark.parametrize("wrong", [False, True])
def test_a_slot_toggled_by_the_carry(n: int, wrong: bool) -> None:
    def kernel(x_hbm, o_ref, buf, sems):
        load(x_hbm, buf, sems, 0, 0).start()

        def body(i, slot):
            @pl.when(i + 1 < n)
            def _next():
                load(x_hbm, buf, sems, i + 1, 1 - slot).start()

            load(x_hbm, buf, sems, i, slot).wait()
            o_ref[...] += buf[1 - slot if wrong else slot]
            return 1 - slot

        lax.fori_loop(0, n, body, 0)

    report = checked(kernel, n)
    assert codes(report) == (["AO201"] if wrong else []), str(report)
    assert not report.unknowns


@pytest.mark.slow
@pytest.mark.parametrize("n", COUNTS)
def test_three_slots_are_one_too_few_for_three_steps_ahead(n: int) -> None:
    def kernel(x_hbm, o_ref, buf, sems):
        def step(i):
            return load(x_hbm, buf, sems, i, lax.rem(i, 3))

        for i in range(3):
            step(jnp.int32(i)).start()

        def body(i, _):
            @pl.when(i + 3 < n)
            def _next():
                step(i + 3).start()

            step(i).wait()
            o_ref[...] += buf[lax.rem(i, 3)]
            return _

        lax.fori_loop(0, n, body, None)

    report = checked(kernel, n, slots=3)
    assert report.verdict == "findings"
    assert set(codes(report)) <= {"AO201", "AO204"}


def test_a_slot_kept_in_scalar_memory() -> None:
    def kernel(x_hbm, o_ref, buf, sems, slot_ref):
        slot_ref[0] = 0
        load(x_hbm, buf, sems, 0, 0).start()

        def body(i, _):
            slot = slot_ref[0]

            @pl.when(i + 1 < 2048)
            def _next():
                load(x_hbm, buf, sems, i + 1, 1 - slot).start()

            load(x_hbm, buf, sems, i, slot).wait()
            o_ref[...] += buf[slot]
            slot_ref[0] = 1 - slot
            return _

        lax.fori_loop(0, 2048, body, None)

    fn = pl.pallas_call(
        kernel, out_shape=jax.ShapeDtypeStruct((8, 128), jnp.float32),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        scratch_shapes=[
            pltpu.VMEM((2, 8, 128), jnp.float32), pltpu.SemaphoreType.DMA((2,)), pltpu.SMEM((1,), jnp.int32),
        ],
    )  # fmt: skip
    report = check(fn, stack(2048))
    assert report.verdict == "clean", str(report)
    assert events(report) < 300


# -- other loops --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (1000, 1000)])
@pytest.mark.parametrize("wrong", [False, True])
def test_nested_loops(rows: int, columns: int, wrong: bool) -> None:
    def kernel(x_hbm, o_ref, buf, sems):
        def row(r, _):
            load(x_hbm, buf, sems, r * columns, 0).start()

            def column(c, _):
                i = r * columns + c

                @pl.when(c + 1 < columns)
                def _next():
                    load(x_hbm, buf, sems, i + 1, lax.rem(c + 1, 2)).start()

                @pl.when(jnp.logical_or(c < columns - 1, not wrong))
                def _wait():
                    load(x_hbm, buf, sems, i, lax.rem(c, 2)).wait()

                o_ref[...] += buf[lax.rem(c, 2)]

                @pl.when(jnp.logical_and(c == columns - 1, wrong))
                def _late():
                    load(x_hbm, buf, sems, i, lax.rem(c, 2)).wait()

                return _

            return lax.fori_loop(0, columns, column, _)

        lax.fori_loop(0, rows, row, None)

    report = checked(kernel, rows * columns)
    assert report.verdict == ("findings" if wrong else "clean"), str(report)
    assert not report.unknowns
    assert not wrong or codes(report)[0] == "AO201"


@pytest.mark.parametrize("wrong", [False, True])
def test_while_loops(wrong: bool) -> None:
    def kernel(table, x_hbm, o_ref, buf, sems):
        def is_open(carry):
            i, _ = carry
            return jnp.logical_and(i < 64, table[jnp.minimum(i, 63)] > 0)

        def body(carry):
            i, slot = carry
            copy = load(x_hbm, buf, sems, i, slot)
            copy.start()
            copy.wait()
            o_ref[...] += buf[slot]
            return i + 1, 1 - slot

        last, slot = lax.while_loop(is_open, body, (0, 0))
        if wrong:
            load(x_hbm, buf, sems, jnp.minimum(last, 63), slot).start()

    report = checked(kernel, 64, scalars=[TABLE])
    assert report.verdict == ("findings" if wrong else "clean"), str(report)
    assert codes(report) == (["AO101"] if wrong else [])


@pytest.mark.parametrize("wrong", [False, True])
def test_a_loop_without_a_period_is_followed_step_by_step(wrong: bool) -> None:
    def kernel(x_hbm, o_ref, buf, sems):
        def body(i, state):
            slot = lax.rem(state * state + i, 2)  # a generator modulo 97: no short period
            copy = load(x_hbm, buf, sems, lax.rem(state, 40), slot)
            copy.start()

            @pl.when(jnp.logical_or(i != 37, not wrong))
            def _wait():
                copy.wait()

            o_ref[...] += buf[slot]
            return lax.rem(5 * state + 3, 97)

        lax.fori_loop(0, 40, body, 1)

    report = checked(kernel, 40)
    assert report.verdict == ("findings" if wrong else "clean"), str(report)
    assert not report.unknowns
    if wrong:
        assert "iteration 37" in report.diagnostics[0].message
