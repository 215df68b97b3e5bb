"""Findings that were seen while the kernel ran, before any order is computed."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from asyncops.checker.analysis import Analysis, Finding, lines
from asyncops.checker.recording import placed
from stateful import terms


def recorded(analysis: Analysis, code: str) -> Iterator[Finding]:
    """The problems recorded under a rule's code."""
    for problem in analysis.problems:
        is_there = terms.evaluate(problem.condition, analysis.model) is not False
        if problem.code == code and is_there:
            site = placed(problem.site, analysis.model)
            subjects: set[Hashable] = {("line", site.location)}
            if problem.subject is not None:
                subjects.add(problem.subject(analysis.model))
            yield Finding(
                code,
                problem.text(analysis.model),
                site,
                problem.help,
                lines(*problem.related),
                frozenset(subjects),
                problem,
            )
