"""Findings that were seen while the kernel ran, before any order is computed."""

from __future__ import annotations

from collections.abc import Iterator

from asyncops.checker.analysis import Analysis, Finding, lines


def recorded(analysis: Analysis, code: str) -> Iterator[Finding]:
    """The problems recorded under a rule's code."""
    for problem in analysis.problems:
        if problem.code == code:
            subjects = frozenset({("line", problem.site.location)})
            yield Finding(
                code, problem.text(analysis.model), problem.site, problem.help, lines(*problem.related), subjects, problem
            )
