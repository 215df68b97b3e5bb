"""Copies inside kernels: the same Mosaic module as by hand; a loop over buffers that is right for every size."""

from __future__ import annotations

import contextlib
import functools
import io
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

import asyncops
from asyncops import kernels
from stateful.errors import FutureReusedError, InvalidArgumentError
from tests.asyncops.conftest import mesh

ANY = pl.BlockSpec(memory_space=pl.ANY)
DMA = pltpu.SemaphoreType.DMA
BLOCK = (8, 128)
X = jnp.arange(16 * 128.0).reshape(16, 128)


def call(kernel, *scratch, outputs=1, interpret=False, debug=False):
    same = jax.ShapeDtypeStruct(X.shape, X.dtype)
    return pl.pallas_call(
        kernel,
        out_shape=[same] * outputs,
        in_specs=[ANY],
        out_specs=[ANY] * outputs,
        scratch_shapes=list(scratch),
        interpret=pltpu.InterpretParams() if interpret else False,
        debug=debug,
    )


# -- the same as by hand ------------------------------------------------------------------------------


def double(buffer):
    buffer[...] = buffer[...] * 2


def local(x, y, buffer, semaphores):
    fut = kernels.async_copy_start(x.at[pl.ds(0, 8)], buffer, semaphores.at[0])
    kernels.async_copy_wait(fut)
    double(buffer)
    fut = kernels.async_copy_start(buffer, y.at[pl.ds(0, 8)], semaphores.at[1], name="out")
    kernels.async_copy_wait(fut)


def local_by_hand(x, y, buffer, semaphores):
    copy = pltpu.make_async_copy(x.at[pl.ds(0, 8)], buffer, semaphores.at[0])
    copy.start()
    copy.wait()
    double(buffer)
    copy = pltpu.make_async_copy(buffer, y.at[pl.ds(0, 8)], semaphores.at[1])
    copy.start()
    copy.wait()


def across_iterations(x, y, buffer, semaphores):
    copy = functools.partial(kernels.async_copy, x.at[pl.ds(0, 8)], buffer, semaphores.at[0])
    kernels.async_copy_start(x.at[pl.ds(0, 8)], buffer, semaphores.at[0])

    def body(i, _):
        kernels.async_copy_wait(copy())
        kernels.async_copy_start(x.at[pl.ds(0, 8)], buffer, semaphores.at[0])

    lax.fori_loop(0, 3, body, None)
    kernels.async_copy_wait(copy())


def across_iterations_by_hand(x, y, buffer, semaphores):
    copy = functools.partial(pltpu.make_async_copy, x.at[pl.ds(0, 8)], buffer, semaphores.at[0])
    pltpu.make_async_copy(x.at[pl.ds(0, 8)], buffer, semaphores.at[0]).start()

    def body(i, _):
        copy().wait()
        pltpu.make_async_copy(x.at[pl.ds(0, 8)], buffer, semaphores.at[0]).start()

    lax.fori_loop(0, 3, body, None)
    copy().wait()


def right():
    return {"x": lax.rem(lax.axis_index("x") + 1, lax.axis_size("x"))}


def remote(x, y, send, receive):
    fut = kernels.async_remote_copy_start(x, y, send, receive, right(), name="ring")
    kernels.async_remote_copy_wait_send(fut)
    kernels.async_remote_copy_wait_recv(fut)


def remote_by_hand(x, y, send, receive):
    copy = pltpu.make_async_remote_copy(x, y, send, receive, device_id=right())
    copy.start()
    copy.wait_send()
    copy.wait_recv()


LOCAL = (pltpu.VMEM(BLOCK, jnp.float32), DMA((2,)))
REMOTE = (DMA, DMA)


def lowered(kernel, scratch):
    """The kernel's Mosaic module as Pallas prints it, its values named by their order."""

    def same_name(*refs):
        kernel(*refs)

    mapped = jax.shard_map(
        call(same_name, *scratch, debug=True), mesh=mesh(2), in_specs=P(), out_specs=P(), check_vma=False
    )
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        jax.jit(mapped).trace(X).lower(lowering_platforms=("tpu",))
    (module,) = re.findall(r"^module .*?^\}$", printed.getvalue(), re.MULTILINE | re.DOTALL)
    names: dict[str, str] = {}
    return re.sub(r"%[\w#]+", lambda name: names.setdefault(name[0], f"%{len(names)}"), module)


