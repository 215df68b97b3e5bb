"""Kernels are seen and checked wherever JAX traces them, once each."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import asyncops
from asyncops.lint.watching import FindingsWarning, Watch
from stateful._jax import tracing
from stateful.errors import FindingsError, InvalidArgumentError
from tests.asyncops.lint.kernels import X, call, calm, check_by_name, racy

ONES = jnp.ones(X.shape, X.dtype)


@pytest.fixture(autouse=True)
def checker_by_name(monkeypatch: pytest.MonkeyPatch, played_checker: None) -> None:
    """Replaces the checker of the other linter tests."""
    monkeypatch.setattr(asyncops, "check", check_by_name)


def jitted(fn: Any) -> Any:
    return jax.jit(lambda x: fn(x) * 1.0)


def looped(fn: Any) -> Any:
    return lambda x: jax.lax.fori_loop(0, 3, lambda _, y: fn(y), x)


def sharded(fn: Any) -> Any:
    mesh = jax.make_mesh((8,), ("i",))
    per_shard = lambda x: fn(x) + jax.lax.axis_index("i")  # noqa: E731
    return jax.shard_map(per_shard, mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False)


def mapped(fn: Any) -> Any:
    return lambda x: jax.vmap(fn)(x[None])[0]


@pytest.mark.parametrize(
    "around",
    [
        lambda fn: fn,
        jitted,
        looped,
        sharded,
        mapped,
        lambda fn: jitted(sharded(fn)),
        lambda fn: jitted(looped(fn)),
    ],
)
def test_a_kernel_is_seen_wherever_it_is_traced(around: Callable[[Any], Any]) -> None:
    with asyncops.checking(on_finding="collect") as checked:
        around(call(racy))(ONES)
    assert [f.code for f in checked.result.findings] == ["AO201"]
    assert not checked.result.unknowns


def test_a_loop_is_checked_as_a_whole() -> None:
    with asyncops.checking(on_finding="collect") as checked:
        looped(call(racy))(ONES)
    assert len(checked.result.outcomes) == 1


def test_each_program_and_shape_once() -> None:
    fn = jax.jit(lambda x: call(calm, x.shape)(x))
    watch = Watch()
    with watch.open():
        for rows in (8, 8, 16):
            fn(jnp.ones((rows, 128)))
        first = watch.check()
        fn(ONES)
    assert [o.target.rpartition("(")[2] for o in first] == ["float32[8,128])", "float32[16,128])"]
    assert watch.check() == ()


def test_refs_in_and_around_the_program() -> None:
    ref = jax.new_ref(ONES)

    def body() -> None:
        ref[...] = call(racy)(ref[...])

    with asyncops.checking(on_finding="collect") as checked:
        jax.jit(body)()
    assert checked.result.verdict == "findings"
    assert not checked.result.unknowns


def test_tracing_is_as_before_afterwards() -> None:
    before = tracing._partial_eval.trace_to_jaxpr  # pyright: ignore[reportPrivateUsage]
    with asyncops.checking(), asyncops.checking():
        call(calm)(ONES)
    assert tracing._partial_eval.trace_to_jaxpr is before  # pyright: ignore[reportPrivateUsage]


def test_findings_are_raised_at_the_end_of_the_block() -> None:
    with pytest.raises(FindingsError, match=r"error\[AO201\] read-before-arrival: the kernel is racy"):
        with asyncops.checking():
            result = call(racy)(ONES)
            assert float(result[0, 0]) == 2.0


def test_an_error_in_the_block_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        with asyncops.checking():
            call(racy)(ONES)
            raise ZeroDivisionError


def test_warnings_instead() -> None:
    with pytest.warns(FindingsWarning, match="AO201"):
        with asyncops.checking(on_finding="warn"):
            call(racy)(ONES)


def test_clean_kernels_say_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", FindingsWarning)
        with asyncops.checking(on_finding="warn") as checked:
            call(calm)(ONES)
    assert checked.result.verdict == "clean"
    assert [k.name for o in checked.result.outcomes for k in o.kernels] == ["calm"]


def test_as_a_decorator_each_call_is_a_block() -> None:
    @asyncops.checking()
    def run(kernel: Any) -> None:
        call(kernel)(ONES)

    run(calm)
    for _ in range(2):
        with pytest.raises(FindingsError):
            run(racy)


def test_what_cannot_be_checked_is_unknown_not_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("bug")

    monkeypatch.setattr(asyncops, "check", broken)
    with asyncops.checking() as checked:
        call(calm)(ONES)
    assert checked.result.verdict == "unknown"
    assert "RuntimeError: bug" in checked.result.unknowns[0][1]


def test_an_unknown_action_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="on_finding must be one of"):
        asyncops.checking(on_finding="print")  # pyright: ignore[reportArgumentType]


def test_arguments_are_called_as_in_the_users_function_else_as_in_the_kernel(played_checker: None) -> None:
    seen: list[tracing.TracedProgram] = []
    jax.clear_caches()
    with tracing.record_programs(seen.append):
        call(calm)(ONES)
        jax.jit(lambda image: call(racy)(image) * 2.0)(ONES)
    assert [list(inspect.signature(program.fn).parameters) for program in seen] == [["x_ref"], ["image"]]
