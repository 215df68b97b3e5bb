"""Nothing keeps the source of a copy until the copy is over.

What it does
------------
Reports a copy in flight whose source is neither an operand of the kernel that waits, nor used by anything that depends
on that kernel, nor a result or an argument of the program.

Why it is bad
-------------
XLA knows nothing of the copy. It frees a value after its last use, and updates it in place or gives its memory to
another value while the copy still reads it.

Example
-------
    out, sem = start(x)
    x = x.at[0].set(0.0)      # the last use of x: may be done in place
    y = done(out, sem)        # does not take x

Cure
----
Pass the source through: the start returns it (aliased), the done takes it, and later uses take the done's result.

Known limits
------------
Arguments of the program are taken not to be donated.
"""

from __future__ import annotations

from collections.abc import Iterator

from asyncops.checker.analysis import Finding, lines
from asyncops.checker.program import ProgramFacts

CODE = "AO503"
NAME = "source-lifetime"
SEVERITY = "error"


def find_in_program(facts: ProgramFacts) -> Iterator[Finding]:
    """Sources that are released early; at their last use where there is one while the copy runs."""
    for released in facts.released:
        flight, use = released.flight, released.use
        last = f"`{use.name}` here is its last use" if use is not None else "its last use is the start"
        done = released.done
        end = f"kernel {done.name}, which waits for it, does not take it" if done is not None else (
            "the program returns what is in flight without it"
        )  # fmt: skip
        yield Finding(
            CODE,
            f"nothing keeps the source of the copy that kernel {flight.call.name} starts until it is over: {last}, and "
            f"{end}",
            (use or flight.call).site,
            "return the source from the start (aliased), give it to the kernel that waits, and use what that returns",
            lines(
                ("the kernel that starts the copy", flight.call.location),
                ("the kernel that waits", done.location if done is not None else None),
            ),
            flight.subjects,
        )
