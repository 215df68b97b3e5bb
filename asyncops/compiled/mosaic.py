"""What a Pallas TPU kernel does with its arguments, read from the Mosaic module that its custom call carries.

A kernel *leaves a copy in flight* when it starts a DMA on a semaphore that is an argument (an operand or a
result of the call) and does not wait on it afterwards; it *completes* copies when it waits on an argument
semaphore on which it has started none. Everything else is reading and writing during the call.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from asyncops.compiled.bytecode import Block, BytecodeError, Operation, Value, read_bytecode
from asyncops.compiled.hlo import Instruction

TARGET = "tpu_custom_call"
# How often what is inside runs depends on values that are not looked at.
_CONTROL = ("scf.for", "scf.while", "scf.parallel", "scf.if", "scf.index_switch")
_MAX_BODY = 1 << 26


class Slot(NamedTuple):
    """An argument of a kernel: ``kind`` "operand" or "result", and its number (results: flattened).

    ``element`` names one of it, where it is an array of semaphores; None: all, or one that is not known.
    """

    kind: str
    number: int
    element: tuple[int, ...] | None = None


Offset = int | tuple[int, int]
"""Where a part begins: a number, or one that is read from an operand: (its number, which of its elements)."""
Part = tuple[tuple[Offset, int, int], ...]
"""A part of an array: for each dimension where it begins, how long it is, and how long the array is."""


@dataclass(frozen=True, slots=True)
class KernelCopy:
    """A DMA that a kernel starts. None: memory of the kernel's own, or a Ref that could not be traced.

    ``amount`` is its size in bits; None where it is not known, or whether or how often it is started is not.
    ``destination_part`` is the part of its destination that it writes; None: all, or one that is not known.
    """

    source: Slot | None
    destination: Slot | None
    source_semaphore: Slot | None
    destination_semaphore: Slot | None
    remote: bool = False
    amount: int | None = None
    destination_part: Part | None = None

    @property
    def semaphores(self) -> tuple[Slot, ...]:
        """The argument semaphores that it counts on."""
        return tuple(s for s in (self.source_semaphore, self.destination_semaphore) if s is not None)


@dataclass(frozen=True, slots=True)
class KernelWait:
    """Waits on an argument semaphore for what another kernel started.

    ``amount`` is for how many bits; None where that is not known, or depends on a loop or a condition.
    """

    semaphore: Slot
    amount: int | None


@dataclass(frozen=True, slots=True)
class Kernel:
    """The outside view of a kernel. ``inferred`` says why it had to be guessed; empty where it was read."""

    left: tuple[KernelCopy, ...] = ()
    waits: tuple[KernelWait, ...] = ()
    reads: frozenset[Slot] = frozenset()
    writes: frozenset[Slot] = frozenset()
    inferred: str = ""


def kernel_of(instruction: Instruction, semaphores: frozenset[int] = frozenset()) -> Kernel:
    """The kernel of a Pallas custom call: read from its body, else inferred from its type and aliasing.

    ``semaphores``: the numbers of the operands that are semaphores, of which the call itself does not tell.
    """
    try:
        return _read(_body(instruction), len(instruction.operands), len(list(instruction.shape.leaves())))
    except BytecodeError as error:
        return _infer(instruction, semaphores, str(error))


def _body(instruction: Instruction) -> bytes:
    text = instruction.attributes.get("backend_config", "")
    try:
        body = json.loads(text)["custom_call_config"]["body"]
        if not isinstance(body, str) or len(body) > _MAX_BODY:
            raise BytecodeError("its body is no text")
        return base64.b64decode(body, validate=True)
    except (ValueError, KeyError, TypeError, RecursionError, binascii.Error) as error:
        raise BytecodeError("it carries no Mosaic module") from error


def _read(body: bytes, operands: int, results: int) -> Kernel:
    function = next(_functions(read_bytecode(body)), None)
    if function is None or not function.regions or not function.regions[0]:
        raise BytecodeError("its Mosaic module has no function")
    entry = function.regions[0][0]
    # Grid indices are scalars and come first; then operands, results, scratch, all of them Refs.
    arguments = [a for a in entry.arguments if a.type.kind == "memref"]
    if len(arguments) < operands + results:
        raise BytecodeError("its Mosaic function takes other arguments than the call gives")
    slots = [Slot("operand", i) for i in range(operands)] + [Slot("result", i) for i in range(results)]
    return _Walk(dict(zip(arguments, slots, strict=False))).run(entry)


def _functions(module: Operation) -> Iterator[Operation]:
    """The module's functions; the kernel is the first, index maps follow."""
    for region in module.regions:
        for block in region:
            yield from (o for o in block.operations if o.name.endswith("func.func"))


