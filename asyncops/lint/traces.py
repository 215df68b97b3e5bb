"""Traces of runs on disk, one file each, for Perfetto (ui.perfetto.dev) and chrome://tracing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from asyncops.checker.pictures.timelines import Timeline
from asyncops.lint.formats import wording
from asyncops.lint.results import LintResult
from asyncops.writing import write_whole

_AWKWARD = re.compile(r"[^\w.-]+")


def write_traces(result: LintResult, folder: Path) -> LintResult:
    """Writes the witness of each live finding and a run of each target; the result says where."""
    folder.mkdir(parents=True, exist_ok=True)
    number = 0
    for number, (name, timeline) in enumerate(_timelines(result), 1):
        file = folder / f"{number:02}-{_AWKWARD.sub('-', name).strip('-')[:100]}.json"
        write_whole(file, json.dumps(timeline.to_chrome_trace()))
    note = f"{folder}: {wording.count(number, 'trace')} written; open them in https://ui.perfetto.dev"
    return replace(result, notes=(*result.notes, note))


def _timelines(result: LintResult) -> Iterator[tuple[str, Timeline]]:
    for finding in result.live:
        if finding.timeline:
            yield f"{finding.code} {wording.place(finding.location)}", finding.timeline
    for outcome in result.outcomes:
        if outcome.run:
            yield f"run {outcome.target}", Timeline(outcome.run)
