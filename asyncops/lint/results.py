"""What a lint run found, as plain data: it crosses processes, is cached, and every format is made from it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from asyncops.checker.events import Event, Location, Program, Site, Start
from asyncops.checker.pictures.shortening import shortened
from asyncops.checker.pictures.timelines import Timeline
from asyncops.checker.pictures.tracks import Tracks
from asyncops.checker.report import SEVERITIES, Diagnostic, KernelSummary, Report

# A schedule is read by its text: it numbers its steps, and names places as "file.py:3" without the folder.
_NUMBER = re.compile(r"^\d+\.\s*")
_PLACE = re.compile(r"\b(?P<file>[\w.-]+\.py):(?P<line>\d+)")
# Enough for a viewer of traces, and a small file.
_MOST_COLUMNS, _MOST_CORES = 300, 16


@dataclass(frozen=True)
class Step:
    """One step of a witness: what happens, and the place that its text names, if it is known."""

    text: str
    location: Location | None = None

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Story:
    """A witness as plain data: its steps, and the run as tracks to draw, if it was seen in one."""

    steps: tuple[Step, ...]
    tracks: Tracks | None = None


@dataclass(frozen=True)
class Finding:
    """A diagnostic with the targets that show it. Its ``witness`` is a :class:`Story` or None.

    Attributes:
      fingerprint: stays the same when lines are inserted elsewhere in the file.
      suppression: "" for a live finding, else why it does not count: "comment" or "baseline".
    """

    diagnostic: Diagnostic
    targets: tuple[str, ...] = ()
    fingerprint: str = ""
    suppression: str = ""

    @property
    def code(self) -> str:
        """The code of its rule."""
        return self.diagnostic.code

    @property
    def location(self) -> Location | None:
        """The offending line."""
        return self.diagnostic.location

    @property
    def steps(self) -> tuple[Step, ...]:
        """The witness as steps; empty without one."""
        return self.diagnostic.witness.steps if self.diagnostic.witness else ()

    @property
    def timeline(self) -> Timeline | None:
        """The witness as a timeline; None without one."""
        story: Story | None = self.diagnostic.witness
        return Timeline(story.tracks) if story and story.tracks else None

    @property
    def counts(self) -> bool:
        """True when it makes the run fail."""
        return not self.suppression and self.diagnostic.severity != "info"


@dataclass(frozen=True)
class Failure:
    """A target that could not be checked: the user's code raised, or the checker did."""

    message: str
    location: Location | None = None
    traceback: str = ""


@dataclass(frozen=True)
class Outcome:
    """One target after its check. Exactly one of ``verdict`` and ``failure`` is set.

    ``target`` is "file:name", as ``asyncops lint`` takes it; the file alone if it did not load. ``run`` is one run of
    it, to be drawn; ``schedules`` are pictures (SVG) of what the compiler made of it.
    """

    target: str
    location: Location | None
    verdict: str = ""
    diagnostics: tuple[Diagnostic, ...] = ()
    unknowns: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    kernels: tuple[KernelSummary, ...] = ()
    failure: Failure | None = None
    seconds: float = 0.0
    run: Tracks | None = None
    schedules: tuple[str, ...] = ()

    @staticmethod
    def of_report(target: str, location: Location | None, report: Report, seconds: float) -> Outcome:
        """The outcome of a check that came to an end."""
        return Outcome(
            target,
            location,
            report.verdict,
            tuple(map(portable, report.diagnostics)),
            tuple(map(str, report.unknowns)),
            tuple(map(str, report.assumptions)),
            report.kernels,
            seconds=seconds,
            schedules=tuple(s.to_svg() for s in getattr(report, "schedules", ()) if s.pairs),
        )


@dataclass(frozen=True)
class Entry:
    """A known finding in a baseline. Only the fingerprint is matched; the rest is for people who read it."""

    fingerprint: str
    code: str
    file: str
    message: str


