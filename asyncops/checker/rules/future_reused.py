"""Two kernels wait for one copy.

What it does
------------
Reports a kernel that waits on a semaphore for a copy which an earlier kernel has waited for already.

Why it is bad
-------------
The first wait has emptied the semaphore: the second one never returns, or takes the count of another copy.

Example
-------
    y = done(x, out, sem)
    z = done(x, y, sem)       # nothing is left to wait for

Cure
----
Consume each future once, and in a loop only a future that the loop carries.

Known limits
------------
Waits for a part of a copy, or for several at once, are judged where the kernels are run, not here.
"""

from __future__ import annotations

from collections.abc import Iterator

from asyncops.checker.analysis import Finding, lines
from asyncops.checker.program import ProgramFacts

CODE = "AO502"
NAME = "future-reused"
SEVERITY = "error"


def find_in_program(facts: ProgramFacts) -> Iterator[Finding]:
    """Second waits. Where branches lie before one, the runs of the kernels have to show that it can happen."""
    for again in facts.second_dones:
        if not again.is_certain and again.line not in facts.stuck_lines:
            continue
        flight, site = again.flight, again.second.apart_from(again.first)
        earlier = again.first.apart_from(again.second).location
        yield Finding(
            CODE,
            f"kernel {again.second.name} waits for the copy that kernel {flight.call.name} starts, which an earlier "
            f"{again.first.name} has waited for already",
            site,
            "consume each future once; in a loop, only one that the loop carries",
            lines(
                ("the first wait", earlier if earlier != site.location else None),
                ("the kernel that starts the copy", flight.call.location),
                ("the wait", again.line),
            ),
            flight.subjects,
        )
