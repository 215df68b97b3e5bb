"""A slice, a semaphore index or a device id is out of range.

What it does
------------
Reports an access whose region leaves its memory for values that exist.

Why it is bad
-------------
The copy or access touches other memory, or the chip halts.

Example
-------
    @pl.when(i < N)                 # should be i + 1 < N
    def _():
        copy(i + 1).start()

Cure
----
Guard the access with the bound of what it touches.

Known limits
------------
An index that depends on data is taken to be in range unless the path forces it out of range.
"""

from __future__ import annotations

from collections.abc import Iterator

from asyncops.checker.analysis import Analysis, Finding
from asyncops.checker.rules._recorded import recorded

CODE = "AO305"
NAME = "out-of-bounds"
SEVERITY = "error"


def find(analysis: Analysis) -> Iterator[Finding]:
    """Findings of this rule."""
    return recorded(analysis, CODE)
