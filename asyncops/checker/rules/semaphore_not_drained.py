"""A semaphore can be nonzero when it goes away.

What it does
------------
Reports a scratch, scoped or barrier semaphore that has been signalled more than it was waited for at the end
of its life.

Why it is bad
-------------
All semaphores have to be zero when a kernel ends: the next kernel starts with the rest.

Example
-------
    pl.semaphore_signal(sem, 2)
    pl.semaphore_wait(sem, 1)

Cure
----
Wait for every signal, or do not signal what nobody waits for (the last grants of a ring, for example).

Known limits
------------
A semaphore that the kernel returns is a future and may be nonzero.
"""

from __future__ import annotations

from collections.abc import Iterator

from asyncops.checker.analysis import Analysis, Finding, lines, name_of, semaphore_subjects
from asyncops.checker.rules._balance import leftovers

CODE = "AO301"
NAME = "semaphore-not-drained"
SEVERITY = "error"


def find(analysis: Analysis) -> Iterator[Finding]:
    """Semaphores with a count left."""
    for rest in leftovers(analysis):
        unit = "bytes" if rest.is_bytes else "count" if rest.left == 1 else "counts"
        yield Finding(
            CODE,
            f"{name_of(rest.semaphore)} is left with {rest.left} {unit}{rest.where} when "
            f"{rest.end}: {rest.signalled} are "
            f"signalled, {rest.waited} waited for",
            rest.site,
            f"wait for the rest of {name_of(rest.semaphore)}, or do not signal it",
            lines(("it ends here", rest.end_location)),
            frozenset(semaphore_subjects(rest.semaphore)),
            rest,
        )
