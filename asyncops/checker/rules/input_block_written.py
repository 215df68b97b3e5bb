"""A pipelined input window is written and used again without a new fetch.

What it does
------------
Reports a store into an input window, or a copy into it, when a later grid step sees the same block without
fetching it again.

Why it is bad
-------------
The later step reads the changed block; whether it does depends on the pipeline.

Example
-------
    x_ref[...] = x_ref[...] * 2      # x_ref is an input window; its block is the same in the next step

Cure
----
Copy the block to scratch, or write to an output.

Known limits
------------
Writing a window whose block changes with every step is harmless and not reported.
"""

from __future__ import annotations

from collections.abc import Iterator

from asyncops.checker.analysis import Analysis, Finding
from asyncops.checker.rules._recorded import recorded

CODE = "AO209"
NAME = "input-block-written"
SEVERITY = "error"


def find(analysis: Analysis) -> Iterator[Finding]:
    """Findings of this rule."""
    return recorded(analysis, CODE)
