"""The amounts waited for balance no set of copies.

What it does
------------
Reports a wait for a number of bytes that the copies on its semaphore do not add up to.

Why it is bad
-------------
A wait that is too large hangs; one that is too small returns before the copy is complete and leaves a count.

Example
-------
    pltpu.make_async_copy(x.at[pl.ds(0, 16)], buf, sem).start()
    pltpu.make_async_copy(x.at[pl.ds(0, 8)], buf.at[pl.ds(0, 8)], sem).wait()   # half of it

Cure
----
Give the descriptor that waits the shape of the copy that was started. Partial waits that add up, and one wait
for the bytes of many copies, are fine.

Known limits
------------
Bytes are those of the tiled, padded layout in the memory space of the Ref.
"""

from __future__ import annotations

from collections.abc import Iterator

from asyncops.checker.analysis import Analysis, Finding, lines, name_of, semaphore_subjects
from asyncops.checker.rules._balance import unbalanced
from asyncops.checker.rules._stuck import Cause, stuck_waits

CODE = "AO104"
NAME = "wait-size-mismatch"
SEVERITY = "error"


_HELP = "give the descriptor of the wait the shape of the copy that it waits for"


def find(analysis: Analysis) -> Iterator[Finding]:
    """Waits that are too large for what was copied, and waits that leave a rest."""
    for stuck in stuck_waits(analysis, Cause.WRONG_SIZE):
        starts = [analysis.event(p).site.location for p in analysis.feeds[stuck.wait.semaphore]]
        yield Finding(
            CODE,
            f"this wait on {name_of(stuck.wait.semaphore)} asks for {stuck.wait.amount} "
            f"bytes{analysis.where(stuck.point)}"
            f"{analysis.when(stuck.wait.site)}, more than the {stuck.supplied} that the copies on it count in all",
            stuck.wait.site,
            _HELP,
            lines(*(("the copy starts here", s) for s in starts[:2])),
            frozenset(semaphore_subjects(stuck.wait.semaphore)),
            stuck,
        )
    for rest in unbalanced(analysis):
        wait = analysis.event(rest.wait)
        yield Finding(
            CODE,
            f"this wait on {name_of(wait.semaphore)} takes {wait.amount} "
            f"bytes{analysis.when(wait.site)}, but the copies on "
            f"it count {rest.signalled} in all, of which {rest.waited} are waited for",
            wait.site,
            _HELP,
            lines(("the copy starts here", rest.start.location)),
            frozenset(semaphore_subjects(wait.semaphore)),
            rest.leftover,
        )
