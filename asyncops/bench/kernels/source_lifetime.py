"""Nothing keeps the source of a copy alive, or unchanged, until it is done."""

from __future__ import annotations

from jax import lax

from asyncops.bench.cases import Draft, Program, pair
from asyncops.bench.futures import ARRAY, done, done_without_source, start, start_from

KIND = "xla-overwrites-inflight"


@pair("AO503", "AO504")
def forgets_the_source_of_a_snapshot(draft: Draft) -> Program:
    def fn(x):
        state = x * 2.0
        if draft.wrong:
            target, sem = start_from(state, interpret=draft.interpret)  # BUG
            return done_without_source(target, sem, interpret=draft.interpret)
        return done(*start(state, interpret=draft.interpret), interpret=draft.interpret)

    return Program(fn, (ARRAY,))


@pair("AO503", "AO504")
def updates_what_is_being_copied(draft: Draft) -> Program:
    def fn(x):
        state = x * 2.0
        if draft.wrong:
            snapshot = start_from(state, interpret=draft.interpret)  # BUG
            state = state.at[0].set(0.0)  # BUG
            state, target, sem = lax.optimization_barrier((state, *snapshot))
            return done_without_source(target, sem, interpret=draft.interpret), state
        state, target, sem = start(state, interpret=draft.interpret)
        snapshot = done(state, target, sem, interpret=draft.interpret)
        state, snapshot = lax.optimization_barrier((state, snapshot))
        return snapshot, state.at[0].set(0.0)

    return Program(fn, (ARRAY,))
