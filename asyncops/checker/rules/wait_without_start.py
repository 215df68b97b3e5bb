"""A wait has no matching start on some path.

What it does
------------
Reports a wait for a copy on a semaphore that no copy signals on that path.

Why it is bad
-------------
The wait never returns: the kernel hangs.

Example
-------
    @pl.when(flag > 0)
    def _():
        copy.start()
    copy.wait()           # hangs where flag <= 0

Cure
----
Wait under the same condition as the start, or start the copy on every path.

Known limits
------------
Waits on semaphores that cores signal by hand are deadlocks (AO303).
"""

from __future__ import annotations

from collections.abc import Iterator

from asyncops.checker.analysis import Analysis, Finding, lines, name_of, semaphore_subjects
from asyncops.checker.rules._stuck import Cause, stuck_waits

CODE = "AO103"
NAME = "wait-without-start"
SEVERITY = "error"


def find(analysis: Analysis) -> Iterator[Finding]:
    """Waits for copies that nobody starts."""
    for stuck in stuck_waits(analysis, Cause.NEVER_STARTED):
        yield Finding(
            CODE,
            f"this wait on {name_of(stuck.wait.semaphore)} never returns{analysis.where(stuck.point)}"
            f"{analysis.when(stuck.wait.site)}: no copy that would signal it is started on this path",
            stuck.wait.site,
            "start the copy on every path that waits for it, or wait under the condition of the start",
            lines(),
            frozenset(semaphore_subjects(stuck.wait.semaphore)),
            stuck,
        )
