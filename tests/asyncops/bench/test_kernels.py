"""The labelled kernels: what they cover, that their labels are true, and that the checker agrees with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import pytest

import asyncops
from asyncops.bench.cases import Draft, Pair, all_pairs
from asyncops.bench.outcomes import Outcome, score
from asyncops.bench.results import STORED, load
from asyncops.bench.scoring import TOOL, check_pairs
from asyncops.bench.tables import disagreements, render
from asyncops.checker import rules
from asyncops.explorer.arithmetic import Unknown
from asyncops.explorer.judging import judge
from asyncops.explorer.unrolling import unroll
from tests.test_readme import README

PAIRS = all_pairs()
KINDS = {
    "alias-stale-prefetch", "barrier-reuse", "deadlock", "dma-write-overlap", "double-wait",
    "missing-entry-barrier", "output-revisit", "parallel-grid-race", "pipelined-input-mutated",
    "prefetch-off-by-one", "read-before-arrival", "ring-run-ahead", "scope-escape", "semaphore-leak",
    "semaphore-type", "shared-semaphore", "slot-parity", "source-overwritten", "start-not-side-effecting",
    "store-to-inflight-dst", "third-device-only", "unwaited-dma", "wait-recv-missing", "wait-without-start",
    "wrong-neighbour", "wrong-semaphore", "wrong-wait-size", "xla-copies-inflight", "xla-defensive-copy",
    "xla-frees-inflight", "xla-overwrites-inflight",
}  # fmt: skip
# What is decided by the copies of block windows, by several cores, or between kernels: the judge does not follow it.
NOT_JUDGED = {
    "alias-stale-prefetch", "output-revisit", "parallel-grid-race", "pipelined-input-mutated",
    "start-not-side-effecting", "xla-copies-inflight", "xla-defensive-copy", "xla-frees-inflight",
    "xla-overwrites-inflight",
}  # fmt: skip
JUDGED = [p for p in PAIRS if p.kind not in NOT_JUDGED and not p.rules[0].startswith("AO5")]


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    """The checker's answers on every kernel."""
    return list(check_pairs(PAIRS))


def test_there_are_enough_kernels_and_each_wrong_one_has_its_clean_twin() -> None:
    assert 2 * len(PAIRS) >= 150
    assert max(Counter(p.name for p in PAIRS).values()) == 1
    assert all(p.marked_lines() for p in PAIRS)


def test_every_kind_and_every_rule_of_programs_is_there() -> None:
    assert {p.kind for p in PAIRS} >= KINDS
    assert {p.rules[0] for p in PAIRS} == {rule.CODE for rule in (*rules.ALL, *rules.PROGRAM)}


@pytest.mark.slow  # a few hundred kernels
def test_the_checker_says_what_the_labels_say(outcomes: list[Outcome]) -> None:
    assert not list(disagreements(outcomes, PAIRS))


@pytest.mark.slow
def test_the_stored_answers_of_the_checker_are_those_it_gives(outcomes: list[Outcome]) -> None:
    for run in load(STORED).values():
        stored = run.tools[TOOL]
        assert set(stored) == {(o.kernel, o.wrong) for o in outcomes}
        assert {(o.kernel, o.wrong, o.answer, o.rule, o.line) for o in stored.values()} == {
            (o.kernel, o.wrong, o.answer, o.rule, o.line) for o in outcomes
        }


def test_the_readme_has_the_table_of_the_stored_results() -> None:
    assert render(load(STORED), "markdown") in README


def test_the_detector_was_run_in_every_setting() -> None:
    for run in load(STORED).values():
        assert len(run.tools) == 5
        assert {score(answers.values()).wrong for answers in run.tools.values()} == {len(PAIRS)}


@pytest.mark.slow
@pytest.mark.parametrize("pair", JUDGED, ids=lambda p: p.name)
def test_an_exact_exploration_agrees_with_the_label(pair: Pair) -> None:
    wrong, twin = (pair.build(Draft(wrong)) for wrong in (True, False))
    wrong_jaxpr, twin_jaxpr = (jax.make_jaxpr(p.fn)(*p.args) for p in (wrong, twin))
    assert _judge(twin_jaxpr, twin.args) != "wrong"
    assert any(
        _judge(wrong_jaxpr, args) == "wrong" and _judge(twin_jaxpr, args) != "wrong"
        for args in variants(wrong.args)
    )


def variants(args: tuple[Any, ...]) -> Iterator[list[Any]]:
    """The example arguments, then a few others."""
    for shift in (0, -1, 1, -2, 3, -7):
        yield [a if a.dtype.kind == "f" else a + a.dtype.type(shift) for a in args]


def _judge(jaxpr: object, args: Sequence[object]) -> str:
    """ "undecided" where there are more schedules than a test should try."""
    try:
        unrolled = unroll(jaxpr, args)
    except Unknown:
        return "unknown"
    return "wrong" if unrolled.faults else judge(unrolled.program, limit=1000)


RULES = [rule.CODE for rule in (*rules.ALL, *rules.PROGRAM)]


@pytest.mark.parametrize("code", RULES)
def test_a_rule_that_is_switched_off_is_missed(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The labels of the benchmark would tell: a finding that should be there, on top or below another, is not."""
    pairs = [p for p in PAIRS if p.rules[0] == code][:3]
    assert any(code in codes(p) for p in pairs)
    monkeypatch.setattr(rules, "ALL", tuple(r for r in rules.ALL if code != r.CODE))
    monkeypatch.setattr(rules, "PROGRAM", tuple(r for r in rules.PROGRAM if code != r.CODE))
    assert not any(code in codes(p) for p in pairs)


def codes(pair: Pair) -> set[str]:
    """The rules of the findings on the wrong program, and of those below them."""
    program = pair.build(Draft(wrong=True))
    primary = asyncops.check(program.fn, *program.args, values=program.values).diagnostics
    return {d.code for top in primary for d in (top, *top.secondary)}
