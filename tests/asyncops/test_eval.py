"""The example kernels of ``tests/eval``: each finding stands on the line that expects it, and nowhere else.

``# expect: AO201`` names the rule of the finding on that line; ``# expect: AO201 (AO302)`` also one below it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from asyncops.lint.discovery import find_sources
from asyncops.lint.linting import Settings, lint
from asyncops.lint.rulebook import rule_pages

EVAL = Path(__file__).parents[1] / "eval"
FILES = sorted(EVAL.glob("*.py"))
EXPECTATION = re.compile(r"# expect: (AO\d{3})(?: \((AO\d{3})\))?")


def expectations(file: Path) -> dict[tuple[int, str], str]:
    """(line, code) to the code that has to hang below it, or ""."""
    found: dict[tuple[int, str], str] = {}
    for number, line in enumerate(file.read_text().splitlines(), 1):
        for code, below in EXPECTATION.findall(line):
            found[number, code] = below
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_findings_stand_where_they_are_expected(file: Path) -> None:
    result = lint(find_sources([str(file)]), Settings())
    assert not result.failures, result.failures
    assert not result.unknowns
    found = {(f.location.line, f.code): f for f in result.live if f.location and f.counts}
    expected = expectations(file)
    assert sorted(found) == sorted(expected)
    for key, below in expected.items():
        codes = {d.code for d in found[key].diagnostic.secondary}
        assert not below or below in codes
    assert all(os.path.samefile(f.location.file, file) for f in found.values() if f.location)


def test_every_example_is_named_after_a_rule_that_it_shows() -> None:
    for file in FILES:
        code, _, name = file.stem.partition("_")
        page = rule_pages()[code.upper()]
        assert page.name == name.replace("_", "-")
        shown = {c for (_, primary), below in expectations(file).items() for c in (primary, below)}
        assert page.code in shown


def test_the_examples_cover_the_rules_inside_a_kernel() -> None:
    families = ("AO1", "AO2", "AO3")
    covered = {file.stem[:5].upper() for file in FILES}
    assert {c for c in rule_pages() if c.startswith(families)} <= covered | {
        "AO206",
        "AO207",
        "AO208",
        "AO209",
    }