@dataclass(frozen=True)
class LintResult:
    """All outcomes of a run, and the findings merged over them in the order of :func:`in_order`.

    ``stale``: entries of the baseline that match nothing any more. ``diff``: the cures that are certain, made or not.
    """

    outcomes: tuple[Outcome, ...] = ()
    findings: tuple[Finding, ...] = ()
    stale: tuple[Entry, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = field(default=0.0, compare=False)
    diff: str = ""

    @property
    def live(self) -> tuple[Finding, ...]:
        """The findings that are not suppressed."""
        return tuple(f for f in self.findings if not f.suppression)

    @property
    def failures(self) -> tuple[Outcome, ...]:
        """The targets that could not be checked."""
        return tuple(o for o in self.outcomes if o.failure)

    @property
    def unknowns(self) -> tuple[tuple[str, str], ...]:
        """(target, what was not modelled), in order."""
        return tuple((o.target, text) for o in self.outcomes for text in o.unknowns)

    @property
    def verdict(self) -> str:
        """ "failed" if a target could not be checked, else as in ``Report.verdict``."""
        if self.failures:
            return "failed"
        if any(f.counts for f in self.findings):
            return "findings"
        return "unknown" if self.unknowns else "clean"


def portable(diagnostic: Diagnostic) -> Diagnostic:
    """The diagnostic with its witness as a story, so that it can be pickled and printed without the checker."""
    secondary = tuple(map(portable, diagnostic.secondary))
    return replace(diagnostic, witness=_story_of(diagnostic), secondary=secondary)


def _story_of(diagnostic: Diagnostic) -> Story | None:
    witness = diagnostic.witness
    if witness is None:
        return None
    draw: Callable[[], Timeline | None] | None = getattr(witness, "timeline", None)
    timeline = draw() if draw else None
    return Story(tuple(_steps_of(diagnostic)), kept(timeline.tracks) if timeline else None)


def kept(tracks: Tracks) -> Tracks:
    """As much of a run as is kept of it."""
    return shortened(tracks, _MOST_COLUMNS, _MOST_CORES)


def _steps_of(diagnostic: Diagnostic) -> Iterator[Step]:
    places = {(os.path.basename(p.file), p.line): p for p in _places_of(diagnostic)}
    files = {name: place.file for (name, _), place in places.items()}
    for line in str(diagnostic.witness).splitlines():
        text = _NUMBER.sub("", line.strip())
        named = _PLACE.search(text)
        if text and named and named["file"] in files:
            name, number = named["file"], int(named["line"])
            yield Step(text, places.get((name, number)) or Location(files[name], number))
        elif text:
            yield Step(text)


def _places_of(diagnostic: Diagnostic) -> Iterator[Location]:
    """Every place that a step of the witness can be about; the finding's own last, as they count most."""
    program: Program | None = getattr(diagnostic.witness, "program", None)
    for core in program.cores if program else ():
        for event in core.events:
            yield from (place for site in _sites_of(event) if (place := site.location))
    yield from (place for _, place in diagnostic.related)
    if diagnostic.location:
        yield diagnostic.location


def _sites_of(event: Event) -> tuple[Site, ...]:
    return (event.site, event.copy.site) if isinstance(event, Start) else (event.site,)


def merged(outcomes: Iterable[Outcome]) -> tuple[Finding, ...]:
    """One finding per defect: the same code on the same line, seen through several targets, is one."""
    by_defect: dict[object, Finding] = {}
    for outcome in outcomes:
        for diagnostic in outcome.diagnostics:
            place = diagnostic.location
            key = (diagnostic.code, (place.file, place.line) if place else diagnostic.message)
            by_defect[key] = _joined(by_defect.get(key), diagnostic, outcome.target)
    return in_order(by_defect.values())


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """By file and line; on one line errors first."""
    return tuple(sorted(findings, key=_position))


def _joined(earlier: Finding | None, diagnostic: Diagnostic, target: str) -> Finding:
    if earlier is None:
        return Finding(diagnostic, (target,))
    best = diagnostic if diagnostic.confirmed and not earlier.diagnostic.confirmed else earlier.diagnostic
    targets = earlier.targets if target in earlier.targets else (*earlier.targets, target)
    return replace(earlier, diagnostic=best, targets=targets)


def _position(finding: Finding) -> tuple[str, int, int, str]:
    place = finding.location
    rank = SEVERITIES.index(finding.diagnostic.severity)
    return (place.file if place else "", place.line if place else 0, rank, finding.code)
