"""What may signal and wait on each kind of semaphore, and in which amounts.

A DMA semaphore counts bytes, those of the tiled and padded layout of what a copy moves; copies signal it and
``dma_wait`` takes them off. A regular or barrier semaphore counts what cores add by hand. JAX checks some of
this when it traces, the compiler the rest; the sentences here say what to do instead.
"""

from __future__ import annotations

from dataclasses import dataclass

from stateful import operations as ops
from stateful.errors import SemaphoreTypeError
from stateful.terms import Term
from stateful.types import SemaphoreKind, View


@dataclass(frozen=True, slots=True)
class Use:
    """One way to use a semaphore: which kinds allow it, what it counts, what to use instead."""

    name: str
    kinds: frozenset[SemaphoreKind]
    unit: str
    instead: str


_BY_HAND = frozenset({SemaphoreKind.REGULAR, SemaphoreKind.BARRIER})
_BY_COPY = frozenset({SemaphoreKind.DMA})

COPY = Use("a copy", _BY_COPY, "bytes", "give the copy a pltpu.SemaphoreType.DMA")
WAIT_COPY = Use("a wait for a copy", _BY_COPY, "bytes", "wait with pl.semaphore_wait(semaphore, count)")
SIGNAL = Use(
    "pl.semaphore_signal", _BY_HAND, "counts", "let a copy signal it, or use pltpu.SemaphoreType.REGULAR"
)
WAIT = Use(
    "pl.semaphore_wait",
    _BY_HAND,
    "counts",
    "wait with the copy's descriptor, or pltpu.make_async_copy(...).wait()",
)


def copy_amount(view: View) -> Term:
    """What a copy of ``view`` counts on its semaphore, and a wait that names ``view`` takes off, in bytes."""
    return view.nbytes


def problem(use: Use, semaphore: View) -> str | None:
    """What is wrong with using ``semaphore`` this way, with the cure; None if nothing is."""
    kind = semaphore.type.semaphore
    if kind is None:
        return (
            f"{use.name} needs a semaphore; {semaphore} is {semaphore.type}: allocate a pltpu.SemaphoreType"
        )
    if kind not in use.kinds:
        return f"{use.name} cannot use {semaphore}, a {kind.value} semaphore: {use.instead}"
    if any(type(n) is not int or n != 1 for n in semaphore.shape):
        shape = semaphore.shape
        return f"{use.name} takes one semaphore; {semaphore} is an array of {shape}: index it with .at[i]"
    return None


def uses(operation: ops.Operation) -> tuple[tuple[Use, View], ...]:
    """Every use of a semaphore that an operation makes."""
    if isinstance(operation, ops.StartCopy):
        both = (operation.source_semaphore, operation.destination_semaphore)
        return tuple((COPY, s) for s in both if s is not None)
    if isinstance(operation, ops.WaitCopy):
        return () if operation.semaphore is None else ((WAIT_COPY, operation.semaphore),)
    if isinstance(operation, ops.Signal):
        return ((SIGNAL, operation.semaphore),)
    return ((WAIT, operation.semaphore),) if isinstance(operation, ops.Wait) else ()


def problems(operation: ops.Operation) -> tuple[str, ...]:
    """All type errors of an operation, each with its cure."""
    return tuple(p for p in (problem(use, s) for use, s in uses(operation)) if p is not None)


def check(operation: ops.Operation) -> None:
    """Raises :class:`~stateful.errors.SemaphoreTypeError` for the first type error of an operation."""
    for text in problems(operation):
        raise SemaphoreTypeError(text)
