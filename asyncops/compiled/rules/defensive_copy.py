"""The compiler copies a buffer that an asynchronous kernel takes over.

What it does
------------
In a compiled program, reports copies that XLA made because a kernel that starts or completes a copy gives
its operand back as a result in the same memory: before the start, and in loop bodies; with their bytes and
how often they run.

Why it is bad
-------------
The copy costs what the overlap was to save. XLA makes it since to it the kernel may have changed the
operand: another user of the original, or a loop carry in which two values need one buffer, gets its own
memory.

Example
-------
    future = start(x)         # takes over the memory of x
    z = x + 1                 # still wants x: so start gets a copy of it
    y = done(*future)

Cure
----
Read the source through the future (what start returns is the same array). In loops, unroll by two, or use
`asyncops`' own loops.

Known limits
------------
XLA always copies an argument of the program that a kernel takes over, and results at the program's end.
Those are not reported; the schedule report lists them.
"""

from __future__ import annotations

from collections.abc import Iterator

from asyncops.checker.report import Diagnostic
from asyncops.compiled.facts import CopyMade, Flight, loops, times
from asyncops.compiled.findings import Facts, Finding, finding, moved, name_of, related, where
from asyncops.compiled.hlo import Instruction
from asyncops.compiled.rules.not_overlapped import frames_of, is_between

CODE = "AO506"
NAME = "defensive-copy"
SEVERITY = "warning"


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each copy instruction."""
    seen = {touch.instruction for touch in facts.trace.touches}  # in flight: AO504's, or a harmless prefetch
    for copy in facts.trace.copies:
        kernel = _taken_over_by(facts, copy)
        flight = _flight_of(facts, kernel) if kernel is not None else None
        if kernel is None or flight is None or copy.instruction in seen:
            continue
        seen.add(copy.instruction)
        yield Finding(_diagnostic(facts, copy, kernel, flight), None)


def _flight_of(facts: Facts, kernel: Instruction) -> Flight | None:
    """A copy that ``kernel`` starts or completes."""
    halves = {i: f for f in facts.flights for i in (f.start, *(e.instruction for e in f.endings))}
    return halves.get(kernel)


def _taken_over_by(facts: Facts, copy: CopyMade) -> Instruction | None:
    """The asynchronous kernel that made the copy necessary; None where there is none.

    In a loop that is also the one behind a copy into the carry. A copy that is only read is a prefetch.
    """
    aliased = facts.trace.aliased
    in_loop = bool(loops(copy.path))
    if moved(copy) != "copied" and len(facts.users(copy.operand.origin)) == 1:
        return None  # it was only computed elsewhere: there is one array, not two
    kernel = aliased.get(copy.result)
    if kernel is not None and (in_loop or (_is_needed(facts, copy) and not _is_joined(facts, copy, kernel))):
        return kernel
    return aliased.get(copy.operand) if in_loop and copy.result in facts.trace.carried else None


def _is_joined(facts: Facts, copy: CopyMade, kernel: Instruction) -> bool:
    """A conditional returns one array where its branches have several: it copies, whoever takes the result over."""
    branched = any(scope.kind == "branch" for scope in copy.path)
    return branched and facts.sites.home(copy.instruction) is not facts.sites.home(kernel)


def _is_needed(facts: Facts, copy: CopyMade) -> bool:
    """Outside loops, the copy of an argument of the program says nothing: it is made in any case.

    Unless what is copied is read between start and done, where the future should be.
    """
    if copy.operand.source().parameter < 0:
        return True
    started = [f for f in facts.flights if f.source is copy.result]
    readers = {i for value in (copy.operand, copy.result) for i in facts.users(value.origin)}
    return any(_reads_between(facts, flight, readers) for flight in started)


def _reads_between(facts: Facts, flight: Flight, readers: set[Instruction]) -> bool:
    met = [facts.sites.meeting(flight.start, ending.instruction) for ending in flight.endings]
    return any(
        is_between(meeting, frame)
        for meeting in met
        if meeting is not None and meeting.first.end_line < meeting.second.location.line
        for reader in readers
        for frame in frames_of(facts, reader)
    )


def _diagnostic(facts: Facts, copy: CopyMade, kernel: Instruction, flight: Flight) -> Diagnostic:
    nbytes = copy.result.shape.nbytes
    count = times(copy.path)
    total = f" ({nbytes * count:,} bytes in all)" if count is not None and count > 1 else ""
    when = where(copy.path) or " before the start"
    message = (
        f"the compiler put {copy.instruction} into the program: an array that {name_of(kernel)} takes over "
        f"is "
        f"{moved(copy)}{when}, {nbytes:,} bytes{' each time' if loops(copy.path) else ''}{total}"
    )
    cure = (
        "unroll the loop by two, or use asyncops' own loop, so that the carry has two buffers"
        if loops(copy.path)
        else "read the source through the future (what start returns) wherever it is wanted after start"
    )
    done = facts.ended_by(flight)
    location = facts.sites.towards(
        kernel, done if kernel is flight.start and done is not None else flight.start
    )
    loop = loops(copy.path)[-1].instruction if loops(copy.path) else None
    readers = [i for i in facts.users(copy.operand.origin) if i is not copy.instruction]
    places = related(
        *(("the original is also read here", facts.sites.innermost(i)) for i in readers[:1] if loop is None),
        ("the loop", facts.sites.innermost(loop) if loop is not None else None),
        ("the kernel that takes it over", facts.sites.innermost(kernel)),
    )
    order = [(copy.instruction, "copies"), (kernel, "takes the memory over")]
    witness = facts.excerpt(*(order if copy.result in facts.trace.aliased else reversed(order)))
    return finding((CODE, NAME, SEVERITY), message, location, places, cure, flight, witness)
