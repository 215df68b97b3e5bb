"""The baseline: created, applied, pruned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.asyncops.lint.conftest import Run, Write


def entries(file: str = "asyncops-baseline.json") -> list[dict[str, str]]:
    return json.loads(Path(file).read_text())["findings"]


def test_created_and_applied(run: Run, race: Path) -> None:
    assert run("lint", race, "--write-baseline").exit_code == 0
    (entry,) = entries()
    assert (entry["code"], entry["file"]) == ("AO201", "kernels.py")
    result = run("lint", race, "--baseline", "asyncops-baseline.json")
    assert result.exit_code == 0
    assert "1 suppressed" in result.stdout


def test_only_new_findings_count(run: Run, race: Path) -> None:
    run("lint", race, "--write-baseline")
    again = '\n\n@lint_target()\ndef more():\n    return Report((finding("AO202", "second.start"),))\n'
    race.write_text("# moved by a line\n" + race.read_text() + again)
    result = run("lint", race, "--baseline", "asyncops-baseline.json", "--format", "concise")
    assert result.exit_code == 1
    assert "AO202" in result.stdout
    assert "AO201 error" not in result.stdout


def test_named_in_the_configuration(run: Run, race: Path, write: Write) -> None:
    write("pyproject.toml", '[tool.asyncops]\nbaseline = "known.json"\n')
    assert run("lint", race).exit_code == 2
    assert run("lint", race, "--write-baseline").exit_code == 0
    assert len(entries("known.json")) == 1
    assert run("lint", race).exit_code == 0


def test_stale_entries_are_told_and_pruned(run: Run, race: Path, targets: Write) -> None:
    other = targets("other.py", '@lint_target()\ndef f():\n    return Report((finding("AO201", "def f"),))\n')
    run("lint", ".", "--write-baseline")
    for file in (race, other):
        file.write_text(file.read_text().replace("Report((", "Report(() and ("))
    options = ("--baseline", "asyncops-baseline.json")
    assert "the baseline has 1 entry that match" in run("lint", race, *options).stdout
    assert run("lint", race, *options, "--prune-baseline").exit_code == 0
    assert [e["file"] for e in entries()] == ["other.py"]


def test_a_suppressed_finding_needs_no_entry(run: Run, race: Path) -> None:
    race.write_text(race.read_text().replace("# a comment", "# asyncops: ignore[AO201] known"))
    run("lint", race, "--write-baseline")
    assert entries() == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not json", "is not a baseline"),
        ("[]", "is not a baseline"),
        ('{"version": 9, "findings": []}', "has version 9, this asyncops reads 1"),
        ('{"version": 1, "findings": [{}]}', "it lacks 'fingerprint'"),
        ("[" * 100_000, "is not a baseline"),
    ],
)
def test_other_files_are_refused(run: Run, race: Path, write: Write, text: str, message: str) -> None:
    result = run("lint", race, "--baseline", write("known.json", text))
    assert result.exit_code == 2
    assert message in result.output


def test_a_missing_one_says_how_to_create_it(run: Run, race: Path) -> None:
    result = run("lint", race, "--baseline", "missing.json")
    assert result.exit_code == 2
    assert "--write-baseline" in result.output