@pytest.mark.parametrize(
    ("ours", "by_hand", "scratch"),
    [
        (local, local_by_hand, LOCAL),
        (across_iterations, across_iterations_by_hand, LOCAL),
        (remote, remote_by_hand, REMOTE),
    ],
    ids=["local", "across iterations", "remote"],
)
def test_the_same_mosaic_module_as_by_hand(ours, by_hand, scratch):
    assert lowered(ours, scratch) == lowered(by_hand, scratch)


def test_an_operation_more_would_be_seen():
    def more(x, y, buffer, semaphores):
        local_by_hand(x, y, buffer, semaphores)
        double(buffer)

    assert lowered(more, LOCAL) != lowered(local_by_hand, LOCAL)


def test_another_operand_would_be_seen():
    def crossed(x, y, send, receive):
        remote_by_hand(x, y, receive, send)

    assert "tpu.enqueue_dma" in lowered(crossed, REMOTE)
    assert lowered(crossed, REMOTE) != lowered(remote_by_hand, REMOTE)


def test_the_copies_copy():
    (y,) = call(local, *LOCAL, interpret=True)(X)
    np.testing.assert_array_equal(y[:8], 2 * X[:8])
    mapped = jax.shard_map(
        call(remote, *REMOTE, interpret=True),
        mesh=mesh(4),
        in_specs=P("x"),
        out_specs=P("x"),
        check_vma=False,
    )
    whole = jnp.concatenate([X + n for n in range(4)])
    np.testing.assert_array_equal(jax.jit(mapped)(whole)[0], jnp.roll(whole, 16, axis=0))


# -- errors -------------------------------------------------------------------------------------------


def trace(kernel, *scratch):
    jax.eval_shape(call(kernel, *scratch), X)


def test_a_second_wait():
    def twice(x, y, buffer, semaphores):
        fut = kernels.async_copy_start(x.at[pl.ds(0, 8)], buffer, semaphores.at[0], name="first block")
        kernels.async_copy_wait(fut)
        kernels.async_copy_wait(fut)

    with pytest.raises(
        FutureReusedError, match=r"the copy first block started at test_kernels.py:\d+ .* already"
    ):
        trace(twice, *LOCAL)


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (
            lambda x, b, s, r: kernels.async_copy_start(x.at[pl.ds(0, 8)], b, r),
            "must be a DMA semaphore .* a regular",
        ),
        (
            lambda x, b, s, r: kernels.async_copy_start(x.at[pl.ds(0, 8)], b, b),
            "must be a DMA semaphore .* no semaph",
        ),
        (
            lambda x, b, s, r: kernels.async_copy_start(x.at[pl.ds(0, 8)], b, s),
            r"array of semaphores of shape \(2,\)",
        ),
        (
            lambda x, b, s, r: kernels.async_copy_start(x, b, s.at[0]),
            r"src has the shape \(16, 128\) and dst \(8, 128",
        ),
        (lambda x, b, s, r: kernels.async_copy_start(b[...], b, s.at[0]), "src must be a Ref of the kernel"),
        (
            lambda x, b, s, r: kernels.async_copy_start(s, s, s.at[0]),
            "src is a semaphore, which cannot be copied",
        ),
        (
            lambda x, b, s, r: kernels.async_copy_start(x.at[pl.ds(0, 8)].bitcast(jnp.int32), b, s.at[0]),
            "src is of dtype int32 and dst of float32; a DMA does not convert",
        ),
        (
            lambda x, b, s, r: kernels.async_remote_copy_start(b, b, s.at[0], r, {"x": 0}),
            "recv_sem must be a DMA semaphore",
        ),
        (
            lambda x, b, s, r: kernels.async_remote_copy_start(b, b, s.at[0], s.at[1], 1),
            "device_id=1: expected coordinates",
        ),
        (lambda x, b, s, r: kernels.async_copy_wait(b), "fut must be what async_copy_start"),
    ],
)
def test_wrong_operands(start, message):
    def kernel(x, y, buffer, semaphores, regular):
        start(x, buffer, semaphores, regular)

    with pytest.raises(InvalidArgumentError, match=message):
        trace(kernel, *LOCAL, pltpu.SemaphoreType.REGULAR)


def test_both_sides_in_smem():
    def kernel(x, y, a, b, semaphore):
        kernels.async_copy_start(a, b, semaphore)

    with pytest.raises(InvalidArgumentError, match="both in SMEM"):
        trace(kernel, pltpu.SMEM((8,), jnp.int32), pltpu.SMEM((8,), jnp.int32), DMA)


# -- the loop over buffers ----------------------------------------------------------------------------


def rows(ref):
    return lambda i: ref.at[pl.ds(i * 8, 8)]


