"""What is written between start and done does not run between them.

What it does
------------
In a compiled program, compares the schedule with the source: computations whose line lies between the line
of a start and that of its done, in the same function, and which run before the start or after the done.

Why it is bad
-------------
The overlap that was written is not there: the copy takes its time, and then the computation takes its own.

Example
-------
    future = start(x)
    z = x + 1                 # needs x, not the future: XLA may run it first
    y = done(*future)

Cure
----
Make the order a dependence: ``@asyncops.program_order`` around the function, or
``jax.lax.optimization_barrier`` on the future and the operand after start, and on the result and the future
before done.

Known limits
------------
Lines are all there is to go by. A computation that the compiler fused with one from outside counts as
outside.
"""

from __future__ import annotations

from collections.abc import Iterator

from asyncops.checker.report import Diagnostic
from asyncops.compiled.excerpts import Excerpt
from asyncops.compiled.facts import Flight
from asyncops.compiled.findings import Facts, Finding, finding, name_of, related
from asyncops.compiled.frames import Frame
from asyncops.compiled.hlo import Instruction
from asyncops.compiled.operations import is_work
from asyncops.compiled.sites import Call, Meeting, call_of
from asyncops.compiled.windows import ran

CODE = "AO505"
NAME = "not-overlapped"
SEVERITY = "warning"

_CURE = (
    "order it: put @asyncops.program_order around the function, or tie operand and future together after "
    "start, "
    "result and future before done, with jax.lax.optimization_barrier"
)
# Making constants takes no time worth overlapping.
_FREE = frozenset(
    {"broadcast", "iota", "constant", "parameter", "bitcast", "tuple", "get-tuple-element", "convert"}
)


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each pair of lines with a start and its done."""
    work = _work_by_call(facts)
    for meeting, flights in _pairs(facts).items():
        expected = dict.fromkeys(i for i, f in work.get(call_of(meeting.first), ()) if is_between(meeting, f))
        inside = dict.fromkeys(i for f in flights for i in _window(facts, f)) if expected else {}
        outside = [i for i in expected if i not in inside]
        if outside:
            yield Finding(_diagnostic(facts, flights[0], meeting, outside, list(inside)), None)


def _pairs(facts: Facts) -> dict[Meeting, list[Flight]]:
    """Copies by the lines that start them and wait for them, where these are of one call of one function."""
    pairs: dict[Meeting, list[Flight]] = {}
    for flight in facts.flights:
        for ending in flight.endings:
            meeting = facts.sites.meeting(flight.start, ending.instruction)
            if meeting is not None and meeting.first.location.line != meeting.second.location.line:
                pairs.setdefault(meeting, []).append(flight)
    return pairs


def _window(facts: Facts, flight: Flight) -> Iterator[Instruction]:
    for ending in flight.endings:
        yield from ran(facts.trace.log[flight.step + 1 : ending.step])


def is_between(meeting: Meeting, frame: Frame) -> bool:
    """True for a frame of the same call whose line is between the two.

    Where done is written first, in a loop that carries the copy, that is after the start or before the done.
    """
    first, second = meeting.first, meeting.second
    if call_of(frame) != call_of(first):
        return False
    line, end = frame.location.line, frame.end_line
    if first.end_line < second.location.line:
        return first.end_line < line and end < second.location.line
    return line > first.end_line or end < second.location.line


def _work_by_call(facts: Facts) -> dict[Call, list[tuple[Instruction, Frame]]]:
    """What takes time, except the halves of the copies themselves, by the calls of functions it comes from."""
    halves = {f.start for f in facts.flights} | {e.instruction for f in facts.flights for e in f.endings}
    work: dict[Call, list[tuple[Instruction, Frame]]] = {}
    for instruction in dict.fromkeys(ran(facts.trace.log)):
        if facts.flights and instruction not in halves and _takes_time(facts, instruction):
            for frame in frames_of(facts, instruction):
                work.setdefault(call_of(frame), []).append((instruction, frame))
    return work


def _takes_time(facts: Facts, instruction: Instruction) -> bool:
    if not is_work(instruction) or instruction.shape.size <= 1 or instruction.opcode in _FREE:
        return False
    inner = facts.inner(instruction)
    return not inner or any(i.opcode not in _FREE for i in inner)


def frames_of(facts: Facts, instruction: Instruction) -> Iterator[Frame]:
    """The frames of an instruction, and of what was fused into it, constants left out."""
    yield from facts.sites.own_chain(instruction)
    for inner in facts.inner(instruction):
        if inner.opcode not in _FREE:
            yield from facts.sites.own_chain(inner)


def _diagnostic(
    facts: Facts, flight: Flight, meeting: Meeting, outside: list[Instruction], inside: list[Instruction]
) -> Diagnostic:
    lines = {f.location: None for i in outside for f in frames_of(facts, i) if is_between(meeting, f)}
    location = min(lines, key=lambda place: place.line)
    overlapped = [name_of(i) for i in inside if _takes_time(facts, i)]
    what = ", ".join(f"{name_of(i)} {_when(facts, flight, i)}" for i in outside[:3])
    more = f" and {len(outside) - 3} more" if len(outside) > 3 else ""
    message = (
        f"written between the start of a copy and its done, but not run between them: {what}{more}; "
        f"overlapped instead: {', '.join(overlapped[:3]) or 'nothing'}"
    )
    places = related(
        ("the copy is started here", meeting.first.location),
        ("it is waited for here", meeting.second.location),
        ("the kernel that starts it", facts.sites.innermost(flight.start)),
    )
    witness = _witness(facts, flight, outside[0])
    return finding((CODE, NAME, SEVERITY), message, location, places, _CURE, flight, witness)


def _witness(facts: Facts, flight: Flight, outside: Instruction) -> Excerpt:
    pair = [(flight.start, "starts the copy"), (facts.ended_by(flight), "waits for it")]
    missing = (outside, "was written between them")
    return facts.excerpt(*([missing, *pair] if _is_before(facts, flight, outside) else [*pair, missing]))


def _when(facts: Facts, flight: Flight, instruction: Instruction) -> str:
    return "runs before the start" if _is_before(facts, flight, instruction) else "runs after the done"


def _is_before(facts: Facts, flight: Flight, instruction: Instruction) -> bool:
    return next((n for n, e in enumerate(facts.trace.log) if e.instruction is instruction), 0) < flight.step
