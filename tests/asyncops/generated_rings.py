"""Random kernels for a ring of devices: remote copies, signals and waits in any order, right ones among them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import AbstractMesh, AxisType, PartitionSpec

SLOTS, COUNTERS = 2, 2
BLOCK = (8, 128)


@dataclass(frozen=True)
class Send:
    """A remote copy of a slot to a slot ``shift`` devices on; it arrives on semaphore ``semaphore``."""

    source: int
    target: int
    shift: int
    semaphore: int


@dataclass(frozen=True)
class Start:
    send: Send


@dataclass(frozen=True)
class Departed:
    send: Send


@dataclass(frozen=True)
class Arrived:
    send: Send


@dataclass(frozen=True)
class Read:
    slot: int


@dataclass(frozen=True)
class Write:
    slot: int


@dataclass(frozen=True)
class Tell:
    """One count for the device ``shift`` on; counter 0 is the barrier semaphore, if the kernel has one."""

    counter: int
    shift: int


@dataclass(frozen=True)
class Hear:
    counter: int
    amount: int


@dataclass(frozen=True)
class Only:
    """What device ``device`` alone does."""

    device: int
    body: tuple[Any, ...]


@dataclass(frozen=True)
class Ring:
    """What each of ``devices`` devices does."""

    body: tuple[Any, ...]
    devices: int
    has_barrier: bool

    def program(self) -> Callable[..., Any]:
        """A function of one block a device, on an abstract mesh."""

        def kernel(x_ref, o_ref, buf, sends, arrivals, first, second):
            me = lax.axis_index("d")
            first = pltpu.get_barrier_semaphore() if self.has_barrier else first
            _run(self, self.body, _Refs(o_ref, buf, sends, arrivals, (first, second), me))
            del x_ref

        call = pl.pallas_call(
            kernel, out_shape=jax.ShapeDtypeStruct(BLOCK, jnp.float32),
            scratch_shapes=[
                pltpu.VMEM((SLOTS, *BLOCK), jnp.float32), pltpu.SemaphoreType.DMA((SLOTS,)),
                pltpu.SemaphoreType.DMA((SLOTS,)), pltpu.SemaphoreType.REGULAR(()), pltpu.SemaphoreType.REGULAR(()),
            ],
            compiler_params=pltpu.CompilerParams(collective_id=0 if self.has_barrier else None),
        )  # fmt: skip
        mesh = AbstractMesh((self.devices,), ("d",), axis_types=(AxisType.Auto,))
        spec = PartitionSpec("d")
        return jax.shard_map(call, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)

    def argument(self) -> np.ndarray:
        """One block for each device."""
        return np.zeros((self.devices * BLOCK[0], BLOCK[1]), np.float32)


@dataclass(frozen=True)
class _Refs:
    out: Any
    buf: Any
    sends: Any
    arrivals: Any
    counters: tuple[Any, Any]
    me: Any


def _run(ring: Ring, body: tuple[Any, ...], refs: _Refs) -> None:
    def peer(shift: int) -> Any:
        return {"d": lax.rem(refs.me + shift % ring.devices, ring.devices)}

    def copy(send: Send) -> Any:
        return pltpu.make_async_remote_copy(
            refs.buf.at[send.source], refs.buf.at[send.target], refs.sends.at[send.semaphore],
            refs.arrivals.at[send.semaphore], device_id=peer(send.shift),
        )  # fmt: skip

    for statement in body:
        match statement:
            case Start(send):
                copy(send).start()
            case Departed(send):
                copy(send).wait_send()
            case Arrived(send):
                copy(send).wait_recv()
            case Read(slot):
                refs.out[...] = refs.buf[slot]
            case Write(slot):
                refs.buf[slot] = jnp.zeros(BLOCK, jnp.float32)
            case Tell(counter, shift):
                pl.semaphore_signal(refs.counters[counter], 1, device_id=peer(shift))
            case Hear(counter, amount):
                pl.semaphore_wait(refs.counters[counter], amount)
            case Only(device, inner):
                pl.when(refs.me == device % ring.devices)(lambda inner=inner: _run(ring, inner, refs))


slots = st.integers(0, SLOTS - 1)
shifts = st.sampled_from([1, -1])
sends = st.builds(Send, slots, slots, shifts, slots)


def _barrier(counter: int, kind: int) -> tuple[Any, ...]:
    """With both neighbours, with the one to send to, or with the one that sends."""
    told = {0: (1, -1), 1: (-1,), 2: (1,)}[kind]
    return (*(Tell(counter, shift) for shift in told), Hear(counter, len(told)))


_exchange = st.builds(
    lambda send, use, late: (Start(send), *((use, Departed(send)) if late else (Departed(send),)), Arrived(send),
                             Read(send.target)),
    sends, st.sampled_from([Read(0), Read(1), Write(0), Write(1)]), st.booleans(),
)  # fmt: skip
_parts = st.one_of(
    st.builds(_barrier, st.integers(0, COUNTERS - 1), st.integers(0, 2)),
    _exchange,
    _exchange,
    st.builds(Read, slots).map(lambda s: (s,)),
    st.builds(Write, slots).map(lambda s: (s,)),
    st.builds(Only, st.integers(0, 2), _exchange.map(lambda e: e[:-1])).map(lambda s: (s,)),
)


def rings() -> st.SearchStrategy[Ring]:
    """Rings of two or three devices, mostly with a barrier first."""
    body = st.lists(_parts, min_size=1, max_size=4).map(lambda parts: sum(parts, ()))
    first = st.sampled_from([(), _barrier(0, 0), _barrier(0, 0), _barrier(0, 1)])
    return st.builds(
        lambda b, rest, n, has: Ring(b + rest, n, has), first, body, st.integers(2, 3), st.booleans()
    )
