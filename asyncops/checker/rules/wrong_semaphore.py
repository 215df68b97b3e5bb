"""A copy signals one semaphore, the wait meant for it names another.

What it does
------------
Reports a wait whose descriptor names the buffers of a copy, but not its semaphore.

Why it is bad
-------------
The wait returns for another copy's bytes, or never; the buffer is used before it is complete.

Example
-------
    pltpu.make_async_copy(x, buf, sems.at[1]).start()
    pltpu.make_async_copy(x, buf, sems.at[0]).wait()    # signals sems[1]

Cure
----
Name the same semaphore in the start and in the wait; building the descriptor in one helper function does it.

Known limits
------------
A wait whose descriptor names dummy buffers says nothing about what it is meant for.
"""

from __future__ import annotations

from collections.abc import Iterator

from asyncops.checker.analysis import Analysis, Finding, copy_subjects, copy_text, lines, name_of
from asyncops.checker.conflicts import guarding_wait
from asyncops.checker.rules._conflicts import conflicts
from asyncops.checker.rules._stuck import Cause, stuck_waits

CODE = "AO105"
NAME = "wrong-semaphore"
SEVERITY = "error"


def find(analysis: Analysis) -> Iterator[Finding]:
    """Races behind a wait on another semaphore, and waits that hang while their copy signals elsewhere."""
    for code in ("AO201", "AO202", "AO203"):
        for conflict in conflicts(analysis, code):
            wait, is_wrong = guarding_wait(analysis, conflict)
            if wait is not None and is_wrong and conflict.victim.copy is not None:
                yield _finding(
                    analysis, wait, conflict.victim.copy, conflict.race, conflict.offender.site.location
                )
    for stuck in stuck_waits(analysis, Cause.OTHER_SEMAPHORE):
        yield _finding(analysis, stuck.point, stuck.copy, stuck, None)


def _finding(analysis: Analysis, point: object, copy: object, evidence: object, use: object) -> Finding:
    wait = analysis.event(point)  # type: ignore[arg-type]
    signalled = copy.destination_semaphore or copy.source_semaphore  # type: ignore[attr-defined]
    return Finding(
        CODE,
        f"this wait names {name_of(wait.semaphore)}, but {copy_text(copy)} signals {name_of(signalled)}"  # type: ignore[arg-type]
        f"{analysis.when(wait.site)}",
        wait.site,
        f"wait on {name_of(signalled)}",
        lines(("used here", use), ("the copy starts here", copy.site.location)),  # type: ignore[attr-defined,arg-type]
        frozenset(copy_subjects(copy)),  # type: ignore[arg-type]
        evidence,
    )
