"""A device can leave the kernel while a remote copy into it is in flight.

What it does
------------
Reports a remote copy or signal that nothing keeps within the target's stay in the kernel.

Why it is bad
-------------
After the kernel the memory belongs to the caller's program, which does not expect the write.

Example
-------
    rdma.start()
    rdma.wait_send()         # nobody does wait_recv() on the target

Cure
----
Let the target wait for what is sent to it (`wait_recv()`), or end with a barrier.

Known limits
------------
A copy whose semaphore leaves the kernel as a result is a future.
"""

from __future__ import annotations

from collections.abc import Iterator

from asyncops.checker.analysis import Analysis, Finding
from asyncops.checker.rules._late import late_remote_findings

CODE = "AO403"
NAME = "exit-before-arrival"
SEVERITY = "error"


def find(analysis: Analysis) -> Iterator[Finding]:
    """Remote copies and signals after the target's exit."""
    return late_remote_findings(analysis, CODE)
