"""Findings that were seen while the kernel ran, before any order is computed."""

from __future__ import annotations

from collections.abc import Iterator

from asyncops.checker.analysis import Analysis, Finding, lines
from asyncops.checker.recording import placed


def recorded(analysis: Analysis, code: str) -> Iterator[Finding]:
    """The problems recorded under a rule's code."""
    for problem in analysis.problems:
        if problem.code == code:
            site = placed(problem.site, analysis.model)
            subjects = frozenset({("line", site.location)})
            yield Finding(
                code,
                problem.text(analysis.model),
                site,
                problem.help,
                lines(*problem.related),
                subjects,
                problem,
            )
