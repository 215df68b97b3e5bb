"""A barrier can be passed on a signal of the next call.

What it does
------------
Reports a remote operation that is safe when the kernel runs once, and is not when it runs again.

Why it is bad
-------------
The barrier semaphore is one per collective_id and keeps its counts over calls: a neighbour that is a call
ahead can satisfy this call's wait.

Example
-------
    pl.semaphore_signal(barrier, 1, device_id=left)
    pl.semaphore_signal(barrier, 1, device_id=right)
    pl.semaphore_wait(barrier, 2)        # two signals of one fast neighbour are enough

Cure
----
Make a device unable to start its next call before its neighbours have passed this barrier: end the kernel
with a second handshake on another semaphore.

Known limits
------------
Repetitions are followed as far as the program and `calls` go.
"""

from __future__ import annotations

from collections.abc import Iterator

from asyncops.checker.analysis import Analysis, Finding
from asyncops.checker.rules._late import early_findings

CODE = "AO404"
NAME = "barrier-reentry"
SEVERITY = "error"


def find(analysis: Analysis) -> Iterator[Finding]:
    """Touches before the target's entry into a later call."""
    return early_findings(analysis, CODE, is_reentry=True)
