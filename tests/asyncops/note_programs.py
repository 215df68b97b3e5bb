"""The programs of JAX's design note on Pallas asynchronous operations, in value form and in Ref form.

Each is written once, without barriers, aliases, unpacked futures or unrolling; ``RESULTS`` says what it computes, given
``rolled(k)``: the whole array moved ``k`` shards to the right. Each wrong one at the end is what one would
write by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import asyncops
from asyncops import kernels

Shard = jax.Array


def ring(axis: str = "x") -> list[tuple[int, int]]:
    """Everybody sends to the right."""
    n = lax.axis_size(axis)
    return [(i, (i + 1) % n) for i in range(n)]


def start(x: Shard) -> asyncops.Future:
    return asyncops.ppermute_start(x, "x", ring())


def start_ref(x: jax.Ref, y: jax.Ref) -> asyncops.Future:
    return asyncops.ppermute_start_ref(x, y, "x", ring())


done, done_ref = asyncops.ppermute_done, asyncops.ppermute_done_ref

# -- on arrays ----------------------------------------------------------------------------------------


def overlapped(x: Shard) -> Shard:
    """An addition while the permute runs."""
    fut = start(x)
    z = x + 1
    y = done(fut)
    return y * z


def two_in_a_row(x: Shard) -> Shard:
    """What arrives is sent on, with work in both gaps."""
    fut = start(x)
    z = x + 1
    y = done(fut)
    fut = start(y)
    w = jnp.sin(z)
    return done(fut) * w


def loop(x: Shard) -> Shard:
    """Eight permutes in a loop."""
    return lax.fori_loop(0, 8, lambda i, x: done(start(x)), x)


def odd_loop(x: Shard) -> Shard:
    """Seven, with work in each."""

    def body(i, carry):
        x, total = carry
        fut = start(x)
        total = total + jnp.sin(x)
        return done(fut), total

    x, total = lax.fori_loop(0, 7, body, (x, jnp.zeros_like(x)))
    return x + total


def staggered(x: Shard) -> Shard:
    """A loop that carries the future: each iteration finishes one permute and starts the next."""
    fut = start(x)
    fut = lax.fori_loop(0, 7, lambda i, fut: start(done(fut)), fut)
    return done(fut)


def accumulating(x: Shard) -> Shard:
    """The staggered ring that adds up all shards."""
    fut = start(x)
    total = x

    def body(i, carry):
        total, fut = carry
        y = done(fut)
        fut = start(y)
        return total + y, fut

    total, fut = lax.fori_loop(0, 7, body, (total, fut))
    return total + done(fut)


# -- on Refs ------------------------------------------------------------------------------------------


def refs(x: Shard) -> Shard:
    """One permute from Ref to Ref."""
    x_ref, y_ref = jax.new_ref(x), jax.new_ref(jnp.zeros_like(x))
    fut = start_ref(x_ref, y_ref)
    done_ref(fut)
    return y_ref[...]


def refs_overlapped(x: Shard) -> Shard:
    """Work on another Ref, from the one that is being sent, while the permute runs."""
    x_ref, y_ref, z_ref = jax.new_ref(x), jax.new_ref(jnp.zeros_like(x)), jax.new_ref(x)
    fut = start_ref(x_ref, y_ref)
    z_ref[...] += x_ref[...]
    done_ref(fut)
    return y_ref[...] * z_ref[...]


def refs_ring(x: Shard) -> Shard:
    """The note's last program: two Refs that change roles, eight permutes in four iterations."""
    x_ref, y_ref = jax.new_ref(x), jax.new_ref(jnp.zeros_like(x))

    def body(i, _):
        done_ref(start_ref(x_ref, y_ref))
        done_ref(start_ref(y_ref, x_ref))

    lax.fori_loop(0, 8 // 2, body, None)
    return x_ref[...]


def refs_slots(x: Shard) -> Shard:
    """The same with one Ref of two slots, seven iterations, and work in each."""
    slots, total = asyncops.slots(x), jax.new_ref(jnp.zeros_like(x))

    def body(i, _):
        fut = start_ref(slots.sending(i), slots.receiving(i))
        total[...] += jnp.sin(slots.sending(i)[...])
        done_ref(fut)

    lax.fori_loop(0, 7, body, None)
    return slots.sending(7)[...] + total[...]


def refs_staggered(x: Shard) -> Shard:
    """A loop that carries the future of a Ref operation."""
    x_ref, y_ref = jax.new_ref(x), jax.new_ref(jnp.zeros_like(x))
    fut = start_ref(x_ref, y_ref)

    def body(i, fut):
        done_ref(fut, x_ref, y_ref)
        done_ref(start_ref(y_ref, x_ref))
        return start_ref(x_ref, y_ref)

    fut = lax.fori_loop(0, 3, body, fut)
    done_ref(fut, x_ref, y_ref)
    return y_ref[...]


# -- inside one kernel --------------------------------------------------------------------------------


def fused(x: Shard, interpret: Any = False) -> Shard:
    """The addition fused into the kernel that permutes."""

    def add_one(i, x_block, z_block):
        z_block[...] = x_block[...] + 1

    def blocks(ref):
        rows = ref.shape[0] // 2
        return lambda i: ref.at[pl.ds(i * rows, rows)]

    def kernel(x_ref, y_ref, z_ref, send, receive):
        right = lax.rem(lax.axis_index("x") + 1, lax.axis_size("x"))
        fut = kernels.async_remote_copy_start(x_ref, y_ref, send, receive, {"x": right})
        kernels.multi_buffered_loop(2, add_one, reads=[blocks(x_ref)], writes=[blocks(z_ref)])
        kernels.async_remote_copy_wait_send(fut)
        kernels.async_remote_copy_wait_recv(fut)

    anywhere = pl.BlockSpec(memory_space=pl.ANY)
    same = jax.ShapeDtypeStruct(x.shape, x.dtype)
    y, z = pl.pallas_call(
        kernel,
        out_shape=(same, same),
        in_specs=[anywhere],
        out_specs=(anywhere, anywhere),
        scratch_shapes=[pltpu.SemaphoreType.DMA, pltpu.SemaphoreType.DMA],
        interpret=interpret,
        name="permute_and_add",
    )(x)
    return y * z


# -- what they compute --------------------------------------------------------------------------------

Rolled = Callable[[int], jax.Array]

RESULTS: dict[Callable[[Shard], Shard], Callable[[Rolled], jax.Array]] = {
    overlapped: lambda rolled: rolled(1) * (rolled(0) + 1),
    two_in_a_row: lambda rolled: rolled(2) * jnp.sin(rolled(0) + 1),
    loop: lambda rolled: rolled(8),
    odd_loop: lambda rolled: rolled(7) + sum(jnp.sin(rolled(k)) for k in range(7)),
    staggered: lambda rolled: rolled(8),
    accumulating: lambda rolled: sum(rolled(k) for k in range(9)),
    refs: lambda rolled: rolled(1),
    refs_overlapped: lambda rolled: rolled(1) * 2 * rolled(0),
    refs_ring: lambda rolled: rolled(8),
    refs_slots: lambda rolled: rolled(7) + sum(jnp.sin(rolled(k)) for k in range(7)),
    refs_staggered: lambda rolled: rolled(7),
}

# -- what one would write by hand ---------------------------------------------------------------------

_ANY, _SEMAPHORE = pl.BlockSpec(memory_space=pl.ANY), pl.BlockSpec(memory_space=pltpu.SEMAPHORE)
_DMA = pltpu.SemaphoreType.DMA(())
_EFFECTS = pltpu.CompilerParams(has_side_effects=True)


def by_hand_start(x: Shard) -> Any:
    """The source goes through the kernel under a new name, which keeps it alive."""

    def kernel(_, send, receive, x_ref, y_ref):
        right = lax.rem(lax.axis_index("x") + 1, lax.axis_size("x"))
        pltpu.make_async_remote_copy(x_ref, y_ref, send, receive, device_id=(right,)).start()

    same = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(
        kernel,
        out_shape=(_DMA, _DMA, same, same),
        in_specs=[_ANY],
        out_specs=(_SEMAPHORE, _SEMAPHORE, _ANY, _ANY),
        input_output_aliases={0: 2},
        compiler_params=_EFFECTS,
        name="by_hand_start",
    )(x)


def by_hand_done(fut: Any) -> Shard:
    """Waits, and gives what arrived the name of the result."""
    send, receive, x, y = fut

    def kernel(x_ref, y_ref, send, receive, _):
        pltpu.make_async_copy(x_ref, x_ref, send).wait()
        pltpu.make_async_copy(y_ref, y_ref, receive).wait()

    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct(y.shape, y.dtype),
        in_specs=[_ANY, _ANY, _SEMAPHORE, _SEMAPHORE],
        out_specs=_ANY,
        input_output_aliases={1: 0},
        compiler_params=_EFFECTS,
        name="by_hand_done",
    )(x, y, send, receive)


def by_hand_overlapped(x: Shard) -> Shard:
    fut = by_hand_start(x)
    z = x + 1
    return by_hand_done(fut) * z


def by_hand_loop(x: Shard) -> Shard:
    return lax.fori_loop(0, 8, lambda i, x: by_hand_done(by_hand_start(x)), x)


def by_hand_staggered(x: Shard) -> Shard:
    return by_hand_done(
        lax.fori_loop(0, 6, lambda i, fut: by_hand_start(by_hand_done(fut)), by_hand_start(x))
    )
