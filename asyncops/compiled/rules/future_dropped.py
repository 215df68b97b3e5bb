"""A copy is started that nothing waits for; or a start was merged with another, or removed.

What it does
------------
In a compiled program, reports

* a start whose semaphore reaches no wait, on some path;
* a start that is written in the program and is not in the compiled one, while its wait is: the compiler
  merged it with an equal one, or removed it.

Why it is bad
-------------
Without a wait, the buffers are reused while the copy runs. Without its start, a wait never returns, or
returns on another copy's count.

Example
-------
    a, s = start(x)           # not marked as having side effects
    b, t = start(x)           # equal: XLA keeps one of the two, and both waits

Cure
----
Wait on every path. Mark every kernel that starts or waits:
``compiler_params=pltpu.CompilerParams(has_side_effects=True)``.

Known limits
------------
That a start was merged or removed is certain, and has a line, when the program was compiled with
`asyncops.compile_for`; from HLO text alone it is concluded from two waits for one copy.
"""

from __future__ import annotations

from collections.abc import Iterator

from asyncops.checker.events import Location
from asyncops.checker.report import Diagnostic
from asyncops.compiled.facts import Flight, Lost, SecondWait
from asyncops.compiled.findings import Facts, Finding, finding, name_of, related
from asyncops.compiled.frames import Frame
from asyncops.compiled.hlo import Instruction
from asyncops.compiled.operations import is_kernel, kernel_name
from asyncops.compiled.sites import Sites, meeting

CODE = "AO501"
NAME = "future-dropped"
SEVERITY = "error"

_WAIT = "wait for the copy on every path, or start it only where its result is wanted"
_MARK = (
    "mark the kernels that start and wait as having side effects: "
    "compiler_params=pltpu.CompilerParams(has_side_effects=True)"
)


def find(facts: Facts) -> Iterator[Finding]:
    """Lost copies, then starts that are not there any more."""
    reported = set()
    for lost in facts.trace.lost:
        if lost.flight.start not in reported:
            reported.add(lost.flight.start)
            yield Finding(_lost(facts, lost), lost.flight.start)
    missing = list(_missing(facts)) if facts.origin is not None else []
    yield from missing
    yield from (f for f in _merged(facts) if all(f.subject is not other.subject for other in missing))


def _lost(facts: Facts, lost: Lost) -> Diagnostic:
    flight = lost.flight
    places = facts.around(flight)
    if lost.control is None:
        message = f"the copy that {name_of(flight.start)} starts is never waited for"
        location = facts.starts_at(flight)
        if not flight.endings:  # the line is that of the kernel's call, and it was its caller who dropped it
            callers = facts.sites.chain(flight.start)[1:2]
            places = (*places, *(("from here", frame.location) for frame in callers))
    else:
        path = (
            f" when {lost.branch} of {lost.control} is taken"
            if lost.branch
            else f" in a branch of {lost.control}"
        )
        message = f"the copy that {name_of(flight.start)} starts is not waited for{path}"
        location = facts.sites.innermost(lost.control)
    return finding((CODE, NAME, SEVERITY), message, location, places, _WAIT, flight)


def _missing(facts: Facts) -> Iterator[Finding]:
    """Starts of the original program whose waits are left and which are not there themselves."""
    assert facts.origin is not None
    written = Sites(facts.origin.module)
    compiled = {_key(facts.sites.chain(i)) for i in facts.module.instructions() if i.opcode == "custom-call"}
    left = {_key(facts.sites.chain(i)) for i in _waits_without_a_start(facts)}
    seen = set()
    for flight in facts.origin.flights:
        if flight.native or not flight.endings:
            continue
        start = written.chain(flight.start, flight.path)
        wait = written.chain(flight.endings[0].instruction, flight.endings[0].path)
        if start and _key(start) not in compiled and _key(wait) in left and _key(start) not in seen:
            seen.add(_key(start))
            twin = _twin(facts, flight)
            yield Finding(_gone(facts, flight, start, wait, twin), twin.start if twin is not None else None)


def _waits_without_a_start(facts: Facts) -> Iterator[Instruction]:
    """Kernels that wait for what nothing has started, or for what was waited for before.

    Where the compiler removed a branch that is never taken, its starts are gone, and the wait that they
    shared with the other branch has one still.
    """
    meets = {
        facts.trace.log[step].instruction for f in facts.flights for s in f.released.values() for step in s
    }
    again = {second.instruction for second in facts.trace.second_waits}
    yield from (i for i in facts.module.instructions() if is_kernel(i) and (i in again or i not in meets))


def _key(chain: tuple[Frame, ...]) -> tuple[Location, ...]:
    """The lines of a chain. A call's line appears once or twice in it, as the compiler has inlined it or not."""
    lines = [frame.location for frame in chain]
    return tuple(line for n, line in enumerate(lines) if line != lines[n - 1] or n == 0)


def _twin(facts: Facts, gone: Flight) -> Flight | None:
    """The copy that does duty for a start that is gone: it is waited for twice."""
    name = kernel_name(gone.start)
    return next((s.flight for s in second_waits(facts) if kernel_name(s.flight.start) == name), None)


def _gone(
    facts: Facts, flight: Flight, start: tuple[Frame, ...], wait: tuple[Frame, ...], twin: Flight | None
) -> Diagnostic:
    met = meeting(start, wait)
    what = "removed the start of a copy that is written here"
    if twin is not None:
        what = f"merged the start of a copy that is written here with an equal one, {name_of(twin.start)},"
    marked = flight.start.has_side_effect
    unmarked = "" if marked else ": the starting kernel is not marked as having side effects"
    message = f"the compiler {what} and kept its wait{unmarked}"
    places = related(
        ("the start that is left", facts.starts_at(twin) if twin is not None else None),
        ("the wait that is left", (met.second if met else wait[0]).location),
        ("the kernel that starts it", start[0].location),
    )
    location = (met.first if met else start[0]).location
    return finding((CODE, NAME, SEVERITY), message, location, places, _MARK, flight)


def _merged(facts: Facts) -> Iterator[Finding]:
    """From the compiled program alone: two waits, and the destination copied for the second of them."""
    for second in second_waits(facts):
        if not _is_merged(facts, second):
            continue
        flight = second.flight
        message = (
            f"two starts of equal copies became one, {name_of(flight.start)}, with two waits: the starting "
            f"kernel is "
            "not marked as having side effects"
        )
        places = related(
            ("the first wait", facts.sites.innermost(second.earlier)),
            ("the second wait", facts.sites.innermost(second.instruction)),
        )
        location = facts.starts_at(flight)
        yield Finding(finding((CODE, NAME, SEVERITY), message, location, places, _MARK, flight), flight.start)


def second_waits(facts: Facts) -> list[SecondWait]:
    """Each second wait for a copy once, however many semaphores it has."""
    unique = {(s.instruction, s.flight.start): s for s in facts.trace.second_waits}
    return list(unique.values())


def _is_merged(facts: Facts, second: SecondWait) -> bool:
    """True where a second wait is rather the wait of another start, which the compiler merged with this one.

    The user's second wait for one future is given what the first returned, or the future itself; what is
    given to the wait of a merged start is a copy that the compiler made of the destination, while it was in
    flight.
    """
    if second.flight.start.has_side_effect or second.branch:
        return False
    return any(
        t.flight.start is second.flight.start and t.role == "destination" and t.access == "copy"
        for t in facts.trace.touches
    )
