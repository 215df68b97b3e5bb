"""Which findings count and how much: select, ignore, per-file ignores, severity overrides."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from asyncops.checker.report import Diagnostic
from asyncops.lint.rulebook import matching_codes


@dataclass(frozen=True)
class Selection:
    """Selectors are codes, prefixes ("AO2"), rule names or "ALL". Patterns are relative to ``root``."""

    select: tuple[str, ...] = ("ALL",)
    ignore: tuple[str, ...] = ()
    per_file_ignores: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    severity: dict[str, str] = field(default_factory=dict[str, str])
    root: str = "."

    def apply(self, diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
        """What is left, with the severities wanted.

        A finding that is not selected gives way to those that hang below it.
        """
        return tuple(kept for d in diagnostics for kept in self._apply_one(d))

    def selects(self, code: str, file: str | None) -> bool:
        """True if findings of ``code`` in ``file`` are wanted. A code without a rule page is not filtered."""
        if code not in _codes(("ALL",)):
            return True
        ignored = _codes(self.ignore) | _codes(self._file_ignores(file))
        return code in _codes(self.select) and code not in ignored

    def _apply_one(self, diagnostic: Diagnostic) -> tuple[Diagnostic, ...]:
        secondary = self.apply(diagnostic.secondary)
        file = diagnostic.location.file if diagnostic.location else None
        if not self.selects(diagnostic.code, file):
            return secondary
        severity = self._severity(diagnostic)
        return (replace(diagnostic, severity=severity, secondary=secondary),)

    def _severity(self, diagnostic: Diagnostic) -> str:
        # The longest selector is the most particular one; info notes stay notes.
        wanted = diagnostic.severity
        for selector in sorted(self.severity, key=len):
            if diagnostic.severity != "info" and diagnostic.code in matching_codes(selector):
                wanted = self.severity[selector]
        return wanted

    def _file_ignores(self, file: str | None) -> tuple[str, ...]:
        if file is None or not self.per_file_ignores:
            return ()
        path = os.path.relpath(file, self.root).replace(os.sep, "/")
        names = (path, os.path.basename(path))
        hits = (s for p, s in self.per_file_ignores.items() if any(fnmatch.fnmatch(n, p) for n in names))
        return tuple(selector for selectors in hits for selector in selectors)


def _codes(selectors: Iterable[str]) -> frozenset[str]:
    return frozenset[str]().union(*map(matching_codes, selectors))
