"""A witness for each kind of evidence: something that can be read, and run again to show the defect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from asyncops.checker.analysis import Analysis, Finding, Stuck
from asyncops.checker.events import Program
from asyncops.checker.naming import short
from asyncops.checker.order import Race, Touch
from asyncops.checker.pictures.timelines import Timeline, timeline_of_program
from asyncops.checker.recording import Problem
from asyncops.checker.replay import Outcome, Schedule


@dataclass(frozen=True, eq=False)
class Exhibit:
    """The witness of a defect that no schedule is needed for: the facts, and a test that looks at them again.

    ``program``: the run it was seen in, if it was seen in one.
    """

    facts: tuple[str, ...]
    test: Callable[[], bool]
    program: Program | None = None

    def replay(self) -> Outcome:
        """Looks again."""
        return Outcome(self.test(), (), {}, ())

    def timeline(self) -> Timeline | None:
        """The run in which it was seen, every copy drawn for as long as it may take."""
        return None if self.program is None else timeline_of_program(self.program)

    def to_svg(self) -> str | None:
        """The picture of :meth:`timeline` as SVG text; None where it was seen in no run."""
        timeline = self.timeline()
        return None if timeline is None else timeline.to_svg()

    def _repr_svg_(self) -> str | None:
        return self.to_svg()

    def to_chrome_trace(self) -> dict[str, Any] | None:
        """The run in the Trace Event Format, for ui.perfetto.dev; None where there is none."""
        timeline = self.timeline()
        return None if timeline is None else timeline.to_chrome_trace()

    def __str__(self) -> str:
        return "\n".join(f"{n}. {fact}" for n, fact in enumerate(self.facts, 1))


Witness = Schedule | Exhibit


def witness_of(analysis: Analysis, finding: Finding) -> tuple[Witness | None, bool]:
    """(witness or None, confirmed) of a finding: confirmed is what running the witness again says."""
    witness = _search(analysis, finding, finding.evidence)
    return witness, witness is not None and bool(witness.replay().reproduced)


def is_refuted(analysis: Analysis, finding: Finding) -> bool:
    """True for a race that no schedule has: the order misses what only a circular argument shows."""
    if not isinstance(finding.evidence, Race):
        return False
    search = analysis.overlap(finding.evidence)
    return search.schedule is None and search.exhaustive


def _search(analysis: Analysis, finding: Finding, evidence: Any) -> Witness | None:
    if isinstance(evidence, Race):
        return analysis.overlap(evidence).schedule
    if isinstance(evidence, Touch):
        return analysis.scheduler.outside(evidence.point, evidence.mark).schedule
    if isinstance(evidence, Stuck):
        return analysis.scheduler.stuck().schedule
    if isinstance(evidence, Problem):
        test = evidence.test
        return (
            None if test is None else Exhibit(_facts(finding), lambda: test(analysis.model), analysis.program)
        )
    if isinstance(evidence, Exhibit):
        return evidence
    return _leftover(analysis, finding, evidence)


def _leftover(analysis: Analysis, finding: Finding, evidence: Any) -> Witness | None:
    semaphore = getattr(evidence, "semaphore", None)
    if semaphore is None:
        return None

    def is_left() -> bool:
        return analysis.scheduler.run_to_end().left.get(semaphore, 0) > 0

    left = f"after every core and copy is done, {semaphore} is not zero"
    return Exhibit((*_facts(finding), left), is_left, analysis.program)


def _facts(finding: Finding) -> tuple[str, ...]:
    place, moment = finding.site.location, str(finding.site.moment)
    where = f"at {short(place)}" if place else "in the kernel"
    return (f"{where}{', ' + moment if moment else ''}: {finding.message}",)
