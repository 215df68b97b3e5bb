"""Random Pallas kernels, as values that print as what they are and shrink to few statements.

A kernel copies between three slots of a VMEM buffer and three blocks of an array in HBM, and reads and writes the slots
meanwhile, in loops, grid steps and under flags that the caller gives. Half of what is drawn comes in pairs that belong
together (a start and its wait), so that many kernels are right.
"""

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

SLOTS, FLAGS = 3, 2
BLOCK = (8, 128)


@dataclass(frozen=True)
class Index:
    """A slot: ``offset``, counted from the trip of the innermost loop where ``moves``."""

    offset: int
    moves: bool = False

    def at(self, trip: Any) -> Any:
        return lax.rem(trip + self.offset, SLOTS) if self.moves and trip is not None else self.offset


@dataclass(frozen=True)
class Copy:
    """``kind``: "load" (HBM to slot), "store" (slot to HBM) or "move" (slot to slot)."""

    kind: str
    source: Index
    target: Index
    semaphore: Index


@dataclass(frozen=True)
class Start:
    copy: Copy


@dataclass(frozen=True)
class Wait:
    copy: Copy


@dataclass(frozen=True)
class Read:
    slot: Index


@dataclass(frozen=True)
class Write:
    slot: Index


@dataclass(frozen=True)
class Signal:
    amount: int


@dataclass(frozen=True)
class Take:
    amount: int


@dataclass(frozen=True)
class Loop:
    trips: int
    body: tuple[Any, ...]


@dataclass(frozen=True)
class When:
    flag: int
    body: tuple[Any, ...]


@dataclass(frozen=True)
class Kernel:
    """Statements; ``steps`` of a grid run them again and again."""

    body: tuple[Any, ...]
    steps: int = 1

    def program(self, interpret: Any = False) -> Callable[..., Any]:
        """A function of flags, int32[2], and blocks, float32[3, 8, 128]: what was read, and the blocks stored."""

        def kernel(flags, x_hbm, y_in, o_ref, y_hbm, buf, sems, counter):
            del y_in

            @pl.when(pl.program_id(0) == 0)
            def _():
                o_ref[...] = jnp.zeros(BLOCK, jnp.float32)
                buf[...] = jnp.zeros((SLOTS, *BLOCK), jnp.float32)

            _run(self.body, _Refs(flags, x_hbm, y_hbm, o_ref, buf, sems, counter), pl.program_id(0))

        shape = jax.ShapeDtypeStruct((SLOTS, *BLOCK), jnp.float32)
        hbm = pl.BlockSpec(memory_space=pl.ANY)
        call = pl.pallas_call(
            kernel, grid=(self.steps,), out_shape=(jax.ShapeDtypeStruct(BLOCK, jnp.float32), shape),
            in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), hbm, hbm],
            out_specs=(pl.BlockSpec(memory_space=pltpu.VMEM), hbm), input_output_aliases={2: 1},
            scratch_shapes=[
                pltpu.VMEM((SLOTS, *BLOCK), jnp.float32), pltpu.SemaphoreType.DMA((SLOTS,)),
                pltpu.SemaphoreType.REGULAR(()),
            ],
            interpret=interpret,
        )  # fmt: skip
        return lambda flags, x: call(flags, x, jnp.zeros(shape.shape, shape.dtype))


@dataclass(frozen=True)
class _Refs:
    flags: Any
    x: Any
    y: Any
    out: Any
    buf: Any
    sems: Any
    counter: Any

    def copy(self, c: Copy, trip: Any) -> Any:
        source = self.x if c.kind == "load" else self.buf
        target = self.y if c.kind == "store" else self.buf
        ends = source.at[c.source.at(trip)], target.at[c.target.at(trip)]
        return pltpu.make_async_copy(*ends, self.sems.at[c.semaphore.at(trip)])


def _run(body: tuple[Any, ...], refs: _Refs, trip: Any) -> None:
    for statement in body:
        match statement:
            case Start(copy):
                refs.copy(copy, trip).start()
            case Wait(copy):
                refs.copy(copy, trip).wait()
            case Read(slot):
                refs.out[...] += refs.buf[slot.at(trip)]
            case Write(slot):
                refs.buf[slot.at(trip)] = jnp.full(BLOCK, 3.0, jnp.float32)
            case Signal(amount):
                pl.semaphore_signal(refs.counter, amount)
            case Take(amount):
                pl.semaphore_wait(refs.counter, amount)
            case Loop(trips, inner):
                lax.fori_loop(0, trips, lambda i, _, inner=inner: _run(inner, refs, i), None)
            case When(flag, inner):
                pl.when(refs.flags[flag] > 0)(lambda inner=inner: _run(inner, refs, trip))


indices = st.builds(Index, st.integers(0, SLOTS - 1), st.booleans())
copies = st.builds(Copy, st.sampled_from(["load", "store", "move"]), indices, indices, indices)


@st.composite
def _pairs(draw: st.DrawFn, inner: Any) -> tuple[Any, ...]:
    """Something that begins, other things, and its end: of a copy, of a count, or the two halves under one flag."""
    meanwhile = draw(st.lists(inner, max_size=2).map(lambda parts: sum(parts, ())))
    kind = draw(st.integers(0, 4))
    if kind == 0:
        amount = draw(st.integers(1, 2))
        return (Signal(amount), *meanwhile, Take(amount))
    copy = draw(copies)
    if kind == 1:
        flag = draw(st.integers(0, FLAGS - 1))
        return (When(flag, (Start(copy),)), *meanwhile, When(flag, (Wait(copy),)))
    used = draw(st.sampled_from([(), (Read(copy.target),), (Write(copy.source),), (Write(copy.target),)]))
    late = draw(st.integers(0, 3)) == 0
    return (Start(copy), *meanwhile, *((*used, Wait(copy)) if late else (Wait(copy), *used)))


def _parts(inner: Any) -> Any:
    body = st.lists(inner, min_size=1, max_size=3).map(lambda parts: sum(parts, ()))
    return st.one_of(
        _pairs(inner),
        st.builds(Loop, st.integers(1, 4), body).map(lambda s: (s,)),
        st.builds(When, st.integers(0, FLAGS - 1), body).map(lambda s: (s,)),
    )


_single = st.one_of(
    st.builds(Read, indices), st.builds(Write, indices), st.builds(Start, copies), st.builds(Wait, copies)
).map(lambda s: (s,))
_matching = _pairs(st.builds(Read, indices).map(lambda s: (s,)))
_statements = st.recursive(st.one_of(_matching, _matching, _matching, _single), _parts, max_leaves=5)


def kernels() -> st.SearchStrategy[Kernel]:
    """Kernels of a few statements."""
    body = st.lists(_statements, min_size=1, max_size=3).map(lambda parts: sum(parts, ()))
    return st.builds(Kernel, body, st.integers(1, 3))


def arguments() -> tuple[np.ndarray, np.ndarray]:
    """Flags, all set, and blocks."""
    blocks = np.arange(SLOTS * 8 * 128, dtype=np.float32).reshape(SLOTS, *BLOCK) % 13
    return np.ones(FLAGS, np.int32), blocks
