"""The primitives: what JAX knows of them, the Ref form beside the value form, and errors of operands."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl

import asyncops
from stateful.errors import InFlightMovedError, InvalidArgumentError
from tests.asyncops import note_programs as note
from tests.asyncops.conftest import sharded

X = jnp.asarray(np.random.default_rng(3).normal(size=(4, 4, 6)), jnp.float32)


def equations(jaxpr):
    """All equations, however deep."""
    for eqn in jaxpr.eqns:
        yield eqn
        for value in eqn.params.values():
            for inner in value if isinstance(value, (tuple, list)) else [value]:
                if hasattr(inner, "eqns"):
                    yield from equations(inner)
                elif hasattr(inner, "jaxpr"):
                    yield from equations(inner.jaxpr)


def named(fn, name):
    return [e for e in equations(jax.make_jaxpr(fn)(X).jaxpr) if e.primitive.name == name]


def test_effects_are_explicit():
    (start,) = named(asyncops.async_copy_start, "async_start")
    assert "Async" in str(start.effects)

    def program(x):
        x_ref, y_ref = jax.new_ref(x), jax.new_ref(jnp.zeros_like(x))
        asyncops.async_copy_done_ref(asyncops.async_copy_start_ref(x_ref, y_ref))
        return y_ref[...]

    for name in ("async_start_ref", "async_done_ref"):
        (eqn,) = named(program, name)
        kinds = sorted(type(e).__name__ for e in eqn.effects)
        assert kinds == ["AsyncEffect", "ReadEffect", "WriteEffect"]


@pytest.mark.parametrize(
    "program", [note.refs_ring, note.refs_slots, note.refs_staggered], ids=lambda p: p.__name__
)
def test_no_loop_loses_operations_on_refs(program):
    """JAX drops kernels on Refs from loops, because their equations show no effect; these are there when lowered."""
    text = sharded(program, 4).lower(jnp.ones((8, 4))).as_text()
    assert "stablehlo.while" in text
    assert "collective_permute" in text


def test_equal_starts_stay_two():
    def program(x):
        a, b = asyncops.async_copy_start(x), asyncops.async_copy_start(x)
        return asyncops.async_copy_done(a) + asyncops.async_copy_done(b)

    assert len(named(jax.jit(program), "async_start")) == 2


def test_the_transpose_is_the_inverse_operation():
    jaxpr = jax.make_jaxpr(sharded(jax.grad(lambda x: note.done(note.start(x)).sum()), 4))(X).jaxpr
    starts = [e.params["transfer"].perm for e in equations(jaxpr) if e.primitive.name == "async_start"]
    assert [(i, (i + 1) % 4) for i in range(4)] in [sorted(map(tuple, p)) for p in starts]
    assert [(i, (i - 1) % 4) for i in range(4)] in [sorted(map(tuple, p)) for p in starts]


# -- the Ref form -------------------------------------------------------------------------------------

REF_CASES = {
    "async_copy": (asyncops.async_copy_start_ref, asyncops.async_copy_done_ref, lambda x: x, ()),
    "ppermute": (
        asyncops.ppermute_start_ref,
        asyncops.ppermute_done_ref,
        lambda x: lax.ppermute(x, "x", note.ring()),
        ("x", [(0, 1), (1, 2), (2, 3), (3, 0)]),
    ),
    "all_gather": (
        asyncops.all_gather_start_ref,
        asyncops.all_gather_done_ref,
        lambda x: lax.all_gather(x, "x"),
        ("x",),
    ),
    "all_to_all": (
        asyncops.all_to_all_start_ref,
        asyncops.all_to_all_done_ref,
        lambda x: lax.all_to_all(x, "x", 0, 0),
        ("x",),
    ),
    "psum_scatter": (
        asyncops.psum_scatter_start_ref,
        asyncops.psum_scatter_done_ref,
        lambda x: lax.psum_scatter(x, "x"),
        ("x",),
    ),
    "psum": (asyncops.psum_start_ref, asyncops.psum_done_ref, lambda x: lax.psum(x, "x"), ("x",)),
}


@pytest.mark.parametrize("shape", [(4, 3, 2), (4,)], ids=["in place", "through a buffer"])
def test_refs_hold_what_the_fused_operation_gives(shape):
    x = jnp.asarray(np.random.default_rng(0).normal(size=(4 * shape[0], *shape[1:])), jnp.float32)

    def by_refs(name, x):
        start, done, fused, arguments = REF_CASES[name]
        result = jax.eval_shape(fused, x)
        x_ref, y_ref = jax.new_ref(x), jax.new_ref(jnp.zeros(result.shape, x.dtype))
        done(start(x_ref, y_ref, *arguments))
        return y_ref[...]

    def both(x):
        fused = [REF_CASES[name][2](x) for name in REF_CASES]
        return [y[None] for y in fused], [by_refs(name, x)[None] for name in REF_CASES]

    for name, want, found in zip(REF_CASES, *sharded(both, 4)(x), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-5, err_msg=name)


def test_gathering_rows_of_a_slot():
    """Source and destination may each be a slot, of the same or of different Refs."""

    def program(x):
        x_ref = jax.new_ref(jnp.stack([x, 2 * x]))
        y_ref = jax.new_ref(jnp.zeros((3, 4 * x.shape[0], *x.shape[1:])))
        fut = asyncops.all_gather_start_ref(x_ref.at[1], y_ref.at[2], "x", tiled=True)
        asyncops.all_gather_done_ref(fut)
        return y_ref[2]

    x = jnp.arange(8.0).reshape(8, 1)
    np.testing.assert_array_equal(sharded(program, 4)(x)[:8], 2 * x)


def new(shape=(4, 6), dtype=jnp.float32):
    return jax.new_ref(jnp.zeros(shape, dtype))


RING = [(0, 1), (1, 0)]


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (
            lambda: asyncops.ppermute_start_ref(new(), new((4, 5)), "x", RING),
            r"y_ref has the shape \(4, 5\), and rec",
        ),
        (
            lambda: asyncops.ppermute_start_ref(new(), new(dtype=jnp.bfloat16), "x", RING),
            "x_ref is of dtype float32 ",
        ),
        (lambda: asyncops.ppermute_start_ref(new(), new(), "y", RING), "axis_name='y' is not bound here"),
        (
            lambda: asyncops.ppermute_start_ref(new(), new(), "x", [(0, 0), (1, 0)]),
            "not a permutation: 0 is a destin",
        ),
        (
            lambda: asyncops.ppermute_start_ref(jnp.zeros(3), new(), "x", RING),
            "x_ref must be a Ref .* for arrays call ppermute_start",
        ),
        (
            lambda: asyncops.ppermute_start_ref(new().at[1:], new(), "x", RING),
            "one slot of it, ref.at.index., not an",
        ),
        (
            lambda: asyncops.all_gather_start_ref(new(), new(), "x"),
            r"y_ref has the shape .* receives \(2, 4, 6\)",
        ),
        (
            lambda: asyncops.all_to_all_start_ref(new(), new(), "x"),
            "length 4; without tiled=True it must be the numb",
        ),
        (lambda: asyncops.async_copy_start_ref(new(), new(), memory_space="vmem"), "Refs lie in 'hbm'"),
        (lambda: asyncops.psum_done_ref(jnp.zeros(3)), "fut must be the future that psum_start_ref returned"),
    ],
)
def test_bad_refs(program, message):
    def shard(x):
        program()
        return x

    with pytest.raises((InvalidArgumentError, TypeError), match=message):
        sharded(shard, 2)(X)


def test_refs_in_the_memory_of_a_kernel():
    def kernel(x_ref, y_ref):
        asyncops.async_copy_start_ref(x_ref, y_ref)

    shape = jax.ShapeDtypeStruct((8, 128), jnp.float32)
    with pytest.raises(
        InvalidArgumentError, match=r"in the memory .* of a kernel; inside kernels use asyncops.kernels"
    ):
        jax.eval_shape(pl.pallas_call(kernel, out_shape=shape), shape)


def test_receiving_into_what_is_sent():
    def shard(x):
        ref = jax.new_ref(x)
        asyncops.async_copy_start_ref(ref, ref)
        return x

    with pytest.raises(InvalidArgumentError, match=r"are the same Ref.*\(asyncops.slots\)"):
        jax.jit(shard)(X)


def test_under_tracking_the_destination_must_vary():
    def shard(x):
        x_ref, y_ref = jax.new_ref(x), jax.new_ref(jnp.zeros(x.shape))
        asyncops.ppermute_done_ref(asyncops.ppermute_start_ref(x_ref, y_ref, "x", RING))
        return y_ref[...]

    with pytest.raises(InvalidArgumentError, match=r"y_ref holds what is the same on all devices.*lax.pcast"):
        sharded(shard, 2, check_vma=True)(X)


# -- compiled for a TPU -------------------------------------------------------------------------------


@pytest.mark.tpu_compile
@pytest.mark.parametrize("name", [n for n in REF_CASES if not n.startswith("psum")])
def test_in_place_on_a_tpu(name, scheduled):
    start, done, fused, arguments = REF_CASES[name]

    def program(x):
        x = x.reshape(4, 32, 1024)
        shape = jax.eval_shape(fused, x).shape
        x_ref, y_ref = jax.new_ref(x * 2), jax.new_ref(jnp.zeros(shape, x.dtype))
        fut = start(x_ref, y_ref, *arguments)
        z = jnp.sin(x)
        done(fut)
        return y_ref[...].sum() * z.sum(0)

    compiled = scheduled(program, (128, 1024))
    assert compiled.starts_and_dones() == (1, 1)
    assert compiled.moved_in_flight() == []
    assert all(compiled.between())


@pytest.mark.tpu_compile
@pytest.mark.parametrize("name", ["all_gather", "all_to_all", "psum_scatter", "psum", "async_copy"])
@pytest.mark.parametrize("dtype", [jnp.bfloat16, pytest.param(jnp.int8, marks=pytest.mark.slow)])
def test_values_on_a_tpu(name, dtype, scheduled):
    start, done = getattr(asyncops, f"{name}_start"), getattr(asyncops, f"{name}_done")
    arguments = {"all_to_all": ("x", 0, 0), "async_copy": ()}.get(name, ("x",))

    def program(x):
        x = x.astype(dtype).reshape(4, 32, 1024)
        fut = start(x, *arguments)
        z = jnp.sin(x.astype(jnp.float32))
        return done(fut).astype(jnp.float32).sum() * z.sum(0)

    compiled = scheduled(program, (128, 1024))
    assert compiled.starts_and_dones() == (1, 1)
    assert compiled.moved_in_flight() == []
    assert all(compiled.between())


@pytest.mark.tpu_compile
@pytest.mark.parametrize("dtype", [jnp.bool_, jnp.float16, jnp.complex64])
def test_what_no_kernel_on_a_tpu_takes_is_refused(dtype, scheduled):
    def program(x):
        return note.done(note.start(x.astype(dtype))).real.astype(jnp.float32)

    message = rf"started at note_programs.py:\d+ .*: a TPU's kernels take no arrays of dtype {dtype.__name__}.*; send "
    with pytest.raises(Exception, match=message):
        scheduled(program, (8, 128))


@pytest.mark.tpu_compile
@pytest.mark.parametrize(
    "dtype",
    [jnp.int4, *(pytest.param(d, marks=pytest.mark.slow) for d in (jnp.uint8, jnp.float8_e4m3fn, jnp.int16))],
)
def test_narrow_numbers_on_a_tpu(dtype, scheduled):
    def program(x):
        return note.done(note.start(x.astype(dtype))).astype(jnp.float32)

    assert scheduled(program, (32, 256)).starts_and_dones() == (1, 1)


@pytest.mark.tpu_compile
def test_a_copy_into_vmem(scheduled):
    def program(x):
        fut = asyncops.async_copy_start(x, memory_space="vmem")
        z = jnp.sin(x)
        return asyncops.async_copy_done(fut) * z

    compiled = scheduled(program, (128, 1024))
    (start,) = (i for i in compiled.computations[compiled.entry] if i.starts)
    assert "S(1)" in start.type
    assert compiled.moved_in_flight() == []


@pytest.mark.tpu_compile
def test_a_broadcast_future_is_refused(scheduled):
    """One operation for all of a vmap cannot be finished once for each."""

    def program(x):
        fut = note.start(x)
        return jax.vmap(lambda k, fut: note.done(fut) * k, axis_size=3, in_axes=(0, None))(
            jnp.arange(3.0), fut
        ).sum(0)

    assert scheduled(program).starts_and_dones() == (1, 1)

    def stacks(x):
        return jax.vmap(note.done)(jax.vmap(note.start)(jnp.stack([x, x]))).sum(0)

    with pytest.raises(Exception, match="a stack of the futures started at") as caught:
        scheduled(stacks, ordered=False)
    assert isinstance(caught.value.__cause__ or caught.value, InFlightMovedError)
