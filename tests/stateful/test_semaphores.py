"""Type errors of semaphores, each with its cure."""

from __future__ import annotations

import pytest

from stateful import operations as ops
from stateful import semaphores
from stateful.errors import SemaphoreTypeError
from stateful.types import MemorySpace, RefType, SemaphoreKind, View

DATA = View.whole("x", RefType((8, 128), "float32", MemorySpace.VMEM))


def semaphore(kind, shape=()):
    return View.whole("sem", RefType(shape, "semaphore", MemorySpace.SEMAPHORE, kind))


def start(sem):
    return ops.StartCopy(DATA, DATA, None, sem, 4096, 4096)


RIGHT = [
    start(semaphore(SemaphoreKind.DMA)),
    ops.WaitCopy(semaphore(SemaphoreKind.DMA), 4096, DATA),
    ops.Signal(semaphore(SemaphoreKind.REGULAR), 1),
    ops.Signal(semaphore(SemaphoreKind.BARRIER), 1),
    ops.Wait(semaphore(SemaphoreKind.REGULAR), 1),
    ops.Load(DATA),
]

WRONG = [
    (start(semaphore(SemaphoreKind.REGULAR)), "pltpu.SemaphoreType.DMA"),
    (ops.WaitCopy(semaphore(SemaphoreKind.BARRIER), 1, DATA), "pl.semaphore_wait"),
    (ops.Signal(semaphore(SemaphoreKind.DMA), 1), "pltpu.SemaphoreType.REGULAR"),
    (ops.Wait(semaphore(SemaphoreKind.DMA), 1), "descriptor"),
    (ops.Signal(DATA, 1), "allocate a pltpu.SemaphoreType"),
    (ops.Wait(semaphore(SemaphoreKind.REGULAR, (2,)), 1), r"\.at\[i\]"),
]


@pytest.mark.parametrize("operation", RIGHT)
def test_right_uses(operation):
    assert semaphores.problems(operation) == ()
    semaphores.check(operation)


@pytest.mark.parametrize(("operation", "cure"), WRONG)
def test_wrong_uses_name_the_cure(operation, cure):
    with pytest.raises(SemaphoreTypeError, match=cure):
        semaphores.check(operation)


def test_a_copy_counts_the_bytes_of_its_view():
    assert semaphores.copy_amount(DATA) == 8 * 128 * 4
