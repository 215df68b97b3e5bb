"""The compiler has to copy what a kernel takes over."""

from __future__ import annotations

import jax.numpy as jnp

from asyncops.bench.cases import Draft, Program, pair
from asyncops.bench.futures import ARRAY, done, start

KIND = "xla-defensive-copy"


@pair("AO506")
def goes_on_with_the_old_name(draft: Draft) -> Program:
    def fn(x):
        state = x * 2.0
        source, target, sem = start(state, interpret=draft.interpret)  # BUG
        z = (state if draft.wrong else source) + 1.0  # BUG
        return done(source, target, sem, interpret=draft.interpret), z

    return Program(fn, (ARRAY,))


@pair("AO506")
def returns_what_it_gave_away(draft: Draft) -> Program:
    def fn(x):
        state = jnp.sin(x)
        source, target, sem = start(state, interpret=draft.interpret)  # BUG
        arrived = done(source, target, sem, interpret=draft.interpret)
        return arrived, state if draft.wrong else source

    return Program(fn, (ARRAY,))
