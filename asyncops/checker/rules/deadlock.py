"""Some wait can never return.

What it does
------------
Reports a wait that no schedule gets past: a signal that nobody sends, or cores that wait for each other in a
cycle.

Why it is bad
-------------
The kernel hangs.

Example
-------
    pl.semaphore_signal(barrier, 1, device_id=left)
    pl.semaphore_signal(barrier, 1, device_id=right)
    pl.semaphore_wait(barrier, 3)       # only two signals arrive

Cure
----
Make the number of signals each device receives equal to the number it waits for, on every device.

Known limits
------------
Cores that poll a semaphore with semaphore_read are followed on one outcome.
"""

from __future__ import annotations

from collections.abc import Iterator

from asyncops.checker.analysis import Analysis, Finding, Stuck, lines, name_of, semaphore_subjects
from asyncops.checker.rules._stuck import Cause, stuck_waits

CODE = "AO303"
NAME = "deadlock"
SEVERITY = "error"


def find(analysis: Analysis) -> Iterator[Finding]:
    """Waits that never return for want of signals, and cycles of waits."""
    for stuck in stuck_waits(analysis, Cause.DEADLOCK):
        what = name_of(stuck.wait.semaphore)
        reason = (
            f"it waits for {stuck.demanded} in all, and only {stuck.supplied} are ever signalled"
            if stuck.is_short
            else _circle(analysis, stuck)
        )
        feeds = analysis.feeds[stuck.wait.semaphore]
        yield Finding(
            CODE,
            f"this wait on {what} never returns{analysis.where(stuck.point)}{analysis.when(stuck.wait.site)}: {reason}",
            stuck.wait.site,
            "make every device receive as many signals as it waits for, and signal before waiting",
            lines(*(("it is signalled here", analysis.event(p).site.location) for p in feeds[:2])),
            frozenset(semaphore_subjects(stuck.wait.semaphore)),
            stuck,
        )


def _circle(analysis: Analysis, stuck: Stuck) -> str:
    """Where the signals would come from, if that did not wait itself."""
    senders = sorted({analysis.device(point) for point in analysis.feeds[stuck.wait.semaphore]})
    if senders == [analysis.device(stuck.point)]:
        return "the signals it needs come only after it, or after waits that need it"
    named = " and ".join(f"device {n}" for n in senders[:2]) + (" and others" if len(senders) > 2 else "")
    return f"the signals it needs come from {named} after waits that need this one to return"
