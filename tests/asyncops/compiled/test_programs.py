"""What the real TPU compiler makes of hand-written programs: every wrong form found on its line, every cure clean."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from asyncops.checker.report import Diagnostic

pytestmark = pytest.mark.tpu_compile

SOURCE = (Path(__file__).parent / "programs.py").read_text()
NAMES = re.findall(r"^    (\w+),$", SOURCE.partition("RING = (")[2], re.MULTILINE)
GENERATIONS = ("v5p:2x2x1", "v6e:2x2", "tpu7x:2x2x1")


def expected(function: Callable) -> set[tuple[str, int]]:
    lines, first = inspect.getsourcelines(function)
    found = ((first + n, re.search(r"# expect: (\w+)", line)) for n, line in enumerate(lines))
    return {(comment[1], number) for number, comment in found if comment}


def is_cured(name: str) -> bool:
    body = SOURCE.partition(f"def {name}(")[2].partition("\n\n\n")[0]
    return "# expect" not in body and "by_jax" not in name


def primary(report) -> list[Diagnostic]:
    return [d for d in report.diagnostics if d.severity != "info"]


def lines_of(diagnostic: Diagnostic) -> set[int]:
    places = [diagnostic.location, *(place for _, place in diagnostic.related[:2])]
    return {p.line for p in places if p is not None and p.file.endswith("programs.py")}


@pytest.mark.parametrize("name", NAMES)
def test_findings_on_their_lines(name, programs, report):
    wanted = expected(getattr(programs, name))
    found = primary(report(name))
    assert sorted(d.code for d in found) == sorted(code for code, _ in wanted)
    for code, line in wanted:
        assert any(d.code == code and line in lines_of(d) for d in found), [str(d) for d in found]
    assert all(d.confirmed and d.help for d in found)
    assert all(d.witness.replay().reproduced for d in found if d.witness is not None)
    assert not report(name).unknowns
    assert not report(name).assumptions


@pytest.mark.parametrize("topology", GENERATIONS)
@pytest.mark.parametrize("name", [n for n in NAMES if is_cured(n)])
def test_cures_hold_on_every_generation(name, topology, report):
    assert report(name, topology).verdict == "clean"


def test_both_copies_of_the_staggered_loop(report):
    (finding,) = primary(report("staggered_loop"))
    text = str(finding)
    assert "copies its source" in text
    assert "copies its destination" in text
    assert "6 times" in text
    assert {d.code for d in finding.secondary} == {"AO504", "AO508"}


def test_the_witness_is_the_part_of_the_schedule_that_shows_it(report):
    steps = str(primary(report("staggered_loop"))[0].witness).splitlines()
    assert [step.partition("%")[0] for step in steps] == ["1. ", "2. ", "3. ", "4. "]
    assert "starts the copy" in steps[0]
    assert "copies its source" in steps[1]
    assert "copies its destination" in steps[2]
    assert "waits for it" in steps[3]
    assert "programs.py:" in steps[0]


def test_the_copy_in_the_rolled_loop_is_counted(report):
    (finding,) = primary(report("rolled_loop"))
    assert "4,194,304 bytes each time (33,554,432 bytes in all)" in finding.message
    assert "8 times" in finding.message


def test_what_is_overlapped_is_listed(report):
    assert "overlapped instead: nothing" in primary(report("unordered"))[0].message


def test_merged_starts_name_both_lines(programs, report):
    (finding,) = primary(report("equal_starts"))
    lines, first = inspect.getsourcelines(programs.equal_starts)
    first_start = first + next(n for n, line in enumerate(lines) if "first = bare_start" in line)
    assert finding.related[0] == ("the start that is left", finding.related[0][1])
    assert finding.related[0][1].line == first_start
    assert "has_side_effects=True" in finding.help


def test_the_move_names_both_memories(report):
    (finding,) = primary(report("moved_out_of_vmem"))
    assert "moves its destination from VMEM to HBM" in finding.message
    assert "pltpu.HBM" in finding.help


def test_an_unpinned_future_is_noted_without_changing_the_verdict(compiled, programs):
    import asyncops

    def body(_, future):
        return programs.start(programs.done(*future))

    def unpinned(x):
        future = programs.lax.fori_loop(0, 6, body, programs.start(x), unroll=2)
        return programs.done(*future)

    program = asyncops.compile_for("v5e:2x2", programs.on_the_ring(unpinned), programs.SHARDED)
    report = asyncops.check_compiled(program)
    assert report.ok
    assert [(d.code, d.severity) for d in report.diagnostics] == [("AO508", "info")]


def test_copies_of_arguments_and_results_are_in_the_schedule_only(report):
    reasons = [copy.reason for copy in report("ordered_argument").schedule.copies]
    assert sorted(reasons) == ["argument", "result"]


def test_the_schedule_of_jax_ppermute(report):
    checked = report("permuted_by_jax")
    assert checked.ok
    (pair,) = checked.schedule.pairs
    assert (pair.what, pair.by, pair.nbytes, pair.times) == ("collective-permute", "XLA", 4 << 20, 1)
    (item,) = pair.overlapped
    assert item.what == "computation"
    assert item.cycles
    assert item.line is not None
    assert "jnp.dot" in SOURCE.splitlines()[item.line.line - 1]


def test_the_schedule_of_jax_ppermute_in_a_loop(report):
    checked = report("permuted_by_jax_in_a_loop")
    assert checked.ok
    pairs = [p for p in checked.schedule.pairs if p.what == "collective-permute"]
    assert [p.times for p in pairs] == [8]
    assert any(item.cycles for item in pairs[0].overlapped)
