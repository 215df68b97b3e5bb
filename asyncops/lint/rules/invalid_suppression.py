"""A suppression comment that names no rule, or one that does not exist.

What it does
------------
Reports ``# asyncops: ignore`` comments without codes in brackets, and codes that no rule has.

Why it is bad
-------------
It suppresses nothing, though it looks as if it did. (Hiding every rule would hide the next defect.)

Example
-------
    o_ref[...] = buf[...]  # asyncops: ignore

Cure
----
Name the rules and say why: ``# asyncops: ignore[AO201] the other core never writes this row``.

Known limits
------------
A comment that is misspelled before the colon is an ordinary comment.
"""

from __future__ import annotations

from asyncops.checker.events import Location
from asyncops.checker.report import Diagnostic

CODE = "AO902"
NAME = "invalid-suppression"
SEVERITY = "warning"
_CURE = "name the rules and the reason: # asyncops: ignore[AO201] reason"


def diagnostic(place: Location, message: str) -> Diagnostic:
    """The finding for the comment at ``place``; ``message`` says what is wrong with it."""
    return Diagnostic(CODE, NAME, SEVERITY, message, place, confirmed=True, help=_CURE)
