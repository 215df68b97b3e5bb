"""Every rule finds its defect on the line it stands on, and nothing once that one place is edited."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import kernels_local
import kernels_remote

from asyncops.checker import rules
from asyncops.checker.report import Diagnostic, Report
from asyncops.checker.session import check

TABLE = {**kernels_local.CASES, **kernels_remote.CASES}
CASES = [
    pytest.param(code, build, id=f"{code}-{build.__name__}")
    for code, builds in TABLE.items()
    for build in builds
]
# These explain a race or follow from a missing wait: they may hang below the finding that names the defect.
MAY_FOLLOW = {"AO302", "AO403"}


def line_of(build: Callable[..., Any], code: str) -> int:
    """The line that is marked to be found."""
    source, first = inspect.getsourcelines(build)
    (line,) = [first + k for k, text in enumerate(source) if text.rstrip().endswith(f"# finds {code}")]
    return line


def flattened(found: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Findings and what hangs below them."""
    return [d for top in found for d in (top, *flattened(top.secondary))]


def shown(report: Report, code: str) -> set[tuple[str, int]]:
    """(code, line) of the findings that count as finding the defect."""
    found = flattened(report.diagnostics) if code in MAY_FOLLOW else report.diagnostics
    return {(d.code, d.location.line) for d in found if d.location}


@pytest.mark.parametrize(("code", "build"), CASES)
def test_the_wrong_kernel_is_found(code: str, build: Any) -> None:
    fn, args = build(True)
    report = check(fn, *args)
    assert report.verdict == "findings"
    assert not report.unknowns
    assert (code, line_of(build, code)) in shown(report, code), str(report)
    if code not in MAY_FOLLOW:
        assert {d.code for d in report.diagnostics} == {code}, str(report)


@pytest.mark.parametrize(("code", "build"), CASES)
def test_the_edited_kernel_is_clean(code: str, build: Any) -> None:
    fn, args = build(False)
    report = check(fn, *args)
    assert report.verdict == "clean", str(report)
    assert not report.diagnostics


@pytest.mark.parametrize(("code", "build"), CASES)
def test_without_its_rule_the_defect_is_not_found(
    code: str, build: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "ALL", tuple(rule for rule in rules.ALL if code != rule.CODE))
    fn, args = build(True)
    assert code not in {d.code for d in flattened(check(fn, *args).diagnostics)}


def test_every_rule_of_a_run_has_a_pair() -> None:
    assert set(TABLE) == {rule.CODE for rule in rules.ALL}
