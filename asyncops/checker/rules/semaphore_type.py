"""A semaphore of the wrong type is used.

What it does
------------
Reports a DMA semaphore that is signalled by hand, and a regular or barrier semaphore that is given to a copy.

Why it is bad
-------------
The two kinds count different things (bytes moved, signals); the hardware does not allow the mixture.

Example
-------
    pl.semaphore_signal(dma_sem, 1)        # dma_sem is SemaphoreType.DMA

Cure
----
Use SemaphoreType.DMA for copies and SemaphoreType.REGULAR or the barrier semaphore for signals.

Known limits
------------
JAX itself refuses some of these when it traces.
"""

from __future__ import annotations

from collections.abc import Iterator

from asyncops.checker.analysis import Analysis, Finding
from asyncops.checker.rules._recorded import recorded

CODE = "AO304"
NAME = "semaphore-type"
SEVERITY = "error"


def find(analysis: Analysis) -> Iterator[Finding]:
    """Findings of this rule."""
    return recorded(analysis, CODE)
