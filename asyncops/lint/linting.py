"""A lint run from end to end: sources, checks, selection, suppressions, baseline."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from asyncops.lint.baseline import Baseline
from asyncops.lint.cache import Cache
from asyncops.lint.checks import Wanted, check_sources
from asyncops.lint.discovery import Source
from asyncops.lint.fingerprints import relative_path, with_fingerprints
from asyncops.lint.results import Finding, LintResult, Outcome, in_order, merged
from asyncops.lint.rulebook import rule_pages
from asyncops.lint.selection import Selection
from asyncops.lint.suppressions import Suppressions

Progress = Callable[[Source, int, int], None]


def silent(source: Source, done: int, total: int) -> None:
    """No progress display."""


@dataclass(frozen=True)
class Settings:
    """How a run goes, from the command line and the configuration file together."""

    selection: Selection = field(default_factory=Selection)
    jobs: int = 1
    wanted: Wanted = field(default_factory=Wanted)
    baseline: Baseline = field(default_factory=Baseline)
    root: str = "."


def lint(sources: Sequence[Source], settings: Settings, progress: Progress = silent) -> LintResult:
    """Checks the sources and applies the settings to what is found."""
    start = time.perf_counter()
    outcomes: list[Outcome] = []
    for done, (source, some) in enumerate(check_sources(sources, settings.jobs, settings.wanted), 1):
        outcomes += some
        progress(source, done, len(sources))
    if settings.wanted.cache:
        Cache(settings.wanted.cache).drop_unused()
    whole_files = [s.file for s in sources if s.function is None]
    return conclude(outcomes, settings, whole_files, time.perf_counter() - start)


def conclude(
    outcomes: Sequence[Outcome], settings: Settings, linted: Iterable[str] = (), seconds: float = 0.0
) -> LintResult:
    """The result of a run whose targets have been checked, however they were found.

    ``linted``: the files linted as a whole; only their comments and baseline entries can be idle.
    """
    selected = tuple(replace(o, diagnostics=settings.selection.apply(o.diagnostics)) for o in outcomes)
    covered = _fully_checked(linted, outcomes)
    findings = with_fingerprints(_with_comments(merged(selected), settings.selection, covered), settings.root)
    stale = settings.baseline.stale(findings, (relative_path(f, settings.root) for f in covered))
    return LintResult(selected, settings.baseline.apply(findings), stale, seconds=seconds)


def _with_comments(
    findings: tuple[Finding, ...], selection: Selection, covered: Sequence[str]
) -> tuple[Finding, ...]:
    comments = Suppressions()
    applied = comments.apply(findings)
    idle = (
        f
        for file in covered
        for f in comments.idle([file], _selected(selection, file))
        if selection.selects(f.code, file)
    )
    return in_order((*applied, *idle))


def _selected(selection: Selection, file: str) -> Iterator[str]:
    return (code for code in rule_pages() if selection.selects(code, file))


def _fully_checked(files: Iterable[str], outcomes: Iterable[Outcome]) -> tuple[str, ...]:
    """The files without a target that failed or met something that is not modelled."""
    open_ended = {o.location.file for o in outcomes if o.location and (o.failure or o.unknowns)}
    return tuple(f for f in files if f not in open_ended)