def looped(steps, slots, distance, traced=False):
    """``2 x + i`` for each block ``i``, and a copy of it, written by one loop."""

    def kernel(count, x, y, z):
        def body(i, x_block, y_block, z_block):
            y_block[...] = x_block[...] * 2 + lax.convert_element_type(i, jnp.float32)
            z_block[...] = x_block[...]

        kernels.multi_buffered_loop(
            count[0] if traced else steps,
            body,
            reads=[rows(x)],
            writes=[rows(y), rows(z)],
            slots=slots,
            distance=distance,
        )

    same = jax.ShapeDtypeStruct((steps * 8, 128), jnp.float32)

    def run(count, x, interpret=False):
        return pl.pallas_call(
            kernel,
            out_shape=(same, same),
            in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), ANY],
            out_specs=(ANY, ANY),
            interpret=interpret,
        )(count, x)

    return run


MOST = 7
WINDOWS = [(2, None), (3, 1), (1, 0)]
WINDOWS += [pytest.param(*more, marks=pytest.mark.slow) for more in [(3, None), (4, 2), (4, 0)]]


@pytest.mark.parametrize(("slots", "distance"), WINDOWS)
def test_every_block_once(slots, distance):
    """For any number of steps: none, one, fewer than slots, and more."""
    x = jnp.asarray(np.random.default_rng(0).normal(size=(MOST * 8, 128)), jnp.float32)
    run = jax.jit(
        lambda count, x: looped(MOST, slots, distance, traced=True)(count, x, pltpu.InterpretParams())
    )
    for steps in (0, 1, 2, 5, 7):
        y, z = (a[: steps * 8] for a in run(jnp.array([steps], jnp.int32), x))
        np.testing.assert_allclose(
            y,
            2 * x[: steps * 8] + np.repeat(np.arange(steps), 8)[:, None],
            rtol=1e-6,
            err_msg=f"{steps} steps",
        )
        np.testing.assert_array_equal(z, x[: steps * 8])


@pytest.mark.parametrize(("steps", "slots"), [(3, 2), (2, 4)])
def test_with_a_known_number_of_steps(steps, slots):
    x = jnp.asarray(np.random.default_rng(0).normal(size=(steps * 8, 128)), jnp.float32)
    y, z = looped(steps, slots, None)(jnp.array([steps], jnp.int32), x, pltpu.InterpretParams())
    np.testing.assert_allclose(y, 2 * x + np.repeat(np.arange(steps), 8)[:, None], rtol=1e-6)
    np.testing.assert_array_equal(z, x)


@pytest.mark.parametrize(("slots", "distance"), WINDOWS)
def test_the_checker_finds_nothing(slots, distance):
    """For each number of steps; for all at once it does not know, and says so."""
    x = jax.ShapeDtypeStruct((MOST * 8, 128), jnp.float32)
    run = looped(MOST, slots, distance, traced=True)
    for steps in (0, 1, 2, 4, 7):
        report = asyncops.check(run, np.array([steps], np.int32), x, values=True)
        assert report.verdict == "clean", f"{steps} steps: {report}"


def test_the_checker_would_find_a_distance_too_far():
    """The test of these tests: with a block more in flight than there are slots, what is read is overwritten."""

    def one_too_far(count, x, y):
        def allocated(fetched, ours, written, theirs):
            reads, writes = (
                kernels._Stream(rows(x), fetched, ours, 2),
                kernels._Stream(rows(y), written, theirs, 2),
            )

            def body(i, x_block, y_block):
                y_block[...] = x_block[...]

            kernels._run(4, body, [reads], [writes], 2)

        buffer = pltpu.VMEM((2, *BLOCK), jnp.float32)
        pl.run_scoped(allocated, buffer, DMA((2,)), buffer, DMA((2,)))

    shape = jax.ShapeDtypeStruct((4 * 8, 128), jnp.float32)

    def run(count, x):
        specs = [pl.BlockSpec(memory_space=pltpu.SMEM), ANY]
        return pl.pallas_call(one_too_far, out_shape=shape, in_specs=specs, out_specs=ANY)(count, x)

    report = asyncops.check(run, jax.ShapeDtypeStruct((1,), jnp.int32), shape)
    assert report.verdict == "findings"


@pytest.mark.parametrize(("slots", "distance"), [(0, None), (2, 2), (3, -1)])
def test_no_slot_is_left_to_fetch_into(slots, distance):
    with pytest.raises(InvalidArgumentError, match="at most slots - 1 steps ahead"):
        kernels.multi_buffered_loop(4, lambda i: None, slots=slots, distance=distance)
