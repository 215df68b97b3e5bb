"""Nests of loops: a verdict for every trip count, at the cost of the period."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import asyncops
from asyncops import kernels

SCRATCH = [pltpu.VMEM((4, 8, 128), jnp.float32), pltpu.SemaphoreType.DMA((4,))]
BLOCK = jax.ShapeDtypeStruct((8, 128), jnp.float32)
COUNT = jax.ShapeDtypeStruct((1,), jnp.int32)


def fetch(x: Any, buf: Any, sems: Any, i: Any) -> Any:
    """The copy of block ``i`` into its slot of two."""
    slot = lax.rem(i, 2)
    return pltpu.make_async_copy(x.at[i], buf.at[slot], sems.at[slot])


def over_blocks(body: Callable[..., None], blocks: int, scalars: int = 0) -> tuple[Any, Any]:
    """The kernel on ``scalars`` counts in SMEM and an array of blocks, and the array's shape."""
    specs = [pl.BlockSpec(memory_space=pltpu.SMEM)] * scalars + [pl.BlockSpec(memory_space=pl.ANY)]
    call = pl.pallas_call(body, out_shape=BLOCK, in_specs=specs, scratch_shapes=SCRATCH)
    return call, jax.ShapeDtypeStruct((blocks, 8, 128), jnp.float32)


def nest(outer: int, inner: int, ahead: int = 1, carried: bool = True) -> tuple[Any, Any]:
    """Double buffering over two loops; the block counts up in the carry, or is computed from both indices."""

    def kernel(x: Any, o: Any, buf: Any, sems: Any) -> None:
        fetch(x, buf, sems, 0).start()

        def row(a: Any, c: Any) -> Any:
            def column(b: Any, c: Any) -> Any:
                i = c if carried else a * inner + b
                pl.when(i + ahead < outer * inner)(lambda: fetch(x, buf, sems, i + 1).start())
                fetch(x, buf, sems, i).wait()
                o[...] = buf[lax.rem(i, 2)]
                return c + 1

            return lax.fori_loop(0, inner, column, c)

        lax.fori_loop(0, outer, row, 0)

    return over_blocks(kernel, outer * inner + 2)


@pytest.mark.parametrize("carried", [True, False], ids=["carried", "computed"])
@pytest.mark.parametrize(("outer", "inner"), [(12, 12), (1000, 1000), (1000, 7), (7, 1000)])
def test_nests_are_clean_at_the_cost_of_their_period(outer: int, inner: int, carried: bool) -> None:
    report = asyncops.check(*nest(outer, inner, carried=carried))
    assert report.verdict == "clean", str(report)
    assert sum(kernel.events for kernel in report.kernels) < 1000


@pytest.mark.parametrize("ahead", [0, 2], ids=["one too many", "one too few"])
@pytest.mark.parametrize(("outer", "inner"), [(3, 4), (12, 12)])
def test_a_prefetch_that_misses_the_end_of_a_nest_is_found(outer: int, inner: int, ahead: int) -> None:
    report = asyncops.check(*nest(outer, inner, ahead=ahead))
    assert report.verdict == "findings"


def test_what_a_flag_said_before_a_loop_holds_behind_it() -> None:
    """Paths that meet at a loop head after different starts: neither is forgotten."""

    def kernel(n: Any, x: Any, o: Any, buf: Any, sems: Any) -> None:
        pl.when(n[0] == 1)(lambda: fetch(x, buf, sems, 0).start())

        def step(i: Any, _: Any) -> Any:
            pl.when((i == 2) & (n[0] == 1))(lambda: fetch(x, buf, sems, 0).wait())
            return 0

        lax.fori_loop(0, 6, step, 0)
        pl.when(n[0] == 0)(lambda: fetch(x, buf, sems, 1).wait())
        o[...] = buf[0]

    call, x = over_blocks(kernel, 2, scalars=1)
    report = asyncops.check(call, COUNT, x)
    assert report.verdict == "findings"
    assert report.diagnostics[0].code in ("AO103", "AO303")


def counted(guard: Callable[[Any, Any], Any]) -> Any:
    """A double-buffered loop of ``n`` steps; ``guard(next, n)`` says whether the next block is fetched."""

    def kernel(n_ref: Any, x: Any, o: Any, buf: Any, sems: Any) -> None:
        n = n_ref[0]
        pl.when(n > 0)(lambda: fetch(x, buf, sems, 0).start())

        def step(i: Any, _: Any) -> Any:
            pl.when(guard(i + 1, n))(lambda: fetch(x, buf, sems, i + 1).start())
            fetch(x, buf, sems, i).wait()
            o[...] = buf[lax.rem(i, 2)]
            return 0

        lax.fori_loop(0, n, step, 0)

    return over_blocks(kernel, 400, scalars=1)[0]


GUARDS: dict[str, Callable[[Any, Any], Any]] = {
    "right": lambda k, n: k < n,
    "one too many": lambda k, n: k <= n,
    "one too few": lambda k, n: k < n - 1,
    "not the fourth": lambda k, n: (k < n) & (k != 3),
}


