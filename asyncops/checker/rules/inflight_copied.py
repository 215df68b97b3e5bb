"""An array is read, rewritten or copied while a copy is in flight on it.

What it does
------------
Between the kernel that starts a copy and the one that waits for it, reports operations of the program that read the
destination, operations that may update the source in place, and branches that return the arrays in flight.

Why it is bad
-------------
XLA knows nothing of the copy. The destination has not arrived when it is read. What a branch returns is copied to where
every branch leaves its results: the copy goes on in the old place.

Example
-------
    future = start(x)
    future = lax.cond(flag, lambda f: f, restart, future)   # both arrays are copied in flight

Cure
----
Read the destination through the result of done. Call done inside the branches rather than return the future from them.

Known limits
------------
Copies that loops cause are AO508. Whether the compiler really copies is seen in the compiled program.
"""

from __future__ import annotations

from collections.abc import Iterator

from asyncops.checker.analysis import Finding, lines
from asyncops.checker.flights import Call, Flight
from asyncops.checker.program import ProgramFacts

CODE = "AO504"
NAME = "inflight-copied"
SEVERITY = "error"


_WHAT = {
    "read": "reads its destination, which has not arrived",
    "write": "may update its source in place: nothing needs the source afterwards",
    "branch": "returns its arrays from a branch, which copies them",
}
_CURES = {
    "read": "read the array only after done, through done's result",
    "write": "pass the source through done and update what done returns, so that the update comes after it",
    "branch": "finish the copy inside the branches, or keep the future out of the branch",
}


def find_in_program(facts: ProgramFacts) -> Iterator[Finding]:
    """Reads, branches, and updates of sources that nothing keeps."""
    for disturbed in facts.disturbed:
        yield _finding(disturbed.flight, disturbed.how, disturbed.call)
    for released in facts.released:
        if released.use is not None and released.is_written:
            yield _finding(released.flight, "write", released.use)


def _finding(flight: Flight, how: str, call: Call) -> Finding:
    return Finding(
        CODE,
        f"while the copy that kernel {flight.call.name} starts is in flight, `{call.name}` {_WHAT[how]}",
        call.site,
        _CURES[how],
        lines(
            ("the kernel that starts the copy", flight.call.location), ("the copy starts here", flight.line)
        ),
        flight.subjects,
    )
