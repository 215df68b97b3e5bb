"""A copy is waited for twice.

What it does
------------
Reports a wait that asks for what an earlier wait has already taken.

Why it is bad
-------------
The second wait never returns: the kernel hangs.

Example
-------
    copy.start()
    copy.wait()
    copy.wait()           # nothing is left to wait for

Cure
----
Remove one of the two waits. `wait()` of a remote copy already does `wait_send()` and `wait_recv()`.

Known limits
------------
Which of two equal waits is the surplus one is a guess; both lines are shown.
"""

from __future__ import annotations

from collections.abc import Iterator

from asyncops.checker.analysis import Analysis, Finding, lines, name_of, semaphore_subjects
from asyncops.checker.rules._stuck import Cause, feeds_before, stuck_waits

CODE = "AO102"
NAME = "double-wait"
SEVERITY = "error"


def find(analysis: Analysis) -> Iterator[Finding]:
    """Waits that never return because an earlier one took the count."""
    for stuck in stuck_waits(analysis, Cause.TAKEN):
        earlier = analysis.last_wait_before(stuck.point, stuck.wait.semaphore)
        site = analysis.event(earlier).site if earlier is not None else None
        feeds = feeds_before(analysis, stuck)
        start = analysis.event(feeds[-1]).site.location if feeds else None
        yield Finding(
            CODE,
            f"this wait on {name_of(stuck.wait.semaphore)} never returns{analysis.where(stuck.point)}"
            f"{analysis.when(stuck.wait.site)}: an earlier wait has already taken what the copy counts there",
            stuck.wait.site,
            "wait once for each copy; wait() of a remote copy already waits for both of its halves",
            lines(("the earlier wait", site.location if site else None), ("the copy starts here", start)),
            frozenset(semaphore_subjects(stuck.wait.semaphore) | {("line", start)}),
            stuck,
        )