@pytest.mark.parametrize("name", GUARDS)
def test_the_verdict_for_every_count_is_that_of_the_worst(name: str) -> None:
    call, x = counted(GUARDS[name]), jax.ShapeDtypeStruct((400, 8, 128), jnp.float32)
    every = asyncops.check(call, COUNT, x)
    some = [asyncops.check(call, np.array([n], np.int32), x, values=True).verdict for n in (0, 1, 2, 4, 5)]
    assert every.verdict == ("findings" if "findings" in some else "clean")


# -- places that are read from a table ------------------------------------------------------------------------------


def scatter(two_tables: bool = False) -> tuple[Any, ...]:
    """Two copies to rows that entries of a table name, both in flight; or one out of such a row."""

    def kernel(rows: Any, x: Any, y: Any, o: Any, buf: Any, sems: Any) -> None:
        first = pltpu.make_async_copy(buf.at[0], o.at[rows[0]], sems.at[0])
        ends = (o.at[rows[1]], buf.at[1]) if two_tables else (buf.at[1], o.at[rows[1]])
        second = pltpu.make_async_copy(*ends, sems.at[1])
        first.start()
        second.start()
        first.wait()
        second.wait()

    specs = [pl.BlockSpec(memory_space=pltpu.SMEM)] + [pl.BlockSpec(memory_space=pl.ANY)] * 2
    rows = jax.ShapeDtypeStruct((9, 8, 128), jnp.float32)
    call = pl.pallas_call(
        kernel, out_shape=rows, in_specs=specs, out_specs=pl.BlockSpec(memory_space=pl.ANY), scratch_shapes=SCRATCH,
        input_output_aliases={2: 0},
    )  # fmt: skip
    return call, jax.ShapeDtypeStruct((2,), jnp.int32), rows, rows


def test_entries_of_a_table_are_taken_to_name_different_places() -> None:
    report = asyncops.check(*scatter())
    assert report.verdict == "clean"
    assert any("different entries of" in text for text in report.assumptions)


def test_a_read_of_what_another_entry_may_name_is_not_decided() -> None:
    report = asyncops.check(*scatter(two_tables=True))
    assert report.verdict == "unknown"
    assert any("name one place" in text for text in report.unknowns)


def test_entries_that_are_declared_equal_race() -> None:
    call, _, x, y = scatter()
    report = asyncops.check(call, np.array([3, 3], np.int32), x, y, values=True)
    assert [d.code for d in report.diagnostics] == ["AO204"]
    assert asyncops.check(call, np.array([3, 4], np.int32), x, y, values=True).verdict == "clean"


def test_slots_seen_through_another_shape_lie_apart() -> None:
    """A store through a reshaped view of one slot while a copy fills the other."""

    def kernel(x: Any, o: Any, buf: Any, sems: Any, *, slot: int) -> None:
        copy = pltpu.make_async_copy(x.at[0], buf.at[0], sems.at[0])
        copy.start()
        buf.reshape(4, 4, 2, 128)[slot] = jnp.zeros((4, 2, 128), jnp.float32)
        copy.wait()
        o[...] = buf[0]

    def checked(slot: int) -> Any:
        return asyncops.check(*over_blocks(lambda *refs: kernel(*refs, slot=slot), 2))

    assert checked(1).verdict == "clean"
    assert [d.code for d in checked(0).diagnostics] == ["AO203"]


def test_what_only_large_entries_show_is_named_and_not_claimed() -> None:
    def kernel(n: Any, x: Any, o: Any, buf: Any, sems: Any) -> None:
        pl.when(n[0] >= 1000)(lambda: fetch(x, buf, sems, 0).start())
        o[...] = buf[1]

    call, x = over_blocks(kernel, 2, scalars=1)
    report = asyncops.check(call, COUNT, x)
    assert report.verdict == "unknown"
    assert any("AO101" in text and "= 1000" in text for text in report.unknowns)
    assert asyncops.check(call, np.array([1000], np.int32), x, values=True).verdict == "findings"


@pytest.mark.parametrize("slots", [2, 3])
@pytest.mark.parametrize(("reads", "writes"), [(True, False), (False, True), (True, True)])
def test_the_multi_buffered_loop_is_right_for_every_number_of_steps(slots, reads, writes):
    blocks = jax.ShapeDtypeStruct((64, 8, 128), jnp.float32)

    def kernel(count, x, y, total):
        def body(i, *buffers):
            found = buffers[0][...] if reads else jnp.ones((8, 128))
            (buffers[-1] if writes else total)[...] = found

        kernels.multi_buffered_loop(
            count[0], body, slots=slots,
            reads=[lambda i: x.at[i]] if reads else [], writes=[lambda i: y.at[i]] if writes else [],
        )  # fmt: skip

    anywhere = pl.BlockSpec(memory_space=pl.ANY)
    fn = pl.pallas_call(
        kernel,
        out_shape=[blocks, jax.ShapeDtypeStruct((8, 128), jnp.float32)],
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), anywhere],
        out_specs=[anywhere, pl.BlockSpec(memory_space=pltpu.VMEM)],
    )
    assert asyncops.check(fn, jax.ShapeDtypeStruct((1,), jnp.int32), blocks).verdict == "clean"
