"""A copy in flight is carried round a loop in buffers that the compiler copies or moves."""

from __future__ import annotations

from jax import lax

from asyncops.bench.cases import Draft, Program, pair
from asyncops.bench.futures import ARRAY, done, start

KIND = "xla-copies-inflight"


@pair("AO508", "AO504")
def carries_its_destination_as_the_next_source(draft: Draft) -> Program:
    """Without unrolling by two, source and destination change places in one loop buffer."""

    def fn(x):
        def body(_, future):
            return tuple(start(done(*future, interpret=draft.interpret), interpret=draft.interpret))

        first = tuple(start(x * 2.0, interpret=draft.interpret))
        future = lax.fori_loop(0, 6, body, first, unroll=1 if draft.wrong else 2)  # BUG
        return done(*future, interpret=draft.interpret)

    return Program(fn, (ARRAY,))


@pair("AO508", "AO504")
def leaves_the_memory_space_open(draft: Draft) -> Program:
    """Unrolled by two as the design note advises, but not pinned."""

    def fn(x):
        def begin(v):
            return tuple(start(v, interpret=draft.interpret, pinned=not draft.wrong))  # BUG

        def body(_, future):
            return begin(done(*future, interpret=draft.interpret, pinned=not draft.wrong))

        future = lax.fori_loop(0, 6, body, begin(x * 2.0), unroll=2)  # BUG
        return done(*future, interpret=draft.interpret, pinned=not draft.wrong)

    return Program(fn, (ARRAY,))
