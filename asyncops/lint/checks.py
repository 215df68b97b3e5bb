"""Checks the targets of files, in this process or in several, and reports each as an outcome."""

from __future__ import annotations

import contextlib
import multiprocessing
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from itertools import repeat
from pathlib import Path
from types import TracebackType

import asyncops
from asyncops.checker.events import Location
from asyncops.checker.pictures.tracks import Tracks
from asyncops.checker.report import Report
from asyncops.lint.cache import Cache
from asyncops.lint.discovery import Source, load_targets
from asyncops.lint.paths import is_library, shown
from asyncops.lint.results import Failure, Outcome, kept
from asyncops.lint.targets import LintTarget
from stateful.errors import LintUsageError, StatefulError


@dataclass(frozen=True)
class Wanted:
    """What is done with each target.

    ``cache``: a folder of earlier outcomes. ``timelines``: a run of each target is kept to be drawn. ``topologies``:
    TPUs that each target is compiled for, too. ``chip``: for targets that do not say which chip they are for.
    """

    cache: Path | None = None
    timelines: bool = False
    topologies: tuple[str, ...] = ()
    chip: str | None = None


@dataclass(frozen=True)
class _Check:
    """One check of a target: under which name it is reported, what tells it apart in the cache, and how it is made."""

    name: str
    detail: str
    run: Callable[[], Report]


def check_sources(
    sources: Sequence[Source], jobs: int = 1, wanted: Wanted = Wanted()
) -> Iterator[tuple[Source, tuple[Outcome, ...]]]:
    """Each source with its outcomes, in order, as they become ready.

    With ``jobs`` above 1 each file is loaded and checked in one of as many processes; each pays JAX's start.
    """
    if jobs <= 1 or len(sources) <= 1:
        for source in sources:
            yield source, check_source(source, wanted)
        return
    # Forking a process in which JAX runs threads can deadlock.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(sources)), mp_context=context) as pool:
        yield from zip(sources, pool.map(check_source, sources, repeat(wanted)), strict=True)


def check_source(source: Source, wanted: Wanted) -> tuple[Outcome, ...]:
    """Loads one file and checks its targets. What user code prints goes to stderr: stdout is the report's."""
    with contextlib.redirect_stdout(sys.stderr):
        try:
            targets = load_targets(source)
        except LintUsageError:
            raise
        except (Exception, SystemExit) as error:
            place = Location(source.file, 1)
            failure = _failure(error, "could not be loaded", place)
            return (Outcome(shown(source.file), place, failure=failure),)
        return tuple(outcome for target in targets for outcome in check_target(target, wanted))


def check_target(target: LintTarget, wanted: Wanted) -> Iterator[Outcome]:
    """Checks one target, and it compiled for each topology; whatever is raised becomes an outcome's failure."""
    if wanted.chip and not target.options.get("target"):
        target = replace(target, options={**target.options, "target": wanted.chip})
    name = f"{shown(target.file)}:{target.name}"
    detail = "with timeline" if wanted.timelines else ""
    check = _Check(name, detail, lambda: asyncops.check(target.fn, *target.args, **target.options))
    yield _outcome(target, check, wanted.cache, timeline=wanted.timelines)
    for topology in wanted.topologies:
        yield _outcome(target, _compiled(target, name, topology), wanted.cache)


def _compiled(target: LintTarget, name: str, topology: str) -> _Check:
    def run() -> Report:
        return asyncops.check_compiled(asyncops.compile_for(topology, target.fn, *target.args))

    with contextlib.suppress(PackageNotFoundError):
        return _Check(f"{name} [{topology}]", f"{topology}, libtpu {version('libtpu')}", run)
    return _Check(f"{name} [{topology}]", topology, run)


def _outcome(target: LintTarget, check: _Check, cache: Path | None, timeline: bool = False) -> Outcome:
    place = Location(target.file, target.line)
    key = _key(target, check) if cache else None
    known = Cache(cache).get(key) if cache and key else None
    if known:
        return replace(known, target=check.name, location=place)
    outcome = outcome_of(check.name, place, check.run)
    if timeline and not outcome.failure:
        outcome = replace(outcome, run=_run_of(target))
    if cache and key and not outcome.failure:
        Cache(cache).put(key, outcome)
    return outcome


def _key(target: LintTarget, check: _Check) -> str | None:
    # Imports JAX, which a file that does not load has no need of.
    from asyncops.lint.program_keys import target_key

    try:
        return target_key(target, check.detail)
    except Exception:  # the check will meet the same error, and tell it
        return None


def _run_of(target: LintTarget) -> Tracks | None:
    """A run of the target; None where none can be followed."""
    try:
        return kept(asyncops.draw_timeline(target.fn, *target.args, **target.options).tracks)
    except Exception:  # the picture is an extra; the check has told what is wrong
        return None


def outcome_of(name: str, place: Location | None, check: Callable[[], Report]) -> Outcome:
    """Runs a check and keeps what comes of it, a report or the reason why there is none."""
    start = time.perf_counter()
    try:
        report = check()
    except Exception as error:
        return Outcome(name, place, failure=_failure(error, "could not be checked", place))
    return Outcome.of_report(name, place, report, time.perf_counter() - start)


def _failure(error: BaseException, what: str, fallback: Location | None) -> Failure:
    # A StatefulError says by itself what is wrong; any other type is part of the message.
    text = str(error).strip() or "no message"
    reason = text if isinstance(error, StatefulError) else f"{type(error).__name__}: {text}"
    full = "".join(traceback.format_exception(error))
    return Failure(f"{what}: {reason}", _user_place(error.__traceback__) or fallback, full)


def _user_place(trace: TracebackType | None) -> Location | None:
    """The innermost frame that is neither ours nor an installed package's."""
    place = None
    for frame in traceback.extract_tb(trace):
        if not is_library(frame.filename):
            place = Location(frame.filename, frame.lineno or 1, frame.name)
    return place
