"""Nothing keeps a buffer alive until the copy that uses it is over.

What it does
------------
In a compiled program, reports a copy in flight whose source (or destination) is used by nothing from the
copy's end on: not by the wait, and not later.

Why it is bad
-------------
XLA frees a value after its last use and gives the memory to another one. The copy, of which XLA knows
nothing, then reads or writes what belongs to somebody else.

Example
-------
    out, sem = start(x)       # the last use of x
    z = work(y)               # may be placed where x was, while x is still being sent
    out = done(out, sem)

Cure
----
Thread the source: alias it through the starting kernel (``input_output_aliases``) and give what comes back
to the waiting kernel as an operand. `asyncops`' operations do.

Known limits
------------
Arguments of the program that are not donated live as long as it runs, and are never reported.
"""

from __future__ import annotations

from collections.abc import Iterator

from asyncops.checker.report import Diagnostic
from asyncops.compiled.facts import Flight
from asyncops.compiled.findings import Facts, Finding, finding, name_of, related

CODE = "AO503"
NAME = "source-lifetime"
SEVERITY = "error"


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each instruction that starts such a copy."""
    reported = set()
    for flight in facts.flights:
        role = _unkept(facts, flight)
        if role and flight.start not in reported and flight not in facts.touches:
            reported.add(flight.start)
            yield Finding(_diagnostic(facts, flight, role), flight.start)


def _unkept(facts: Facts, flight: Flight) -> str:
    for role in ("source", "destination") if flight.endings else ():
        if not facts.lives(flight, role) and not _is_harmless(facts, flight, role):
            return role
    return ""


def _is_harmless(facts: Facts, flight: Flight, role: str) -> bool:
    """What the user wrote may keep it alive, and the compiler gave the kernel a copy of an argument, or the
    wait a copy of the source. Then it matters only whether anything else gets the memory."""
    if facts.is_reused(flight, role):
        return False
    buffer = flight.source if role == "source" else flight.destination
    argument = buffer is not None and buffer.copied_from is not None and facts.trace.is_kept(buffer.source())
    copied = any(t.flight is flight and (t.role, t.access) == (role, "copy") for t in facts.trace.touches)
    return argument or (role == "source" and copied)


def _diagnostic(facts: Facts, flight: Flight, role: str) -> Diagnostic:
    done = flight.endings[-1].instruction
    buffer = flight.source if role == "source" else flight.destination
    last = (
        facts.trace.log[facts.trace.last_use[buffer]].instruction if buffer in facts.trace.last_use else None
    )
    used = (
        f"its last use is {name_of(last)}"
        if last is not None and last is not flight.start
        else "nothing uses it"
    )
    message = (
        f"nothing keeps the {role} of the copy that {name_of(flight.start)} starts alive until "
        f"{name_of(done)} "
        f"waits for it: {used}, then the memory may be given to another value"
    )
    places = related(("its last use", facts.sites.innermost(last) if last else None), *facts.around(flight))
    cure = (
        f"give the {role} to the waiting kernel as an operand: alias it through the starting kernel and "
        f"pass on what "
        "comes back"
    )
    witness = facts.excerpt((flight.start, "starts the copy"), (done, "waits for it"))
    return finding((CODE, NAME, SEVERITY), message, facts.starts_at(flight), places, cure, flight, witness)
