"""Copies in flight between kernels: each defect, and the same program without it."""

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
from jax.sharding import Mesh, PartitionSpec

import asyncops

SHAPE = (16, 128)
ARRAY = jax.ShapeDtypeStruct(SHAPE, jnp.float32)
FLAG = jax.ShapeDtypeStruct((), jnp.int32)
ANY = pl.BlockSpec(memory_space=pl.ANY)
SEM = pl.BlockSpec(memory_space=pltpu.SEMAPHORE)


def start(x: Any, *, marked: bool = True, pinned: bool = True) -> Any:
    """Source (aliased), destination and semaphore of a copy in flight."""

    def kernel(_: Any, source: Any, target: Any, sem: Any) -> None:
        pltpu.make_async_copy(source, target, sem).start()

    array = pltpu.HBM(SHAPE, jnp.float32) if pinned else ARRAY
    return pl.pallas_call(
        kernel, out_shape=(array, array, pltpu.SemaphoreType.DMA(())), in_specs=[ANY], out_specs=(ANY, ANY, SEM),
        input_output_aliases={0: 0}, compiler_params=pltpu.CompilerParams(has_side_effects=marked), name="start",
    )(x)  # fmt: skip


def start_from(x: Any) -> Any:
    """Destination and semaphore only."""

    def kernel(source: Any, target: Any, sem: Any) -> None:
        pltpu.make_async_copy(source, target, sem).start()

    return pl.pallas_call(
        kernel, out_shape=(pltpu.HBM(SHAPE, jnp.float32), pltpu.SemaphoreType.DMA(())), in_specs=[ANY],
        out_specs=(ANY, SEM), compiler_params=pltpu.CompilerParams(has_side_effects=True), name="start_from",
    )(x)  # fmt: skip


def done(source: Any, target: Any, sem: Any) -> Any:
    """What has arrived."""

    def kernel(source: Any, target: Any, sem: Any, _: Any) -> None:
        pltpu.make_async_copy(source, target, sem).wait()

    return pl.pallas_call(
        kernel, out_shape=pltpu.HBM(SHAPE, jnp.float32), in_specs=[ANY, ANY, SEM], out_specs=ANY,
        input_output_aliases={1: 0}, compiler_params=pltpu.CompilerParams(has_side_effects=True), name="done",
    )(source, target, sem)  # fmt: skip


def done_without_source(target: Any, sem: Any) -> Any:
    """What has arrived, without a look at the source."""

    def kernel(target: Any, sem: Any, _: Any) -> None:
        pltpu.make_async_copy(target, target, sem).wait()

    return pl.pallas_call(
        kernel, out_shape=pltpu.HBM(SHAPE, jnp.float32), in_specs=[ANY, SEM], out_specs=ANY,
        input_output_aliases={0: 0}, compiler_params=pltpu.CompilerParams(has_side_effects=True), name="done",
    )(target, sem)  # fmt: skip


def codes(fn: Callable[..., Any], *args: Any) -> list[str]:
    """The codes of the primary findings; ["unknown"] where there are none and the verdict is not clean."""
    report = asyncops.check(fn, *args)
    return sorted(d.code for d in report.diagnostics) or ([] if report.ok else [report.verdict])


# -- AO501 --


def drops(x: Any) -> Any:
    source, _, _ = start(x * 2)
    return source


def drops_in_a_branch(x: Any, flag: Any) -> Any:
    future = start(x * 2)
    return lax.cond(flag > 0, lambda: done(*future), lambda: jnp.zeros(SHAPE))


def drops_in_a_shard(x: Any) -> Any:
    mesh = Mesh(np.array(jax.devices()[:2]), ("d",))
    spec = PartitionSpec()
    return jax.shard_map(
        lambda v: start(v * 2)[0], mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False
    )(x)


def finishes_in_both_branches(x: Any, flag: Any) -> Any:
    future = start(x * 2)
    return lax.cond(flag > 0, lambda: done(*future) + 1, lambda: done(*future))


