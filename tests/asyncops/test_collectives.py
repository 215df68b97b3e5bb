"""Start and done against the fused collective: results and derivatives, on CPU devices and under vmap; errors."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import asyncops
from stateful.errors import FutureMismatchError, InvalidArgumentError
from tests.asyncops import note_programs as note
from tests.asyncops.conftest import sharded

ROOT = Path(__file__).resolve().parents[2]
# Each example is compiled: few by day, many in the nightly profile.
EXAMPLES = max(4, hypothesis.settings().max_examples // 10 if hypothesis.settings().max_examples > 100 else 0)


def shift(by=1):
    n = lax.axis_size("x")
    return [(i, (i + by) % n) for i in range(n)]


def permute(x):
    return asyncops.ppermute_done(asyncops.ppermute_start(x, "x", shift()))


def permute_some(x):
    return asyncops.ppermute_done(asyncops.ppermute_start(x, "x", [(0, 1)]))


def copy(x):
    return asyncops.async_copy_done(asyncops.async_copy_start(x))


def gather(axis, tiled):
    return lambda x: asyncops.all_gather_done(asyncops.all_gather_start(x, "x", axis=axis, tiled=tiled))


def scatter(dimension, tiled):
    def fn(x):
        fut = asyncops.psum_scatter_start(x, "x", scatter_dimension=dimension, tiled=tiled)
        return asyncops.psum_scatter_done(fut)

    return fn


def exchange(split, concat, tiled):
    return lambda x: asyncops.all_to_all_done(asyncops.all_to_all_start(x, "x", split, concat, tiled=tiled))


def fused_exchange(split, concat, tiled):
    if tiled or split == concat:
        return lambda x: lax.all_to_all(x, "x", split, concat, tiled=tiled)
    # JAX's own transpose of this form gives cotangents of the wrong shape.
    return lambda x: jnp.moveaxis(lax.all_to_all(x, "x", split, split), split, concat)


def total(x):
    return asyncops.psum_done(asyncops.psum_start(x, "x"))


# Start and done, the fused operation, and the shape of a shard on n devices.
CASES = {
    "ppermute": (permute, lambda x: lax.ppermute(x, "x", shift()), lambda n: (3, 2)),
    "async_copy": (copy, lambda x: x, lambda n: (3, 2)),
    "all_gather": (gather(0, False), lambda x: lax.all_gather(x, "x"), lambda n: (3, 2)),
    "all_gather of a scalar": (
        lambda x: gather(0, False)(x.sum()),
        lambda x: lax.all_gather(x.sum(), "x"),
        lambda n: (3,),
    ),
    "all_gather 1": (gather(1, False), lambda x: lax.all_gather(x, "x", axis=1), lambda n: (3, 2)),
    "all_gather tiled": (
        gather(1, True),
        lambda x: lax.all_gather(x, "x", axis=1, tiled=True),
        lambda n: (3, 2),
    ),
    "psum_scatter": (scatter(0, False), lambda x: lax.psum_scatter(x, "x"), lambda n: (n, 2)),
    "psum_scatter tiled": (
        scatter(1, True),
        lambda x: lax.psum_scatter(x, "x", scatter_dimension=1, tiled=True),
        lambda n: (3, 2 * n),
    ),
    "all_to_all": (exchange(0, 1, False), fused_exchange(0, 1, False), lambda n: (n, 2, 3)),
    "all_to_all tiled": (exchange(1, 0, True), fused_exchange(1, 0, True), lambda n: (3, 2 * n)),
    "psum": (total, lambda x: lax.psum(x, "x"), lambda n: (3, 2)),
}


def close(a, b, **tolerances):
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, **{"rtol": 1e-4, "atol": 1e-5, **tolerances}), a, b
    )


def everything(fn):
    """Value, gradient and directional derivative of a function of shards, and both of a derivative."""

    def of_shards(x, v):
        def loss(x):
            return jnp.sum(jnp.sin(fn(x)) * (1 + lax.axis_index("x")))

        y, dy = jax.jvp(fn, (x,), (v,))
        gradient, change = jax.jvp(jax.grad(loss), (x,), (v,))
        return y[None], dy[None], gradient[None], change[None]

    return of_shards


@pytest.mark.parametrize(
    ("devices", "check_vma"),
    [
        (2, True),
        *(pytest.param(*more, marks=pytest.mark.slow) for more in [(3, False), (4, True), (8, False)]),
    ],
)
def test_results_and_derivatives_are_those_of_the_fused_operation(devices, check_vma):
    rng = np.random.default_rng(0)
    inputs, programs = [], []
    for ours, fused, shape in CASES.values():
        rows, *rest = shape(devices)
        inputs.append(jnp.asarray(rng.normal(size=(2, devices * rows, *rest)), jnp.float32))
        programs.append((everything(ours), everything(fused)))
    chosen = [f for pair in programs for f in pair]
    run = sharded(
        lambda xs, vs: [f(xs[n // 2], vs[n // 2]) for n, f in enumerate(chosen)], devices, check_vma
    )
    results = run([x[0] for x in inputs], [x[1] for x in inputs])
    for name, ours, fused in zip(CASES, results[::2], results[1::2], strict=True):
        close(ours, fused, err_msg=name)


@hypothesis.given(
    name=st.sampled_from(sorted(CASES)),
    size=st.integers(1, 5),
    dtype=st.sampled_from([jnp.float32, jnp.bfloat16, jnp.complex64]),
    more=st.lists(st.integers(1, 3), max_size=2),
    seed=st.integers(0, 99),
)
@hypothesis.settings(max_examples=EXAMPLES)
def test_derivatives_over_an_axis_of_vmap(name, size, dtype, more, seed):
    """Any number of "devices" on one, and any shape: the axis is that of a vmap."""
    ours, fused, shape = CASES[name]
    rng = np.random.default_rng(seed)
    x, v = (jnp.asarray(rng.normal(size=(size, *shape(size), *more)), dtype) for _ in range(2))
    mapped = [jax.vmap(f, axis_name="x") for f in (ours, fused)]
    tolerances = {"rtol": 0.05, "atol": 0.05} if dtype == jnp.bfloat16 else {}
    values = [jax.jvp(f, (x,), (v,)) for f in mapped]
    close(values[0], values[1], **tolerances)
    cotangent = jnp.cos(values[1][0])
    gradients = [jax.vjp(f, x)[1](cotangent) for f in mapped]
    close(gradients[0], gradients[1], **tolerances)


@hypothesis.given(
    name=st.sampled_from(sorted(CASES)),
    dtype=st.sampled_from([jnp.int32, jnp.int8, jnp.bool_, jnp.float16]),
    where=st.integers(0, 1),
)
@hypothesis.settings(max_examples=EXAMPLES)
def test_any_dtype_and_an_outer_vmap(name, dtype, where):
    ours, fused, shape = CASES[name]
    if dtype == jnp.bool_ and name.startswith("psum_scatter"):
        return  # the fused operation takes no Booleans
    rows, *rest = shape(2)
    x = jnp.asarray(np.random.default_rng(0).integers(0, 3, (4, 2 * rows, *rest)), dtype)
    x = jnp.moveaxis(x, 0, where)
    results = [jax.vmap(sharded(lambda x, f=f: f(x)[None], 2), in_axes=where)(x) for f in (ours, fused)]
    close(*results)
    assert results[0].dtype == results[1].dtype


def test_who_receives_nothing_gets_zeros():
    x = jnp.arange(1.0, 7.0)
    result = sharded(permute_some, 3)(x)
    np.testing.assert_array_equal(result, [0, 0, 1, 2, 0, 0])


def test_two_mesh_axes_count_as_one():
    devices = np.array(jax.devices()[:6]).reshape(2, 3)
    mesh = Mesh(devices, ("x", "y"))
    x = jnp.arange(12.0)

    def run(f):
        spec = P(("x", "y"))
        return jax.jit(jax.shard_map(f, mesh=mesh, in_specs=spec, out_specs=spec))(x)

    around = [(i, (i + 1) % 6) for i in range(6)]

    def both(x):
        return asyncops.ppermute_done(asyncops.ppermute_start(x, ("x", "y"), around))

    def one(x):
        return asyncops.all_gather_done(asyncops.all_gather_start(x, "y"))[None].sum((0, 1))

    np.testing.assert_array_equal(run(both), jnp.roll(x, 2))
    np.testing.assert_array_equal(run(one), run(lambda x: lax.all_gather(x, "y").sum(0)))


def test_a_future_crosses_jit_and_shard_map():
    x = jnp.arange(8.0)
    begin = sharded(lambda x: asyncops.ppermute_start(x, "x", shift()), 4)
    end = sharded(asyncops.ppermute_done, 4)
    np.testing.assert_array_equal(end(begin(x)), jnp.roll(x, 2))


def test_remat_runs_the_operation_again():
    x = jnp.arange(8.0)

    def loss(f):
        return lambda x: jnp.sum(sharded(lambda x: jnp.sin(f(jnp.sin(x))), 4)(x) ** 2)

    close(jax.grad(loss(jax.checkpoint(permute)))(x), jax.grad(loss(permute))(x))


# -- errors -------------------------------------------------------------------------------------------

X = jnp.ones((4, 3))


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (lambda x: asyncops.ppermute_start(x, "y", []), r"axis_name='y' is not bound here; call it inside"),
        (
            lambda x: asyncops.psum_start(x, ("x", "x")),
            r"axis_name=\('x', 'x'\): expected the name of a mesh axis",
        ),
        (
            lambda x: asyncops.ppermute_start(x, "x", [(0, 1), (1, 1)]),
            r"not a permutation: 1 is a destination more",
        ),
        (
            lambda x: asyncops.ppermute_start(x, "x", [(0, 1), (0, 0)]),
            r"not a permutation: 0 is a source more than",
        ),
        (
            lambda x: asyncops.ppermute_start(x, "x", [(0, 2)]),
            r"perm has the destination 2, and the axis has .* 0 to 1",
        ),
        (lambda x: asyncops.ppermute_start(x, "x", [3]), r"expected pairs \(source, destination\)"),
        (lambda x: asyncops.all_gather_start(x, "x", axis=3), r"axis=3 is out of range"),
        (
            lambda x: asyncops.psum_scatter_start(x[:, :1], "x", scatter_dimension=1),
            r"length 1; without tiled=True",
        ),
        (
            lambda x: asyncops.psum_scatter_start(x, "x", scatter_dimension=1, tiled=True),
            r"length 3, which 2 devices",
        ),
        (lambda x: asyncops.all_to_all_start(x, "x", 0, 5, tiled=True), r"concat_axis=5 is out of range"),
        (
            lambda x: asyncops.async_copy_start(x, memory_space="smem"),
            r"memory_space='smem': expected 'hbm' or",
        ),
        (lambda x: asyncops.async_copy_start(jax.new_ref(x)), r"x is a Ref; call async_copy_start_ref"),
        (lambda x: asyncops.async_copy_start("x"), r"x must be an array, not str"),
        (
            lambda x: asyncops.async_copy_start(jax.random.key(0)),
            r"dtype key<fry>, which has no plain memory layout",
        ),
        (lambda x: asyncops.async_copy_start(asyncops.async_copy_start(x)), r"x is still in flight"),
    ],
)
@pytest.mark.filterwarnings("ignore::stateful.errors.UnfinishedFutureWarning")
def test_bad_arguments(program, message):
    with pytest.raises(InvalidArgumentError, match=message):
        sharded(program, 2)(X)


@pytest.mark.filterwarnings("ignore::stateful.errors.UnfinishedFutureWarning")
def test_the_done_of_another_operation():
    with pytest.raises(FutureMismatchError, match=r"got the future of psum_start at .*: call psum_done"):
        sharded(lambda x: asyncops.ppermute_done(asyncops.psum_start(x, "x")), 2)(X)
    with pytest.raises(FutureMismatchError, match="fut must be the future that psum_start returned"):
        sharded(lambda x: asyncops.psum_done(x), 2)(X)


# -- elsewhere than on the CPU devices of one process -------------------------------------------------


def test_on_a_gpu_it_is_the_fused_collective():
    """As far as a machine without one can tell: the program handed to XLA, which makes starts and dones of its own."""
    fn = sharded(asyncops.program_order(lambda x: permute(x) + total(x)), 2)
    text = fn.trace(jnp.ones(4)).lower(lowering_platforms=("cuda",)).as_text()
    assert text.count("stablehlo.collective_permute") == 1
    assert text.count("stablehlo.all_gather") == 1
    assert "tpu_custom_call" not in text


def test_on_a_gpu_refs_and_loops_lower_too():
    fn = sharded(asyncops.program_order(lambda x: note.refs_ring(x) + note.accumulating(x)), 4)
    text = fn.trace(jnp.ones((8, 4))).lower(lowering_platforms=("cuda",)).as_text()
    assert text.count("stablehlo.collective_permute") >= 4
    assert "tpu_custom_call" not in text


PROCESS = """
import sys
import jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(sys.argv[1], 2, int(sys.argv[2]))
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import asyncops
from tests.asyncops import note_programs as note
mesh = Mesh(np.array(jax.devices()), ("x",))
assert mesh.size == 4 and len(jax.local_devices()) == 2
whole = np.arange(8.0, dtype=np.float32)
x = jax.make_array_from_callback((8,), NamedSharding(mesh, P("x")), lambda i: whole[i])
run = lambda f: jax.jit(jax.shard_map(asyncops.program_order(f), mesh=mesh, in_specs=P("x"), out_specs=P("x")))(x)
for program in (note.overlapped, note.accumulating):
    want = np.asarray(note.RESULTS[program](lambda k: jnp.roll(whole, 2 * k)))
    for shard in run(program).addressable_shards:
        np.testing.assert_allclose(np.asarray(shard.data), want[shard.index], rtol=1e-6)
fused = run(lambda x: lax.psum(x, "x") + 0 * x)
ours = run(lambda x: asyncops.psum_done(asyncops.psum_start(x, "x")) + 0 * x)
for a, b in zip(fused.addressable_shards, ours.addressable_shards):
    np.testing.assert_allclose(np.asarray(a.data), np.asarray(b.data))
print("right")
"""


@pytest.mark.slow
def test_two_processes():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-c", PROCESS, address]
    processes = [
        subprocess.Popen(
            [*command, str(n)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        for n in range(2)
    ]
    try:
        outputs = [p.communicate(timeout=60)[0].decode() for p in processes]
    finally:
        for p in processes:
            p.kill()
    assert [o.strip().splitlines()[-1] for o in outputs] == ["right", "right"], outputs