@dataclass
class _Pending:
    """A copy started on argument semaphores that have not been waited for."""

    copy: KernelCopy
    open: set[Slot]


@dataclass
class _Walk:
    """Goes through a kernel in program order; loops and branches count as executed once."""

    roots: dict[Value, Slot]
    pending: list[_Pending] = field(default_factory=list)
    waits: dict[Slot, int | None] = field(default_factory=dict)
    reads: set[Slot] = field(default_factory=set)
    writes: set[Slot] = field(default_factory=set)
    offsets: dict[Value, Offset] = field(default_factory=dict)
    parts: dict[Value, Part] = field(default_factory=dict)
    arguments: frozenset[Value] = frozenset()

    def run(self, entry: Block) -> Kernel:
        self.arguments = frozenset(self.roots)
        self._block(entry, counted=True)
        return Kernel(
            left=tuple(p.copy for p in self.pending if p.open),
            waits=tuple(KernelWait(slot, amount) for slot, amount in self.waits.items()),
            reads=frozenset(self.reads),
            writes=frozenset(self.writes),
        )

    def _block(self, block: Block, counted: bool) -> None:
        for operation in block.operations:
            self._operation(operation, counted)
            once = counted and not operation.name.endswith(_CONTROL)
            for region in operation.regions:
                for inner in region:
                    self._block(inner, once)

    def _operation(self, operation: Operation, counted: bool) -> None:
        name = operation.name
        if "enqueue" in name and "dma" in name:
            self._start(operation, counted)
        elif "wait" in name and "dma" in name:
            self._wait(operation, counted)
        elif operation.results and operation.results[0].type.kind == "memref":
            self._view(operation)
        else:
            self._note_offset(operation)
            self._access(operation)

    def _note_offset(self, operation: Operation) -> None:
        """A constant, or one element of an operand of numbers."""
        if operation.constant is not None:
            self.offsets.update((result, operation.constant) for result in operation.results)
        if not operation.name.endswith("memref.load") or len(operation.operands) != 2:
            return
        memory, index = operation.operands
        slot, at = self.roots.get(memory), self.offsets.get(index)
        is_given = slot is not None and slot.kind == "operand" and slot not in self.writes
        if slot is not None and is_given and isinstance(at, int) and len(memory.type.dims) == 1:
            self.offsets.update((result, (slot.number, at)) for result in operation.results)

    def _part(self, operation: Operation, base: Value) -> Part | None:
        """The part that a slice of a whole argument takes."""
        if base not in self.arguments:
            return None
        begins = [self.offsets.get(v) for v in operation.operands if v is not base]
        sizes, known = operation.results[0].type.dims, [b for b in begins if b is not None]
        exact = operation.name.endswith("slice") and len(known) == len(begins) == len(sizes)
        if not exact or len(sizes) != len(base.type.dims) or min(sizes, default=0) <= 0:
            return None
        return tuple(zip(known, sizes, base.type.dims, strict=True))

    def _view(self, operation: Operation) -> None:
        """A slice, reshape or cast of a Ref is the same memory; one semaphore of an array is told from the others."""
        base = next((v for v in operation.operands if v.type.kind == "memref"), None)
        if base not in self.roots:
            return
        slot = self.roots[base]
        if base.type.is_semaphore and operation.name.endswith("slice"):
            slot = slot._replace(element=None if slot.element else _constants(operation))
        if base not in self.parts and not base.type.is_semaphore and (part := self._part(operation, base)):
            self.parts.update((result, part) for result in operation.results)
        elif base in self.parts:  # no larger than that
            self.parts.update((result, self.parts[base]) for result in operation.results)
        self.roots.update((result, slot) for result in operation.results)

    def _start(self, operation: Operation, counted: bool) -> None:
        """Operands: the source, its semaphore, the destination, its semaphore, the device; not all must be."""
        refs = [v for v in operation.operands if v.type.kind == "memref"]
        data = [v for v in refs if not v.type.is_semaphore]
        if len(data) < 2:
            return self._access(operation)
        before = refs.index(data[1])
        semaphores = [(refs.index(v) < before, self.roots.get(v)) for v in refs if v.type.is_semaphore]
        copy = KernelCopy(
            self.roots.get(data[0]),
            self.roots.get(data[1]),
            next((s for of_source, s in semaphores if of_source), None),
            next((s for of_source, s in semaphores if not of_source), None),
            remote=any(v.type.kind == "integer" for v in operation.operands),
            amount=data[0].type.nbits if counted else None,
            destination_part=self.parts.get(data[1]),
        )
        if copy.semaphores:
            self.pending.append(_Pending(copy, set(copy.semaphores)))
        else:
            self._during(copy)
        return None

    def _during(self, copy: KernelCopy) -> None:
        """A copy that begins and ends inside the kernel is an access of it."""
        self.reads.update(s for s in [copy.source] if s)
        self.writes.update(s for s in [copy.destination] if s)

    def _wait(self, operation: Operation, counted: bool) -> None:
        data = [
            v.type.nbits for v in operation.operands if v.type.kind == "memref" and not v.type.is_semaphore
        ]
        for value in operation.operands:
            if value.type.is_semaphore and (slot := self.roots.get(value)):
                self._wait_on(slot, data[-1] if data and counted else None)

    def _wait_on(self, slot: Slot, amount: int | None) -> None:
        own = next((p for p in self.pending if slot in p.open), None)
        if own is None:
            before = self.waits.get(slot, 0)
            self.waits[slot] = before + amount if amount is not None and before is not None else None
            return
        own.open.discard(slot)
        if not own.open:
            self._during(own.copy)

    def _access(self, operation: Operation) -> None:
        slots = {self.roots[v] for v in operation.operands if v in self.roots and not v.type.is_semaphore}
        if "store" not in operation.name:
            self.reads |= slots
        if "load" not in operation.name:
            self.writes |= slots


