"""A value is read, moved or copied while a copy on it is in flight."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from asyncops.bench.cases import Draft, Program, pair
from asyncops.bench.futures import ARRAY, done, start

KIND = "xla-copies-inflight"
FLAG = jax.ShapeDtypeStruct((), jnp.int32)


@pair("AO504", "AO201")
def uses_the_destination_before_it_came(draft: Draft) -> Program:
    def fn(x):
        source, target, sem = start(x * 2.0, interpret=draft.interpret)
        if draft.wrong:
            early = target + 1.0  # BUG
            return done(source, target, sem, interpret=draft.interpret) * early
        arrived = done(source, target, sem, interpret=draft.interpret)
        return arrived * (arrived + 1.0)

    return Program(fn, (ARRAY,))


@pair("AO504")
def passes_a_future_out_of_a_branch(draft: Draft) -> Program:
    def fn(x, flag):
        if not draft.wrong:
            y = lax.cond(flag > 0, lambda v: v * 2.0, lambda v: v * 3.0, x)
            return done(*start(y, interpret=draft.interpret), interpret=draft.interpret)
        future = tuple(start(x * 2.0, interpret=draft.interpret))

        def again(future):
            return tuple(start(done(*future, interpret=draft.interpret), interpret=draft.interpret))

        future = lax.cond(flag > 0, lambda f: f, again, future)  # BUG
        return done(*future, interpret=draft.interpret)

    return Program(fn, (ARRAY, FLAG))
