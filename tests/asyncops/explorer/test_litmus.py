"""Litmus programs: what each can do wrong, and how many schedules had to be explored to know.

``executions`` is pinned, so that a weaker (or unsound) reduction shows at once. Where two steps conflict
there is one for each order that differs, where nothing conflicts there is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from asyncops.checker.events import Half, Point
from asyncops.explorer import explore
from asyncops.explorer.findings import Deadlock, Exploration, Leak, Race, Stray, Unfinished
from asyncops.explorer.notation import parse_program


@dataclass(frozen=True)
class Litmus:
    """A program with its findings, written shortly, and the number of executions."""

    name: str
    text: str
    executions: int
    findings: tuple[str, ...] = ()


LITMUS = (
    Litmus(
        "a copy is waited for in full",
        """
        core 0
          start x -> y recv s:4
          wait s 4
          read y
          write x
        """,
        executions=1,
    ),
    Litmus(
        "a copy is read before its wait",
        """
        core 0
          start x -> y recv s:4
          read y
          wait s 4
        """,
        executions=2,
        findings=("race 0.0.write-done 0.1",),
    ),
    Litmus(
        "a wait is short by one unit",
        """
        core 0
          start x -> y recv s:4
          wait s 3
          read y
          wait s 1
        """,
        executions=2,
        findings=("race 0.0.write-done 0.2",),
    ),
    Litmus(
        "a copy of one unit shows nothing before it is done",
        """
        core 0
          start x -> y recv s:1
          wait s 1
          read y
        """,
        executions=1,
    ),
    Litmus(
        "the source is free when it has been read",
        """
        core 0
          start x -> y send s:4 recv t:4
          wait s 4
          write x
          wait t 4
        """,
        executions=1,
    ),
    Litmus(
        "the destination is not there when the source has been read",
        """
        core 0
          start x -> y send s:4 recv t:4
          wait s 4
          read y
          wait t 4
        """,
        executions=2,
        findings=("race 0.0.write-done 0.2",),
    ),
    Litmus(
        "one of two copies on a semaphore is waited for",
        """
        core 0
          start a -> x recv s:4
          start b -> y recv s:4
          wait s 4
          read x
          wait s 4
          read y
        """,
        executions=2,
        findings=("race 0.0.write-done 0.3",),
    ),
    Litmus(
        "two copies on a semaphore are waited for at once",
        """
        core 0
          start a -> x recv s:4
          start b -> y recv s:4
          wait s 8
          read x
          read y
        """,
        executions=1,
    ),
    Litmus(
        "a count may come from the wrong copy before either is done",
        """
        core 0
          start a -> x recv s:3
          start b -> y recv s:1
          wait s 2
          read y
          wait s 2
        """,
        executions=2,
        findings=("race 0.1.write-done 0.3",),
    ),
    Litmus(
        "two copies write one place",
        """
        core 0
          start a -> x[0:4] recv s:4
          start b -> x[2:6] recv t:4
          wait s 4
          wait t 4
        """,
        executions=2,
        findings=("race 0.0.write-done 0.1.write-done",),
    ),
    Litmus(
        "two copies write interleaved places",
        """
        core 0
          start a -> x[0:7:2] recv s:4
          start b -> x[1:8:2] recv s:4
          wait s 8
        """,
        executions=1,
    ),
    Litmus(
        "a copy reads what another one brings",
        """
        core 0
          start a -> b recv s:4
          start b -> c recv t:4
          wait s 4
          wait t 4
        """,
        executions=2,
        findings=("race 0.0.write-done 0.1.read-done",),
    ),
    Litmus(
        "copies share a source",
        """
        core 0
          start a -> b recv s:4
          start a -> c recv t:4
          wait s 4
          wait t 4
        """,
        executions=1,
    ),
    Litmus(
        "double buffering, four steps",
        """
        core 0
          start h[0:1] -> x[0:1] recv s:2
          start h[1:2] -> x[1:2] recv t:2
          wait s 2
          read x[0:1]
          start h[2:3] -> x[0:1] recv s:2
          wait t 2
          read x[1:2]
          start h[3:4] -> x[1:2] recv t:2
          wait s 2
          read x[0:1]
          wait t 2
          read x[1:2]
        """,
        executions=1,
    ),
    Litmus(
        "double buffering on one semaphore",
        """
        core 0
          start h[0:1] -> x[0:1] recv s:2
          start h[1:2] -> x[1:2] recv s:2
          wait s 2
          read x[0:1]
          wait s 2
          read x[1:2]
        """,
        executions=2,
        findings=("race 0.0.write-done 0.3",),
    ),
    Litmus(
        "double buffering that fetches too early",
        """
        core 0
          start h[0:1] -> x[0:1] recv s:2
          start h[1:2] -> x[1:2] recv t:2
          wait s 2
          start h[2:3] -> x[0:1] recv s:2
          read x[0:1]
          wait t 2
          read x[1:2]
          wait s 2
          read x[0:1]
        """,
        executions=2,
        findings=("race 0.3.write-done 0.4",),
    ),
    Litmus(
        "a signal orders two cores",
        """
        core 0
          write x
          signal g 1
        core 1
          wait g 1
          read x
        """,
        executions=1,
    ),
    Litmus(
        "two cores write without a signal",
        """
        core 0
          write x
        core 1
          write x
        """,
        executions=2,
        findings=("race 0.0 1.0",),
    ),
    Litmus(
        "three cores write without a signal",
        """
        core 0
          write x
        core 1
          write x
        core 2
          write x
        """,
        executions=6,
        findings=("race 0.0 1.0", "race 0.0 2.0", "race 1.0 2.0"),
    ),
    Litmus(
        "three cores do not meet",
        """
        core 0
          write x
          read x
        core 1
          write y
          read y
        core 2
          write z
          read z
        """,
        executions=1,
    ),
    Litmus(
        "a lock that starts at one",
        """
        initial lock 1
        core 0
          wait lock 1
          write x
          signal lock 1
        core 1
          wait lock 1
          write x
          signal lock 1
        """,
        executions=2,
        findings=("leak lock 1 at the end",),
    ),
    Litmus(
        "two cores wait for each other",
        """
        core 0
          wait g 1
          signal h 1
        core 1
          wait h 1
          signal g 1
        """,
        executions=1,
        findings=("deadlock 0.0 1.0",),
    ),
    Litmus(
        "whoever is second waits for ever",
        """
        core 0
          signal g 1
        core 1
          wait g 1
        core 2
          wait g 1
        """,
        executions=2,
        findings=("deadlock 1.0", "deadlock 2.0"),
    ),
    Litmus(
        "a large wait starves when small ones come first",
        """
        core 0
          signal g 2
        core 1
          wait g 2
        core 2
          wait g 1
        core 3
          wait g 1
        """,
        executions=3,
        findings=("deadlock 1.0", "deadlock 2.0 3.0"),
    ),
    Litmus(
        "a test takes nothing but can come too late",
        """
        initial s 1
        core 0
          test s 1
        core 1
          wait s 1
        core 2
          read z
          test s 1
        core 3
          write z
        """,
        executions=10,
        findings=("race 2.0 3.0", "deadlock 0.0", "deadlock 0.0 2.1", "deadlock 2.1"),
    ),
    Litmus(
        "a wait asks for more than comes",
        """
        core 0
          start x -> y recv s:4
          wait s 5
        """,
        executions=1,
        findings=("deadlock 0.1",),
    ),
    Litmus(
        "a count is left",
        """
        core 0
          start x -> y recv s:4
          wait s 3
        """,
        executions=1,
        findings=("leak s 1 at the end",),
    ),
    Litmus(
        "a barrier of three: one signal may be that of a faster core's next round",
        """
        core 0
          signal b1 1
          signal b2 1
          wait b0 2
          signal b1 1
          signal b2 1
          write x1
          wait b0 2
        core 1
          signal b0 1
          signal b2 1
          wait b1 2
          read x1
          signal b0 1
          signal b2 1
          wait b1 2
        core 2
          signal b0 1
          signal b1 1
          wait b2 2
          signal b0 1
          signal b1 1
          wait b2 2
        """,
        executions=2,
        findings=("race 0.5 1.3",),
    ),
    Litmus(
        "an entry barrier: no copy arrives before its receiver has entered",
        """
        core 0
          enter k0 y0 / r0
          start x0 -> y1 recv r1:2
          exit k0 y0 / r0
        core 1
          enter k1 y1 / r1
          wait r1 2
          read y1
          exit k1 y1 / r1
        barrier 0:0 1:0
        """,
        executions=1,
    ),
    Litmus(
        "without the barrier it may",
        """
        core 0
          enter k0 y0 / r0
          start x0 -> y1 recv r1:2
          exit k0 y0 / r0
        core 1
          enter k1 y1 / r1
          wait r1 2
          read y1
          exit k1 y1 / r1
        """,
        executions=2,
        findings=("stray 0.1 before 1.0",),
    ),
    Litmus(
        "a receiver leaves while a copy is under way",
        """
        core 0
          start x0 -> y1 recv r1:4
        core 1
          exit k1 y1 / r1
        """,
        executions=3,
        findings=(
            "leak r1 4 at 1.0",
            "leak r1 4 at the end",
            "unfinished 0.0.write-done 1.0",
            "stray 0.0 after 1.0",
        ),
    ),
    Litmus(
        "what a copy shows while it is under way is no leak yet",
        """
        core 0
          start x -> y recv s:4
          free scope / s
          wait s 4
        """,
        executions=2,
        findings=("leak s 4 at 0.1", "unfinished 0.0.write-done 0.1", "stray 0.2 after 0.1"),
    ),
    Litmus(
        "a signal to a semaphore that is gone for good",
        """
        core 0
          allocate scope / s
          signal s 1
          wait s 1
          free scope / s
          signal g 1
        core 1
          wait g 1
          signal s 1
          wait s 1
        """,
        executions=1,
        findings=("stray 1.1 after 0.3", "stray 1.2 after 0.3"),
    ),
)


@pytest.mark.parametrize("litmus", LITMUS, ids=lambda litmus: litmus.name)
def test_litmus(litmus):
    exploration = explore(parse_program(litmus.text))
    assert exploration.complete
    assert tuple(shortly(exploration)) == litmus.findings
    assert exploration.executions == litmus.executions


def shortly(exploration: Exploration) -> Iterator[str]:
    for finding in exploration.findings:
        match finding:
            case Race(first, second):
                yield f"race {name(first)} {name(second)}"
            case Deadlock(waits):
                yield f"deadlock {' '.join(map(name, waits))}"
            case Leak(semaphore, count, mark):
                yield f"leak {semaphore} {count} at {name(mark) if mark else 'the end'}"
            case Unfinished(completion, mark):
                yield f"unfinished {name(completion)} {name(mark)}"
            case Stray(touch, when, mark):
                yield f"stray {name(touch)} {when} {name(mark)}"


def name(point: Point) -> str:
    return f"{point.core}.{point.index}" + (f".{point.half.value}" if isinstance(point.half, Half) else "")
