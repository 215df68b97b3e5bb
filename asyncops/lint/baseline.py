"""The baseline file: known findings that do not count, so that only new ones fail a run."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from asyncops.lint.fingerprints import relative_path
from asyncops.lint.results import Entry, Finding
from asyncops.writing import write_whole
from stateful.errors import LintUsageError

VERSION = 1
DEFAULT_NAME = "asyncops-baseline.json"
_MOST_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Baseline:
    """The entries of one file, sorted by file, code and fingerprint."""

    entries: tuple[Entry, ...] = ()

    def apply(self, findings: Iterable[Finding]) -> tuple[Finding, ...]:
        """The findings, the known ones marked as suppressed."""
        known = {e.fingerprint for e in self.entries}
        return tuple(
            replace(f, suppression="baseline") if f.fingerprint in known and not f.suppression else f
            for f in findings
        )

    def stale(self, findings: Iterable[Finding], linted: Iterable[str]) -> tuple[Entry, ...]:
        """Entries of the ``linted`` files (relative paths) that match no finding any more."""
        alive = {f.fingerprint for f in findings}
        files = set(linted)
        return tuple(e for e in self.entries if e.file in files and e.fingerprint not in alive)

    def without(self, entries: Iterable[Entry]) -> Baseline:
        """The baseline less some entries."""
        dropped = set(entries)
        return Baseline(tuple(e for e in self.entries if e not in dropped))


def baseline_of(findings: Iterable[Finding], root: str) -> Baseline:
    """A baseline in which every finding that counts is known."""
    entries = (
        Entry(
            f.fingerprint,
            f.code,
            relative_path(f.location.file, root) if f.location else "",
            f.diagnostic.message,
        )
        for f in findings
        if f.counts or f.suppression == "baseline"
    )
    return Baseline(tuple(sorted(entries, key=lambda e: (e.file, e.code, e.fingerprint))))


def read_baseline(file: Path) -> Baseline:
    """The baseline in ``file``; a file that is not one is refused."""
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise LintUsageError(f"{file}: a baseline of more than {_MOST_BYTES >> 20} MiB is not read")
        document: Any = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LintUsageError(f"{file}: no such baseline; create it with --write-baseline") from None
    except (OSError, ValueError, RecursionError) as error:
        raise LintUsageError(f"{file}: is not a baseline: {error}") from None
    return _parsed(document, file)


def write_baseline(baseline: Baseline, file: Path) -> None:
    """Writes the file, one entry a line so that merges are readable."""
    lines = ",\n".join(f"  {json.dumps(vars(entry))}" for entry in baseline.entries)
    body = f"[\n{lines}\n ]" if lines else "[]"
    write_whole(file, f'{{"version": {VERSION},\n "findings": {body}}}\n')


def _parsed(document: Any, file: Path) -> Baseline:
    keys = ("fingerprint", "code", "file", "message")
    try:
        if document["version"] != VERSION:
            raise LintUsageError(
                f"{file}: has version {document['version']!r}, this asyncops reads {VERSION}"
            )
        rows = cast("list[dict[str, Any]]", document["findings"])
        return Baseline(tuple(Entry(*(str(row[key]) for key in keys)) for row in rows))
    except KeyError as error:
        raise LintUsageError(f"{file}: is not a baseline: it lacks {error}") from None
    except TypeError as error:
        raise LintUsageError(f"{file}: is not a baseline: {error}") from None
