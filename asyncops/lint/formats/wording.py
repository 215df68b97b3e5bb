"""Phrases that several formats share."""

from __future__ import annotations

import os
from collections import Counter

from asyncops.checker.events import Location
from asyncops.checker.report import Diagnostic
from asyncops.lint.paths import shown
from asyncops.lint.results import LintResult
from asyncops.lint.source import columns


def place(location: Location | None) -> str:
    """``file:line`` with the column (from 1) where it is known; "" without a location."""
    if location is None:
        return ""
    found = columns(location)
    return f"{shown(location.file)}:{location.line}" + (f":{found[0] + 1}" if found else "")


def message(diagnostic: Diagnostic) -> str:
    """The message; says so when no schedule has reproduced it."""
    doubt = not diagnostic.confirmed and diagnostic.severity != "info"
    return printable(diagnostic.message) + (" (unconfirmed)" if doubt else "")


def printable(text: str) -> str:
    """Text about the user's program: no terminal control sequences, paths as :func:`shown` shows them."""
    text = text.replace(os.getcwd() + os.sep, "")
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)


def count(number: int, noun: str) -> str:
    """ "1 error", "2 errors"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def summary(result: LintResult) -> str:
    """One line: how many findings, of what, in how much."""
    tally = Counter(f.diagnostic.severity for f in result.live)
    suppressed = len(result.findings) - len(result.live)
    kernels = sum(len(o.kernels) for o in result.outcomes)
    found = ", ".join(count(tally[s], n) for s, n in (("error", "error"), ("warning", "warning")) if tally[s])
    extra = [
        count(tally["info"], "note") if tally["info"] else "",
        f"{suppressed} suppressed" if suppressed else "",
        f"{len(result.unknowns)} not modelled" if result.unknowns else "",
        f"{len(result.failures)} failed" if result.failures else "",
    ]
    where = f"{count(len(result.outcomes), 'target')}, {count(kernels, 'kernel')}"
    return "; ".join([f"{found or 'no findings'} in {where}", *filter(None, extra)])
