"""``# asyncops: ignore[AO201] reason`` comments: applied to findings, reported when idle or wrong."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from asyncops.checker.events import Location
from asyncops.checker.report import Diagnostic
from asyncops.lint.results import Finding, in_order
from asyncops.lint.rulebook import find_page, rule_pages
from asyncops.lint.rules import invalid_suppression, unused_suppression
from asyncops.lint.source import Comment, at_characters, read_source
from stateful.errors import LintUsageError

_COMMENT = re.compile(r"#\s*asyncops:\s*ignore\b\s*(?:\[(?P<codes>[^\]]*)\])?")


@dataclass
class Suppression:
    """One comment. It covers the statement it stands in; ``used`` collects the codes it has suppressed."""

    comment: Comment
    file: str
    codes: tuple[str, ...]
    lines: tuple[int, int]
    used: set[str] = field(default_factory=set[str])

    def covers(self, diagnostic: Diagnostic) -> bool:
        """True if the diagnostic is one this comment is about."""
        place = diagnostic.location
        first, last = self.lines
        return place is not None and first <= place.line <= last and diagnostic.code in self.codes

    def location(self) -> Location:
        """The place of the comment itself."""
        start = self.comment.column
        return at_characters(Location(self.file, self.comment.line), start, start + len(self.comment.text))


class Suppressions:
    """The comments of all files that findings or lint targets lie in, read on demand."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[Suppression, ...]] = {}

    def apply(self, findings: Iterable[Finding]) -> tuple[Finding, ...]:
        """The findings, those that a comment covers marked as suppressed; covered secondary ones drop out."""
        return tuple(self._apply_one(f) for f in findings)

    def idle(self, files: Iterable[str], selected: Iterable[str]) -> tuple[Finding, ...]:
        """Findings about the comments of ``files`` that suppress nothing or name no rule.

        Only codes in ``selected`` can be called unused. Ask after :meth:`apply`.
        """
        wanted = set(selected)
        found = (d for file in files for s in self.of_file(file) for d in _complaints(s, wanted))
        return in_order(Finding(d) for d in found)

    def of_file(self, file: str) -> tuple[Suppression, ...]:
        """The suppression comments of one file."""
        if file not in self._files:
            self._files[file] = tuple(read_suppressions(file))
        return self._files[file]

    def _apply_one(self, finding: Finding) -> Finding:
        diagnostic = self._without_covered(finding.diagnostic)
        covered = self._is_covered(diagnostic)
        return replace(
            finding, diagnostic=diagnostic, suppression="comment" if covered else finding.suppression
        )

    def _without_covered(self, diagnostic: Diagnostic) -> Diagnostic:
        left = tuple(self._without_covered(d) for d in diagnostic.secondary if not self._is_covered(d))
        return replace(diagnostic, secondary=left)

    def _is_covered(self, diagnostic: Diagnostic) -> bool:
        if diagnostic.location is None:
            return False
        covering = [s for s in self.of_file(diagnostic.location.file) if s.covers(diagnostic)]
        for suppression in covering:
            suppression.used.add(diagnostic.code)
        return bool(covering)


def read_suppressions(file: str) -> Iterator[Suppression]:
    """The suppression comments in ``file``. Only real comments count, not text in strings."""
    source = read_source(file)
    for comment in source.comments:
        match = _COMMENT.search(comment.text)
        if match:
            names = (match["codes"] or "").split(",")
            codes = tuple(name.strip() for name in names if name.strip())
            yield Suppression(comment, file, codes, source.statement(comment.line))


def _complaints(suppression: Suppression, selected: set[str]) -> Iterator[Diagnostic]:
    place = suppression.location()
    if not suppression.codes:
        yield invalid_suppression.diagnostic(place, "the comment names no rule and suppresses nothing")
    for code in suppression.codes:
        if code not in rule_pages():
            yield invalid_suppression.diagnostic(place, _why_unknown(code))
        elif code in selected and code not in suppression.used:
            yield unused_suppression.diagnostic(place, code)


def _why_unknown(code: str) -> str:
    try:
        return f"the comment says {code}: rules are named by their code here, {find_page(code).code}"
    except LintUsageError as error:
        return str(error).split(";")[0]