def _constants(operation: Operation) -> tuple[int, ...] | None:
    """The indices of a slice; None where one of them is computed."""
    indices = [v.owner.constant if v.owner else None for v in operation.operands if v.type.kind != "memref"]
    return tuple(i for i in indices if i is not None) if indices and None not in indices else None


def _infer(instruction: Instruction, semaphores: frozenset[int], why: str) -> Kernel:
    """From types alone: a result semaphore is a copy in flight, an operand semaphore one that is completed."""
    aliased = {_leaf_number(path): operand for path, (operand, _) in instruction.aliases.items()}
    results = [(n, leaf) for n, leaf in enumerate(instruction.shape.leaves()) if n not in aliased]
    made = [Slot("result", n) for n, leaf in results if leaf.is_semaphore]
    fresh = [Slot("result", n) for n, leaf in results if not leaf.is_semaphore]
    waits = tuple(KernelWait(Slot("operand", n), None) for n in sorted(semaphores))
    if not made:
        data = frozenset(Slot("operand", n) for n in range(len(instruction.operands)) if n not in semaphores)
        return Kernel(
            waits=waits, reads=frozenset() if waits else data, writes=frozenset(fresh), inferred=why
        )
    sources = [Slot("operand", operand) for operand in aliased.values()] or [Slot("operand", 0)]
    sent = made[0] if len(made) > 1 else None
    copies = (KernelCopy(a, b, sent, made[-1]) for a, b in zip(sources, fresh, strict=False))
    return Kernel(left=tuple(copies), waits=waits, inferred=why)


def _leaf_number(path: tuple[int, ...]) -> int:
    """The flattened number of the result at ``path``; Pallas calls return a value or a flat tuple."""
    return path[0] if path else 0
