"""Right kernels broken on purpose: the operators fit, the judge tells, and the checker sees it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import jax
import pytest

from asyncops.bench.cases import Draft, all_pairs, find_pair
from asyncops.checker import rules
from asyncops.explorer.arithmetic import Unknown
from asyncops.explorer.judging import judge
from asyncops.explorer.killing import FATES, OPEN, REPORTED, SURVIVED, Tally, _variants, try_mutants
from asyncops.explorer.mutation import OPERATORS, mutants
from asyncops.explorer.unrolling import unroll

# Between them they have a place for every operator.
SMALL = (
    "looks_at_the_slot_of_the_prefetch",
    "sends_the_next_block_before_it_was_read",
    "waits_for_three_of_two",
)
# Loops over blocks of which data decides the length: some of their mutants are not decided.
HARD = ("leaves_the_loop_with_a_prefetch",)


def traced(name: str, wrong: bool = False) -> tuple[Any, Sequence[Any]]:
    """The jaxpr and the arguments of a program of the benchmark."""
    program = find_pair(name).build(Draft(wrong))
    return jax.make_jaxpr(program.fn)(*program.args), program.args


def tally(names: Sequence[str]) -> Tally:
    result = Tally()
    for name in names:
        for verdict in try_mutants(name, *traced(name)):
            result.add(verdict)
    return result


@pytest.fixture(scope="module")
def small() -> Tally:
    return tally(SMALL)


def test_every_operator_finds_its_place(small: Tally) -> None:
    assert set(small.counts) == set(OPERATORS)


def test_wrong_mutants_are_killed_and_equivalent_ones_are_not_reported(small: Tally) -> None:
    assert small.rate() == 1
    assert not small.take_shown()
    assert all(not row[OPEN] for row in small.counts.values())


def test_some_mutants_are_equivalent(small: Tally) -> None:
    """Else the judge would say "wrong" whatever it is shown."""
    assert sum(row["equivalent"] for row in small.counts.values()) > 0


def test_the_table_has_a_line_for_every_operator_and_one_for_all(small: Tally) -> None:
    first, *rows = small.table().splitlines()
    assert all(fate in first for fate in FATES)
    assert [row.split("  ")[0] for row in rows] == [*sorted(OPERATORS), "all"]


def test_a_blind_checker_kills_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rate is the checker's: with every rule switched off it is 0."""
    monkeypatch.setattr(rules, "ALL", ())
    assert tally(SMALL[2:]).rate() == 0


def test_mutants_keep_their_source_lines() -> None:
    jaxpr, _ = traced(SMALL[0])
    assert all("read_before_arrival.py:" in m.where for m in mutants(jaxpr) if m.operator == "drop a wait")


def test_a_program_that_cannot_be_followed_is_said_to_be() -> None:
    jaxpr, _ = traced("skips_the_wait_when_told_to")
    wrong, _ = traced("skips_the_wait_when_told_to", wrong=True)
    shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in jaxpr.jaxpr.invars]
    with pytest.raises(Unknown, match="not known"):
        unroll(wrong, shapes)


def test_what_is_wrong_in_every_schedule_is_a_fault() -> None:
    assert any("out of bounds" in f for f in unroll(*traced("has_a_slot_too_few", wrong=True)).faults)
    assert any(
        "does not exist" in f for f in unroll(*traced("sends_past_the_last_device", wrong=True)).faults
    )
    assert unroll(*traced("gives_a_counter_to_a_copy", wrong=True)).faults


def test_too_many_schedules_are_undecided() -> None:
    program = unroll(*traced("reduces_round_the_ring_without_room")).program
    assert judge(program, limit=10, walks=4) == "undecided"


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("HYPOTHESIS_PROFILE") != "nightly", reason="takes some minutes; nightly")
def test_the_mutants_of_the_benchmark_are_killed() -> None:
    result = tally([p.name for p in all_pairs() if p.name not in HARD])
    assert result.rate() >= 0.95, result.table()
    assert all(result.rate(operator) >= 0.85 for operator in result.counts), result.table()
    assert not [v for v in result.take_shown() if v.fate in (SURVIVED, REPORTED)]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32"])
def test_integer_arguments_of_every_type_are_varied(dtype: str) -> None:
    shape = jax.ShapeDtypeStruct((2,), dtype)
    varied = list(_variants([shape], False))
    assert len(varied) > 2
    assert {str(x.dtype) for (x,) in varied} == {dtype}
