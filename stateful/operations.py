"""What one first-order equation does to memory and semaphores.

An operation is what a machine carries out, with all its parts; its ``effects`` say what that means for the
memory it touches, in the vocabulary of ``stateful.effects``. Interpreters follow operations, inference reads
effects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stateful import effects as fx
from stateful.terms import Term
from stateful.types import RefType, View

Atom = Any


@dataclass(frozen=True, slots=True)
class Load:
    """The core reads ``view``; ``masked``: some elements only, the others are the atom ``other``."""

    view: View
    masked: bool = False
    mask: Atom = None
    other: Atom = None

    @property
    def effects(self) -> tuple[fx.Effect, ...]:
        """A read."""
        return (fx.Read(self.view),)


@dataclass(frozen=True, slots=True)
class Store:
    """The core writes the atom ``value`` (None: not known) to ``view``; ``masked``: to some elements."""

    view: View
    value: Atom = None
    masked: bool = False
    mask: Atom = None

    @property
    def effects(self) -> tuple[fx.Effect, ...]:
        """A write."""
        return (fx.Write(self.view, partial=self.masked),)


@dataclass(frozen=True, slots=True)
class Accumulate:
    """The core adds the value of an atom to ``view``."""

    view: View
    value: Atom = None

    @property
    def effects(self) -> tuple[fx.Effect, ...]:
        """An accumulation."""
        return (fx.Accumulate(self.view),)


@dataclass(frozen=True, slots=True)
class StartCopy:
    """``dma_start``. Semaphores may be missing: a remote copy has both, a local one usually the destination's
    only.

    The amounts are what the copy counts on each: ``source_amount`` when all is read, ``destination_amount``
    when all is written. With a ``device`` the destination and its semaphore are that device's. ``indices`` are the
    Refs that say which elements to gather or scatter; the copy reads them, too, until it is over.
    """

    source: View
    destination: View
    source_semaphore: View | None
    destination_semaphore: View | None
    source_amount: Term
    destination_amount: Term
    device: fx.DeviceId | None = None
    add: bool = False
    priority: int = 0
    indices: tuple[View, ...] = ()

    @property
    def effects(self) -> tuple[fx.Effect, ...]:
        """Reads and writes from start to completion, and the signals."""
        found: list[fx.Effect] = [
            fx.DmaRead(self.source),
            *(fx.DmaRead(view) for view in self.indices),
            fx.DmaWrite(self.destination, self.device, self.add),
        ]
        if self.source_semaphore is not None:
            found.append(fx.Signal(self.source_semaphore, self.source_amount))
        if self.destination_semaphore is not None:
            found.append(fx.Signal(self.destination_semaphore, self.destination_amount, self.device))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class WaitCopy:
    """``dma_wait``: takes ``amount`` off ``semaphore`` (None: waits for nothing). ``view`` set the amount, no
    more.

    ``direction``: ``"receive"``, or ``"send"`` where the wait is for the source having been read.
    """

    semaphore: View | None
    amount: Term
    view: View
    direction: str = "receive"

    @property
    def effects(self) -> tuple[fx.Effect, ...]:
        """A wait."""
        return () if self.semaphore is None else (fx.Wait(self.semaphore, self.amount),)


@dataclass(frozen=True, slots=True)
class Signal:
    """Adds ``amount`` (None: not known) to a semaphore here, on ``device``, or on another ``core``."""

    semaphore: View
    amount: Term | None
    device: fx.DeviceId | None = None
    core: Term | None = None

    @property
    def effects(self) -> tuple[fx.Effect, ...]:
        """A signal."""
        return (fx.Signal(self.semaphore, self.amount, self.device),)


@dataclass(frozen=True, slots=True)
class Wait:
    """Waits until the semaphore holds ``amount`` and takes it off if ``decrement``."""

    semaphore: View
    amount: Term | None
    decrement: bool = True

    @property
    def effects(self) -> tuple[fx.Effect, ...]:
        """A wait."""
        return (fx.Wait(self.semaphore, self.amount, self.decrement),)


@dataclass(frozen=True, slots=True)
class ReadSemaphore:
    """Reads the count of a semaphore without waiting."""

    semaphore: View

    @property
    def effects(self) -> tuple[fx.Effect, ...]:
        """A read."""
        return (fx.Read(self.semaphore),)


@dataclass(frozen=True, slots=True)
class BarrierSemaphore:
    """``get_barrier_semaphore``: names the barrier semaphore of the kernel's ``collective_id``."""

    tag: Any = None

    @property
    def effects(self) -> tuple[fx.Effect, ...]:
        """None: naming it does nothing."""
        return ()


@dataclass(frozen=True, slots=True)
class FetchAndAdd:
    """Adds to one element of another subcore's memory in one step; the result is what was there.

    ``view`` is the element of this subcore's own memory, ``subcore`` whose counterpart is meant.
    """

    view: View
    subcore: Term | None

    @property
    def effects(self) -> tuple[fx.Effect, ...]:
        """An accumulation."""
        return (fx.Accumulate(self.view),)


@dataclass(frozen=True, slots=True)
class SubcoreBarrier:
    """Waits until every vector subcore of the SparseCore has come here."""

    @property
    def effects(self) -> tuple[fx.Effect, ...]:
        """None on memory."""
        return ()


@dataclass(frozen=True, slots=True)
class Allocate:
    """A new Ref, the result, holding the value of an atom (None: nothing yet)."""

    type: RefType
    value: Atom = None

    @property
    def effects(self) -> tuple[fx.Effect, ...]:
        """None here: the walker knows the memory only once it has made it."""
        return ()


@dataclass(frozen=True, slots=True)
class Free:
    """The Ref ends; ``read``: its last contents are the result (``freeze``)."""

    view: View
    read: bool = False

    @property
    def effects(self) -> tuple[fx.Effect, ...]:
        """The end of the memory, after a last read for ``freeze``."""
        end = fx.Free(self.view)
        return (fx.Read(self.view), end) if self.read else (end,)


@dataclass(frozen=True, slots=True)
class Pure:
    """Touches neither memory nor semaphores."""

    @property
    def effects(self) -> tuple[fx.Effect, ...]:
        """None."""
        return ()


@dataclass(frozen=True, slots=True)
class Unmodelled:
    """Something that has no model; ``reason`` names the primitive."""

    reason: str

    @property
    def effects(self) -> tuple[fx.Effect, ...]:
        """Unknown."""
        return ()


Operation = (
    Load
    | Store
    | Accumulate
    | StartCopy
    | WaitCopy
    | Signal
    | Wait
    | ReadSemaphore
    | BarrierSemaphore
    | FetchAndAdd
    | SubcoreBarrier
    | Allocate
    | Free
    | Pure
    | Unmodelled
)

OPERATIONS: tuple[type, ...] = Operation.__args__  # type: ignore[attr-defined]
