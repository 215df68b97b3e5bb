"""Outcomes as JSON and back. Reading builds these classes and nothing else, whatever the text says."""

from __future__ import annotations

import dataclasses
from typing import Any

from asyncops.checker.events import Location
from asyncops.checker.pictures.tracks import CoreTrack, Deed, Flight, Level, SemaphoreTrack, Tracks
from asyncops.checker.report import Diagnostic, KernelSummary
from asyncops.lint.results import Outcome, Step, Story


def to_plain(outcome: Outcome) -> dict[str, Any]:
    """The outcome as JSON values."""
    return dataclasses.asdict(outcome)


def from_plain(plain: Any) -> Outcome:
    """The outcome that :func:`to_plain` was given.

    Raises:
      KeyError, TypeError, ValueError: it is something else.
    """
    return Outcome(
        target=str(plain["target"]),
        location=_location(plain["location"]),
        verdict=str(plain["verdict"]),
        diagnostics=tuple(map(_diagnostic, plain["diagnostics"])),
        unknowns=tuple(map(str, plain["unknowns"])),
        assumptions=tuple(map(str, plain["assumptions"])),
        kernels=tuple(KernelSummary(**kernel) for kernel in plain["kernels"]),
        seconds=float(plain["seconds"]),
        run=None if plain["run"] is None else _tracks(plain["run"]),
        schedules=tuple(map(str, plain["schedules"])),
    )


def _diagnostic(plain: Any) -> Diagnostic:
    changed: dict[str, Any] = {
        "location": _location(plain["location"]),
        "related": tuple((str(label), Location(**place)) for label, place in plain["related"]),
        "secondary": tuple(map(_diagnostic, plain["secondary"])),
        "witness": None if plain["witness"] is None else _story(plain["witness"]),
    }
    return Diagnostic(**{**plain, **changed})


def _story(plain: Any) -> Story:
    steps = tuple(Step(str(s["text"]), _location(s["location"])) for s in plain["steps"])
    return Story(steps, None if plain["tracks"] is None else _tracks(plain["tracks"]))


def _tracks(plain: Any) -> Tracks:
    return Tracks(**_with(plain, cores=tuple(map(_core, plain["cores"]))))


def _core(plain: Any) -> CoreTrack:
    deeds = tuple(Deed(**deed) for deed in plain["deeds"])
    flights = tuple(Flight(**flight) for flight in plain["flights"])
    semaphores = tuple(map(_semaphore, plain["semaphores"]))
    return CoreTrack(**_with(plain, deeds=deeds, flights=flights, semaphores=semaphores))


def _semaphore(plain: Any) -> SemaphoreTrack:
    return SemaphoreTrack(**_with(plain, levels=tuple(Level(**level) for level in plain["levels"])))


def _with(plain: Any, **changed: Any) -> dict[str, Any]:
    return {**plain, **changed}


def _location(plain: Any) -> Location | None:
    return None if plain is None else Location(**plain)
