"""From findings to diagnostics: one primary finding for each defect, the rest below it, a witness for each.

Findings that are about the same copy (by the line that starts it) or the same semaphore are one defect; the rule that
names it best is the primary one.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from asyncops.checker import rules
from asyncops.checker.analysis import Analysis, Finding, lines
from asyncops.checker.naming import short
from asyncops.checker.program import ProgramFacts
from asyncops.checker.report import Diagnostic
from asyncops.checker.witnesses import Exhibit, is_refuted, witness_of

# The rule that tells most first. What merely follows from another defect (a rest on a semaphore) comes late.
_PRIORITY = (
    "AO508", "AO304", "AO305", "AO105", "AO104", "AO207", "AO205", "AO401", "AO404", "AO201", "AO203", "AO202", "AO204",
    "AO402", "AO206", "AO208", "AO209", "AO502", "AO102", "AO103", "AO303", "AO501", "AO101",
    "AO507", "AO403", "AO503", "AO504", "AO506", "AO301", "AO302",
)  # fmt: skip
_RANK = {code: i for i, code in enumerate(_PRIORITY)}
_RACES = ("AO201", "AO202", "AO203", "AO204", "AO402")  # of several races of one defect, the earliest is told
_RANK.update(dict.fromkeys(_RACES, _RANK["AO201"]))
_NAMES = {rule.CODE: rule for rule in (*rules.ALL, *rules.PROGRAM)}


@dataclass(frozen=True)
class Seen:
    """A finding and the run it was seen in; None where it is about the program around the kernels."""

    finding: Finding
    analysis: Analysis | None
    kernel: str = ""


def findings_of(analysis: Analysis) -> list[Seen]:
    """What every rule finds in one run; each rule and line once, without races that no schedule has."""
    seen: dict[Any, Seen] = {}
    for rule in rules.ALL:
        for finding in rule.find(analysis):
            key = (finding.code, finding.site.location)
            if key not in seen and not is_refuted(analysis, finding):
                seen[key] = Seen(finding, analysis)
    return list(seen.values())


def findings_in_program(facts: ProgramFacts, follow: Callable[[], ProgramFacts]) -> list[Seen]:
    """What the rules find in the program around its kernels. ``follow``: follows the program once more."""
    return [
        Seen(dataclasses.replace(finding, evidence=_way_there(rule, finding, follow)), None)
        for rule in rules.PROGRAM
        for finding in rule.find_in_program(facts)
    ]


def _way_there(rule: Any, finding: Finding, follow: Callable[[], ProgramFacts]) -> Exhibit:
    """The lines of the program on the way to a defect; the way is gone again, from the start, to confirm it."""
    steps = tuple(f"{label} ({short(location)})" for label, location in finding.related)
    place = short(finding.site.location)
    end = f"{finding.message} ({place})" if place else finding.message

    def is_there() -> bool:
        again = rule.find_in_program(follow())
        return any((f.code, f.site.location) == (finding.code, finding.site.location) for f in again)

    return Exhibit((*steps, end), is_there)


def diagnose(found: Iterable[Seen]) -> list[Diagnostic]:
    """Diagnostics of all runs: grouped into defects, primary findings first by severity and line."""
    unique: dict[Any, Seen] = {}
    for seen in found:
        unique.setdefault((seen.finding.code, seen.finding.site.location), seen)
    return [_diagnostic(group) for group in _defects(list(unique.values()))]


def _defects(found: Sequence[Seen]) -> list[list[Seen]]:
    """Groups of findings that share a subject, each with its primary finding first."""
    parent = list(range(len(found)))

    def root(i: int) -> int:
        while parent[i] != i:
            i = parent[i]
        return i

    owner: dict[Any, int] = {}
    for i, seen in enumerate(found):
        for subject in seen.finding.subjects:
            if subject in owner:
                parent[root(i)] = root(owner[subject])
            else:
                owner[subject] = i
    groups: dict[int, list[Seen]] = defaultdict(list)
    for i, seen in enumerate(found):
        groups[root(i)].append(seen)
    return [sorted(group, key=_tells_most) for group in groups.values()]


def _tells_most(seen: Seen) -> tuple[int, int]:
    return _RANK.get(seen.finding.code, 99), seen.finding.moment


def _diagnostic(group: Sequence[Seen]) -> Diagnostic:
    first, *rest = group
    witness, confirmed = _witness(group)
    secondary = tuple(_plain(s) for s in rest)
    finding = first.finding
    same = [("and here", s.finding.site.location) for s in rest if s.finding.code == finding.code]
    return Diagnostic(
        finding.code, _NAMES[finding.code].NAME, finding.severity or _NAMES[finding.code].SEVERITY, finding.message,
        finding.site.location, lines(*finding.related, *same), secondary, witness, confirmed, _cure(group),
        first.kernel,
    )  # fmt: skip


def _cure(group: Sequence[Seen]) -> str:
    """The cure of the defect: where there is a wait, but one that another copy satisfies, one more helps nobody."""
    shared = [s.finding.help for s in group if s.finding.code == "AO302"]
    return shared[0] if shared and group[0].finding.code in _RACES else group[0].finding.help


def _witness(group: Sequence[Seen]) -> tuple[Any, bool]:
    """A schedule that shows the defect: of the first of its findings that was seen in a run."""
    for seen in group:
        if seen.analysis is not None:
            return witness_of(seen.analysis, seen.finding)
    for seen in group:
        if isinstance(seen.finding.evidence, Exhibit):
            return seen.finding.evidence, bool(seen.finding.evidence.replay().reproduced)
    return None, False


def _plain(seen: Seen) -> Diagnostic:
    finding = seen.finding
    return Diagnostic(
        finding.code, _NAMES[finding.code].NAME, finding.severity or _NAMES[finding.code].SEVERITY, finding.message,
        finding.site.location, finding.related, help=finding.help, kernel=seen.kernel,
    )  # fmt: skip
