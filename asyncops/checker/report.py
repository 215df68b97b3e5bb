"""Diagnostic and Report: what the checker tells, as values. No JAX."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from asyncops.checker.displays import html_of
from asyncops.checker.events import Location

SEVERITIES = ("error", "warning", "info")


@dataclass(frozen=True)
class Diagnostic:
    """One finding.

    Attributes:
      code, rule: stable code ("AO201") and name ("read-before-arrival").
      severity: "error", "warning" or "info"; info never changes the verdict.
      message: one sentence in the user's terms.
      location: the offending line of the user's source, or None where JAX recorded none.
      related: (label, location) pairs, most telling first.
      secondary: diagnostics that merely follow from this one.
      witness: a schedule that shows it; ``str()`` is readable, ``.replay()`` runs it again. None: no witness.
      confirmed: the witness reproduced the defect.
      help: what would cure it.
      kernel: name of the kernel it was found in.
    """

    code: str
    rule: str
    severity: str
    message: str
    location: Location | None = None
    related: tuple[tuple[str, Location], ...] = ()
    secondary: tuple[Diagnostic, ...] = ()
    witness: Any = None
    confirmed: bool = False
    help: str = ""
    kernel: str = ""

    def __str__(self) -> str:
        where = f"{self.location}: " if self.location else ""
        doubt = "" if self.confirmed or self.severity == "info" else " (unconfirmed)"
        return f"{where}{self.code} {self.message}{doubt}"

    def with_secondary(self, *more: Diagnostic) -> Diagnostic:
        """This finding with ``more`` hanging below it."""
        return replace(self, secondary=self.secondary + more)


@dataclass(frozen=True)
class KernelSummary:
    """One kernel that was checked: events seen, devices modelled, seconds spent."""

    name: str
    events: int
    devices: int
    seconds: float


@dataclass(frozen=True)
class Report:
    """The result of a check. ``verdict`` is "findings", "unknown" or "clean"."""

    diagnostics: tuple[Diagnostic, ...] = ()
    assumptions: tuple[str, ...] = ()
    unknowns: tuple[str, ...] = ()
    kernels: tuple[KernelSummary, ...] = field(default=(), compare=False)

    @property
    def verdict(self) -> str:
        """ "findings" if there is a primary error or warning, else "unknown" if something was not modelled, else
        "clean"."""
        if any(d.severity != "info" for d in self.diagnostics):
            return "findings"
        return "unknown" if self.unknowns else "clean"

    @property
    def ok(self) -> bool:
        """True when the verdict is "clean"."""
        return self.verdict == "clean"

    def _repr_html_(self) -> str:
        return html_of(self)

    def __str__(self) -> str:
        lines = [f"verdict: {self.verdict}", *map(str, self.diagnostics)]
        lines += [f"not modelled: {u}" for u in self.unknowns]
        lines += [f"assumed: {a}" for a in self.assumptions]
        return "\n".join(lines)
