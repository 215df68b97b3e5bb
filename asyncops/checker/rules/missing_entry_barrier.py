"""A remote write or signal can reach a device that has not entered the kernel.

What it does
------------
Reports a remote copy or signal that nothing orders after its target's entry into the kernel.

Why it is bad
-------------
The target may still run the program before it: its memory belongs to somebody else.

Example
-------
    rdma = pltpu.make_async_remote_copy(x_ref, o_ref, send_sem, recv_sem, device_id=right)
    rdma.start()             # nothing says that the right neighbour is in the kernel

Cure
----
Signal the barrier semaphore of every device that will write here, and wait for the signals of those this
device writes to, before the first remote operation. Without get_barrier_semaphore and collective_id the
compiler adds a barrier itself.

Known limits
------------
With skip_device_barrier=True the compiler adds none.
"""

from __future__ import annotations

from collections.abc import Iterator

from asyncops.checker.analysis import Analysis, Finding
from asyncops.checker.rules._late import early_findings

CODE = "AO401"
NAME = "missing-entry-barrier"
SEVERITY = "error"


def find(analysis: Analysis) -> Iterator[Finding]:
    """Touches before the target's first entry."""
    return early_findings(analysis, CODE, is_reentry=False)
