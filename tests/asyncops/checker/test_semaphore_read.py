"""Kernels that look at a semaphore's count: both sides are followed, with what the count can be there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import asyncops

ARRAY = jax.ShapeDtypeStruct((16, 128), jnp.float32)
BYTES = 16 * 128 * 4
ANY = pl.BlockSpec(memory_space=pl.ANY)
read = getattr(pl, "semaphore_read", None) or pltpu.semaphore_read

Body = Callable[[Any, Any, Any], None]  # the copy, its semaphore, a place for a number


def verdict(body: Body) -> list[str]:
    """The codes of the findings, else the verdict, for a kernel that starts a copy first."""

    def kernel(x: Any, o: Any, number: Any, sem: Any) -> None:
        copy = pltpu.make_async_copy(x, o, sem)
        copy.start()
        body(copy, sem, number)

    return _verdict(kernel, pltpu.SemaphoreType.DMA)


def verdict_of_signals(body: Body) -> list[str]:
    """As :func:`verdict`, for a kernel that signals itself twice."""

    def kernel(x: Any, o: Any, number: Any, sem: Any) -> None:
        pl.semaphore_signal(sem, 2)
        body(None, sem, number)

    return _verdict(kernel, pltpu.SemaphoreType.REGULAR)


def _verdict(kernel: Callable[..., None], semaphore: Any) -> list[str]:
    def fn(x: Any) -> Any:
        scratch = [pltpu.SMEM((1,), jnp.int32), semaphore]
        call = pl.pallas_call(kernel, in_specs=[ANY], out_specs=ANY, out_shape=ARRAY, scratch_shapes=scratch)
        return call(x)

    report = asyncops.check(fn, ARRAY)
    return [d.code for d in report.diagnostics] or [report.verdict]


def polls(sem: Any, count: int, number: Any) -> None:
    """Goes round until the count is there."""
    number[0] = lax.while_loop(lambda i: read(sem) < count, lambda i: i + 1, 0)


def waits_on_both_sides(copy: Any, sem: Any, _: Any) -> None:
    count = read(sem)
    pl.when(count > 0)(copy.wait)
    pl.when(count <= 0)(copy.wait)


def waits_on_one_side(copy: Any, sem: Any, _: Any) -> None:
    pl.when(read(sem) > 0)(copy.wait)


def looks_twice(copy: Any, sem: Any, _: Any) -> None:
    pl.when(read(sem) > 0)(copy.wait)
    pl.when(read(sem) <= 0)(copy.wait)


def waits_again_for_what_is_left(copy: Any, sem: Any, _: Any) -> None:
    copy.wait()
    pl.when(read(sem) > 0)(copy.wait)


def waits_twice_if_more_than_the_copy_counts(copy: Any, sem: Any, _: Any) -> None:
    pl.when(read(sem) > BYTES)(copy.wait)
    copy.wait()


def waits_twice_if_all_is_there(copy: Any, sem: Any, _: Any) -> None:
    pl.when(read(sem) == BYTES)(copy.wait)
    copy.wait()


def polls_and_waits(copy: Any, sem: Any, number: Any) -> None:
    polls(sem, BYTES, number)
    copy.wait()


def polls_and_leaves(copy: Any, sem: Any, number: Any) -> None:
    polls(sem, BYTES, number)


def polls_for_more_than_comes(copy: Any, sem: Any, number: Any) -> None:
    polls(sem, BYTES + 1, number)
    copy.wait()


@pytest.mark.parametrize(
    "body",
    [
        waits_on_both_sides,
        waits_again_for_what_is_left,
        waits_twice_if_more_than_the_copy_counts,
        polls_and_waits,
    ],
)
def test_a_right_kernel_is_clean(body: Body) -> None:
    assert verdict(body) == ["clean"]


@pytest.mark.parametrize(
    ("body", "codes"),
    [
        (waits_on_one_side, {"AO101"}),
        (looks_twice, {"AO101", "AO102", "AO103"}),
        (waits_twice_if_all_is_there, {"AO102"}),
        (polls_and_leaves, {"AO101"}),
    ],
)
def test_the_wrong_side_is_found(body: Body, codes: set[str]) -> None:
    (found,) = verdict(body)
    assert found in codes


def test_what_the_core_signals_itself_is_known() -> None:
    def waits_for_what_it_reads(_: Any, sem: Any, number: Any) -> None:
        polls(sem, 2, number)
        pl.semaphore_wait(sem, read(sem))

    def waits_for_more(_: Any, sem: Any, number: Any) -> None:
        pl.when(read(sem) == 2)(lambda: pl.semaphore_wait(sem, 3))

    assert verdict_of_signals(waits_for_what_it_reads) == ["clean"]
    assert verdict_of_signals(waits_for_more) == ["AO303"]


def test_a_poll_that_never_ends_is_not_clean() -> None:
    def waits(_: Any, sem: Any, number: Any) -> None:
        polls(sem, 3, number)
        pl.semaphore_wait(sem, 2)

    assert verdict_of_signals(waits) == ["unknown"]
    assert verdict(polls_for_more_than_comes) == ["unknown"]
