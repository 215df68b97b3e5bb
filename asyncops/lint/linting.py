"""A lint run from end to end: sources, checks, selection, merged findings."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from asyncops.lint.checks import check_sources
from asyncops.lint.discovery import Source
from asyncops.lint.results import LintResult, Outcome, merged
from asyncops.lint.selection import Selection

Progress = Callable[[Source, int, int], None]


def _silent(source: Source, done: int, total: int) -> None:
    """No progress display."""


@dataclass(frozen=True)
class Settings:
    """How a run goes, from the command line and the configuration file together."""

    selection: Selection = field(default_factory=Selection)
    jobs: int = 1


def lint(sources: Sequence[Source], settings: Settings, progress: Progress = _silent) -> LintResult:
    """Checks the sources and applies the settings to what is found."""
    start = time.perf_counter()
    outcomes: list[Outcome] = []
    for done, (source, some) in enumerate(check_sources(sources, settings.jobs), 1):
        outcomes += some
        progress(source, done, len(sources))
    return conclude(outcomes, settings, time.perf_counter() - start)


def conclude(outcomes: Sequence[Outcome], settings: Settings, seconds: float) -> LintResult:
    """The result of a run whose targets have been checked, however they were found."""
    selected = tuple(replace(o, diagnostics=settings.selection.apply(o.diagnostics)) for o in outcomes)
    return LintResult(selected, merged(selected), seconds=seconds)
