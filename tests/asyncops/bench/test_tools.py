"""How answers are scored, kept and shown, and how a tool that hangs is ended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from asyncops.bench import detector, peers, results, scoring
from asyncops.bench.cases import all_pairs, find_pair
from asyncops.bench.outcomes import ERROR, HANG, REPORT, SILENT, UNKNOWN, UNSUPPORTED, Outcome, score
from asyncops.bench.results import Run
from asyncops.bench.tables import disagreements, render
from asyncops.lint.cli import cli
from stateful.errors import InvalidArgumentError

LATE = find_pair("adds_a_bias_before_it_came")
ANSWERS = [
    Outcome("a", True, REPORT, rule=True, line=True, findings=1, seconds=1.0),
    Outcome("a", False, SILENT, seconds=3.0),
    Outcome("b", True, HANG, seconds=10.0),
    Outcome("b", False, REPORT, findings=2, seconds=2.0),
    Outcome("c", True, UNKNOWN),
    Outcome("c", False, UNSUPPORTED),
]


def test_answers_add_up() -> None:
    total = score(ANSWERS)
    assert (total.wrong, total.clean) == (3, 3)
    assert (total.detected, total.rule, total.line) == (1, 1, 1)
    assert total.false_alarms == 1
    assert total.hangs == 1
    assert total.unanswered == 2
    assert total.noise == 1
    assert total.median == 1.5


def test_breaking_on_the_wrong_kernel_only_is_a_report() -> None:
    breaks = [
        Outcome("a", True, ERROR),
        Outcome("a", False, SILENT),
        Outcome("b", True, ERROR),
        Outcome("b", False, ERROR),
    ]
    total = score(breaks)
    assert total.detected == 1
    assert total.false_alarms == 0


def test_the_checker_is_asked_about_both_of_a_pair() -> None:
    wrong, clean = scoring.check_pairs([LATE])
    assert (wrong.answer, wrong.rule, wrong.line) == (REPORT, True, True)
    assert clean.answer == SILENT


def test_what_differs_from_the_label_is_told() -> None:
    pairs = all_pairs()
    name = pairs[0].name
    told = list(
        disagreements(
            [
                Outcome(name, True, SILENT),
                Outcome(name, True, REPORT, rule=True, note="AO999 something"),
                Outcome(name, False, REPORT, note="AO999 something"),
            ],
            pairs,
        )
    )
    assert "silent, expected" in told[0]
    assert "not the line" in told[1]
    assert "its clean twin: report" in told[2]


def test_results_are_kept_and_read_back(tmp_path: Path) -> None:
    run = Run({"jax": "1", "asyncops": "2"})
    run.add("tool", ANSWERS)
    file = tmp_path / "results.json"
    results.save(file, {"1": run})
    (again,) = results.load(file).values()
    assert again.versions == run.versions
    assert again.tools == run.tools
    assert results.load(tmp_path / "none.json") == {}


@pytest.mark.parametrize(
    "text", ["{", "[1]", '{"1": {"versions": {}}}', '{"1": {"versions": {}, "answers": [[1]]}}']
)
def test_a_file_of_something_else_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    file.write_text(text)
    with pytest.raises(InvalidArgumentError, match=r"results\.json.*not a file of results"):
        results.load(file)


def test_the_table_has_a_row_for_every_tool_and_version() -> None:
    run = Run({"jax": "1"})
    run.add("JAX detector, eager, 64 clocks", ANSWERS)
    run.add("asyncops.check", ANSWERS)
    markdown = render({"1": run}, "markdown").splitlines()
    assert len(markdown) == 4
    assert markdown[2].startswith("| asyncops.check | 1 | 1/3 | 1/3 | 1/3 | 1/3 | 1 | 2 |")
    assert "JAX detector, eager, 64 clocks" in render({"1": run}, "text", width=200)
    first, _ = json.loads(render({"1": run}, "json"))
    assert first["detected"] == 1
    assert len(first["answers"]) == len(ANSWERS)


def test_the_detector_reports_a_race_with_its_line() -> None:
    outcome = detector.run(LATE, True, "on_wait", peers.LARGE_CLOCKS)
    assert outcome.answer == REPORT
    assert outcome.line
    assert not outcome.rule


def test_a_tool_that_hangs_is_ended_and_the_next_kernel_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = "import sys, time\\nprint('ready', flush=True)\\nfor line in sys.stdin: time.sleep(60)"
    monkeypatch.setattr(peers, "_COMMAND", ("-c", hangs.replace("\\n", "\n")))
    outcomes = list(peers.run_peer(peers.PEERS[0], [LATE], limit=0.2))
    assert [o.answer for o in outcomes] == [HANG, HANG]


def test_a_tool_that_dies_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "_COMMAND", ("-c", "print('ready')"))
    outcomes = list(peers.run_peer(peers.PEERS[0], [LATE], limit=20))
    assert {o.answer for o in outcomes} == {ERROR}


def test_the_command_prints_the_table_and_says_whether_all_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    done = CliRunner().invoke(cli, ["bench", "--only", LATE.name, "--format", "json"])
    assert done.exit_code == 0, done.output
    ours = [row for row in json.loads(done.stdout) if row["tool"] == "asyncops.check"]
    assert ours[0]["detected"] == ours[0]["wrong"] == 1
    monkeypatch.setattr(scoring, "check_one", lambda pair, wrong: Outcome(pair.name, wrong, SILENT))
    done = CliRunner().invoke(cli, ["bench", "--only", LATE.name])
    assert done.exit_code == 1
    assert "silent, expected AO201" in done.output


def test_the_command_lists_the_kernels() -> None:
    done = CliRunner().invoke(cli, ["bench", "--list"])
    assert len(done.stdout.splitlines()) == len(all_pairs())


def test_the_command_refuses_names_that_no_kernel_has() -> None:
    done = CliRunner().invoke(cli, ["bench", "--only", "nothing like it"])
    assert done.exit_code == 2
    assert "--list" in done.output


def test_mutants_of_a_file_with_nothing_in_it_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "nothing_here.py"
    file.write_text("x = 1\n")
    done = CliRunner().invoke(cli, ["mutants", str(file)])
    assert done.exit_code == 2
    assert "KERNELS" in done.output


def test_mutants_of_lint_targets_are_counted() -> None:
    file = Path(__file__).parents[2] / "eval" / "ao102_double_wait.py"
    done = CliRunner().invoke(cli, ["mutants", str(file), "--most", "1"])
    assert done.exit_code == 0, done.output
    assert "left out, since it is not clean itself" in done.output
    assert "100.0%" in done.stdout
