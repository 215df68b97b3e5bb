"""Two copies in flight write a common region.

What it does
------------
Reports a copy that starts to write memory which another copy may still be writing.

Why it is bad
-------------
Which of the two contents stays differs from run to run; both may be mixed.

Example
-------
    for i in range(2):
        pltpu.make_async_copy(x_hbm.at[i], buf.at[0], sems.at[i]).start()   # slot 0 twice

Cure
----
Advance the slot with the copy, or wait for the first copy before the second starts.

Known limits
------------
Destinations whose index is not known may meet for some values; the finding names them.
"""

from __future__ import annotations

from collections.abc import Iterator

from asyncops.checker.analysis import Analysis, Finding
from asyncops.checker.rules._conflicts import Words, from_races

CODE = "AO204"
NAME = "overlapping-copies"
SEVERITY = "error"


_WORDS = Words(
    core="{region} is written{when} while {copy}, which writes it, too, may still be running",
    copy="{other} starts{when} while {copy}, which writes {region}, too, may still be running",
    help="give each copy in flight a slot of its own, or wait for the first before the second starts",
    label="the first copy starts here",
)


def find(analysis: Analysis) -> Iterator[Finding]:
    """Races between two copies that write."""
    return from_races(analysis, CODE, _WORDS)
