"""Jaxprs of both JAX ends look the same, and equations know the user's line."""

from __future__ import annotations

import contextlib
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stateful._jax import jaxprs


def opened(fn, *args):
    return jaxprs.open_jaxpr(jax.make_jaxpr(fn)(*args))


def test_constants_are_bound_apart_from_inputs():
    table = np.arange(4.0)
    body = opened(lambda x: x + jnp.asarray(table), jnp.zeros(4))
    assert len(body.inputs) == 1
    assert len(body.consts) == len(body.jaxpr.constvars)


def test_inputs_are_named_after_the_parameters():
    body = opened(lambda left, right: left + right, 1.0, 2.0)
    assert body.names == ("left", "right")


def test_a_body_knows_where_its_function_is_defined():
    def kernel(x):
        return x

    file, line, name = opened(kernel, 1.0).source
    assert file == __file__
    assert name.endswith("kernel")
    assert line == kernel.__code__.co_firstlineno


def wrapped(fn):
    @functools.wraps(fn)
    def wrapper(*args):
        with contextlib.nullcontext():
            return fn(*args)

    return wrapper


def test_the_location_is_the_line_that_asks_for_the_operation():
    @wrapped
    def line_of_interest(x):
        return jnp.sin(x)

    (eqn,) = opened(lambda x: line_of_interest(x), 1.0).jaxpr.eqns
    file, line, function = jaxprs.user_location(eqn)
    assert (file, line) == (__file__, line_of_interest.__wrapped__.__code__.co_firstlineno + 2)
    assert "line_of_interest" in function


def test_all_frames_are_the_users_innermost_first():
    def inner(x):
        return x * 2

    def outer(x):
        return inner(x)

    (eqn,) = opened(lambda x: outer(x), 1.0).jaxpr.eqns
    frames = jaxprs.user_locations(eqn)
    assert [f[2].rpartition(".")[2] for f in frames[:3]] == ["inner", "outer", "<lambda>"]
    assert {f[0] for f in frames} == {__file__}


@pytest.mark.parametrize("uses_it", [False, True])
def test_the_old_value_of_a_swap_is_known_to_be_used_or_not(uses_it):
    def fn(x):
        ref = jax.new_ref(x)
        old = jax.ref.swap(ref, ..., x + 1)
        return old if uses_it else ref[...]

    eqns = opened(fn, jnp.zeros(4)).jaxpr.eqns
    (swap,) = [e for e in eqns if e.primitive.name == "swap"]
    assert jaxprs.is_unused(swap.outvars[0]) is not uses_it
