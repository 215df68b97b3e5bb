"""A future carried through a loop has its arrays where the compiler may copy or move them.

What it does
------------
In a compiled program, explains a copy of a buffer in flight (AO504) by the loop that carries the future,
and notes (without changing the verdict) futures that a loop carries in memory that the compiler may move,
though in this program it did not.

Why it is bad
-------------
A loop's carry is one buffer for each element, for all iterations. The destination of one iteration is the
source of the next, so at ``unroll=1`` both would be the same buffer; XLA copies them apart, in flight.
Unrolling by two gives each its own, but leaves XLA free to move them between memory spaces.

Example
-------
    future = start(x)
    future = lax.fori_loop(0, 8, lambda _, f: start(done(*f)), future)   # one buffer for source and
    destination

Cure
----
Use `asyncops`' own loops, which double-buffer. By hand: ``unroll=2`` *and* ``pltpu.HBM(shape, dtype)`` as
the result types of both kernels.

Known limits
------------
That an unpinned array was not moved in this program says nothing about the next compiler.
"""

from __future__ import annotations

from collections.abc import Iterator

from asyncops.checker.report import Diagnostic
from asyncops.compiled.facts import Flight, Mark, Scope, Touch, loops
from asyncops.compiled.findings import Facts, Finding, finding, related
from asyncops.compiled.operations import placed
from asyncops.compiled.values import Buffer

CODE = "AO508"
NAME = "loop-carried-alias"
SEVERITY = "error"

_CURE = (
    "carry the future in asyncops' own loop; by hand, unroll by two and pin both arrays with "
    "pltpu.HBM(shape, dtype) as result types of both kernels"
)


def explain(facts: Facts, touch: Touch) -> Diagnostic | None:
    """The finding to hang below an AO504 whose cause is a loop; None where no loop carries the future."""
    loop = _carrier(facts, touch.flight)
    if loop is None or touch.access != "copy":
        return None
    inside = any(scope.instruction is loop.instruction for scope in touch.path)
    reason = (
        "the carry has one buffer where the source of one iteration and the destination of the next need two"
        if inside
        else "nothing pins the array, so the compiler may place it in another memory space around the loop"
    )
    return _diagnostic(
        facts, touch.flight, loop, SEVERITY, f"the loop {loop.instruction} carries a future: {reason}"
    )


def find(facts: Facts) -> Iterator[Finding]:
    """Futures in a carry that stayed where they were only by luck; notes."""
    noted = set()
    for flight in facts.flights:
        loop = _carrier(facts, flight)
        if loop is None or loop.instruction in noted or flight in facts.touches:
            continue
        if any(_carrier(facts, other) == loop for other in facts.touches):
            continue
        places = [b for b in (flight.source, flight.destination) if b is not None and _may_move(b)]
        if places:
            noted.add(loop.instruction)
            message = (
                f"the loop {loop.instruction} carries a future in {places[0].shape.place}, where the "
                f"compiler placed "
                "it and from where it may move it; in this program it does not"
            )
            yield Finding(_diagnostic(facts, flight, loop, "info", message), flight.start)


def _may_move(buffer: Buffer) -> bool:
    """True outside HBM, unless a kernel asked for that memory."""
    return buffer.shape.space != 0 and not buffer.shape.pinned and buffer.path not in placed(buffer.origin)


def _carrier(facts: Facts, flight: Flight) -> Scope | None:
    """The loop across whose iterations, or across whose border, the copy is in flight."""
    begun = loops(flight.path)
    for ending in flight.endings:
        ended = loops(ending.path)
        crossed = [scope for scope in (*begun, *ended) if scope not in begun or scope not in ended]
        if crossed:
            return crossed[0]
        passed = facts.trace.log[flight.step : ending.step]
        turns = {entry.instruction for entry in passed if entry.mark is Mark.ITERATION}
        if again := [scope for scope in begun if scope.instruction in turns]:
            return again[-1]
    return None


def _diagnostic(facts: Facts, flight: Flight, loop: Scope, severity: str, message: str) -> Diagnostic:
    location = facts.starts_at(flight)
    places = related(
        ("the loop", facts.sites.innermost(loop.instruction)), *facts.around(flight, start=False)
    )
    return finding((CODE, NAME, severity), message, location, places, _CURE, flight)
