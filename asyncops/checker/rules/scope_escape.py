"""A buffer or semaphore ends its scope while a copy uses it.

What it does
------------
Reports a copy that can still be running when the `run_scoped` that owns its buffers or semaphore ends.

Why it is bad
-------------
The next scope may be laid out in the same memory: the copy then reads or writes somebody else's data, or
signals somebody else's semaphore.

Example
-------
    @functools.partial(pl.run_scoped, buf=pltpu.VMEM((8, 128), jnp.float32), sem=pltpu.SemaphoreType.DMA)
    def _(buf, sem):
        pltpu.make_async_copy(buf, o_hbm, sem).start()     # the scope ends here

Cure
----
Wait inside the scope, or allocate the buffer and the semaphore in an outer one.

Known limits
------------
Whether two scopes share an address is the compiler's choice; the rule does not rely on it.
"""

from __future__ import annotations

from collections.abc import Iterator

from asyncops.checker.analysis import Analysis, Finding, copy_subjects, copy_text, lines
from asyncops.checker.rules._late import late_copies

CODE = "AO205"
NAME = "scope-escape"
SEVERITY = "error"


def find(analysis: Analysis) -> Iterator[Finding]:
    """Copies that nothing keeps within the scope of what they use."""
    for late in late_copies(analysis):
        if late.mark.kind != "free":
            continue
        yield Finding(
            CODE,
            f"the scope of {late.what} ends while {copy_text(late.copy)}, which uses it, may still be "
            f"running{analysis.where(late.start)}{analysis.when(late.copy.site)}",
            late.copy.site,
            f"wait for the copy before the scope of {late.what} ends, or allocate it in an outer scope",
            lines(("the scope", late.mark.site.location)),
            frozenset(copy_subjects(late.copy)),
            late.touch,
        )
