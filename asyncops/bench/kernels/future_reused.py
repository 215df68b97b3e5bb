"""A copy that one kernel starts is finished twice."""

from __future__ import annotations

from jax import lax

from asyncops.bench.cases import Draft, Program, pair
from asyncops.bench.futures import ARRAY, done, start

KIND = "double-wait"


@pair("AO502", "AO102")
def finishes_one_future_twice(draft: Draft) -> Program:
    def fn(x):
        source, target, sem = start(x * 2.0, interpret=draft.interpret)
        y = done(source, target, sem, interpret=draft.interpret)
        if draft.wrong:
            y = done(source, y, sem, interpret=draft.interpret)  # BUG
        return y

    return Program(fn, (ARRAY,))


@pair("AO502", "AO102")
def finishes_in_every_trip(draft: Draft) -> Program:
    def fn(x):
        future = start(x * 2.0, interpret=draft.interpret)
        if not draft.wrong:
            arrived = done(*future, interpret=draft.interpret)
            return lax.fori_loop(0, 3, lambda _, y: y + arrived, x)
        return lax.fori_loop(0, 3, lambda _, y: y + done(*future, interpret=draft.interpret), x)  # BUG

    return Program(fn, (ARRAY,))
