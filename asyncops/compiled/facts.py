"""What following a schedule brings to light: copies in flight, what touches them, how they end."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import NamedTuple

from asyncops.compiled.hlo import Instruction, Module
from asyncops.compiled.mosaic import Part
from asyncops.compiled.values import Buffer


@dataclass(frozen=True, slots=True)
class Scope:
    """A control instruction around a step: ``kind`` is "loop", "branch" or "call".

    ``trips`` is how often a loop runs, None where the program does not tell; ``label`` names a branch.
    """

    instruction: Instruction
    kind: str
    trips: int | None = None
    label: str = ""


ScopePath = tuple[Scope, ...]


def loops(path: ScopePath) -> tuple[Scope, ...]:
    """The loops around a step, outermost first."""
    return tuple(scope for scope in path if scope.kind == "loop")


def times(path: ScopePath) -> int | None:
    """How often a step runs: the product of the trip counts around it; None where one is not known."""
    product = 1
    for scope in loops(path):
        if scope.trips is None:
            return None
        product *= scope.trips
    return product


class Mark(enum.Enum):
    """What an entry of the log is: an instruction ran, a scope began or ended, an iteration began."""

    RUN = "run"
    ENTER = "enter"
    EXIT = "exit"
    ITERATION = "iteration"


class Entry(NamedTuple):
    """One entry of the log. Scopes nest; ``branch`` names one way of several, ``trips`` counts a loop."""

    mark: Mark
    instruction: Instruction
    branch: str = ""
    trips: int | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """A wait that completed a half of a copy, at ``step`` of the log."""

    instruction: Instruction
    step: int
    path: ScopePath


@dataclass(eq=False, slots=True)
class Flight:
    """One copy in flight.

    Attributes:
      start, step, path: the instruction that began it, when, and inside what.
      native: one of XLA's own pairs, whose buffers XLA itself looks after; else started by a Pallas kernel.
      source, destination: the memories that are read and written; None where they are not known.
      source_key, destination_key: the semaphores (of XLA's own: the result) that its two halves are waited
        for by.
      inferred: the kernel that started it could not be read.
      amount: its size in bits; None where that, or whether or how often the kernel starts it, is not known.
      released: the steps at which its halves were waited for, by their keys.
      endings: the waits that completed it, of its last half.
      destination_part: the part of its destination that it writes; None: all, or one that is not known.
    """

    start: Instruction
    step: int
    path: ScopePath
    native: bool
    source: Buffer | None
    destination: Buffer | None
    source_key: Buffer | None
    destination_key: Buffer | None
    remote: bool = False
    inferred: bool = False
    amount: int | None = None
    released: dict[Buffer, list[int]] = field(default_factory=dict)
    endings: list[Ending] = field(default_factory=list)
    destination_part: Part | None = None

    @property
    def keys(self) -> frozenset[Buffer]:
        """What has to be waited for until it is over."""
        return frozenset(k for k in (self.source_key, self.destination_key) if k is not None)

    def key_of(self, role: str) -> Buffer | None:
        """What has to be waited for until the source (or destination) is free: a local copy has one for both."""
        if role == "source":
            return self.source_key or self.destination_key
        return self.destination_key or self.source_key


@dataclass(frozen=True, slots=True)
class Touch:
    """An instruction reads, copies or writes (``access``) a buffer of a copy in flight (``role``).

    ``operand`` is the number of the operand that the buffer is, -1 where that is not told.
    """

    flight: Flight
    instruction: Instruction
    role: str
    access: str
    step: int
    path: ScopePath
    result: Buffer | None = None
    operand: int = -1


@dataclass(frozen=True, slots=True)
class SecondWait:
    """A wait for a copy that ``earlier`` has waited for already; ``branch`` limits it to one path."""

    instruction: Instruction
    flight: Flight
    earlier: Instruction
    path: ScopePath
    branch: str = ""


@dataclass(frozen=True, slots=True)
class Lost:
    """A copy that nothing can wait for any more, on the paths through ``branch`` (empty: on all)."""

    flight: Flight
    control: Instruction | None = None
    branch: str = ""


@dataclass(frozen=True, slots=True)
class CopyMade:
    """A copy or move that the compiler put into the program."""

    instruction: Instruction
    operand: Buffer
    result: Buffer
    step: int
    path: ScopePath


@dataclass
class Trace:
    """The facts of one module.

    ``last_use`` maps memory to the last step that uses it; ``aliased`` are the memories that an
    asynchronous Pallas kernel takes over (operand and result are one memory), by the kernel's instruction;
    ``carried`` are those that an iteration hands to the next.
    """

    module: Module
    log: list[Entry] = field(default_factory=list)
    flights: list[Flight] = field(default_factory=list)
    touches: list[Touch] = field(default_factory=list)
    second_waits: list[SecondWait] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)
    copies: list[CopyMade] = field(default_factory=list)
    last_use: dict[Buffer, int] = field(default_factory=dict)
    aliased: dict[Buffer, Instruction] = field(default_factory=dict)
    carried: set[Buffer] = field(default_factory=set)
    unknowns: list[str] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)

    def is_kept(self, buffer: Buffer) -> bool:
        """True for memory that the program may not reuse: an argument that is not donated."""
        return buffer.parameter >= 0 and buffer.parameter not in self.module.donated
