"""The conflict relation."""

from __future__ import annotations

import itertools

import pytest

from stateful import terms
from stateful.effects import (
    CONFLICT_TABLE,
    Accumulate,
    Allocate,
    DeviceId,
    DmaRead,
    DmaWrite,
    Free,
    Read,
    Signal,
    Wait,
    Write,
    conflicts,
)
from stateful.types import MemorySpace, RefType, View

TYPE = RefType((8, 128), "float32", MemorySpace.VMEM)
X, Y = View.whole("x", TYPE), View.whole("y", TYPE)
KINDS = [Read, Write, Accumulate, DmaRead, DmaWrite, Signal, Wait, Allocate, Free]


def rows(view, start, size):
    ranges = ((start, size, 1), view.ranges[1])
    return View(view.root, view.type, view.system, ranges, view.axes, view.loose, view.dtype)


def test_the_table_is_symmetric_and_complete():
    for a, b in itertools.product(KINDS, KINDS):
        assert CONFLICT_TABLE[a.word, b.word] == CONFLICT_TABLE[b.word, a.word]


@pytest.mark.parametrize(("a", "b"), list(itertools.product([Read, DmaRead], repeat=2)))
def test_readers_never_conflict(a, b):
    assert conflicts(a(X), b(X)) is False


@pytest.mark.parametrize(
    ("a", "b"),
    list(itertools.product([Write, Accumulate, DmaWrite], [Read, Write, Accumulate, DmaRead, DmaWrite])),
)
def test_a_writer_conflicts_with_all_who_touch_the_same(a, b):
    assert conflicts(a(X), b(X)) is True
    assert conflicts(a(X), b(Y)) is False
    assert conflicts(a(rows(X, 0, 4)), b(rows(X, 4, 4))) is False


def test_semaphores_are_shared_while_they_live():
    assert conflicts(Signal(X), Wait(X)) is False
    assert conflicts(Signal(X), Free(X)) is True
    assert conflicts(Allocate(X), Read(X)) is True


def test_an_unknown_index_leaves_it_open():
    anywhere = rows(X, terms.symbol("i", 0, 7), 1)
    assert conflicts(Write(anywhere), Read(rows(X, 3, 1))) is None


def test_devices():
    def on(device):
        return DmaWrite(X, DeviceId("logical", device))

    assert conflicts(on(0), on(0)) is True
    assert conflicts(on(0), on(1)) is False
    assert conflicts(on(0), Read(X)) is None
    assert conflicts(on(terms.symbol("d")), on(1)) is None
