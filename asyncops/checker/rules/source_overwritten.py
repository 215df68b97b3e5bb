"""A source is written while a copy may still be reading it.

What it does
------------
Reports a store, or the start of a second copy, into memory that a copy may still be reading.

Why it is bad
-------------
The copy transfers a mixture of old and new data, on some runs only.

Example
-------
    pltpu.make_async_copy(buf, o_hbm, sem).start()
    buf[...] = next_block     # the copy may still be reading buf

Cure
----
Wait for the copy (`wait_send()` for a remote one) before the buffer is filled again, or use one more buffer.

Known limits
------------
Regions whose index is not known may be anywhere in bounds.
"""

from __future__ import annotations

from collections.abc import Iterator

from asyncops.checker.analysis import Analysis, Finding
from asyncops.checker.rules._conflicts import Words, from_races

CODE = "AO202"
NAME = "source-overwritten"
SEVERITY = "error"


_WORDS = Words(
    core="{region} is overwritten{when} while {copy}, which reads it, may still be running",
    copy="{other} overwrites {region}{when} while {copy}, which reads it, may still be running",
    help="wait for the copy out of {region} (wait_send() for a remote one) before it is filled again",
    label="the copy that reads it starts here",
)


def find(analysis: Analysis) -> Iterator[Finding]:
    """Races in which the writer comes too early."""
    return from_races(analysis, CODE, _WORDS)
