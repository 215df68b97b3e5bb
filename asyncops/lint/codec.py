"""Outcomes as JSON and back. Reading builds these classes and nothing else, whatever the text says."""

from __future__ import annotations

import dataclasses
from typing import Any

from asyncops.checker.events import Location
from asyncops.checker.report import Diagnostic, KernelSummary
from asyncops.lint.results import Outcome, Step


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
    )


def _diagnostic(plain: Any) -> Diagnostic:
    changed: dict[str, Any] = {
        "location": _location(plain["location"]),
        "related": tuple((str(label), Location(**place)) for label, place in plain["related"]),
        "secondary": tuple(map(_diagnostic, plain["secondary"])),
        "witness": tuple(Step(str(s["text"]), _location(s["location"])) for s in plain["witness"] or ()),
    }
    return Diagnostic(**{**plain, **changed})


def _location(plain: Any) -> Location | None:
    return None if plain is None else Location(**plain)
