"""``program_order``: values and derivatives unchanged, order kept, in everything that holds a program."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import asyncops
import stateful
from asyncops import program_order
from tests.asyncops import note_programs as note
from tests.asyncops.conftest import sharded

start, done = note.start, note.done
X = jnp.asarray(np.random.default_rng(1).normal(size=(8, 3)), jnp.float32)


def close(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


# -- programs that hold starts and dones in every way -------------------------------------------------


def in_jit(x):
    fut = jax.jit(start)(x)
    z = jax.jit(jnp.sin)(x)
    return jax.jit(lambda f, z: done(f) * z)(fut, z)


def in_remat(x):
    @jax.checkpoint
    def step(x):
        fut = start(x)
        z = jnp.sin(x)
        return done(fut) * z

    return step(step(x))


def in_custom_jvp(x):
    @jax.custom_jvp
    def step(x):
        fut = start(x)
        z = jnp.sin(x)
        return done(fut) * z

    @step.defjvp
    def _(primals, tangents):
        return jax.jvp(lambda x: 2 * done(start(x)), primals, tangents)

    return step(x)


def in_custom_vjp(x):
    @jax.custom_vjp
    def step(x):
        fut = start(x)
        z = jnp.sin(x)
        return done(fut) * z

    step.defvjp(lambda x: (step(x), None), lambda _, ct: (3 * ct,))
    return step(x)


def in_branches(x):
    fut = start(x)

    def yes(fut):
        z = jnp.sin(x)
        return done(fut) * z

    return lax.cond(lax.psum(x.sum(), "x") > 0, yes, lambda fut: -done(fut), fut)


def out_of_branches(x):
    fut = lax.cond(lax.psum(x.sum(), "x") > 0, lambda: start(x), lambda: start(-x))
    z = jnp.sin(x)
    return done(fut) * z


def through_a_branch(x):
    positive = lax.psum(x.sum(), "x") > 0
    fut = lax.cond(positive, lambda f: start(done(f)), lambda f: f, start(x))
    z = jnp.sin(x)
    fut = lax.fori_loop(0, 3, lambda i, f: start(done(f)), fut)
    return done(fut) * z


def in_a_switch(x):
    fut = start(x)
    steps = [lambda f: done(f), lambda f: 2 * done(f), lambda f: start(done(f)) and done(f)]
    return lax.switch(lax.axis_size("x") - 4, steps[:2], fut)


def two_directions(x):
    def back(x):
        return asyncops.ppermute_start(x, "x", [(j, i) for i, j in note.ring()])

    a, b = start(x), back(x)
    z = jnp.sin(x)
    y = done(a)
    return (y + z) * done(b)


def in_scan_with_stacks(x):
    def step(carry, w):
        x, fut = carry
        y = done(fut)
        fut = start(y * w)
        return (x + jnp.sin(y), fut), y

    (x, fut), ys = lax.scan(step, (x, start(x)), jnp.arange(1.0, 6.0))
    return x + done(fut) + ys.sum(0)


HOLDERS = [
    in_jit,
    in_remat,
    in_custom_jvp,
    in_custom_vjp,
    in_branches,
    out_of_branches,
    through_a_branch,
    in_a_switch,
    two_directions,
    in_scan_with_stacks,
    note.odd_loop,
    note.accumulating,
]


def names(fn):
    return fn.__name__


@pytest.mark.slow
def test_values_and_derivatives_are_unchanged():
    def derivatives(fn, x):
        def loss(x):
            return jnp.sum(jnp.cos(fn(x)) * (1 + lax.axis_index("x")))

        tangent = x if names(fn) == "in_custom_vjp" else jax.jvp(fn, (x,), (x * x,))[1]
        return fn(x), tangent, jax.grad(loss)(x)

    @functools.partial(sharded, devices=4)
    def everything(x):
        plain = [derivatives(fn, x) for fn in HOLDERS]
        inside = [derivatives(program_order(fn), x) for fn in HOLDERS]
        around = program_order(lambda x: [derivatives(fn, x)[2] for fn in HOLDERS])(x)
        return plain, inside, around

    for sign in (1, -1):  # for branches both ways
        for fn, a, b, c in zip(HOLDERS, *everything(sign * X), strict=True):
            same = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5, err_msg=names(fn))
            jax.tree.map(same, a, b)
            same(a[2], c)


@pytest.mark.parametrize("fn", [note.overlapped, note.accumulating, in_branches], ids=names)
def test_under_vmap_and_around_shard_map(fn):
    want = sharded(fn, 4)(X)
    batch = jax.vmap(sharded(program_order(fn), 4))(jnp.stack([X, 2 * X]))
    close(batch[0], want)
    close(jax.jit(program_order(sharded(fn, 4)))(X), want)
    close(sharded(program_order(fn), 4, check_vma=True)(X), want)


def test_other_arguments_are_passed_on():
    @program_order
    def program(x, times, *, flip, options):
        y = done(start(x))
        return (-y if flip else y) * times + options["add"]

    def call(x):
        return program(x, 3, flip=True, options={"add": 1})

    close(sharded(call, 4)(X), 1 - 3 * jnp.roll(X, 2, axis=0))


def test_what_it_closes_over_may_be_differentiated():
    def loss(w):
        return sharded(lambda x: program_order(lambda x: done(start(x * w)))(x), 4)(X).sum()

    close(jax.grad(loss)(2.0), X.sum())


def test_a_program_without_futures_is_left_alone():
    plain = jax.jit(lambda x: jnp.sin(x) @ x.T).lower(X).as_text()
    ordered = jax.jit(program_order(lambda x: jnp.sin(x) @ x.T)).lower(X).as_text()
    assert "optimization_barrier" not in ordered
    assert plain.count("stablehlo.") == ordered.count("stablehlo.")


def test_it_may_be_nested():
    inner = program_order(note.overlapped)
    close(sharded(program_order(lambda x: inner(inner(x))), 4)(X), sharded(lambda x: inner(inner(x)), 4)(X))


def test_opt_barrier_takes_futures():
    def program(x):
        x_ref, fut = jax.new_ref(x), start(x)
        z, fut = stateful.opt_barrier(x + 1, fut)
        x_ref[...] += done(fut)
        return x_ref[...] * z

    close(sharded(program, 4)(X), (X + jnp.roll(X, 2, axis=0)) * (X + 1))


def test_refs_of_run_state():
    """Their bodies still hold Refs when the program is lowered."""

    def program(x):
        def body(x_ref, y_ref):
            fut = note.start_ref(x_ref, y_ref)
            z = jnp.sin(x_ref[...])
            note.done_ref(fut)
            y_ref[...] += z

        return stateful.run_state(lambda refs: body(*refs))((x, jnp.zeros_like(x)))[1]

    close(sharded(program_order(program), 4)(X), jnp.roll(X, 2, axis=0) + jnp.sin(X))


# -- scheduled by the TPU compiler --------------------------------------------------------------------


@pytest.mark.tpu_compile
@pytest.mark.parametrize("fn", [in_jit, in_custom_jvp, two_directions, out_of_branches], ids=names)
def test_work_stays_between(fn, scheduled):
    compiled = scheduled(fn)
    assert all(compiled.between())
    assert compiled.moved_in_flight() == []


@pytest.mark.tpu_compile
def test_the_gradient_of_a_loop_overlaps_too(scheduled):
    """The transpose of a ring's start and done is a done and a start of the inverse ring."""
    compiled = scheduled(jax.grad(lambda x: jnp.sum(jnp.sin(note.accumulating(x)))))
    forth, back = compiled.bodies()
    assert compiled.starts_and_dones(forth) == compiled.starts_and_dones(back) == (2, 2)
    assert compiled.moved_in_flight() == []
    assert compiled.copies_in_loops() == []


@pytest.mark.tpu_compile
def test_no_future_crosses_the_end_of_a_branch(scheduled):
    """The compiler may copy what a conditional returns; what is in flight would be torn."""
    compiled = scheduled(through_a_branch)
    assert compiled.moved_in_flight() == []
    assert compiled.kernels("_resume") == 1
