"""Futures as objects: used once, told apart, and heard of when they are forgotten."""

from __future__ import annotations

import gc
import warnings

import jax
import jax.numpy as jnp
import pytest

import asyncops
from asyncops import async_copy_done, async_copy_start
from stateful.errors import (
    FutureError,
    FutureReusedError,
    InvalidArgumentError,
    UnfinishedFutureWarning,
)

X = jnp.arange(6.0).reshape(2, 3)


def test_outside_of_jit_too():
    assert (async_copy_done(async_copy_start(X)) == X).all()


def test_a_second_done_names_all_three_lines():
    fut = async_copy_start(X)
    async_copy_done(fut)
    with pytest.raises(
        FutureReusedError, match=r"test_futures.py:(\d+) .*started at test_futures.py:\d+ .* consumed"
    ):
        async_copy_done(fut)


def test_two_branches_may_each_finish_a_future_that_they_close_over():
    @jax.jit
    def program(x):
        fut = async_copy_start(x)
        return jax.lax.cond(x.sum() > 0, lambda: async_copy_done(fut), lambda: -async_copy_done(fut))

    assert (program(X) == X).all()


def forget():
    async_copy_start(X)
    gc.collect()


def test_a_forgotten_future_is_heard_of():
    message = r"async_copy_start at test_futures.py:\d+ .* was never finished"
    with pytest.warns(UnfinishedFutureWarning, match=message):
        forget()


def test_a_future_that_was_handed_on_is_not_forgotten():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fut = jax.jit(async_copy_start)(X)
        assert (jax.jit(async_copy_done)(fut) == X).all()
        del fut
        # A loop's condition looks at what is carried, futures too.
        jax.jit(lambda x: asyncops.while_loop(lambda c: c[0] < 2, _step, (0, async_copy_start(x))))(X)
        gc.collect()


def _step(carry):
    i, fut = carry
    return i + 1, async_copy_start(async_copy_done(fut))


@pytest.mark.filterwarnings("ignore::stateful.errors.UnfinishedFutureWarning")
@pytest.mark.parametrize(
    "use",
    [lambda f: f + 1, lambda f: 2 * f, lambda f: -f, jnp.sin, lambda f: X @ f, lambda f: f[0]],
    ids=["add", "multiply", "negate", "sin", "matmul", "index"],
)
def test_a_future_is_no_array(use):
    with pytest.raises(FutureError, match=r"async_copy_start at .*: call async_copy_done on it first"):
        use(async_copy_start(X))


@pytest.mark.filterwarnings("ignore::stateful.errors.UnfinishedFutureWarning")
def test_its_leaves_are_no_arrays_either():
    source, destination, semaphores = jax.tree.leaves(async_copy_start(X))
    for leaf in (source, destination, semaphores):
        with pytest.raises((TypeError, ValueError)):
            jnp.sin(leaf)


def test_the_line_is_no_part_of_the_type():
    first = jax.eval_shape(async_copy_start, X)
    second = jax.eval_shape(lambda x: async_copy_start(x), X)
    assert jax.tree.structure(first) == jax.tree.structure(second)
    other = jax.eval_shape(async_copy_start, X[0])
    assert jax.tree.structure(first) != jax.tree.structure(other)


@pytest.mark.filterwarnings("ignore::stateful.errors.UnfinishedFutureWarning")
def test_it_shows_what_it_is():
    fut = async_copy_start(X)
    assert repr(fut).startswith("<future of async_copy_start at test_futures.py:")
    assert repr(fut).endswith("running>")
    async_copy_done(fut)
    assert "consumed at test_futures.py:" in repr(fut)


@pytest.mark.filterwarnings("ignore::stateful.errors.UnfinishedFutureWarning")
def test_a_ref_future_knows_its_refs_only_where_it_was_started():
    def crossing(x):
        x_ref, y_ref = jax.new_ref(x), jax.new_ref(jnp.zeros_like(x))
        fut = asyncops.async_copy_start_ref(x_ref, y_ref)
        fut = jax.tree.map(lambda leaf: leaf, fut)
        asyncops.async_copy_done_ref(fut)

    with pytest.raises(InvalidArgumentError, match="no longer knows its Refs; pass x_ref and y_ref"):
        jax.jit(crossing)(X)

    def half(x):
        x_ref, y_ref = jax.new_ref(x), jax.new_ref(jnp.zeros_like(x))
        asyncops.async_copy_done_ref(asyncops.async_copy_start_ref(x_ref, y_ref), x_ref)

    with pytest.raises(InvalidArgumentError, match="give both x_ref and y_ref, or none"):
        jax.jit(half)(X)