def starts_and_finishes_on_one_condition(x: Any, flag: Any) -> Any:
    source, target, sem = start(x * 2)
    y = lax.cond(flag > 0, lambda: done(source, target, sem), lambda: target)
    return lax.cond(flag > 0, lambda: y, lambda: done(source, target, sem))


def two_at_once(x: Any) -> Any:
    first, second = start(x * 2), start(x * 3)
    return done(*first) + done(*second)


def starts_in_both_branches(x: Any, flag: Any) -> Any:
    future = lax.cond(flag > 0, lambda: tuple(start(x * 2)), lambda: tuple(start(x * 3)))
    return done(*future)


def many_branches(x: Any, flag: Any) -> Any:
    for i in range(8):
        x = lax.cond(flag > i, lambda x=x: done(*start(x * 2)), lambda x=x: x * 3)
    return x


def inside_jit(x: Any) -> Any:
    return jax.jit(done)(*jax.jit(start)(x * 2))


def done_in_part(source: Any, target: Any, sem: Any, rows: int) -> Any:
    """Waits for so many rows of a copy."""

    def kernel(source: Any, target: Any, sem: Any, _: Any) -> None:
        part = target.at[pl.ds(0, rows)]
        pltpu.make_async_copy(part, part, sem).wait()

    return pl.pallas_call(
        kernel, out_shape=pltpu.HBM(SHAPE, jnp.float32), in_specs=[ANY, ANY, SEM], out_specs=ANY,
        input_output_aliases={1: 0}, compiler_params=pltpu.CompilerParams(has_side_effects=True), name="done_in_part",
    )(source, target, sem)  # fmt: skip


