"""How fast the order, its races and a run to the end are, and how they grow. Run it; it is not a test.

``python tests/benchmarks/bench_order.py [largest size]``. An event is an access, a start, a wait, a signal, a mark or a
completion; the exponent is the growth between the two largest sizes (1.0 is linear).
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Hashable

from asyncops.checker.events import Access, Box, Copy, Core, Event, Mark, Program, Signal, Start, Wait
from asyncops.checker.order import must_happen_before
from asyncops.checker.replay import run_to_end

BYTES = 4096


def slot(buffer: Hashable, i: int) -> Box:
    """Slot ``i`` of a buffer of slots."""
    return Box(buffer, ((i, 1, 1), (0, 64, 1)))


def double_buffering(steps: int) -> Program:
    """One core prefetches the next block while it works on this one; each slot has its semaphore."""
    events: list[Event] = [Mark("enter", "kernel")]

    def fetch(i: int) -> Start:
        return Start(Copy(slot("x", i), slot("buf", i % 2), None, ("sem", i % 2), 0, BYTES))

    events.append(fetch(0))
    for i in range(steps):
        if i + 1 < steps:
            events.append(fetch(i + 1))
        events += [Wait(("sem", i % 2), BYTES), Access(slot("buf", i % 2), False), Access(slot("y", i), True)]
    return Program((Core(0, (*events, Mark("exit", "kernel"))),))


def gather(steps: int) -> Program:
    """One core starts all row copies on one semaphore, then waits for all of them."""
    rows = range(steps)
    starts = [Start(Copy(slot("x", i), slot("buf", i), None, "sem", 0, BYTES)) for i in rows]
    waits = [Wait("sem", BYTES) for _ in rows]
    return Program((Core(0, (*starts, *waits, *(Access(slot("buf", i), False) for i in rows))),))


def ring(steps: int, devices: int = 8) -> Program:
    """Each device sends to its right neighbour through two slots, with capacity signals back."""

    def core(d: int) -> Core:
        right, left = (d + 1) % devices, (d - 1) % devices
        events: list[Event] = [Mark("enter", ("kernel", d))]
        events += [Signal(("barrier", left), 1), Signal(("barrier", right), 1), Wait(("barrier", d), 2)]
        for i in range(steps):
            here, there = i % 2, (i + 1) % 2
            if i > 0:
                events.append(Wait(("capacity", d), 1))
            copy = Copy(
                slot(("buf", d), here),
                slot(("buf", right), there),
                ("send", d, here),
                ("recv", right, there),
                BYTES,
                BYTES,
            )
            events += [Start(copy), Access(slot(("buf", d), here), False), Access(slot(("out", d), i), True)]
            events += [Wait(("send", d, here), BYTES), Wait(("recv", d, there), BYTES)]
            if i + 1 < steps:
                events.append(Signal(("capacity", left), 1))
        return Core(d, (*events, Mark("exit", ("kernel", d))))

    return Program(tuple(core(d) for d in range(devices)))


def all_to_all(steps: int, devices: int = 8) -> Program:
    """A barrier among all, then a block to every other device on one receive semaphore; again and again."""

    def core(d: int) -> Core:
        events: list[Event] = []
        others = [e for e in range(devices) if e != d]
        for i in range(max(1, steps // devices)):
            events += [Signal(("barrier", e), 1) for e in others] + [Wait(("barrier", d), devices - 1)]
            for e in others:
                copy = Copy(
                    slot(("x", d), e), slot(("y", e, i % 2), d), ("send", d), ("recv", e), BYTES, BYTES
                )
                events.append(Start(copy))
            events += [wait for _ in others for wait in (Wait(("send", d), BYTES), Wait(("recv", d), BYTES))]
            events.append(Access(Box(("y", d, i % 2), ((0, devices, 1), (0, 64, 1))), False))
        return Core(d, tuple(events))

    return Program(tuple(core(d) for d in range(devices)))


def calls(steps: int, devices: int = 8) -> Program:
    """A kernel called again and again: neighbour barrier, exchange with both neighbours, exit."""

    def core(d: int) -> Core:
        events: list[Event] = []
        for i in range(max(1, steps // 4)):
            events.append(Mark("enter", ("kernel", d, i)))
            events += [Signal(("barrier", (d + way) % devices), 1) for way in (-1, 1)]
            events.append(Wait(("barrier", d), 2))
            for side, way in enumerate((-1, 1)):
                other = (d + way) % devices
                copy = Copy(
                    slot(("x", d), 0),
                    slot(("y", other), side),
                    ("send", d, side),
                    ("recv", other, side),
                    BYTES,
                    BYTES,
                )
                events.append(Start(copy))
            events += [Wait((name, d, side), BYTES) for side in (0, 1) for name in ("send", "recv")]
            events += [Access(slot(("y", d), 0), False), Mark("exit", ("kernel", d, i))]
        return Core(d, tuple(events))

    return Program(tuple(core(d) for d in range(devices)))


def barriers(steps: int, devices: int = 8) -> Program:
    """Neighbour barriers and nothing else: counting lets neighbours drift further the longer it goes on.

    The hardest case for the order; its fixpoint is cut short where it converges too slowly.
    """

    def core(d: int) -> Core:
        events: list[Event] = []
        for _ in range(steps // 4):
            events += [Signal(("barrier", (d + way) % devices), 1) for way in (-1, 1)]
            events += [Wait(("barrier", d), 2), Access(slot(("x", d), 0), True)]
        return Core(d, tuple(events))

    return Program(tuple(core(d) for d in range(devices)))


def run_ahead(steps: int) -> Program:
    """Two senders that never wait for the receiver, on one semaphore: nothing bounds how far they drift."""
    senders = [
        Core(
            d,
            tuple(
                Start(Copy(slot(("x", d), i), slot("y", 2 * i + d), None, "recv", 0, 1)) for i in range(steps)
            ),
        )
        for d in range(2)
    ]
    return Program((*senders, Core(2, tuple(Wait("recv", 1) for _ in range(2 * steps)))))


def events_of(program: Program) -> int:
    """Events, completions included."""
    return sum(len(core.events) for core in program.cores) + 2 * sum(1 for _ in program.copies())


def seconds(work: Callable[[], object]) -> float:
    """Processor seconds of one call, undisturbed by what else the machine does."""
    start = time.process_time()
    work()
    return time.process_time() - start


def measure(build: Callable[[int], Program], steps: int) -> tuple[int, float, float, float]:
    """Events of the program, and the seconds of its order, its races and facts, and a run to the end."""
    program = build(steps)
    order = must_happen_before(program)
    parts = (
        lambda: must_happen_before(program),
        lambda: (order.races(), order.touches()),
        lambda: run_to_end(program),
    )
    first, second, third = (min(seconds(part) for _ in range(2)) for part in parts)
    return events_of(program), first, second, third


def main(largest: int) -> None:
    """Print one line for each program and size."""
    print(
        f"{'program':18}{'steps':>8}{'events':>10}{'order s':>10}{'races s':>10}{'run s':>10}{'events/s':>12}"
    )
    for build in (double_buffering, gather, ring, calls, all_to_all, barriers, run_ahead):
        past: tuple[int, float] | None = None
        for steps in (largest // 16, largest // 4, largest):
            events, *times = measure(build, steps)
            rate = events / (times[0] + times[1])
            line = (
                f"{build.__name__:18}{steps:8}{events:10}"
                + "".join(f"{t:10.4f}" for t in times)
                + f"{rate:12.0f}"
            )
            if past is not None:
                growth = math.log((times[0] + times[1]) / past[1]) / math.log(events / past[0])
                line += f"   growth {growth:.2f}"
            past = events, times[0] + times[1]
            print(line, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2048)
