"""One line per finding: ``file:line:column: CODE severity: message``; editors and grep read it."""

from __future__ import annotations

from asyncops.checker.report import Diagnostic
from asyncops.lint.formats import wording
from asyncops.lint.formats.registry import Page
from asyncops.lint.results import LintResult


def render(result: LintResult, page: Page) -> str:
    """The lines; those that hang below another finding come after it, marked as such."""
    lines = [line for f in result.live for line in _lines(f.diagnostic)]
    for outcome in result.failures:
        assert outcome.failure is not None
        failure = outcome.failure
        text = wording.printable(failure.message).splitlines()[0]
        lines.append(f"{wording.place(failure.location)}: error: {outcome.target} {text}")
    lines += [f"{t}: unknown: {wording.printable(u)}" for t, u in result.unknowns]
    lines.append(wording.summary(result))
    return "\n".join(lines) + "\n"


def _lines(diagnostic: Diagnostic, follows: str = "") -> list[str]:
    where = wording.place(diagnostic.location)
    # What follows is as certain as what it follows from.
    text = wording.printable(diagnostic.message) if follows else wording.message(diagnostic)
    message = " ".join(text.split("\n"))
    head = f"{where}: {diagnostic.code} {diagnostic.severity}: {message}{follows}"
    below = [line for d in diagnostic.secondary for line in _lines(d, f" (follows from {diagnostic.code})")]
    return [head.removeprefix(": "), *below]
