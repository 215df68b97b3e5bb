"""Asynchronous programs written by hand in value form: each wrong one with its cure.

A wrong program has ``# expect: CODE`` on the lines that its findings point at (or name as one of the first two
related lines). The ring sends each shard to its right neighbour, as the JAX document "Pallas Async Operations" does;
the local copies need no mesh.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P

DEVICES = 4
ANY = pl.BlockSpec(memory_space=pl.ANY)
SEMAPHORE = pl.BlockSpec(memory_space=pltpu.SEMAPHORE)
DMA = pltpu.SemaphoreType.DMA(())
MESH = AbstractMesh((DEVICES,), ("x",), axis_types=(AxisType.Auto,))
LOCAL = jax.ShapeDtypeStruct((512, 1024), jnp.float32)
SHARDED = jax.ShapeDtypeStruct((DEVICES * 1024, 1024), jnp.float32)


def _result(x: Any, pinned: bool) -> Any:
    return pltpu.HBM(x.shape, x.dtype) if pinned else jax.ShapeDtypeStruct(x.shape, x.dtype)


def ring_start(x, pinned=False):
    """Starts sending ``x`` to the right; the future is (send semaphore, receive semaphore, x, what arrives)."""

    def kernel(x_ref, send, receive, x_out, out_ref):
        del x_ref
        me = lax.axis_index("x")
        barrier = pltpu.get_barrier_semaphore()
        pl.semaphore_signal(barrier, device_id=lax.rem(me + DEVICES - 1, DEVICES))
        pl.semaphore_wait(barrier, 1)
        right = lax.rem(me + 1, DEVICES)
        pltpu.make_async_remote_copy(x_out, out_ref, send, receive, device_id=right).start()

    return pl.pallas_call(
        kernel,
        out_shape=(DMA, DMA, _result(x, pinned), _result(x, pinned)),
        in_specs=[ANY],
        out_specs=(SEMAPHORE, SEMAPHORE, ANY, ANY),
        input_output_aliases={0: 2},
        compiler_params=pltpu.CompilerParams(has_side_effects=True, collective_id=0),
        name="ring_start",
    )(x)


def ring_done(send, receive, x, out, pinned=False):
    """Waits for both halves; returns what has arrived."""

    def kernel(x_ref, out_in, send, receive, out_ref):
        del x_ref, out_ref
        pltpu.make_async_copy(out_in, out_in, send).wait()
        pltpu.make_async_copy(out_in, out_in, receive).wait()

    return pl.pallas_call(
        kernel,
        out_shape=_result(x, pinned),
        in_specs=[ANY, ANY, SEMAPHORE, SEMAPHORE],
        out_specs=ANY,
        input_output_aliases={1: 0},
        compiler_params=pltpu.CompilerParams(has_side_effects=True),
        name="ring_done",
    )(x, out, send, receive)


def copy_start(x, pinned=True, side_effects=True):
    """Starts a local copy of ``x`` and hands ``x`` on; the future is (x, copy, semaphore)."""

    def kernel(x_ref, x_out, out_ref, sem):
        del x_ref
        pltpu.make_async_copy(x_out, out_ref, sem).start()

    return pl.pallas_call(
        kernel,
        out_shape=(_result(x, pinned), _result(x, pinned), DMA),
        in_specs=[ANY],
        out_specs=(ANY, ANY, SEMAPHORE),
        input_output_aliases={0: 0},
        compiler_params=pltpu.CompilerParams(has_side_effects=side_effects),
        name="copy_start",
    )(x)


def copy_done(x, out, sem, pinned=True):
    """Waits for the copy; returns the source and the copy."""

    def kernel(x_in, out_in, sem_in, x_out, out_ref):
        del x_in, out_in, x_out
        pltpu.make_async_copy(out_ref, out_ref, sem_in).wait()

    return pl.pallas_call(
        kernel,
        out_shape=(_result(x, pinned), _result(x, pinned)),
        in_specs=[ANY, ANY, SEMAPHORE],
        out_specs=(ANY, ANY),
        input_output_aliases={0: 0, 1: 1},
        compiler_params=pltpu.CompilerParams(has_side_effects=True),
        name="copy_done",
    )(x, out, sem)


def copy_wait(x, out, sem, pinned=True):
    """As `copy_done`, but returns the copy alone."""

    def kernel(x_in, out_in, sem_in, out_ref):
        del x_in, out_in
        pltpu.make_async_copy(out_ref, out_ref, sem_in).wait()

    return pl.pallas_call(
        kernel,
        out_shape=_result(x, pinned),
        in_specs=[ANY, ANY, SEMAPHORE],
        out_specs=ANY,
        input_output_aliases={1: 0},
        compiler_params=pltpu.CompilerParams(has_side_effects=True),
        name="copy_wait",
    )(x, out, sem)


def bare_start(x, side_effects=True):
    """As `copy_start`, but the source is not handed on; the future is (copy, semaphore)."""

    def kernel(x_ref, out_ref, sem):
        pltpu.make_async_copy(x_ref, out_ref, sem).start()

    return pl.pallas_call(
        kernel,
        out_shape=(_result(x, True), DMA),
        in_specs=[ANY],
        out_specs=(ANY, SEMAPHORE),
        compiler_params=pltpu.CompilerParams(has_side_effects=side_effects),
        name="bare_start",
    )(x)


def bare_done(out, sem):
    """Waits for a copy of `bare_start`."""

    def kernel(out_in, sem_in, out_ref):
        del out_in
        pltpu.make_async_copy(out_ref, out_ref, sem_in).wait()

    return pl.pallas_call(
        kernel,
        out_shape=_result(out, True),
        in_specs=[ANY, SEMAPHORE],
        out_specs=ANY,
        input_output_aliases={0: 0},
        compiler_params=pltpu.CompilerParams(has_side_effects=True),
        name="bare_done",
    )(out, sem)


PAIR = pltpu.SemaphoreType.DMA((2,))


def twice_start(x):
    """Two copies of ``x`` on two semaphores of one array; gives (x, first copy, second copy, semaphores)."""

    def kernel(x_ref, x_out, first, second, sems):
        del x_ref
        pltpu.make_async_copy(x_out, first, sems.at[0]).start()
        pltpu.make_async_copy(x_out, second, sems.at[1]).start()

    return pl.pallas_call(
        kernel,
        out_shape=(*[_result(x, True)] * 3, PAIR),
        in_specs=[ANY],
        out_specs=(ANY, ANY, ANY, SEMAPHORE),
        input_output_aliases={0: 0},
        compiler_params=pltpu.CompilerParams(has_side_effects=True),
        name="twice_start",
    )(x)


def halves_start(x):
    """`ring_start` with both semaphores in one array; gives (x, what arrives, semaphores)."""

    def kernel(x_ref, x_out, out_ref, sems):
        del x_ref
        right = lax.rem(lax.axis_index("x") + 1, DEVICES)
        pltpu.make_async_remote_copy(x_out, out_ref, sems.at[0], sems.at[1], device_id=right).start()

    return pl.pallas_call(
        kernel,
        out_shape=(_result(x, True), _result(x, True), PAIR),
        in_specs=[ANY],
        out_specs=(ANY, ANY, SEMAPHORE),
        input_output_aliases={0: 0},
        compiler_params=pltpu.CompilerParams(has_side_effects=True),
        name="halves_start",
    )(x)


def one_done(x, out, sems, number):
    """Waits on one semaphore of the array; returns the source and the copy."""

    def kernel(x_in, out_in, sems_in, x_out, out_ref):
        del x_in, out_in, x_out
        pltpu.make_async_copy(out_ref, out_ref, sems_in.at[number]).wait()

    return pl.pallas_call(
        kernel,
        out_shape=(_result(x, True), _result(x, True)),
        in_specs=[ANY, ANY, SEMAPHORE],
        out_specs=(ANY, ANY),
        input_output_aliases={0: 0, 1: 1},
        compiler_params=pltpu.CompilerParams(has_side_effects=True),
        name="one_done",
    )(x, out, sems)


pinned_ring_start = functools.partial(ring_start, pinned=True)
pinned_ring_done = functools.partial(ring_done, pinned=True)
start = ring_start
done = ring_done


# Scheduling, and the copy before the start


def read_beside_the_future(x):
    x = jnp.sin(x)
    future = pinned_ring_start(x)  # expect: AO506
    z = x + 1  # expect: AO505
    return pinned_ring_done(*future), z


def read_through_the_future(x):
    x = x * 2.0
    send, receive, x, out = lax.optimization_barrier(pinned_ring_start(x))
    z = x + 1
    z, x, out = lax.optimization_barrier((z, x, out))
    return pinned_ring_done(send, receive, x, out), z


def unordered(x):
    send, receive, x, out = pinned_ring_start(x)
    z = x + 1  # expect: AO505
    return pinned_ring_done(send, receive, x, out), z


def ordered_argument(x):
    send, receive, x, out = lax.optimization_barrier(pinned_ring_start(x))
    z = x + 1
    z, x, out = lax.optimization_barrier((z, x, out))
    return pinned_ring_done(send, receive, x, out), z


# Loops


def rolled_loop(x):
    def body(_, x):
        return done(*start(x))  # expect: AO506

    return lax.fori_loop(0, 8, body, x)


def unrolled_loop(x):
    return lax.fori_loop(0, 8, lambda _, x: done(*start(x)), x, unroll=2)


def staggered_loop(x):
    def body(_, future):
        return start(done(*future))  # expect: AO504

    return done(*lax.fori_loop(0, 6, body, start(x)))


def staggered_loop_unrolled(x):
    def body(_, future):
        return pinned_ring_start(pinned_ring_done(*future))

    return pinned_ring_done(*lax.fori_loop(0, 6, body, pinned_ring_start(x), unroll=2))


def accumulating_loop(x):
    """The document's closing program in value form: unrolled by two, and still wrong."""

    def body(_, carry):
        total, future = carry
        x = done(*future)
        future = start(x)  # expect: AO504
        return total + future[2], future

    total, future = lax.fori_loop(0, 6, body, (x, start(x)), unroll=2)
    return total, done(*future)


