"""Checks the targets of files, in this process or in several, and reports each as an outcome."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from types import TracebackType

import asyncops
import stateful
from asyncops.checker.events import Location
from asyncops.checker.report import Report
from asyncops.lint.cache import Cache
from asyncops.lint.discovery import Source, load_targets
from asyncops.lint.paths import shown
from asyncops.lint.results import Failure, Outcome
from asyncops.lint.targets import LintTarget
from stateful.errors import LintUsageError, StatefulError

_LIBRARIES = tuple(
    os.path.dirname(os.path.abspath(str(m.__file__))) + os.sep for m in (asyncops, stateful, os)
)


def check_sources(
    sources: Sequence[Source], jobs: int = 1, cache: Path | None = None
) -> Iterator[tuple[Source, tuple[Outcome, ...]]]:
    """Each source with its outcomes, in order, as they become ready; ``cache`` is a folder of earlier ones.

    With ``jobs`` above 1 each file is loaded and checked in one of as many processes; each pays JAX's start.
    """
    if jobs <= 1 or len(sources) <= 1:
        for source in sources:
            yield source, check_source(source, cache)
        return
    # Forking a process in which JAX runs threads can deadlock.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(sources)), mp_context=context) as pool:
        yield from zip(sources, pool.map(check_source, sources, repeat(cache)), strict=True)


def check_source(source: Source, cache: Path | None = None) -> tuple[Outcome, ...]:
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
        return tuple(check_target(target, cache) for target in targets)


def check_target(target: LintTarget, cache: Path | None = None) -> Outcome:
    """Checks one target; whatever it raises becomes the outcome's failure."""
    place = Location(target.file, target.line)
    name = f"{shown(target.file)}:{target.name}"
    if cache is None:
        return outcome_of(name, place, lambda: asyncops.check(target.fn, *target.args, **target.options))
    return _cached(target, name, place, cache)


def _cached(target: LintTarget, name: str, place: Location, folder: Path) -> Outcome:
    # Imports JAX, which a file that does not load has no need of.
    from asyncops.lint.program_keys import target_key

    cache = Cache(folder)
    try:
        key = target_key(target)
    except Exception:  # the check will meet the same error, and tell it
        key = None
    known = cache.get(key) if key else None
    if known:
        return replace(known, target=name, location=place)
    outcome = check_target(target)
    if key and not outcome.failure:
        cache.put(key, outcome)
    return outcome


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
        if not _is_library(frame.filename):
            place = Location(frame.filename, frame.lineno or 1, frame.name)
    return place


def _is_library(file: str) -> bool:
    path = os.path.abspath(file)
    return file.startswith("<") or "site-packages" in path.split(os.sep) or path.startswith(_LIBRARIES)
