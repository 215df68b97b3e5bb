"""Findings from races."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from asyncops.checker.analysis import Analysis, Finding, copy_subjects, copy_text, lines, name_of
from asyncops.checker.conflicts import Conflict, conflicts_of, guarding_wait
from asyncops.checker.events import Copy, Half, Point, Start


@dataclass(frozen=True)
class Words:
    """The sentences of a rule: ``core`` where one side is a load or store, ``copy`` where both are copies.

    They name the ``region`` and its ``owner``, the disturbed ``copy`` and the ``other`` one, where and ``when`` (only
    when: ``moment``) the offender comes, the device that starts it (``sender``), and whose the victim is (``elder``).
    """

    core: str
    copy: str
    help: str
    label: str


def conflicts(analysis: Analysis, code: str) -> list[Conflict]:
    """The races of a run that break one rule."""
    if not hasattr(analysis, "_conflicts"):
        analysis._conflicts = conflicts_of(analysis)  # type: ignore[attr-defined]
    return analysis._conflicts[code]  # type: ignore[attr-defined,no-any-return]


def from_races(analysis: Analysis, code: str, words: Words) -> Iterator[Finding]:
    """One finding per race of the rule."""
    for conflict in conflicts(analysis, code):
        yield _finding(analysis, conflict, code, words)


def _finding(analysis: Analysis, conflict: Conflict, code: str, words: Words) -> Finding:
    offender, victim = conflict.offender, conflict.victim
    copy = victim.copy or offender.copy
    assert copy is not None
    other = offender.copy if victim.copy is not None else victim.copy
    template = words.core if other is None else words.copy
    subject = victim if victim.copy is not None else offender
    message = template.format(
        region=name_of(offender.box if other is None and offender.copy is None else victim.box),
        copy=copy_text(subject.copy),  # type: ignore[arg-type]
        other=copy_text(other) if other is not None else "the core",
        when=analysis.where(offender.begin) + analysis.when(offender.site),
        moment=analysis.when(offender.site),
        sender=analysis.device(offender.begin),
        elder=_elder(analysis, conflict),
        owner=victim.box.buffer.device,  # type: ignore[attr-defined]
    )
    wait, _ = guarding_wait(analysis, conflict)
    waited = analysis.event(wait).site.location if wait is not None else None
    related = lines((words.label, victim.site.location), ("the last wait before it", waited))
    if code == "AO402":
        related = lines(*analysis.may_let_go(offender.begin), *related)
    subjects = copy_subjects(copy) | (copy_subjects(other) if other is not None else set())
    help_ = words.help.format(region=name_of(victim.box))
    return Finding(
        code,
        message,
        offender.site,
        help_,
        related,
        frozenset(subjects),
        conflict.race,
        None,
        offender.begin.index,
    )


def _elder(analysis: Analysis, conflict: Conflict) -> str:
    """Whose the disturbed copy is, if the other one is known by its device."""
    sender, elder = (analysis.device(use.begin) for use in (conflict.offender, conflict.victim))
    return ", which the same device started," if sender == elder else f" from device {elder}"


def between_cores(analysis: Analysis, code: str) -> Iterator[Finding]:
    """Loads and stores of two cores, at least one a store, that nothing keeps apart."""
    for conflict in conflicts(analysis, code):
        first, second = conflict.victim, conflict.offender
        names = [analysis.program.cores[use.begin.core].name for use in (second, first)]
        deeds = ["stores to" if use.write else "reads" for use in (second, first)]
        yield Finding(
            code,
            f"{names[0]} {deeds[0]} {name_of(second.box)} while {names[1]}, which {deeds[1]} it, too, may be doing so"
            f"{analysis.when(second.site)}",
            second.site,
            "keep the two apart by a semaphore or a barrier, or give each core a part of its own",
            lines(("the other core touches it here", first.site.location)),
            frozenset({("line", second.site.location), ("line", first.site.location)}),
            conflict.race,
            None,
            second.begin.index,
        )


def rivals(analysis: Analysis, wait: Point, copy: Copy) -> list[Copy]:
    """Other copies in flight whose counts the wait may take instead of ``copy``'s."""
    try:
        feeders = analysis.order.feeders(wait)
    except ValueError:
        return []
    found: list[Any] = []
    meant = False
    for point in feeders:
        event = analysis.event(Point(point.core, point.index))
        if not isinstance(event, Start):
            continue
        if event.copy is copy:
            meant = True
        else:
            found.append(event.copy)
    return found if meant else []


__all__ = ["Half", "Words", "conflicts", "from_races", "rivals"]
