"""One copy is waited for twice.

What it does
------------
In a compiled program, reports a wait for a copy that another wait has completed already, on some path.

Why it is bad
-------------
The semaphore has been emptied by the first wait; the second one never returns, or takes what belongs to
another copy.

Example
-------
    y = done(x, future)
    z = done(y, future)       # nothing is left to wait for

Cure
----
Consume each future once. If two starts were written, mark their kernel as having side effects, so that they
are not merged into one.

Known limits
------------
Amounts are not compared: a wait is taken to ask for whole copies.
"""

from __future__ import annotations

from collections.abc import Iterator

from asyncops.checker.report import Diagnostic
from asyncops.compiled.facts import SecondWait
from asyncops.compiled.findings import Facts, Finding, finding, name_of, related
from asyncops.compiled.rules import future_dropped

CODE = "AO502"
NAME = "future-reused"
SEVERITY = "error"


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each second wait."""
    for second in future_dropped.second_waits(facts):
        yield Finding(_diagnostic(facts, second), second.flight.start)


def _diagnostic(facts: Facts, second: SecondWait) -> Diagnostic:
    flight = second.flight
    on_path = f" when {second.branch} was taken" if second.branch else ""
    message = (
        f"{name_of(second.instruction)} waits for the copy that {name_of(flight.start)} starts, which "
        f"{name_of(second.earlier)} has waited for already{on_path}"
    )
    cure = "consume each future once"
    if not flight.start.has_side_effect:
        cure += (
            "; if two starts were written, the compiler merged them: mark the kernel that starts with "
            "has_side_effects=True"
        )
    # One wait in a loop is its own second one.
    other = second.earlier if second.earlier is not second.instruction else flight.start
    location = facts.sites.towards(second.instruction, other)
    places = related(
        ("the first wait", facts.sites.towards(second.earlier, other)),
        ("the copy is started here", facts.sites.towards(flight.start, second.instruction)),
        ("the kernel that waits", facts.sites.innermost(second.instruction)),
    )
    witness = facts.excerpt(
        (flight.start, "starts the copy"),
        (second.earlier, "waits for it"),
        (second.instruction, "waits for it again"),
    )
    return finding((CODE, NAME, SEVERITY), message, location, places, cure, flight, witness)
