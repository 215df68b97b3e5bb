"""Whatever the checker is shown, it answers, or raises an error of its own; and it answers the same every time."""

from __future__ import annotations

import concurrent.futures
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from jax import lax
from jax.sharding import Mesh, PartitionSpec

import asyncops
from asyncops.bench.cases import Draft, find_pair
from asyncops.checker.report import Report
from asyncops.checker.session import check_jaxpr
from asyncops.explorer.mutation import mutants
from stateful._jax import editing
from stateful._jax.jaxprs import open_jaxpr
from stateful.errors import StatefulError
from tests.asyncops.generated_kernels import Kernel, arguments, kernels

DUMPS = sorted((Path(__file__).parent / "compiled" / "dumps").rglob("*.txt"))
VERDICTS = {"clean", "findings", "unknown"}

Fn = Callable[..., Any]


def answered(check: Callable[[], Report]) -> str:
    """The verdict, or the message of an error of our own; any other error is the test's."""
    try:
        return check().verdict
    except StatefulError as error:
        return str(error)


def inside_scan(fn: Fn) -> Fn:
    return lambda flags, x: lax.scan(lambda c, _: (c + fn(flags, c)[0], None), x, None, length=3)[0]


def inside_while(fn: Fn) -> Fn:
    return lambda flags, x: lax.while_loop(lambda c: c[0, 0, 0] < 3, lambda c: fn(flags, c)[1], x)


def inside_cond(fn: Fn) -> Fn:
    return lambda flags, x: lax.cond(flags[0] > 1, lambda: fn(flags, x)[1], lambda: x * 2)


def inside_shard_map(fn: Fn) -> Fn:
    mesh = Mesh(np.array(jax.devices()[:2]), ("d",))
    spec = PartitionSpec()
    return jax.shard_map(fn, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)


def twice(fn: Fn) -> Fn:
    return lambda flags, x: fn(flags, fn(flags, x)[1])


WRAPPERS: list[Callable[[Fn], Fn]] = [
    jax.jit, jax.checkpoint, inside_scan, inside_while, inside_cond, inside_shard_map, twice
]  # fmt: skip


@settings(max_examples=max(10, settings().max_examples // 2))
@given(kernels(), st.lists(st.sampled_from(WRAPPERS), max_size=2))
def test_random_programs_get_an_answer(kernel: Kernel, around: list[Callable[[Fn], Fn]]) -> None:
    fn = kernel.program()
    for wrap in around:
        inner = wrap(fn)
        fn = inner if wrap in (jax.jit, jax.checkpoint, inside_shard_map, twice) else _as_pair(inner)
    note(f"{kernel} in {[w.__name__ for w in around]}")
    assert asyncops.check(fn, *arguments()).verdict in VERDICTS


def _as_pair(fn: Fn) -> Fn:
    return lambda flags, x: (fn(flags, x)[0], fn(flags, x))


@given(kernels(), st.randoms(use_true_random=False))
def test_programs_with_operations_missing_get_an_answer(kernel: Kernel, choose: random.Random) -> None:
    """Jaxprs that no tracing makes: some operations dropped, others carried out twice."""
    jaxpr: Any = jax.make_jaxpr(kernel.program())(*arguments())
    for _ in range(3):
        places = [p for p in editing.places(jaxpr) if not p.eqn.outvars]
        if places:
            place, times = choose.choice(places), choose.choice((0, 0, 2))
            i, eqn = place.index, place.eqn
            jaxpr = editing.with_equations(
                jaxpr, place.path, lambda e, i=i, q=eqn, n=times: [*e[:i], *[q] * n, *e[i + 1 :]]
            )
    report = check_jaxpr(open_jaxpr(jaxpr), list(arguments()), values=False, calls=1, started=0.0)
    assert report.verdict in VERDICTS


@pytest.mark.parametrize("kind", [jax.jit, jax.checkpoint])
def test_nesting_a_thousand_deep_gets_an_answer(kind: Callable[[Fn], Fn]) -> None:
    flags, blocks = arguments()
    level: Any = jax.make_jaxpr(kind(Kernel(()).program()))(flags, blocks)
    ((i, name, _),) = next(p.path for p in editing.places(level) if p.path)
    nested = level
    for _ in range(1000):
        inner = nested if name != "jaxpr" or hasattr(level.eqns[i].params[name], "consts") else nested.jaxpr
        nested = editing.with_equations(
            level, (), lambda e, q=inner: [*e[:i], e[i].replace(params={**e[i].params, name: q}), *e[i + 1 :]]
        )
    report = check_jaxpr(open_jaxpr(nested), [flags, blocks], values=False, calls=1, started=0.0)
    assert report.ok or "deep" in " ".join(report.unknowns), report


def test_a_thousand_branches_deep_gets_an_answer() -> None:
    """As a user writes it: tracing alone may go too deep for Python."""

    def nested(depth: int, x: Any) -> Any:
        return lax.cond(x.sum() > depth, lambda: nested(depth - 1, x + 1), lambda: x) if depth else x

    answer = answered(lambda: asyncops.check(lambda x: nested(1000, x), jnp.ones(3)))
    assert answer in VERDICTS or "deep" in answer


@settings(max_examples=settings().max_examples * 2)
@given(st.sampled_from(DUMPS), st.sampled_from([0.3, 0.9, 0.99, 1.0]), st.randoms(use_true_random=False))
def test_truncated_and_hostile_programs_get_an_answer(file: Path, part: float, choose: random.Random) -> None:
    text = file.read_text()
    text = text[: int(len(text) * part)]
    for _ in range(choose.randint(0, 5)):
        at = choose.randrange(len(text) + 1)
        junk = choose.choice(
            ["}", "{", "(", "\0", "%x", "ENTRY", "9" * 400, '"', "backend_config={", "\n", "é"]
        )
        text = text[:at] + junk + text[at + choose.randint(0, 30) :]
    assert answered(lambda: asyncops.check_compiled(text))


REPORT = """
import os
from asyncops.lint.environment import prepare_environment
prepare_environment(os.environ)
import asyncops
from asyncops.bench.cases import Draft, find_pair
for name in {names}:
    program = find_pair(name).build(Draft(True))
    report = asyncops.check(program.fn, *program.args)
    print(report, *(d.witness for d in report.diagnostics))
"""
NAMES = [
    "streams_keys_and_values_on_one",
    "clears_its_mailbox_after_the_barrier",
    "finishes_if_the_result_is_wanted",
    "leaves_the_loop_with_a_prefetch",
]


def told(names: list[str]) -> str:
    lines = []
    for name in names:
        program = find_pair(name).build(Draft(True))
        report = asyncops.check(program.fn, *program.args)
        lines.append(" ".join(map(str, [report, *(d.witness for d in report.diagnostics)])))
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def here() -> str:
    return told(NAMES)


@pytest.mark.parametrize("seed", ["7"])
def test_other_processes_say_the_same(seed: str, here: str) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(
        [sys.executable, "-c", REPORT.format(names=NAMES)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout == here, done.stderr


def test_other_threads_say_the_same(here: str) -> None:
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert list(pool.map(told, [NAMES, NAMES])) == [here, here]


def test_mutants_say_the_same_twice() -> None:
    program = find_pair("looks_at_the_slot_of_the_prefetch").build(Draft(False))
    jaxpr = jax.make_jaxpr(program.fn)(*program.args)
    assert [m.where for m in mutants(jaxpr)] == [m.where for m in mutants(jaxpr)]
