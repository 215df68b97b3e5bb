"""Events of a concrete program: what cores and copies do, without JAX.

A :class:`Program` is one straight-line list of events per core, all values known. It is what the order
(``order.py``), the replay (``replay.py``) and the exact explorer work on; the machine model is the one of the
JAX documents `pallas/tpu/distributed` and `pallas/design/async_note`:

* a core runs its events in order;
* a :class:`Copy` is an agent of its own, born at its :class:`Start`; it finishes reading its source
  (``READ_DONE``) before it finishes writing its destination (``WRITE_DONE``); copies are mutually unordered;
* a copy's counts rise on its semaphores while it moves, and are full at ``READ_DONE`` (source semaphore) and
  ``WRITE_DONE`` (destination semaphore); a core's signal is atomic.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Location:
    """A place in the user's source. ``line`` counts from 1; columns count bytes of UTF-8 from 0, as Python's do.

    Places on one line are the same place: columns only tell what of it to underline.
    """

    file: str
    line: int
    function: str = ""
    column: int | None = field(default=None, compare=False)
    end_column: int | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Site:
    """Where and when an event happens: source line plus the moment in the run, in the user's terms.

    ``moment`` is text such as ``"grid step (2, 0), iteration i=3"``; ``label`` names what is touched, such as
    ``"buf[0]"``.
    """

    location: Location | None = None
    moment: str = ""
    label: str = ""
    stack: tuple[Location, ...] = ()


NOWHERE = Site()


@dataclass(frozen=True, slots=True)
class Box:
    """A region of one buffer: per dimension ``(start, size, step)`` in elements, ``step >= 1``.

    ``buffer`` is the identity of the memory (device included); boxes of different buffers never overlap.
    ``exact`` is False where the box is only a superset of what is touched (an index that is not known).
    """

    buffer: Hashable
    dims: tuple[tuple[int, int, int], ...] = ()
    exact: bool = True

    def overlaps(self, other: Box) -> bool:
        """True when the two boxes share an element (exact for strided dimensions)."""
        if self.buffer != other.buffer:
            return False
        if len(self.dims) != len(other.dims):
            return True
        return all(progressions_meet(a, b) for a, b in zip(self.dims, other.dims))


def progressions_meet(a: tuple[int, int, int], b: tuple[int, int, int]) -> bool:
    """True when ``{start + step * k, 0 <= k < size}`` of both meet; by the Chinese remainder theorem."""
    (s1, n1, d1), (s2, n2, d2) = a, b
    if n1 <= 0 or n2 <= 0:
        return False
    low, high = max(s1, s2), min(s1 + (n1 - 1) * d1, s2 + (n2 - 1) * d2)
    if low > high:
        return False
    if d1 == 1 and d2 == 1:
        return True
    g = math.gcd(d1, d2)
    if (s2 - s1) % g:
        return False
    lcm = d1 // g * d2
    k = ((s2 - s1) // g * pow(d1 // g, -1, d2 // g)) % (d2 // g) if d2 // g > 1 else 0
    first = s1 + d1 * k
    first += -(-(low - first) // lcm) * lcm if first < low else -((first - low) // lcm) * lcm
    return low <= first <= high


ATOMIC = "atomic"
"""``alike`` of what adds to memory in one step."""


@dataclass(frozen=True, slots=True, eq=False)
class Copy:
    """One copy in flight. Semaphores are hashable identities (device included); amounts are counts on them.

    ``source_semaphore`` is full at READ_DONE, ``destination_semaphore`` at WRITE_DONE; either may be None.
    ``accumulate``: the destination is read, too (``dma_start(add=True)``).
    ``kind`` tells who issued it: ``"dma"``, ``"remote"``, or ``"pipeline"`` (generated for a block spec).
    ``indices``: what else is read while the copy reads its source (which elements to gather or scatter).
    Two writes do not conflict where both have the same ``alike``, not None: they write the same values, or add to
    what is there (``ATOMIC``).
    """

    source: Box | None
    destination: Box | None
    source_semaphore: Hashable | None = None
    destination_semaphore: Hashable | None = None
    source_amount: int = 0
    destination_amount: int = 0
    accumulate: bool = False
    kind: str = "dma"
    site: Site = NOWHERE
    name: str = ""
    indices: tuple[Box, ...] = ()
    alike: Hashable = None


class Half(enum.Enum):
    """The two completion events of a copy."""

    READ_DONE = "read-done"
    WRITE_DONE = "write-done"


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """A core reads or writes a box; instantaneous. ``alike``: as for :class:`Copy`."""

    box: Box
    write: bool
    site: Site = NOWHERE
    alike: Hashable = None


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """A core starts ``copy``."""

    copy: Copy
    site: Site = NOWHERE


@dataclass(frozen=True, slots=True, eq=False)
class Signal:
    """A core adds ``amount`` to ``semaphore`` (of any device) in one step."""

    semaphore: Hashable
    amount: int
    site: Site = NOWHERE


@dataclass(frozen=True, slots=True, eq=False)
class Wait:
    """A core waits until ``semaphore >= amount`` and, if ``decrement``, takes ``amount`` off."""

    semaphore: Hashable
    amount: int
    decrement: bool = True
    site: Site = NOWHERE


@dataclass(frozen=True, slots=True, eq=False)
class Mark:
    """Kernel enter and exit, begin and end of a scope. Orders nothing by itself; is ordered by program order.

    ``kind``: "enter" | "exit" | "allocate" | "free". ``what``: the kernel call or the buffer. ``memory`` are the
    boxes and ``semaphores`` the semaphores that come into being (enter, allocate) or go away (exit, free) here:
    a copy or a signal that can touch them outside that span is an error.
    """

    kind: str
    what: Hashable
    memory: tuple[Box, ...] = ()
    semaphores: tuple[Hashable, ...] = ()
    site: Site = NOWHERE


Event = Access | Start | Signal | Wait | Mark


@dataclass(frozen=True, slots=True)
class Core:
    """One sequential thread: its events in program order."""

    device: int
    events: tuple[Event, ...]
    index: int = 0
    name: str = ""


@dataclass(frozen=True, slots=True)
class Program:
    """Cores that run concurrently. ``barriers``: groups of events that all happen before any later event of the
    group's cores (the entry barrier a compiler adds): each is a tuple of points (core, event index) that every
    one of the listed cores passes only after all of them have reached it."""

    cores: tuple[Core, ...]
    barriers: tuple[tuple[tuple[int, int], ...], ...] = ()
    initial: dict[Hashable, int] = field(default_factory=dict[Hashable, int])

    def copies(self) -> Iterator[tuple[int, int, Copy]]:
        """Every copy with the (core, event index) of its start."""
        for c, core in enumerate(self.cores):
            for i, event in enumerate(core.events):
                if isinstance(event, Start):
                    yield c, i, event.copy


@dataclass(frozen=True, slots=True)
class Point:
    """A moment: event ``index`` of core ``core``; with ``half`` that completion of the copy started there."""

    core: int
    index: int
    half: Half | None = None
