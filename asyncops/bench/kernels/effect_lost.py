"""A start is not marked as having side effects."""

from __future__ import annotations

from asyncops.bench.cases import Draft, Program, pair
from asyncops.bench.futures import ARRAY, done, start

KIND = "start-not-side-effecting"


@pair("AO507")
def starts_two_equal_copies_unmarked(draft: Draft) -> Program:
    def fn(x):
        first = start(x, interpret=draft.interpret, marked=not draft.wrong)
        second = start(x, interpret=draft.interpret, marked=not draft.wrong)  # BUG
        return done(*first, interpret=draft.interpret), done(*second, interpret=draft.interpret)

    return Program(fn, (ARRAY,))


@pair("AO507")
def starts_one_copy_unmarked(draft: Draft) -> Program:
    def fn(x):
        future = start(x * 3.0, interpret=draft.interpret, marked=not draft.wrong)  # BUG
        return done(*future, interpret=draft.interpret)

    return Program(fn, (ARRAY,))
