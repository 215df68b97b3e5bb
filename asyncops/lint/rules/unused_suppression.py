"""A suppression comment that suppresses nothing.

What it does
------------
Reports each ``# asyncops: ignore[CODE]`` whose code has no finding on its statement, in files that were
linted with that code selected and whose targets could all be checked.

Why it is bad
-------------
It reads as if the kernel were known to be wrong there, and it would hide the next defect on that line.

Example
-------
    copy.wait()
    o_ref[...] = buf[...]  # asyncops: ignore[AO201] the wait was missing once

Cure
----
Delete the comment, or the code in it that is not needed.

Known limits
------------
The linter sees only the kernels that are registered. A comment in a kernel that only a test suite checks
looks unused; leave the rule out for that file with ``per-file-ignores``.
"""

from __future__ import annotations

from asyncops.checker.events import Location
from asyncops.checker.report import Diagnostic

CODE = "AO901"
NAME = "unused-suppression"
SEVERITY = "warning"


def diagnostic(place: Location, code: str) -> Diagnostic:
    """The finding for the comment at ``place`` that suppresses ``code`` in vain."""
    message = f"the comment suppresses {code}, which is not found here"
    cure = f"delete {code} from the comment"
    return Diagnostic(CODE, NAME, SEVERITY, message, place, confirmed=True, help=cure)
