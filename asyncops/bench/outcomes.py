"""What a tool answers on a kernel of the benchmark, and what many answers add up to."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

REPORT, SILENT, UNKNOWN, HANG, ERROR, UNSUPPORTED = (
    "report",
    "silent",
    "unknown",
    "hang",
    "error",
    "unsupported",
)


@dataclass(frozen=True)
class Outcome:
    """One tool's answer on one program.

    Attributes:
      kernel, wrong: which program: the pair's name, and whether it is the one with the defect.
      answer: "report" (says that something is wrong), "silent", "unknown" (says that it does not know), "hang" (no
        answer in time), "error" (breaks on the program) or "unsupported" (refuses it).
      rule: a finding has a rule that names the defect. line: a finding points at the marked line.
      findings: how many there are. seconds: time of the answer.
      note: the tool's own words, shortened.
    """

    kernel: str
    wrong: bool
    answer: str
    rule: bool = False
    line: bool = False
    findings: int = 0
    seconds: float = 0.0
    note: str = ""


@dataclass(frozen=True)
class Score:
    """What the answers of a tool add up to, over the wrong kernels and over their clean twins.

    ``detected``: wrong kernels reported; ``rule`` and ``line`` are of those. ``noise``: findings for each wrong kernel
    that was reported. ``unanswered``: programs without any answer (unknown, error, unsupported). ``median``, ``total``:
    seconds, of the programs that were answered.
    """

    wrong: int
    clean: int
    detected: int
    rule: int
    line: int
    false_alarms: int
    noise: float
    hangs: int
    unanswered: int
    median: float
    total: float


def score(outcomes: Iterable[Outcome]) -> Score:
    """Adds up the answers of one tool."""
    every = _settled(list(outcomes))
    wrong, clean = [o for o in every if o.wrong], [o for o in every if not o.wrong]
    found = [o for o in wrong if o.answer == REPORT]
    times = [o.seconds for o in every if o.answer in (REPORT, SILENT, UNKNOWN)]
    return Score(
        wrong=len(wrong),
        clean=len(clean),
        detected=len(found),
        rule=sum(o.rule for o in found),
        line=sum(o.line for o in found),
        false_alarms=sum(o.answer == REPORT for o in clean),
        noise=sum(o.findings for o in found) / max(1, len(found)),
        hangs=sum(o.answer == HANG for o in every),
        unanswered=sum(o.answer in (UNKNOWN, ERROR, UNSUPPORTED) for o in every),
        median=statistics.median(times) if times else 0.0,
        total=sum(times),
    )


def _settled(outcomes: list[Outcome]) -> list[Outcome]:
    """A tool that breaks on a wrong kernel and not on its clean twin has told that something is wrong."""
    breaks = {o.kernel for o in outcomes if not o.wrong and o.answer == ERROR}
    return [
        Outcome(o.kernel, True, REPORT, o.rule, o.line, 1, o.seconds, o.note)
        if o.wrong and o.answer == ERROR and o.kernel not in breaks
        else o
        for o in outcomes
    ]
