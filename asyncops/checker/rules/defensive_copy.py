"""The compiler has to copy an array before an asynchronous operation takes it over.

What it does
------------
Reports an array that a kernel takes over (``input_output_aliases``) to leave a copy in flight on it, and that the
program uses again.

Why it is bad
-------------
Both the array and what the kernel makes of it are wanted, so XLA copies it before the start, whole, and nothing
overlaps that copy.

Example
-------
    x2, out, sem = start(x)   # aliases x
    z = x + 1                 # x is wanted again: x2 is a copy

Cure
----
Use what the start returns instead: it is the same array.

Known limits
------------
Arguments of the program are always copied before a kernel takes them over, whatever the program does; they are not
reported.
"""

from __future__ import annotations

from collections.abc import Iterator

from asyncops.checker.analysis import Finding, lines
from asyncops.checker.program import ProgramFacts

CODE = "AO506"
NAME = "defensive-copy"
SEVERITY = "warning"


def find_in_program(facts: ProgramFacts) -> Iterator[Finding]:
    """One finding for each use of an array that was taken over."""
    for taken in facts.taken_over:
        yield Finding(
            CODE,
            f"{taken.use.name} uses an array that kernel {taken.start.name} has taken over, so the compiler copies it "
            "before the kernel",
            (taken.use if taken.use.stack else taken.start).site,
            "use the array that the kernel returns in its place",
            lines(("the kernel that takes it over", taken.start.location)),
            frozenset({("taken", taken.start.stack)}),
        )
