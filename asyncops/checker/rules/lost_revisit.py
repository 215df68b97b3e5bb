"""An output block is left and visited again later.

What it does
------------
Reports an output block that a grid step reads, or writes in part, although the block was visited and left
before.

Why it is bad
-------------
A block is loaded only while it is visited in consecutive steps; what an earlier visit computed is not loaded
back.

Example
-------
    out_specs=pl.BlockSpec((8, 128), lambda i: (lax.rem(i, 2), 0))     # blocks 0, 1, 0, 1

Cure
----
Make the grid axis over which a block is accumulated the innermost one.

Known limits
------------
A revisit that overwrites the whole block is fine and not reported.
"""

from __future__ import annotations

from collections.abc import Iterator

from asyncops.checker.analysis import Analysis, Finding
from asyncops.checker.rules._recorded import recorded

CODE = "AO208"
NAME = "lost-revisit"
SEVERITY = "error"


def find(analysis: Analysis) -> Iterator[Finding]:
    """Findings of this rule."""
    return recorded(analysis, CODE)
