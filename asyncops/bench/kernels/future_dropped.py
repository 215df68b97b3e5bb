"""A copy that one kernel starts is finished by none, on some path."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from asyncops.bench.cases import Draft, Program, pair
from asyncops.bench.futures import ARRAY, SHAPE, done, start

KIND = "xla-frees-inflight"
FLAG = jax.ShapeDtypeStruct((), jnp.int32)


@pair("AO501")
def keeps_the_source_and_drops_the_rest(draft: Draft) -> Program:
    def fn(x):
        source, target, sem = start(x * 2.0, interpret=draft.interpret)  # BUG
        if draft.wrong:
            return source
        return source + done(source, target, sem, interpret=draft.interpret)

    return Program(fn, (ARRAY,))


@pair("AO501")
def finishes_if_the_result_is_wanted(draft: Draft) -> Program:
    def fn(x, wanted):
        future = start(x * 2.0, interpret=draft.interpret)  # BUG
        if not draft.wrong:
            y = done(*future, interpret=draft.interpret)
            return lax.cond(wanted > 0, lambda: y, lambda: jnp.zeros(SHAPE))
        return lax.cond(
            wanted > 0, lambda: done(*future, interpret=draft.interpret), lambda: jnp.zeros(SHAPE)
        )

    return Program(fn, (ARRAY, FLAG))


@pair("AO501")
def starts_in_every_trip_and_finishes_the_last(draft: Draft) -> Program:
    def fn(x):
        def body(_, y):
            source, target, sem = start(y * 0.5, interpret=draft.interpret)  # BUG
            if draft.wrong:
                return source
            return done(source, target, sem, interpret=draft.interpret)

        return lax.fori_loop(0, 4, body, x)

    return Program(fn, (ARRAY,))
