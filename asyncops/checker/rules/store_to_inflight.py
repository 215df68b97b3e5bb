"""A destination is stored to while a copy may still be writing it.

What it does
------------
Reports a store into memory that a copy is filling.

Why it is bad
-------------
Whether the store or the copy wins differs from run to run.

Example
-------
    pltpu.make_async_copy(x_hbm, buf, sem).start()
    buf[...] = jnp.zeros_like(buf)

Cure
----
Store before the copy starts, or after it has been waited for.

Known limits
------------
Regions whose index is not known may be anywhere in bounds.
"""

from __future__ import annotations

from collections.abc import Iterator

from asyncops.checker.analysis import Analysis, Finding
from asyncops.checker.rules._conflicts import Words, from_races

CODE = "AO203"
NAME = "store-to-inflight"
SEVERITY = "error"


_WORDS = Words(
    core="{region} is stored to{when} while {copy}, which writes it, too, may still be running",
    copy="{other} writes {region}{when} while {copy}, which writes it, too, may still be running",
    help="store before the copy starts or after waiting for it",
    label="the copy into it starts here",
)


def find(analysis: Analysis) -> Iterator[Finding]:
    """Races between a store and a copy into the same memory."""
    return from_races(analysis, CODE, _WORDS)
