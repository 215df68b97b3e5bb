"""JSON for programs. ``version`` changes only when a key is renamed, removed, or changes its meaning."""

from __future__ import annotations

import json
from typing import Any

from asyncops.checker.events import Location
from asyncops.checker.report import Diagnostic
from asyncops.lint.formats.registry import Page
from asyncops.lint.paths import shown
from asyncops.lint.results import Failure, Finding, LintResult, Outcome, Step
from asyncops.lint.source import columns
from asyncops.version import __version__

VERSION = 1


def render(result: LintResult, page: Page) -> str:
    """One object; paths are relative to the current folder if they lie under it, lines and columns from 1."""
    document = {
        "version": VERSION,
        "tool": {"name": "asyncops", "version": __version__},
        "verdict": result.verdict,
        "findings": [_finding(f) for f in result.findings],
        "targets": [_outcome(o) for o in result.outcomes],
        "notes": list(result.notes),
    }
    return json.dumps(document, indent=2) + "\n"


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        **_diagnostic(finding.diagnostic),
        "targets": list(finding.targets),
        "fingerprint": finding.fingerprint,
        "suppressed_by": finding.suppression or None,
    }


def _diagnostic(d: Diagnostic) -> dict[str, Any]:
    return {
        "code": d.code,
        "rule": d.rule,
        "severity": d.severity,
        "message": d.message,
        "confirmed": d.confirmed,
        "help": d.help,
        "kernel": d.kernel,
        "location": _location(d.location),
        "related": [{"label": label, "location": _location(place)} for label, place in d.related],
        "witness": [_step(s) for s in d.witness.steps] if d.witness else [],
        "secondary": [_diagnostic(s) for s in d.secondary],
    }


def _step(step: Step) -> dict[str, Any]:
    return {"text": step.text, "location": _location(step.location)}


def _location(place: Location | None) -> dict[str, Any] | None:
    if place is None:
        return None
    found = columns(place)
    span = {"column": found[0] + 1, "end_column": found[1] + 1} if found else {}
    return {"file": shown(place.file), "line": place.line, "function": place.function, **span}


def _outcome(outcome: Outcome) -> dict[str, Any]:
    return {
        "name": outcome.target,
        "location": _location(outcome.location),
        "verdict": outcome.verdict or "failed",
        "unknowns": list(outcome.unknowns),
        "assumptions": list(outcome.assumptions),
        "kernels": [
            {"name": k.name, "events": k.events, "devices": k.devices, "seconds": round(k.seconds, 6)}
            for k in outcome.kernels
        ],
        "seconds": round(outcome.seconds, 6),
        "failure": _failure(outcome.failure),
    }


def _failure(failure: Failure | None) -> dict[str, Any] | None:
    if failure is None:
        return None
    place = _location(failure.location)
    return {"message": failure.message, "location": place, "traceback": failure.traceback}
