"""A buffer is copied, moved, read or rewritten while a copy is in flight on it.

What it does
------------
In a compiled program, follows the source and the destination of every copy that one Pallas kernel starts
and another waits for, and reports instructions in between that

* copy or move the destination, or read it: it has not arrived;
* copy or move the source, so that the copy goes on in its place and the original may be reused while it is
  read;
* write either of them in place.

Why it is bad
-------------
XLA knows nothing of the copy. It moves values where it likes as long as its own instructions agree on where
they are; the copy goes on reading and writing the old place. The result is wrong, without any error.

Example
-------
    future = start(x)
    future = lax.cond(flag, lambda f: f, restart, future)   # XLA copies both arrays in flight
    y = done(*future)

Cure
----
Keep the arrays of a future out of conditionals and rolled loops (carry it in `asyncops`' own loops, or
unroll by two), give the kernels' results as ``pltpu.HBM(shape, dtype)`` so that they stay where they are,
and read the destination only through the result of done.

Known limits
------------
Buffers are followed by what the program says about aliasing. Memory that XLA's buffer assignment shares in
addition is not visible in HLO text. Two parts of one array (slots of a Ref) are told apart where both begin
at constants, or at what is computed from constants and the counter of a loop that runs a known number of times.
"""

from __future__ import annotations

from collections.abc import Iterator

from asyncops.checker.events import Location
from asyncops.checker.report import Diagnostic
from asyncops.compiled.facts import Scope, Touch
from asyncops.compiled.findings import Facts, Finding, finding, moved, name_of, related, where
from asyncops.compiled.rules import loop_carried_alias

CODE = "AO504"
NAME = "inflight-copied"
SEVERITY = "error"

_CURES = {
    "copy": "give the kernels' results as pltpu.HBM(shape, dtype), and keep the future out of lax.cond and "
    "rolled "
    "loops (asyncops' loops carry it safely; by hand, unroll by two)",
    "read": "read the array only after done, through done's result",
    "write": "pass the source through done and update what done returns, so that the update comes after it",
}
_DONE = {"read": "read", "write": "rewritten"}


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each copy in flight (by the instruction that starts it) and cause."""
    for group in _groups(facts):
        worst, *rest = sorted(group, key=_weight)
        together = [
            t
            for t in rest
            if (t.flight.start, t.access, t.path) == (worst.flight.start, worst.access, worst.path)
        ]
        primary = _diagnostic(facts, [worst, *together])
        below = [_diagnostic(facts, [touch]) for touch in rest]
        carried = loop_carried_alias.explain(facts, worst)
        diagnostic = primary.with_secondary(*([carried] if carried else []), *below)
        yield Finding(diagnostic, worst.flight.start)


def _weight(touch: Touch) -> tuple[int, int]:
    """What tells most first: writing, reading, copying; a flight from outside before one within."""
    return ("write", "read", "copy").index(touch.access), len(touch.flight.path)


def _groups(facts: Facts) -> Iterator[list[Touch]]:
    """Touches by defect: those that one instruction makes, or that one loop or conditional causes."""
    groups: dict[object, dict[tuple[str, str], Touch]] = {}
    for flight, touches in facts.touches.items():
        for touch in touches:
            key = (_construct(touch) or flight.start) if touch.access == "copy" else touch.instruction
            groups.setdefault(key, {}).setdefault((touch.instruction.name, touch.role), touch)
    yield from (list(group.values()) for group in groups.values())


def _construct(touch: Touch) -> object:
    """The loop or conditional in which a copy is made: its carry or its branches are why."""
    scope = _innermost(touch)
    return scope.instruction if scope is not None else None


def _innermost(touch: Touch) -> Scope | None:
    return next((s for s in reversed(touch.path) if s.kind in ("loop", "branch")), None)


def _diagnostic(facts: Facts, touches: list[Touch]) -> Diagnostic:
    touch = touches[0]
    flight = touch.flight
    location = _location(facts, touch)
    scope = _innermost(touch)
    construct = facts.sites.innermost(scope.instruction) if scope is not None else None
    label = {"loop": "the loop that carries it", "branch": "the conditional it goes through"}
    inside = facts.sites.own_chain(touch.instruction)[:1] if touch.access != "copy" else ()
    places = related(
        *((f"it is {_DONE[touch.access]} here", frame.location) for frame in inside),
        ("the copy is started here", facts.starts_at(flight)),
        ("the kernel that starts it", facts.sites.innermost(flight.start)),
        (label[scope.kind] if scope is not None else "", construct),
        *((text, place) for text, place in facts.around(flight, start=False)),
    )
    ended = next((e.instruction for e in flight.endings if e.step > touch.step), None)
    witness = facts.excerpt(
        (flight.start, "starts the copy"),
        *((t.instruction, _verb(t)) for t in touches),
        (ended, "waits for it"),
    )
    message, cure = _message(touches), _CURES[touch.access]
    return finding((CODE, NAME, SEVERITY), message, location, places, cure, flight, witness)


def _location(facts: Facts, touch: Touch) -> Location | None:
    """What the compiler made stands nowhere: then the conditional, or the line that starts the copy."""
    own = facts.sites.own_chain(touch.instruction)
    if own and touch.access != "copy":
        return facts.sites.towards(touch.instruction, touch.flight.start)
    scope = _innermost(touch)
    if scope is not None and scope.kind == "branch":
        return facts.sites.innermost(scope.instruction)
    return facts.starts_at(touch.flight)


def _message(touches: list[Touch]) -> str:
    what = " and ".join(map(_event, touches))
    place = f"; this happens{where(touches[0].path)}" if where(touches[0].path) else ""
    return f"while the copy that {name_of(touches[0].flight.start)} starts is in flight, {what}{place}"


def _event(touch: Touch) -> str:
    event = f"{name_of(touch.instruction)} {_verb(touch)}"
    if touch.access == "write":
        return event
    return event + (
        ", which has not arrived" if touch.role == "destination" else ", so that the original may be reused"
    )


def _verb(touch: Touch) -> str:
    if touch.access == "read":
        return f"reads its {touch.role}"
    if touch.access == "write":
        return f"rewrites its {touch.role} in place"
    kind = moved(touch)
    return (
        f"copies its {touch.role}"
        if kind == "copied"
        else f"moves its {touch.role}{kind.removeprefix('moved')}"
    )
