"""Finds the certain cures of a lint run: each is tried on the edited program, and must leave nothing new.

A cure is certain when the checker, run again on all that the finding was seen in, no longer reports it, reports nothing
that it did not report before, and of the cures of its kind no other one does so, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from asyncops.lint.checks import check_source
from asyncops.lint.discovery import Source
from asyncops.lint.fixes.cures import CURED, Cure, cures_of
from asyncops.lint.fixes.text import SourceFile
from asyncops.lint.linting import Settings, conclude
from asyncops.lint.overlays import edited
from asyncops.lint.paths import shown
from asyncops.lint.results import Finding, LintResult
from stateful.errors import LintUsageError

_MOST_ROUNDS = 50
_Tally = Counter[tuple[str, str, str]]


@dataclass(frozen=True)
class Fix:
    """A file before and after, and what was cured in it, in words."""

    before: SourceFile
    after: SourceFile
    what: tuple[str, ...]

    def diff(self) -> str:
        """The change as a unified diff."""
        return self.after.diff(self.before, shown(str(self.before.path)))


def certain_fixes(sources: Sequence[Source], settings: Settings, result: LintResult) -> tuple[Fix, ...]:
    """All certain cures of a result's findings, file by file. Writes nothing."""
    trial = _Trial(sources, settings)
    given_up: set[tuple[str, str]] = set()
    for _ in range(_MOST_ROUNDS):
        finding = next((f for f in result.live if _is_curable(f) and _identity(f) not in given_up), None)
        if finding is None:
            break
        after = trial.cure(finding, result)
        if after is None:
            given_up.add(_identity(finding))
        else:
            result = after
    return trial.fixes()


def _is_curable(finding: Finding) -> bool:
    return finding.code in CURED and finding.counts and finding.location is not None


def _identity(finding: Finding) -> tuple[str, str]:
    # Lines move while other findings are cured.
    return finding.code, f"{_key(finding)}: {finding.diagnostic.message}"


class _Trial:
    """The files as they are edited so far."""

    def __init__(self, sources: Sequence[Source], settings: Settings) -> None:
        self._sources = sources
        # What is edited is in no cache, and a picture is of no use here.
        self._settings = replace(settings, wanted=replace(settings.wanted, cache=None, timelines=False))
        self._before: dict[str, SourceFile] = {}
        self._now: dict[str, SourceFile] = {}
        self._what: dict[str, list[str]] = {}

    def cure(self, finding: Finding, result: LintResult) -> LintResult | None:
        """What is found once the one certain cure is made; None, and nothing is made, where there is none."""
        assert finding.location is not None
        source = self._file(finding.location.file)
        if source is None:
            return None
        right: list[tuple[Cure, SourceFile, LintResult]] = []
        for cure in cures_of(finding.diagnostic, source):
            after = source.edited(cure.edits)
            found = self._lint(after) if after else None
            if after and found and _is_better(result, found, finding):
                right.append((cure, after, found))
            if len(right) > 1:
                return None
        if not right:
            return None
        ((cure, after, found),) = right
        file = str(source.path)
        self._now[file] = after
        line = f"{shown(file)}:{finding.location.line}"
        self._what.setdefault(file, []).append(f"{line}: {finding.code} {cure.what}")
        return found

    def fixes(self) -> tuple[Fix, ...]:
        """The files that were edited."""
        return tuple(Fix(self._before[f], now, tuple(self._what[f])) for f, now in self._now.items())

    def _file(self, file: str) -> SourceFile | None:
        read = SourceFile.read(file)
        if read is None:
            return None
        path = str(read.path)
        self._before.setdefault(path, read)
        return self._now.get(path, read)

    def _lint(self, changed: SourceFile) -> LintResult | None:
        """Everything with the edits made so far and this one; None where that cannot be linted at all."""
        files = {**self._now, str(changed.path): changed}
        with edited({path: file.text.encode(file.encoding) for path, file in files.items()}):
            try:
                outcomes = [o for s in self._sources for o in check_source(s, self._settings.wanted)]
            except LintUsageError:
                return None
        return conclude(outcomes, self._settings)


def _is_better(before: LintResult, after: LintResult, finding: Finding) -> bool:
    """The finding is gone, and nothing has come."""
    gone = _Tally([_key(finding)])
    return (
        len(after.failures) <= len(before.failures)
        and len(after.unknowns) <= len(before.unknowns)
        and not _tally(after) - (_tally(before) - gone)
    )


def _tally(result: LintResult) -> _Tally:
    return Counter(_key(f) for f in result.findings if f.diagnostic.severity != "info" and f.code < "AO9")


def _key(finding: Finding) -> tuple[str, str, str]:
    place = finding.location
    return finding.code, place.file if place else "", place.function if place else ""


def summary(fixes: Sequence[Fix]) -> Iterator[str]:
    """What was cured, a line each."""
    yield from (line for fix in fixes for line in fix.what)