def finishes_half(x: Any) -> Any:
    source, target, sem = start(x * 2)
    return done_in_part(source, target, sem, SHAPE[0] // 2)


def finishes_half_and_half(x: Any) -> Any:
    source, target, sem = start(x * 2)
    target = done_in_part(source, target, sem, SHAPE[0] // 2)
    return done_in_part(source, target, sem, SHAPE[0] // 2)


def finishes_half_in_each_branch(x: Any, flag: Any) -> Any:
    source, target, sem = start(x * 2)
    half = SHAPE[0] // 2
    target = lax.cond(
        flag > 0,
        lambda: done_in_part(source, target, sem, half),
        lambda: done_in_part(source, target, sem, half),
    )
    return done_in_part(source, target, sem, half)


# -- AO502 --


def finishes_twice(x: Any) -> Any:
    source, target, sem = start(x * 2)
    return done(source, done(source, target, sem), sem)


def finishes_in_every_iteration(x: Any) -> Any:
    future = start(x * 2)
    return lax.fori_loop(0, 4, lambda _, y: y + done(*future), x)


def finishes_once_in_every_iteration(x: Any) -> Any:
    return lax.fori_loop(0, 4, lambda _, y: done(*start(y * 2)) * 2, x)


def finishes_in_a_branch_and_again(x: Any, flag: Any) -> Any:
    source, target, sem = start(x * 2)
    y = lax.cond(flag > 0, lambda: done(source, target, sem), lambda: jnp.zeros(SHAPE))
    return y + done(source, target, sem)


# -- AO503, AO504 --


def updates_the_source(x: Any) -> Any:
    state = x * 2
    target, sem = start_from(state)
    state = state.at[0].set(0.0)
    return done_without_source(target, sem), state


def forgets_the_source(x: Any) -> Any:
    return done_without_source(*start_from(x * 2))


def keeps_the_source_as_an_argument(x: Any) -> Any:
    return done_without_source(*start_from(x))


def keeps_the_source_as_a_result(x: Any) -> Any:
    state = x * 2
    return done_without_source(*start_from(state)), state


def reads_the_source(x: Any) -> Any:
    source, target, sem = start(x * 2)
    return done(source, target, sem) + source.sum()


def reads_the_destination(x: Any) -> Any:
    source, target, sem = start(x * 2)
    early = target + 1
    return done(source, target, sem) + early


def returns_a_future_from_a_branch(x: Any, flag: Any) -> Any:
    future = tuple(start(x * 2))
    future = lax.cond(flag > 0, lambda f: f, lambda f: tuple(start(done(*f))), future)
    return done(*future)


# -- AO506, AO507, AO508 --


def uses_what_was_taken_over(x: Any) -> Any:
    state = x * 2
    source, target, sem = start(state)
    z = state + 1
    return done(source, target, sem), z


def uses_what_start_returned(x: Any) -> Any:
    source, target, sem = start(x * 2)
    z = source + 1
    return done(source, target, sem), z


def starts_unmarked(x: Any) -> Any:
    return done(*start(x * 2, marked=False))


def starts_equal_copies_unmarked(x: Any) -> Any:
    first = start(x, marked=False)
    second = start(x, marked=False)
    return done(*first), done(*second)


def starts_equal_copies(x: Any) -> Any:
    first = start(x)
    second = start(x)
    return done(*first), done(*second)


def staggered(unroll: int, pinned: bool) -> Callable[[Any], Any]:
    """A loop whose carry is in flight: what arrives is sent on."""

    def fn(x: Any) -> Any:
        def body(_: Any, future: Any) -> Any:
            return tuple(start(done(*future), pinned=pinned))

        return done(*lax.fori_loop(0, 6, body, tuple(start(x * 2, pinned=pinned)), unroll=unroll))

    return fn


def carries_fresh_arrays(x: Any) -> Any:
    def body(future: Any, row: Any) -> Any:
        y = done(*future)
        return tuple(start(row * 3.0)), y.sum()

    future, sums = lax.scan(body, tuple(start(x * 2)), jnp.stack([x, x, x, x]))
    return done(*future), sums


def carries_through_without_use(x: Any) -> Any:
    y, future = lax.fori_loop(0, 5, lambda _, c: (c[0] * 1.5, c[1]), (x, tuple(start(x * 2))))
    return y, done(*future)


# -- futures that leave the program --


def returns_a_future(x: Any) -> Any:
    return start(x * 2)


def returns_one_of_two(x: Any) -> Any:
    first, second = start(x * 2), start(x * 3)
    return done(*first), second


def returns_a_future_from_a_loop(x: Any, n: Any) -> Any:
    return lax.fori_loop(0, n, lambda _, f: tuple(start(done(*f) * 2)), tuple(start(x * 2)))


def returns_no_semaphore(x: Any) -> Any:
    return start(x * 2)[:2]


def returns_no_destination(x: Any) -> Any:
    source, _, sem = start(x * 2)
    return source, sem


def returns_no_source(x: Any) -> Any:
    return start_from(x * 2)


def returns_what_an_argument_feeds(x: Any) -> Any:
    return start_from(x)


# -- loops of unknown length --


def starts_and_finishes(x: Any, n: Any) -> Any:
    return lax.fori_loop(0, n, lambda _, y: done(*start(y * 2)) * 2, x)


def sends_on(x: Any, n: Any) -> Any:
    return done(*returns_a_future_from_a_loop(x, n))


def forgets_the_last(x: Any, n: Any) -> Any:
    return returns_a_future_from_a_loop(x, n)[0]


def forgets_one_in_the_middle(x: Any, n: Any) -> Any:
    def body(i: Any, f: Any) -> Any:
        return tuple(start(lax.cond(i == 3, lambda: jnp.zeros(SHAPE), lambda: done(*f)) * 2))

    return done(*lax.fori_loop(0, n, body, tuple(start(x * 2))))


def waits_for_half(x: Any, n: Any) -> Any:
    def body(_: Any, y: Any) -> Any:
        source, target, sem = start(y * 2)
        return done_in_part(source, target, sem, SHAPE[0] // 2) * 2

    return lax.fori_loop(0, n, body, x)


def waits_for_both_halves(x: Any, n: Any) -> Any:
    half = SHAPE[0] // 2

    def body(_: Any, y: Any) -> Any:
        source, target, sem = start(y * 2)
        return done_in_part(source, done_in_part(source, target, sem, half), sem, half) * 2

    return lax.fori_loop(0, n, body, x)


def finishes_one_again_and_again(x: Any, n: Any) -> Any:
    future = start(x * 2)
    return lax.fori_loop(0, n, lambda _, y: y + done(*future), x)


def sends_on_until(x: Any) -> Any:
    def body(c: Any) -> Any:
        return c[0] + 1, tuple(start(done(*c[1]) * 2))

    y, future = lax.while_loop(lambda c: c[0].sum() < 10, body, (x, tuple(start(x * 2))))
    return y + done(*future)


def forgets_the_last_of_them(x: Any) -> Any:
    def body(c: Any) -> Any:
        return c[0] + 1, tuple(start(done(*c[1]) * 2))

    return lax.while_loop(lambda c: c[0].sum() < 10, body, (x, tuple(start(x * 2))))[0]


def carries_through_until(x: Any) -> Any:
    y, future = lax.while_loop(
        lambda c: c[0].sum() < 10, lambda c: (c[0] + 1, c[1]), (x, tuple(start(x * 2)))
    )
    return y + done(*future)


def sends_on_in_both_branches(x: Any, n: Any, flag: Any) -> Any:
    def body(_: Any, future: Any) -> Any:
        return lax.cond(
            flag > 0, lambda f: tuple(start(done(*f) * 2)), lambda f: tuple(start(done(*f) * 3)), future
        )

    return done(*lax.fori_loop(0, n, body, tuple(start(x * 2))))


def keeps_in_one_branch(x: Any, n: Any, flag: Any) -> Any:
    def body(_: Any, future: Any) -> Any:
        return lax.cond(flag > 0, lambda f: tuple(start(done(*f) * 2)), lambda f: f, future)

    return done(*lax.fori_loop(0, n, body, tuple(start(x * 2))))


def loop_in_a_loop(x: Any, n: Any, m: Any) -> Any:
    def body(_: Any, future: Any) -> Any:
        y = done(*returns_a_future_from_a_loop(x, m))
        return tuple(start(done(*future) * 2 + y))

    return done(*lax.fori_loop(0, n, body, tuple(start(x * 2))))


# -- conditionals and scans --


def finishes_in_two_of_three(x: Any, flag: Any) -> Any:
    future = start(x * 2)
    return lax.switch(flag, [lambda: done(*future), lambda: done(*future) + 1, lambda: jnp.zeros(SHAPE)])


def finishes_in_both_branches_and_again(x: Any, flag: Any) -> Any:
    source, target, sem = start(x * 2)
    y = lax.cond(flag > 0, lambda: done(source, target, sem), lambda: done(source, target, sem) + 1)
    return y + done(source, y, sem)


def scan_that_forgets_the_last(x: Any) -> Any:
    return lax.scan(
        lambda f, row: (tuple(start(row * done(*f).sum())), 0), tuple(start(x * 2)), jnp.stack([x] * 4)
    )[1]


def scan_that_forgets_all_but_the_last(x: Any) -> Any:
    future, sums = lax.scan(
        lambda f, row: (tuple(start(row * 3.0)), row.sum()), tuple(start(x * 2)), jnp.stack([x] * 4)
    )
    return sums, done(*future)


def scan_that_finishes_one_again(x: Any) -> Any:
    future = start(x * 2)
    return lax.scan(lambda c, row: (c + done(*future), None), x, jnp.stack([x] * 4))


def scan_of_whole_copies(x: Any) -> Any:
    return lax.scan(lambda c, row: (c, done(*start(row * 3.0))), 0, jnp.stack([x] * 4))


def scan_with_one_future_through(x: Any) -> Any:
    future, sums = lax.scan(lambda f, row: (f, row.sum()), tuple(start(x * 2)), jnp.stack([x] * 4))
    return sums, done(*future)


# -- values that kernels return --


def flag_of(x: Any) -> Any:
    """A number that depends on data."""

    def kernel(x: Any, o: Any) -> None:
        o[0] = jnp.int32(x[0, 0])

    out = jax.ShapeDtypeStruct((1,), jnp.int32)
    return pl.pallas_call(
        kernel, out_shape=out, out_specs=pl.BlockSpec(memory_space=pltpu.SMEM), name="flag"
    )(x)


def starts_and_waits_if(to_start: Any, to_wait: Any, x: Any) -> Any:
    """A copy of its own, started and waited for where the two flags say so."""

    def kernel(a: Any, b: Any, x: Any, o: Any, sem: Any) -> None:
        copy = pltpu.make_async_copy(x, o, sem)
        pl.when(a[0] > 0)(copy.start)
        pl.when(b[0] > 0)(copy.wait)

    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=2, grid=(1,), in_specs=[ANY], out_specs=ANY, scratch_shapes=[pltpu.SemaphoreType.DMA],
    )  # fmt: skip
    return pl.pallas_call(kernel, grid_spec=spec, out_shape=ARRAY)(to_start, to_wait, x)


def one_flag(x: Any) -> Any:
    flag = flag_of(x)
    return starts_and_waits_if(flag, flag, x)


def two_flags(x: Any) -> Any:
    return starts_and_waits_if(flag_of(x), flag_of(x * 2), x)


def one_flag_an_iteration(x: Any, n: Any) -> Any:
    return lax.fori_loop(0, n, lambda _, y: one_flag(y), x)


def a_flag_of_the_iteration_before(x: Any, n: Any) -> Any:
    def body(_: Any, c: Any) -> Any:
        new = flag_of(c[0])
        return starts_and_waits_if(c[1], new, c[0]), new

    return lax.fori_loop(0, n, body, (x, flag_of(x)))


WRONG = [
    (drops, (ARRAY,), "AO501"),
    (drops_in_a_branch, (ARRAY, FLAG), "AO501"),
    (drops_in_a_shard, (ARRAY,), "AO501"),
    (finishes_half, (ARRAY,), "AO501"),
    (finishes_twice, (ARRAY,), "AO502"),
    (finishes_in_every_iteration, (ARRAY,), "AO502"),
    (finishes_in_a_branch_and_again, (ARRAY, FLAG), "AO502"),
    (updates_the_source, (ARRAY,), "AO503"),
    (forgets_the_source, (ARRAY,), "AO503"),
    (reads_the_destination, (ARRAY,), "AO504"),
    (returns_a_future_from_a_branch, (ARRAY, FLAG), "AO504"),
    (finishes_half_in_each_branch, (ARRAY, FLAG), "AO504"),
    (uses_what_was_taken_over, (ARRAY,), "AO506"),
    (starts_unmarked, (ARRAY,), "AO507"),
    (starts_equal_copies_unmarked, (ARRAY,), "AO507"),
    (staggered(1, True), (ARRAY,), "AO508"),
    (staggered(2, False), (ARRAY,), "AO508"),
    (returns_no_semaphore, (ARRAY,), "AO501"),
    (returns_no_destination, (ARRAY,), "AO501"),
    (returns_no_source, (ARRAY,), "AO503"),
    (forgets_the_last, (ARRAY, FLAG), "AO501"),
    (forgets_one_in_the_middle, (ARRAY, FLAG), "AO501"),
    # Copies pile up, so no state repeats and the budget is spent.
    pytest.param(waits_for_half, (ARRAY, FLAG), "AO501", marks=pytest.mark.slow),
    (finishes_one_again_and_again, (ARRAY, FLAG), "AO502"),
    (forgets_the_last_of_them, (ARRAY,), "AO501"),
    (keeps_in_one_branch, (ARRAY, FLAG, FLAG), "AO504"),
    (finishes_in_two_of_three, (ARRAY, FLAG), "AO501"),
    (finishes_in_both_branches_and_again, (ARRAY, FLAG), "AO502"),
    (scan_that_forgets_the_last, (ARRAY,), "AO501"),
    (scan_that_forgets_all_but_the_last, (ARRAY,), "AO501"),
    (scan_that_finishes_one_again, (ARRAY,), "AO502"),
]
CLEAN = [
    (finishes_half_and_half, (ARRAY,)),
    (finishes_in_both_branches, (ARRAY, FLAG)),
    (starts_in_both_branches, (ARRAY, FLAG)),
    (many_branches, (ARRAY, FLAG)),
    (two_at_once, (ARRAY,)),
    (inside_jit, (ARRAY,)),
    (finishes_once_in_every_iteration, (ARRAY,)),
    (keeps_the_source_as_an_argument, (ARRAY,)),
    (keeps_the_source_as_a_result, (ARRAY,)),
    (reads_the_source, (ARRAY,)),
    (uses_what_start_returned, (ARRAY,)),
    (starts_equal_copies, (ARRAY,)),
    (staggered(2, True), (ARRAY,)),
    (carries_fresh_arrays, (ARRAY,)),
    (carries_through_without_use, (ARRAY,)),
    (returns_a_future, (ARRAY,)),
    (returns_one_of_two, (ARRAY,)),
    (returns_a_future_from_a_loop, (ARRAY, FLAG)),
    (returns_what_an_argument_feeds, (ARRAY,)),
    (starts_and_finishes, (ARRAY, FLAG)),
    (sends_on, (ARRAY, FLAG)),
    (waits_for_both_halves, (ARRAY, FLAG)),
    (sends_on_until, (ARRAY,)),
    (carries_through_until, (ARRAY,)),
    (sends_on_in_both_branches, (ARRAY, FLAG, FLAG)),
    (loop_in_a_loop, (ARRAY, FLAG, FLAG)),
    (scan_of_whole_copies, (ARRAY,)),
    (scan_with_one_future_through, (ARRAY,)),
    (one_flag, (ARRAY,)),
    (one_flag_an_iteration, (ARRAY, FLAG)),
]


@pytest.mark.parametrize(("fn", "args", "code"), WRONG)
def test_a_defect_is_one_finding(fn: Callable[..., Any], args: tuple[Any, ...], code: str) -> None:
    assert codes(fn, *args) == [code]


@pytest.mark.parametrize(("fn", "args"), CLEAN)
def test_a_right_program_is_clean(fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
    assert codes(fn, *args) == []


@pytest.mark.parametrize("fn", [returns_a_future, returns_one_of_two, returns_what_an_argument_feeds])
def test_a_future_that_is_returned_is_its_callers(fn: Callable[..., Any]) -> None:
    (text,) = asyncops.check(fn, ARRAY).assumptions
    assert text.startswith("the caller waits for the copy that kernel start")


@pytest.mark.parametrize(("fn", "args"), [(two_flags, ()), (a_flag_of_the_iteration_before, (FLAG,))])
def test_what_two_calls_return_is_not_one_value(fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
    assert set(codes(fn, ARRAY, *args)) & {"AO101", "AO103"}


def test_branches_on_one_value_go_one_way() -> None:
    assert "AO501" not in codes(starts_and_finishes_on_one_condition, ARRAY, FLAG)
    assert "AO502" not in codes(starts_and_finishes_on_one_condition, ARRAY, FLAG)


def test_a_second_done_is_found_where_the_kernel_is_called() -> None:
    def fn(x: Any) -> Any:
        source, target, sem = start(x * 2)
        y = done(source, target, sem)
        return done(source, y, sem)

    (found,) = asyncops.check(fn, ARRAY).diagnostics
    first = fn.__code__.co_firstlineno
    assert found.location is not None
    assert found.location.line == first + 3
    assert found.related[0][1].line == first + 2
    assert "AO102" in {d.code for d in found.secondary}
