"""A wait meant for one copy can be satisfied by another on the same semaphore.

What it does
------------
Explains a race behind a wait: several copies in flight count on the semaphore, so the wait returns when
enough bytes of any of them have moved.

Why it is bad
-------------
Counting semaphores do not know which copy they count; copies finish in any order.

Example
-------
    pltpu.make_async_copy(a, buf_a, sem).start()
    pltpu.make_async_copy(b, buf_b, sem).start()
    pltpu.make_async_copy(a, buf_a, sem).wait()      # may be satisfied by b
    o_ref[...] = buf_a[...]

Cure
----
Give each copy in flight a semaphore of its own (an array of them, one for each slot), or wait for all before
using any.

Known limits
------------
Waiting for all copies on a shared semaphore before their data is used is fine.
"""

from __future__ import annotations

from collections.abc import Iterator

from asyncops.checker.analysis import Analysis, Finding, copy_subjects, copy_text, lines, name_of
from asyncops.checker.conflicts import guarding_wait
from asyncops.checker.rules._conflicts import conflicts, rivals

CODE = "AO302"
NAME = "shared-semaphore"
SEVERITY = "error"


def find(analysis: Analysis) -> Iterator[Finding]:
    """Races behind a wait that other copies can satisfy."""
    for code in ("AO201", "AO202", "AO203", "AO204", "AO402"):
        for conflict in conflicts(analysis, code):
            wait, is_wrong = guarding_wait(analysis, conflict)
            copy = conflict.victim.copy or conflict.offender.copy
            if wait is None or is_wrong or copy is None:
                continue
            others = rivals(analysis, wait, copy)
            if not others:
                continue
            yield Finding(
                CODE,
                f"this wait on {name_of(analysis.event(wait).semaphore)} can be satisfied by "
                f"{copy_text(others[0])} instead of "
                f"{copy_text(copy)}{analysis.when(analysis.event(wait).site)}: both count on it",
                analysis.event(wait).site,
                "give each copy in flight a semaphore of its own",
                lines(
                    ("the other copy starts here", others[0].site.location),
                    ("the copy starts here", copy.site.location),
                ),
                frozenset(copy_subjects(copy)),
                conflict.race,
            )
