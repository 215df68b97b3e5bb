"""What is written between start and done does not run between them.

What it does
------------
In a compiled program, compares the schedule with the source: computations whose line lies between the line
of a start and that of its done, in the same function, and which run before the start or after the done.
One line may be many computations (iterations of an unrolled loop): only those count which could run between,
since they need nothing that the done gives and the start needs nothing of them.

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
outside. The backward pass of a gradient has the lines of the forward pass in an order that nobody wrote; it
is not judged, and the schedule report shows what it overlaps. Nor is what the compiler took out of the loop
that both start and done are in.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from asyncops.checker.report import Diagnostic
from asyncops.compiled.excerpts import Excerpt
from asyncops.compiled.facts import Ending, Flight, Mark, loops
from asyncops.compiled.findings import Facts, Finding, finding, name_of, related
from asyncops.compiled.frames import Frame
from asyncops.compiled.hlo import Instruction
from asyncops.compiled.operations import is_transposed, is_work
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

Pair = tuple[Flight, Ending]


class Work(NamedTuple):
    """An instruction that ran, the part of it (itself, or what was fused into it), and one of that part's frames."""

    whole: Instruction
    part: Instruction
    frame: Frame


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each pair of lines with a start and its done."""
    work = _work_by_call(facts)
    pairs = _pairs(facts)
    for meeting, halves in pairs.items():
        between = [w for w in work.get(call_of(meeting.first), ()) if is_between(meeting, w.frame)]
        inside = (
            _inside(facts, meeting, [pair for pairs_ in pairs.values() for pair in pairs_]) if between else {}
        )
        covered = {w.frame for w in between if w.whole in inside}
        missing = [w for w in between if w.whole not in inside and not _is_repeated(w, covered)]
        outside = list(
            dict.fromkeys(w.whole for w in missing if any(_is_meant(facts, w, *h) for h in halves))
        )
        if outside:
            yield Finding(_diagnostic(facts, halves[0][0], meeting, outside, list(inside)), None)


def _pairs(facts: Facts) -> dict[Meeting, list[Pair]]:
    """Copies by the lines that start them and wait for them, where these are of one call of one function."""
    pairs: dict[Meeting, list[Pair]] = {}
    for flight in facts.flights:
        for ending in flight.endings if not is_transposed(flight.start) else ():
            meeting = facts.sites.meeting(flight.start, ending.instruction)
            if meeting is not None and meeting.first.location.line != meeting.second.location.line:
                pairs.setdefault(meeting, []).append((flight, ending))
    return pairs


def _inside(facts: Facts, meeting: Meeting, pairs: list[Pair]) -> dict[Instruction, None]:
    """What runs while a copy is in flight that one of the two lines starts or waits for.

    The last of a loop that carries it is waited for behind the loop, the first is started in front of it.
    """
    near = [
        (flight, ending)
        for flight, ending in pairs
        if meeting.first in facts.sites.chain(flight.start)
        or meeting.second in facts.sites.chain(ending.instruction)
    ]
    return dict.fromkeys(i for f, e in near for i in ran(facts.trace.log[f.step + 1 : e.step]))


def _is_repeated(work: Work, covered: set[Frame]) -> bool:
    """Of a gradient's backward pass, or computed in it once more although its line is overlapped (``covered``)."""
    return is_transposed(work.part) or (is_transposed(work.whole) and work.frame in covered)


def _is_meant(facts: Facts, work: Work, flight: Flight, ending: Ending) -> bool:
    """Whether it is this copy that the work could have been written to overlap.

    A copy that an iteration hands to the next is waited for by the next one's done, on which nothing in this
    iteration depends.
    """
    if _is_carried(facts, flight, ending):
        return facts.dependences.is_beside(work.whole, flight.start, ending.instruction)
    return facts.dependences.could_run_between(work.part, work.whole, flight.start, ending.instruction)


def _is_carried(facts: Facts, flight: Flight, ending: Ending) -> bool:
    shared = {scope.instruction for scope in loops(flight.path) if scope in ending.path}
    between = facts.trace.log[flight.step : ending.step] if shared else ()
    return any(entry.mark is Mark.ITERATION and entry.instruction in shared for entry in between)


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


def _work_by_call(facts: Facts) -> dict[Call, list[Work]]:
    """What takes time, except the halves of the copies themselves, by the calls of functions it comes from."""
    halves = {f.start for f in facts.flights} | {e.instruction for f in facts.flights for e in f.endings}
    work: dict[Call, list[Work]] = {}
    for instruction in dict.fromkeys(ran(facts.trace.log)):
        if facts.flights and instruction not in halves and _takes_time(facts, instruction):
            for part in _parts(facts, instruction):
                for frame in facts.sites.own_chain(part):
                    work.setdefault(call_of(frame), []).append(Work(instruction, part, frame))
    return work


def _takes_time(facts: Facts, instruction: Instruction) -> bool:
    if not is_work(instruction) or instruction.shape.size <= 1 or instruction.opcode in _FREE:
        return False
    inner = facts.inner(instruction)
    return not inner or any(i.opcode not in _FREE for i in inner)


def frames_of(facts: Facts, instruction: Instruction) -> Iterator[Frame]:
    """The frames of an instruction, and of what was fused into it, constants left out."""
    for part in _parts(facts, instruction):
        yield from facts.sites.own_chain(part)


def _parts(facts: Facts, instruction: Instruction) -> Iterator[Instruction]:
    yield instruction
    yield from (inner for inner in facts.inner(instruction) if inner.opcode not in _FREE)


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