def moved_out_of_vmem(x):
    def body(_, future):
        return copy_start(copy_wait(*future, pinned=False), pinned=False)

    future = copy_start(x * 2.0, pinned=False)
    future = lax.fori_loop(0, 6, body, future, unroll=2)  # expect: AO504
    return copy_wait(*future, pinned=False)


def pinned_to_hbm(x):
    def body(_, future):
        return copy_start(copy_wait(*future))

    return copy_wait(*lax.fori_loop(0, 6, body, copy_start(x * 2.0), unroll=2))


# Conditionals


def through_a_conditional(x):
    future = start(x * 2.0)
    future = lax.cond(x[0, 0] > 0, lambda f: f, lambda f: start(done(*f)), future)  # expect: AO504
    return done(*future)


def before_the_conditional(x):
    y = done(*start(x * 2.0))
    return lax.cond(x[0, 0] > 0, lambda y: y, lambda y: done(*start(y)), y)


def dropped_in_a_branch(x):
    future = copy_start(x * 2.0)
    return lax.cond(x[0, 0] > 0, lambda: copy_done(*future)[1], lambda: x)  # expect: AO501


def waited_before_the_branch(x):
    _, y = copy_done(*copy_start(x * 2.0))
    return lax.cond(x[0, 0] > 0, lambda: y, lambda: x)


