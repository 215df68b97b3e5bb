"""On some path nobody waits for a copy before the kernel ends.

What it does
------------
Reports a copy that can still be running when the kernel that owns its buffers or its semaphore ends.

Why it is bad
-------------
The copy goes on in memory that other code uses by then, and its semaphore is left with a count that the next
kernel finds.

Example
-------
    copy = pltpu.make_async_copy(x_hbm, o_hbm, sem)
    copy.start()          # no copy.wait() on any path to the end of the kernel

Cure
----
Wait for the copy on every path: in the branch that starts it, or after the loop for what its last iteration
started.

Known limits
------------
A copy whose semaphore leaves the kernel as a result is a future; it is followed to the kernel that waits for
it.
"""

from __future__ import annotations

from collections.abc import Iterator

from asyncops.checker.analysis import Analysis, Finding, copy_subjects, copy_text
from asyncops.checker.rules._late import late_copies

CODE = "AO101"
NAME = "unwaited-dma"
SEVERITY = "error"


def find(analysis: Analysis) -> Iterator[Finding]:
    """Copies of the ending device itself that nothing keeps within the kernel."""
    for late in late_copies(analysis):
        if late.mark.kind != "exit" or not late.is_own or not late.is_never_waited:
            continue
        yield Finding(
            CODE,
            f"{copy_text(late.copy)} is started{analysis.where(late.start)}{analysis.when(late.copy.site)}, but "
            "nothing "
            f"waits for {late.half_text} before the kernel ends",
            late.copy.site,
            f"wait for it on every path, for example with {late.wait_text} before the kernel ends",
            subjects=frozenset(copy_subjects(late.copy)),
            evidence=late.touch,
        )
