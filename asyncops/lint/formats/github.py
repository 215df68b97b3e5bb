"""Annotations of GitHub Actions: workflow commands, one line each.

The escapes are those of GitHub's own toolkit: ``%``, CR and LF everywhere, ``:`` and ``,`` in properties.
"""

from __future__ import annotations

from collections.abc import Iterator

from asyncops.checker.events import Location
from asyncops.lint.formats import wording
from asyncops.lint.formats.registry import Page
from asyncops.lint.paths import shown
from asyncops.lint.results import Finding, LintResult
from asyncops.lint.source import read_source

_COMMANDS = {"error": "error", "warning": "warning", "info": "notice"}


def render(result: LintResult, page: Page) -> str:
    """One command per live finding, failure and thing that is not modelled."""
    return "".join(f"{line}\n" for line in _lines(result))


def _lines(result: LintResult) -> Iterator[str]:
    for finding in result.live:
        yield _annotation(finding)
    for outcome in result.failures:
        assert outcome.failure is not None
        yield _command("error", outcome.failure.location, outcome.target, outcome.failure.message)
    for target, text in result.unknowns:
        yield _command("warning", None, f"{target}: not modelled", text)


def _annotation(finding: Finding) -> str:
    d = finding.diagnostic
    parts = [wording.message(d)]
    parts += [f"{label}: {wording.place(place)}" for label, place in d.related]
    parts += [f"{n}. {step}" for n, step in enumerate(finding.steps, 1)]
    parts += [f"cure: {d.help}"] if d.help else []
    return _command(_COMMANDS[d.severity], d.location, f"{d.code} {d.rule}", "\n".join(parts))


def _command(name: str, place: Location | None, title: str, message: str) -> str:
    properties = {**_place(place), "title": title}
    joined = ",".join(f"{key}={_escaped_property(value)}" for key, value in properties.items())
    return f"::{name} {joined}::{_escaped(message)}"


def _place(place: Location | None) -> dict[str, str]:
    if place is None:
        return {}
    properties = {"file": shown(place.file), "line": str(place.line)}
    span = read_source(place.file).span(place)
    if span:
        properties |= {"col": str(span[0] + 1), "endColumn": str(span[1] + 1)}
    return properties


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escaped_property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")