# Futures


def equal_starts(x):
    first = bare_start(x, side_effects=False)
    second = bare_start(x, side_effects=False)  # expect: AO501
    return bare_done(*first), bare_done(*second)


def marked_starts(x):
    first, second = bare_start(x), bare_start(x)
    return bare_done(*first), bare_done(*second)


def done_twice(x):
    x, out, sem = copy_start(x * 2.0)
    x, y = copy_done(x, out, sem)
    return copy_done(x, y, sem)  # expect: AO502


def done_once(x):
    return copy_done(*copy_start(x * 2.0))


# Several semaphores in one array


def waited_for_the_other(x):
    x, first, second, sems = twice_start(x * 2.0)
    x, second = one_done(x, second, sems, 0)
    z = second + 1  # expect: AO504
    z, x, first = lax.optimization_barrier((z, x, first))
    x, first = one_done(x, first, sems, 1)
    return first, z


def waited_in_another_order(x):
    x, first, second, sems = twice_start(x * 2.0)
    x, second = one_done(x, second, sems, 1)
    z = second + 1
    z, x, first = lax.optimization_barrier((z, x, first))
    x, first = one_done(x, first, sems, 0)
    return first, z


def sent_but_not_arrived(x):
    x, out, sems = halves_start(x * 2.0)
    x, out = one_done(x, out, sems, 0)
    z = out + 1  # expect: AO504
    z, x, out = lax.optimization_barrier((z, x, out))
    x, out = one_done(x, out, sems, 1)
    return out, z


