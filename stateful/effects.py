"""The effect vocabulary, and when two effects conflict.

An effect says what is done to one :class:`~stateful.types.View`. ``DmaRead`` and ``DmaWrite`` last from the
start of a copy to its completion; all others happen at one moment of the core that causes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stateful.terms import Term
from stateful.types import View


@dataclass(frozen=True)
class DeviceId:
    """Which device a remote operation addresses, as the kernel wrote it.

    ``kind``: ``"logical"`` (its number in the mesh) or ``"mesh"`` (coordinates: a scalar for a mesh of one
    axis, a tuple in the order of the axes, or a dictionary from axis names, which may leave axes out: those
    stay the sender's). A component is None where its value is not known.
    """

    kind: str
    value: Term | tuple[Term | None, ...] | dict[str, Term | None] | None

    def __str__(self) -> str:
        if isinstance(self.value, dict):
            return "device {" + ", ".join(f"{k}: {v}" for k, v in self.value.items()) + "}"
        return f"device {'?' if self.value is None else self.value}"


@dataclass(frozen=True)
class Read:
    """The core reads."""

    view: View
    word: ClassVar[str] = "read"

    def __str__(self) -> str:
        return f"read {self.view}"


@dataclass(frozen=True)
class Write:
    """The core writes; ``partial``: possibly some elements only."""

    view: View
    partial: bool = False
    word: ClassVar[str] = "write"

    def __str__(self) -> str:
        return f"write {self.view}{' (masked)' if self.partial else ''}"


@dataclass(frozen=True)
class Accumulate:
    """The core reads, adds and writes back; not atomic."""

    view: View
    word: ClassVar[str] = "accumulate"

    def __str__(self) -> str:
        return f"accumulate {self.view}"


@dataclass(frozen=True)
class DmaRead:
    """A copy reads, from its start until it has read everything."""

    view: View
    word: ClassVar[str] = "dma read"

    def __str__(self) -> str:
        return f"dma read {self.view}"


@dataclass(frozen=True)
class DmaWrite:
    """A copy writes, from its start until it has written everything; ``add``: it adds to what is there."""

    view: View
    device: DeviceId | None = None
    add: bool = False
    word: ClassVar[str] = "dma write"

    def __str__(self) -> str:
        where = f" on {self.device}" if self.device else ""
        return f"dma {'add' if self.add else 'write'} {self.view}{where}"


@dataclass(frozen=True)
class Signal:
    """Adds to a semaphore; ``amount`` is None where not known."""

    view: View
    amount: Term | None = None
    device: DeviceId | None = None
    word: ClassVar[str] = "signal"

    def __str__(self) -> str:
        where = f" on {self.device}" if self.device else ""
        return f"signal {self.view} {'?' if self.amount is None else self.amount}{where}"


@dataclass(frozen=True)
class Wait:
    """Waits for a semaphore and takes the amount off, if ``decrement``."""

    view: View
    amount: Term | None = None
    decrement: bool = True
    word: ClassVar[str] = "wait"

    def __str__(self) -> str:
        kept = "" if self.decrement else " (count kept)"
        return f"wait {self.view} {'?' if self.amount is None else self.amount}{kept}"


@dataclass(frozen=True)
class Allocate:
    """Memory or semaphores begin to exist."""

    view: View
    word: ClassVar[str] = "allocate"

    def __str__(self) -> str:
        return f"allocate {self.view.root}: {self.view.type}"


@dataclass(frozen=True)
class Free:
    """Memory or semaphores cease to exist."""

    view: View
    word: ClassVar[str] = "free"

    def __str__(self) -> str:
        return f"free {self.view.root}"


Effect = Read | Write | Accumulate | DmaRead | DmaWrite | Signal | Wait | Allocate | Free

# Which kinds of effects conflict when they touch a common element and nothing orders them. The relation is
# symmetric.
#
#   * two readers never do; a reader and a writer, and two writers, do;
#   * accumulations are read-modify-write, not atomic: they conflict with each other, too;
#   * semaphores are made to be shared: signals and waits conflict with the beginning and end of memory only
#     (two waits compete for counts, but that is no torn value; the checker's rules on amounts are about it).
_READS = {Read, DmaRead}
_WRITES = {Write, Accumulate, DmaWrite}
_COUNTS = {Signal, Wait}
_LIFETIME = {Allocate, Free}


def _kinds_conflict(a: type, b: type) -> bool:
    if a in _LIFETIME or b in _LIFETIME:
        return True
    if a in _COUNTS or b in _COUNTS:
        return False
    return a in _WRITES or b in _WRITES


CONFLICT_TABLE: dict[tuple[str, str], bool] = {
    (a.word, b.word): _kinds_conflict(a, b)
    for kinds in [sorted(_READS | _WRITES | _COUNTS | _LIFETIME, key=lambda k: k.word)]
    for a in kinds
    for b in kinds
}


def conflicts(a: Effect, b: Effect) -> bool | None:
    """Whether two unordered effects disturb each other; None where that depends on values that are not known.

    Both are taken to be caused by the same device. ``on the same device`` is decided by the device ids as
    written: two that cannot be compared give None.
    """
    if not CONFLICT_TABLE[a.word, b.word] or a.view.root != b.view.root:
        return False
    same_device = _same_device(getattr(a, "device", None), getattr(b, "device", None))
    if same_device is False:
        return False
    overlap = True if _LIFETIME & {type(a), type(b)} else a.view.region.overlaps(b.view.region)
    return overlap if same_device or overlap is False else None


def _same_device(a: DeviceId | None, b: DeviceId | None) -> bool | None:
    if a is None and b is None:
        return True
    if a is None or b is None or a.kind != b.kind:
        return None  # a device may address itself
    if a.value == b.value:
        return True if a.value is not None else None
    return False if isinstance(a.value, int) and isinstance(b.value, int) else None
