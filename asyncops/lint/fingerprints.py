"""Identities of findings that survive edits elsewhere in the file, for baselines and SARIF consumers."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from asyncops.lint.results import Finding
from asyncops.lint.source import read_source


def with_fingerprints(findings: Iterable[Finding], root: str) -> tuple[Finding, ...]:
    """The findings with fingerprints: of rule, file relative to ``root``, function and text of the line.

    Equal ones (the same line twice in one function) are numbered in the order given.
    """
    seen: Counter[str] = Counter()
    result: list[Finding] = []
    for finding in findings:
        parts = "\0".join(_parts(finding, root))
        digest = hashlib.sha256(f"{parts}\0{seen[parts]}".encode()).hexdigest()[:32]
        seen[parts] += 1
        result.append(replace(finding, fingerprint=digest))
    return tuple(result)


def relative_path(file: str, root: str) -> str:
    """``file`` relative to ``root`` with forward slashes: the same text on every machine."""
    return os.path.relpath(file, root).replace(os.sep, "/")


def _parts(finding: Finding, root: str) -> tuple[str, ...]:
    place = finding.location
    if place is None:
        return finding.code, finding.diagnostic.kernel, finding.diagnostic.message
    text = read_source(place.file).line(place.line)
    words = " ".join((text if text is not None else str(place.line)).split())
    return finding.code, relative_path(place.file, root), place.function, words
