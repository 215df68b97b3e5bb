"""Findings about asyncops' own operations in a program: what `asyncops.linearity` sees, in the words of the rules."""

from __future__ import annotations

from typing import Any

from asyncops import linearity
from asyncops.checker.analysis import Finding, lines
from asyncops.checker.events import Location, Site
from asyncops.checker.findings import Seen
from asyncops.misuse import Line, Problem


def findings_of_operations(jaxpr: Any) -> list[Seen]:
    """What is wrong with the futures, and with the Refs in use, of a program of any class of jaxpr."""
    return [Seen(_finding(problem), None) for problem in linearity.problems(jaxpr)]


def _finding(problem: Problem) -> Finding:
    related = lines(*((place.label, _location(place.line)) for place in problem.related))
    site = Site(_location(problem.line))
    # Two findings about one start are one defect.
    starts = frozenset(("operation", place.line) for place in problem.related if place.line is not None)
    return Finding(problem.code, problem.message, site, problem.cure, related, starts)


def _location(line: Line | None) -> Location | None:
    return None if line is None else Location(*line)