def sent_and_reused(x):
    x, out, sems = halves_start(x * 2.0)
    x, out = one_done(x, out, sems, 0)
    x = x.at[0].set(0.0)
    x, out = lax.optimization_barrier((x, out))
    x, out = one_done(x, out, sems, 1)
    return out, x


def started_in_a_branch_never_taken(x):
    x, out, sem = lax.cond(jnp.bool_(True), lambda: copy_start(x * 2.0), lambda: copy_start(x * 3.0))
    return copy_done(x, out, sem)


# Buffers


def destination_read_early(x):
    send, receive, x, out = start(x * 2.0)
    z = out + 1  # expect: AO504
    return done(send, receive, x, out), z


def destination_read_after(x):
    y = done(*start(x * 2.0))
    return y, y + 1


def source_rewritten(x):
    state = x * 2.0
    snapshot, sem = bare_start(state)
    state = state.at[0].set(0.0)  # expect: AO504
    state, snapshot = lax.optimization_barrier((state, snapshot))
    return bare_done(snapshot, sem), state


def source_rewritten_after(x):
    state, snapshot = copy_done(*copy_start(x * 2.0))
    return snapshot, state.at[0].set(0.0)


def source_forgotten(x):
    out, sem = bare_start(x * 2.0)  # expect: AO503
    return bare_done(out, sem)


def source_kept(x):
    return copy_done(*copy_start(x * 2.0))[1]


def argument_as_source(x):
    out, sem = bare_start(x)
    return bare_done(out, sem)


# JAX's own


def permuted_by_jax(x):
    y = lax.ppermute(x, "x", [(i, (i + 1) % DEVICES) for i in range(DEVICES)])
    return y, jnp.dot(x, x)


def permuted_by_jax_in_a_loop(x):
    def body(carry, _):
        x, total = carry
        y = lax.ppermute(x, "x", [(i, (i + 1) % DEVICES) for i in range(DEVICES)])
        return (y, total + jnp.dot(x, x)), None

    (x, total), _ = lax.scan(body, (x, jnp.zeros_like(x)), None, length=8)
    return x, total


def on_the_ring(fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn`` on every device of the ring."""
    return jax.shard_map(fn, mesh=MESH, in_specs=P("x"), out_specs=P("x"), check_vma=False)


RING = (
    read_beside_the_future,
    read_through_the_future,
    unordered,
    ordered_argument,
    rolled_loop,
    unrolled_loop,
    staggered_loop,
    staggered_loop_unrolled,
    accumulating_loop,
    through_a_conditional,
    before_the_conditional,
    destination_read_early,
    destination_read_after,
    sent_but_not_arrived,
    sent_and_reused,
    permuted_by_jax,
    permuted_by_jax_in_a_loop,
)
ALONE = (
    moved_out_of_vmem,
    pinned_to_hbm,
    dropped_in_a_branch,
    waited_before_the_branch,
    equal_starts,
    marked_starts,
    done_twice,
    done_once,
    waited_for_the_other,
    waited_in_another_order,
    started_in_a_branch_never_taken,
    source_rewritten,
    source_rewritten_after,
    source_forgotten,
    source_kept,
    argument_as_source,
)


def programs() -> dict[str, tuple[Callable[..., Any], jax.ShapeDtypeStruct]]:
    """Every program by name: what to compile, and its argument."""
    ring = {fn.__name__: (on_the_ring(fn), SHARDED) for fn in RING}
    return ring | {fn.__name__: (fn, LOCAL) for fn in ALONE}
