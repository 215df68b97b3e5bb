"""Helpers on JAX's own Refs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

import stateful
from stateful.errors import InvalidArgumentError


def test_make_and_freeze_a_tree():
    @jax.jit
    def fn(x):
        refs = stateful.make_ref({"a": x, "b": x + 1})
        refs["a"][0] = refs["b"][1]
        return stateful.freeze(refs)

    result = fn(jnp.arange(3.0))
    np.testing.assert_array_equal(result["a"], [2, 1, 2])
    np.testing.assert_array_equal(result["b"], [1, 2, 3])


def test_made_refs_are_jaxs_own():
    assert isinstance(stateful.make_ref(jnp.zeros(2)), jax.Ref)


def test_run_state():
    doubled = stateful.run_state(lambda ref: ref.__setitem__(..., ref[...] * 2))(jnp.arange(3.0))
    np.testing.assert_array_equal(doubled, [0, 2, 4])


def test_run_scoped():
    def kernel(x_ref, o_ref):
        def body(acc):
            acc[...] = x_ref[...]
            o_ref[...] = acc[...] + 1

        stateful.run_scoped(body, pl.MemorySpace.ANY((8,), jnp.float32))

    call = pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct((8,), jnp.float32), interpret=True)
    np.testing.assert_array_equal(call(jnp.arange(8.0)), jnp.arange(8.0) + 1)


def test_opt_barrier_passes_values_and_refs():
    @jax.jit
    def fn(x):
        ref = stateful.make_ref(x)
        y, same = stateful.opt_barrier(x + 1, ref)
        assert same is ref
        return y, ref[...], stateful.opt_barrier(x)

    y, held, alone = fn(jnp.arange(3.0))
    np.testing.assert_array_equal(y, [1, 2, 3])
    np.testing.assert_array_equal(held, [0, 1, 2])
    np.testing.assert_array_equal(alone, [0, 1, 2])


def test_opt_barrier_ties_every_operand_to_every_later_use():
    def fn(x):
        ref = stateful.make_ref(x)
        stateful.opt_barrier(jnp.sin(x), ref)
        return ref[...]

    (barrier,) = [e for e in jax.make_jaxpr(fn)(1.0).jaxpr.eqns if "barrier" in e.primitive.name]
    assert len(barrier.invars) == 2


def test_opt_barrier_needs_something():
    with pytest.raises(InvalidArgumentError, match="at least one"):
        stateful.opt_barrier()
