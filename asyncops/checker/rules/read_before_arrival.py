"""A destination is read while the copy into it may still be writing.

What it does
------------
Reports a load, or the start of a second copy, from memory that a copy may not have filled yet.

Why it is bad
-------------
The reader sees old or half-written data, on some runs only.

Example
-------
    copy.start()
    o_ref[...] = buf[...]     # buf may not have arrived
    copy.wait()

Cure
----
Wait for the copy before the read. With several copies in flight wait for the right one: copies finish in any
order.

Known limits
------------
Regions whose index is not known may be anywhere in bounds; the finding then names values for which they meet.
"""

from __future__ import annotations

from collections.abc import Iterator

from asyncops.checker.analysis import Analysis, Finding
from asyncops.checker.rules._conflicts import Words, from_races

CODE = "AO201"
NAME = "read-before-arrival"
SEVERITY = "error"


_WORDS = Words(
    core="{region} is read{when} while {copy}, which writes it, may still be running",
    copy="{other} reads {region}{when} while {copy}, which writes it, may still be running",
    help="wait for the copy into {region} before this read",
    label="the copy into it starts here",
)


def find(analysis: Analysis) -> Iterator[Finding]:
    """Races in which the reader comes too early."""
    return from_races(analysis, CODE, _WORDS)
