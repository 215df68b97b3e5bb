"""An input window is read that was fetched before an aliased output was written back.

What it does
------------
Reports a grid step that reads an input block over a part of the array which an earlier step stored through an
aliased output, when the block was fetched before that result was written back. Also a body that writes a scalar
(of a prefetched table) which the index map of the next step has read already.

Why it is bad
-------------
The pipeline fetches the next block while the current one is computed: the step sees the old contents.

Example
-------
    pl.pallas_call(kernel, grid=(n,), input_output_aliases={0: 0},
        in_specs=[pl.BlockSpec((8, 128), lambda i: (i, 0))],
        out_specs=pl.BlockSpec((8, 128), lambda i: (i + 1, 0)))    # the next step reads this block

Cure
----
Read back through the output Ref, keep all visits of a block consecutive, or pass the array with
memory_space=pl.ANY and copy by hand.

Known limits
------------
Grids are followed step by step.
"""

from __future__ import annotations

from collections.abc import Iterator

from asyncops.checker.analysis import Analysis, Finding
from asyncops.checker.rules._recorded import recorded

CODE = "AO206"
NAME = "stale-prefetch"
SEVERITY = "error"


def find(analysis: Analysis) -> Iterator[Finding]:
    """Findings of this rule."""
    return recorded(analysis, CODE)
