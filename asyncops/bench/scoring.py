"""The checker's answers on the kernels of the benchmark."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator

import asyncops
from asyncops.bench.cases import Draft, Pair
from asyncops.bench.outcomes import ERROR, REPORT, SILENT, UNKNOWN, Outcome
from asyncops.checker.events import Location
from asyncops.checker.report import Diagnostic, Report

TOOL = "asyncops.check"
# A finding's own line, and the places it tells most about.
_TELLING = 2
_ANSWERS = {"findings": REPORT, "clean": SILENT, "unknown": UNKNOWN}


def check_pairs(pairs: Iterable[Pair]) -> Iterator[Outcome]:
    """The wrong program and the clean one of each pair, in this process."""
    for pair in pairs:
        for wrong in (True, False):
            yield check_one(pair, wrong)


def check_one(pair: Pair, wrong: bool) -> Outcome:
    """The checker's answer on one program."""
    program = pair.build(Draft(wrong))
    begin = time.perf_counter()
    try:
        report = asyncops.check(program.fn, *program.args, values=program.values)
    except Exception as error:
        return Outcome(pair.name, wrong, ERROR, note=f"{type(error).__name__}: {error}")
    return outcome_of(pair, wrong, report, time.perf_counter() - begin)


def outcome_of(pair: Pair, wrong: bool, report: Report, seconds: float) -> Outcome:
    """What a report says of a program of the pair."""
    primary = [d for d in report.diagnostics if d.severity != "info"]
    return Outcome(
        pair.name,
        wrong,
        _ANSWERS[report.verdict],
        rule=any(d.code in pair.rules for d in primary),
        line=any(place.line in pair.marked_lines() for d in primary for place in _places(d, pair.file)),
        findings=len(primary),
        seconds=seconds,
        note="; ".join([f"{d.code} {d.message}" for d in primary] or report.unknowns)[:300],
    )


def _places(finding: Diagnostic, file: str) -> Iterator[Location]:
    """The places in ``file`` that a finding shows first."""
    for place in (finding.location, *(p for _, p in finding.related[:_TELLING])):
        if place is not None and os.path.realpath(place.file) == os.path.realpath(file):
            yield place
