"""Nothing waits for a copy that a kernel leaves in flight, on some path of the program.

What it does
------------
Follows the semaphore of every copy that a kernel starts and does not wait for through the program, into branches,
loops and calls, and reports copies that no kernel waits for.

Why it is bad
-------------
The buffers are released, and used for something else, while the copy runs.

Example
-------
    x, out, sem = start(x)
    y = lax.cond(flag, lambda: done(x, out, sem), lambda: jnp.zeros_like(x))   # no done in the second branch

Cure
----
Wait on every path, or start the copy only where its result is wanted.

Known limits
------------
A future that the program returns (its semaphores and what arrives) is its caller's business: the report's assumptions
say so. Conditions on different values are taken to be independent,
except on one device, where every path is followed with the values that steer it.
"""

from __future__ import annotations

from collections.abc import Iterator

from asyncops.checker.analysis import Finding, lines
from asyncops.checker.program import ProgramFacts

CODE = "AO501"
NAME = "future-dropped"
SEVERITY = "error"


def find_in_program(facts: ProgramFacts) -> Iterator[Finding]:
    """Copies in flight at the end of the program; those of one branch at the branch."""
    for dropped in facts.dropped:
        flight, branch = dropped.flight, dropped.branch
        if branch is not None and facts.dropped_lines is not None and flight.line not in facts.dropped_lines:
            continue
        part = facts.parts.get(flight)
        rest = "by no kernel of the program" if branch is None else "in one branch and not in the other"
        rest = rest if part is None else "in part only"
        yield Finding(
            CODE,
            f"the copy that kernel {flight.call.name} leaves in flight is waited for {rest}",
            (part or branch or flight.call).site,
            "wait for the copy on every path, or start it only where its result is wanted",
            lines(("the kernel that starts it", flight.call.location), ("the copy starts here", flight.line)),
            flight.subjects,
        )
