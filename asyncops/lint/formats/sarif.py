"""SARIF 2.1.0, the interchange format that code-scanning services read.

Columns are counted in Unicode code points. A witness is a code flow with one thread; a step without a line
carries its message alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from asyncops.checker.events import Location
from asyncops.checker.report import Diagnostic
from asyncops.lint.explanations import explanation
from asyncops.lint.formats import wording
from asyncops.lint.formats.registry import Page
from asyncops.lint.paths import shown
from asyncops.lint.results import Finding, LintResult
from asyncops.lint.rulebook import RulePage, rule_pages
from asyncops.lint.source import read_source
from asyncops.version import __version__

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
FINGERPRINT = "asyncopsFinding/v1"
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
_SUPPRESSIONS = {"comment": "inSource", "baseline": "external"}
_Object = dict[str, Any]


def render(result: LintResult, page: Page) -> str:
    """One run with all rules and all findings, the suppressed ones marked."""
    codes = list(rule_pages())
    run = {
        "tool": {"driver": _driver()},
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(result)],
        "results": [_result(f, codes) for f in result.findings],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _driver() -> _Object:
    rules = [_rule(p) for p in rule_pages().values()]
    return {"name": "asyncops", "semanticVersion": __version__, "rules": rules}


def _rule(page: RulePage) -> _Object:
    text = explanation(page)
    return {
        "id": page.code,
        "name": "".join(word.capitalize() for word in page.name.split("-")),
        "shortDescription": {"text": page.summary or page.name},
        "fullDescription": {"text": page.sections.get("What it does") or page.summary or page.name},
        "help": {"text": text, "markdown": text},
        "defaultConfiguration": {"level": _LEVELS.get(page.severity, "warning")},
    }


def _invocation(result: LintResult) -> _Object:
    failures = [
        _notification("error", f"{o.target} {o.failure.message}", o.failure.location)
        for o in result.failures
        if o.failure
    ]
    unknowns = [_notification("warning", f"{t}: not modelled: {text}", None) for t, text in result.unknowns]
    return {"executionSuccessful": not failures, "toolExecutionNotifications": failures + unknowns}


def _notification(level: str, text: str, place: Location | None) -> _Object:
    return {"level": level, "message": {"text": text}, **({"locations": [_location(place)]} if place else {})}


def _result(finding: Finding, codes: list[str]) -> _Object:
    d = finding.diagnostic
    document: _Object = {
        "ruleId": d.code,
        "level": _LEVELS[d.severity],
        "message": {"text": _message(d)},
        "partialFingerprints": {FINGERPRINT: finding.fingerprint},
        "properties": {"confirmed": d.confirmed, "kernel": d.kernel, "targets": list(finding.targets)},
    }
    if d.code in codes:
        document["ruleIndex"] = codes.index(d.code)
    if d.location:
        document["locations"] = [_location(d.location)]
    related = [_location(p, label, n) for n, (label, p) in enumerate(_related(d), 1)]
    if related:
        document["relatedLocations"] = related
    if finding.steps:
        document["codeFlows"] = [_code_flow(finding)]
    if finding.suppression:
        document["suppressions"] = [{"kind": _SUPPRESSIONS[finding.suppression]}]
    return document


def _message(d: Diagnostic) -> str:
    return wording.message(d) + (f"\n\nCure: {d.help}" if d.help else "")


def _related(d: Diagnostic) -> list[tuple[str, Location]]:
    below = [(f"follows from it: {s.code} {s.message}", s.location) for s in d.secondary if s.location]
    return [*d.related, *below]


def _code_flow(finding: Finding) -> _Object:
    steps: list[_Object] = []
    for order, step in enumerate(finding.steps, 1):
        place = _location(step.location, step.text) if step.location else {"message": {"text": step.text}}
        steps.append({"location": place, "executionOrder": order})
    return {"message": {"text": "a schedule that shows it"}, "threadFlows": [{"locations": steps}]}


def _location(place: Location, label: str = "", number: int | None = None) -> _Object:
    region: _Object = {"startLine": place.line}
    source = read_source(place.file)
    span = source.span(place)
    if span:
        region |= {"startColumn": span[0] + 1, "endColumn": span[1] + 1}
        region["snippet"] = {"text": source.line(place.line)}
    document: _Object = {
        "physicalLocation": {"artifactLocation": {"uri": _uri(place.file)}, "region": region}
    }
    if place.function:
        document["logicalLocations"] = [{"name": place.function, "kind": "function"}]
    if label:
        document["message"] = {"text": label}
    if number is not None:
        document["id"] = number
    return document


def _uri(file: str) -> str:
    """Relative to the current folder where possible: services resolve that against the repository."""
    path = shown(file)
    return Path(path).as_uri() if Path(path).is_absolute() else quote(path)
