"""Steps of a parallel grid dimension depend on each other.

What it does
------------
Reports grid steps with different coordinates in a dimension marked parallel that write, or read and write,
one region of an operand or output, that read scratch which another coordinate left, or that leave a copy or a
count to another coordinate.

Why it is bad
-------------
Such steps may run on different cores at the same time; each core has scratch of its own.

Example
-------
    @pl.when(pl.program_id(0) == 0)
    def _():
        acc[...] = jnp.zeros_like(acc)
    acc[...] += x_ref[...]          # with dimension_semantics=("parallel",)

Cure
----
Mark the dimension "arbitrary", or make its steps independent of each other.

Known limits
------------
On a chip with one core such a kernel happens to work.
"""

from __future__ import annotations

from collections.abc import Iterator

from asyncops.checker.analysis import Analysis, Finding
from asyncops.checker.parallel import dependences
from asyncops.checker.rules._conflicts import between_cores
from asyncops.checker.rules._recorded import recorded

CODE = "AO207"
NAME = "parallel-grid-race"
SEVERITY = "error"


def find(analysis: Analysis) -> Iterator[Finding]:
    """Dependences between steps that may run at the same time."""
    yield from dependences(analysis, CODE)
    yield from recorded(analysis, CODE)
    yield from between_cores(analysis, CODE)
