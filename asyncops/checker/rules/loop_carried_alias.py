"""A loop carries a copy in flight in arrays that the compiler may copy or move.

What it does
------------
Reports a future that is in flight from one trip of a loop to the next while

* an array of it changes its place in the carry, so that one of the copy's arrays is the buffer of another; or
* the kernel that started it left the memory space of its results open.

Why it is bad
-------------
A loop's carry is one buffer for each element, for all trips: what changes places is copied, in flight. What
lies in no fixed memory may be moved to another between the start and the done.

Example
-------
    future = start(x)
    future = lax.fori_loop(0, 8, lambda _, f: start(done(*f)), future)   # the destination becomes the source

Cure
----
`asyncops`' own loops. By hand: ``unroll=2`` *and* ``pltpu.HBM(shape, dtype)`` as result types of both kernels.

Known limits
------------
A source that is no result of the starting kernel is taken to stay where it is.
"""

from __future__ import annotations

from collections.abc import Iterator

from asyncops.checker.analysis import Finding, lines
from asyncops.checker.program import Carried, ProgramFacts

CODE = "AO508"
NAME = "loop-carried-alias"
SEVERITY = "error"


def find_in_program(facts: ProgramFacts) -> Iterator[Finding]:
    """Futures that are in flight across the trips of a loop, where the compiler may touch them."""
    for carried in facts.carried:
        if carried.is_permuted or not carried.flight.is_pinned:
            yield _finding(carried)


def _finding(carried: Carried) -> Finding:
    flight = carried.flight
    if carried.is_permuted:
        reason = "its arrays change places in the carry from one trip to the next, so the loop copies them"
        cure = (
            "unroll by two and give both kernels' results as pltpu.HBM(shape, dtype), or use asyncops' loops"
        )
    else:
        reason = "its results are left in no fixed memory space, so the compiler may move them"
        cure = "give the results of both kernels as pltpu.HBM(shape, dtype)"
    return Finding(
        CODE,
        f"a loop carries the copy that kernel {flight.call.name} starts while it is in flight: {reason}",
        flight.call.site,
        cure,
        lines(("the loop", carried.loop.location), ("the copy starts here", flight.line)),
        flight.subjects,
    )
