"""What a kernel does is not visible to what transforms the program around it.

What it does
------------
Reports kernels that leave a copy in flight without being marked as having side effects, and kernels on Refs inside a
loop whose call says nothing of what it does to them.

Why it is bad
-------------
To XLA, two equal starts are one computation with two users: it merges them, and both futures wait for one copy. It
may also drop or move a start. JAX drops a loop whose body has neither results that are used nor effects.

Example
-------
    a, s = start(x)           # pl.pallas_call(...) without has_side_effects
    b, t = start(x)           # equal: one of the two is kept, and both waits

Cure
----
``compiler_params=pltpu.CompilerParams(has_side_effects=True)``; for Refs in loops, operations with effects of their own
such as those of `asyncops`.

Known limits
------------
A mark on the kernel that waits is not asked for: its result is used, or AO501 is reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from asyncops.checker.analysis import Finding, lines
from asyncops.checker.flights import Flight
from asyncops.checker.program import ProgramFacts

CODE = "AO507"
NAME = "effect-lost"
SEVERITY = "error"


_CURE = "mark the kernel: compiler_params=pltpu.CompilerParams(has_side_effects=True)"


def find_in_program(facts: ProgramFacts) -> Iterator[Finding]:
    """Unmarked starts, the second of two equal ones where it stands; kernels on Refs in loops."""
    first: dict[Any, Flight] = {}
    for flight in facts.flights:
        if not flight.is_marked:
            first.setdefault(flight.origin, flight)
    merged = {f.origin for f in facts.flights if not f.is_marked and first[f.origin] is not f}
    for flight in facts.flights:
        if not flight.is_marked and (first[flight.origin] is not flight or flight.origin not in merged):
            yield _unmarked(flight, first[flight.origin])
    for kernel, loop in facts.lost:
        yield Finding(
            CODE,
            f"kernel {kernel.name} works on Refs, but its call says nothing of it: the loop around it may be dropped",
            kernel.site,
            "carry arrays through the loop, or use operations with effects of their own, such as those of asyncops",
            lines(("the loop", loop.location)),
            frozenset({("line", kernel.location)}),
        )


def _unmarked(flight: Flight, equal: Flight) -> Finding:
    name = flight.call.name
    if equal is flight:
        message = f"kernel {name} leaves a copy in flight and is not marked as having side effects"
        site, earlier = flight.call.site, None
    else:
        message = f"kernel {name} is not marked as having side effects, so this start may be merged with an equal one"
        site, earlier = flight.call.apart_from(equal.call), equal.call.apart_from(flight.call).location
    places = lines(("the equal start", earlier), ("the copy starts here", flight.line))
    return Finding(CODE, message, site, _CURE, places, flight.subjects)
