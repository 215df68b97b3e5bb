"""A reader of MLIR bytecode: operations, their operands, results and regions. Of attributes, integer constants.

Why not jaxlib's own parser: it ends the process on a damaged body, and a dump may come from anybody; it
also only knows the dialect versions of its own release. This reader needs neither dialects nor JAX. The
format is the one that the MLIR documentation describes (mlir.llvm.org, "MLIR Bytecode Format"); terms in
quotes are its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

MAGIC = b"ML\xefR"
# The format versions at which an encoding that matters here changed.
_DIALECT_VERSIONS, _LAZY_REGIONS, _USE_LISTS, _ELIDED_LOCATIONS, _REGISTERED_FLAG = 1, 2, 3, 4, 5
_STRINGS, _DIALECTS, _TYPES, _OFFSETS, _IR = 0, 1, 2, 3, 4
(
    _HAS_ATTRIBUTES,
    _HAS_RESULTS,
    _HAS_OPERANDS,
    _HAS_SUCCESSORS,
    _HAS_REGIONS,
    _HAS_USE_LISTS,
    _HAS_PROPERTIES,
) = (1 << bit for bit in range(7))
# "DictionaryAttr" and "IntegerAttr" among the attributes of the builtin dialect.
_DICTIONARY, _INTEGER = 1, 8
# Widths of "BFloat16Type", "Float16Type", "Float32Type" and "Float64Type".
_FLOATS = {3: 16, 4: 16, 5: 32, 6: 64}
_MAX_DEPTH = 200


class BytecodeError(Exception):
    """The bytes are no bytecode, are damaged, or are of a newer format. Never leaves this package."""


@dataclass(frozen=True, slots=True)
class Type:
    """A type as far as it is read: ``kind`` is "memref", "integer", "index" or "other".

    ``text`` is what a dialect wrote for a type of its own, ``element`` the element type of a memref, ``dims`` its
    sizes (-1: not known), ``bits`` the width of a number (0: not known).
    """

    kind: str
    text: str = ""
    element: Type | None = None
    dims: tuple[int, ...] = ()
    bits: int = 0

    @property
    def nbits(self) -> int | None:
        """Size of what a memref is of, padding left out; None where it is not known."""
        bits = self.element.bits if self.element is not None else 0
        return math.prod(self.dims) * bits if bits and min(self.dims, default=0) >= 0 else None

    @property
    def is_semaphore(self) -> bool:
        """True for a Ref of semaphores, and for a semaphore itself."""
        return "semaphore" in self.text or (self.element is not None and self.element.is_semaphore)


_OTHER = Type("other")


@dataclass(eq=False, slots=True)
class Value:
    """An SSA value: a result of ``owner``, or the argument of a block (then ``owner`` is None)."""

    type: Type = _OTHER
    owner: Operation | None = None


@dataclass(eq=False, slots=True)
class Operation:
    """One operation; ``name`` has its dialect, such as "stable_mosaic.tpu.enqueue_dma".

    ``constant`` is the value of an integer constant; None where it is none, or one that is not read.
    """

    name: str
    operands: list[Value] = field(default_factory=list)
    results: list[Value] = field(default_factory=list)
    regions: list[list[Block]] = field(default_factory=list)
    constant: int | None = None


@dataclass(eq=False, slots=True)
class Block:
    """A basic block."""

    arguments: list[Value] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)


class _Cursor:
    """A position in bytes."""

    def __init__(self, data: bytes, at: int = 0, end: int | None = None) -> None:
        self.data = data
        self.at = at
        self.end = len(data) if end is None else end

    def byte(self) -> int:
        return self.take(1)[0]

    def take(self, count: int) -> bytes:
        if count > self.end - self.at:
            raise BytecodeError("the bytecode ends too early")
        self.at += count
        return self.data[self.at - count : self.at]

    def varint(self) -> int:
        """A "PrefixVarInt": the zeros below the lowest one of the first byte count the bytes that follow."""
        first = self.byte()
        if first & 1:
            return first >> 1
        if first == 0:
            return int.from_bytes(self.take(8), "little")
        more = (first & -first).bit_length() - 1
        return int.from_bytes(bytes([first]) + self.take(more), "little") >> (more + 1)

    def count(self) -> int:
        """A varint that counts things of at least a byte each: so it cannot ask for much memory."""
        value = self.varint()
        if value > self.end - self.at:
            raise BytecodeError("a count exceeds what is left of the bytecode")
        return value

    def flagged(self) -> tuple[int, bool]:
        """A varint whose lowest bit is a flag."""
        value = self.varint()
        return value >> 1, bool(value & 1)

    def section(self) -> tuple[int, _Cursor]:
        """The section that begins here: its number and its content."""
        head = self.byte()
        length = self.varint()
        if head & 0x80:  # aligned: padding up to a multiple of the alignment
            alignment = self.varint() or 1
            self.take(-self.at % alignment)
        self.take(length)
        return head & 0x7F, _Cursor(self.data, self.at - length, self.at)


# An attribute or type: its dialect, its bytes, and whether they are in the dialect's own encoding.
_Entry = tuple[str, _Cursor, bool]


def read_bytecode(data: bytes) -> Operation:
    """The top operation (a module) of ``data``.

    Raises:
      BytecodeError: for anything that cannot be read. There is no other exception.
    """
    try:
        return _Reader(data).top()
    except (IndexError, RecursionError) as error:
        raise BytecodeError(f"damaged bytecode: {error}") from error


class _Reader:
    """Reads one file."""

    def __init__(self, data: bytes) -> None:
        cursor = _Cursor(data)
        if cursor.take(4) != MAGIC:
            raise BytecodeError("the bytes do not begin as MLIR bytecode does")
        self._version = cursor.varint()
        while cursor.byte():  # the producer's name, up to a zero
            pass
        self._sections: dict[int, _Cursor] = {}
        while cursor.at < cursor.end:
            number, content = cursor.section()
            self._sections[number] = content
        self._strings = self._read_strings(self._section(_STRINGS))
        self._dialects: list[str] = []
        self._names = self._read_names(self._section(_DIALECTS))
        self._attributes, self._types = self._read_entries(self._section(_OFFSETS), self._section(_TYPES))
        self._type_cache: dict[int, Type] = {}

    def _section(self, number: int) -> _Cursor:
        if number not in self._sections:
            raise BytecodeError(f"section {number} is missing")
        return self._sections[number]

    def _read_strings(self, cursor: _Cursor) -> list[str]:
        lengths = [cursor.varint() for _ in range(cursor.count())]
        return [cursor.take(n)[:-1].decode("utf-8", "replace") for n in reversed(lengths)]

    def _read_names(self, cursor: _Cursor) -> list[str]:
        """Names of operations; they are listed by dialect after the dialects themselves."""
        for _ in range(cursor.count()):
            name, versioned = (
                cursor.flagged() if self._version >= _DIALECT_VERSIONS else (cursor.varint(), False)
            )
            self._dialects.append(self._strings[name])
            if versioned:
                cursor.section()
        if self._version >= _ELIDED_LOCATIONS:
            cursor.varint()  # "numOpNames", a hint for allocation
        names = []
        while cursor.at < cursor.end:
            dialect = self._dialects[cursor.varint()]
            for _ in range(cursor.count()):
                name = cursor.varint() >> (1 if self._version >= _REGISTERED_FLAG else 0)
                names.append(f"{dialect}.{self._strings[name]}")
        return names

    def _read_entries(self, offsets: _Cursor, data: _Cursor) -> tuple[list[_Entry], list[_Entry]]:
        """The attributes and the types, not read yet."""
        attributes = offsets.varint()
        total = attributes + offsets.varint()
        entries: list[_Entry] = []
        while len(entries) < total:
            dialect = self._dialects[offsets.varint()]
            for _ in range(offsets.count()):
                length, custom = offsets.flagged()
                data.take(length)
                entries.append((dialect, _Cursor(data.data, data.at - length, data.at), custom))
        return entries[:attributes], entries[attributes:]

    def _type(self, number: int, depth: int = 0) -> Type:
        if number not in self._type_cache:
            if depth > _MAX_DEPTH:
                raise BytecodeError("types nest too deep")
            self._type_cache[number] = self._read_type(*self._types[number], depth)
        return self._type_cache[number]

    def _read_type(self, dialect: str, content: _Cursor, custom: bool, depth: int) -> Type:
        cursor = _Cursor(content.data, content.at, content.end)
        if not custom:  # written as text, with a zero at its end
            return Type("other", cursor.take(cursor.end - cursor.at).rstrip(b"\0").decode("utf-8", "replace"))
        if dialect != "builtin":
            return _OTHER
        code = cursor.varint()
        if code == 0:  # "IntegerType": its width, and two bits for its sign
            return Type("integer", bits=cursor.varint() >> 2)
        if code not in (10, 11):  # "MemRefType", "MemRefTypeWithMemSpace"
            return Type("index") if code == 1 else Type("other", bits=_FLOATS.get(code, 0))
        if code == 11:
            cursor.varint()  # the memory space
        dims = tuple(max(-1, _signed(cursor.varint())) for _ in range(cursor.count()))
        return Type("memref", element=self._type(cursor.varint(), depth + 1), dims=dims)

    def _constant(self, dictionary: int) -> int | None:
        """The integer that the attributes of a constant consist of; None for anything else."""
        code, cursor = self._attribute(dictionary)
        if code != _DICTIONARY or cursor.varint() != 1:
            return None
        cursor.varint()  # its name, "value"
        code, cursor = self._attribute(cursor.varint())
        if code != _INTEGER:
            return None
        kind = self._type(cursor.varint())
        # Those of at most eight bits are written in another way, and are no indices.
        return _signed(cursor.varint()) if kind.kind == "index" or 8 < kind.bits <= 64 else None

    def _attribute(self, number: int) -> tuple[int, _Cursor]:
        """What kind of attribute of MLIR's own it is (-1: of another dialect), and its content."""
        dialect, content, custom = self._attributes[number]
        cursor = _Cursor(content.data, content.at, content.end)
        return (cursor.varint() if custom and dialect == "builtin" else -1), cursor

    def top(self) -> Operation:
        """The operation that the IR section holds."""
        operations = self._block(self._section(_IR), iter(()), [], 0).operations
        if len(operations) != 1:
            raise BytecodeError("the bytecode does not hold one module")
        return operations[0]

    def _region(self, cursor: _Cursor, scope: list[Value], depth: int) -> list[Block]:
        """The blocks of a region. Its values get the numbers after those in ``scope``, as they are defined."""
        if depth > _MAX_DEPTH:
            raise BytecodeError("regions nest too deep")
        blocks = cursor.count()
        if not blocks:
            return []
        outer = len(scope)
        fresh = [Value() for _ in range(cursor.count())]
        scope.extend(fresh)
        unset = iter(fresh)
        region = [self._block(cursor, unset, scope, depth) for _ in range(blocks)]
        del scope[outer:]
        return region

    def _block(self, cursor: _Cursor, unset: Iterator[Value], scope: list[Value], depth: int) -> Block:
        count, has_arguments = cursor.flagged()
        if count > cursor.end - cursor.at:
            raise BytecodeError("a count exceeds what is left of the bytecode")
        block = Block()
        if has_arguments:
            block.arguments = [self._argument(cursor, unset) for _ in range(cursor.count())]
            if self._version >= _USE_LISTS and cursor.byte():
                _skip_use_lists(cursor, len(block.arguments))
        block.operations = [self._operation(cursor, unset, scope, depth) for _ in range(count)]
        return block

    def _argument(self, cursor: _Cursor, unset: Iterator[Value]) -> Value:
        if self._version >= _ELIDED_LOCATIONS:
            number, located = cursor.flagged()
        else:
            number, located = cursor.varint(), True
        if located:
            cursor.varint()
        return self._define(unset, self._type(number), None)

    def _define(self, unset: Iterator[Value], kind: Type, owner: Operation | None) -> Value:
        value = next(unset, None)
        if value is None:
            raise BytecodeError("a region defines more values than it announced")
        value.type, value.owner = kind, owner
        return value

    def _operation(
        self, cursor: _Cursor, unset: Iterator[Value], scope: list[Value], depth: int
    ) -> Operation:
        operation = Operation(self._names[cursor.varint()])
        mask = cursor.byte()
        cursor.varint()  # location
        if mask & _HAS_ATTRIBUTES:
            attributes = cursor.varint()
            if operation.name.endswith("arith.constant"):
                operation.constant = self._constant(attributes)
        if mask & _HAS_PROPERTIES:
            cursor.varint()
        if mask & _HAS_RESULTS:
            kinds = [self._type(cursor.varint()) for _ in range(cursor.count())]
            operation.results = [self._define(unset, kind, operation) for kind in kinds]
        if mask & _HAS_OPERANDS:
            operation.operands = [scope[cursor.varint()] for _ in range(cursor.count())]
        if mask & _HAS_SUCCESSORS:
            for _ in range(cursor.count()):
                cursor.varint()
        if mask & _HAS_USE_LISTS:
            _skip_use_lists(cursor, len(operation.results))
        if mask & _HAS_REGIONS:
            self._regions(operation, cursor, scope, depth + 1)
        return operation

    def _regions(self, operation: Operation, cursor: _Cursor, scope: list[Value], depth: int) -> None:
        count, isolated = cursor.flagged()
        if count > cursor.end - cursor.at:
            raise BytecodeError("a count exceeds what is left of the bytecode")
        for _ in range(count):
            source = cursor
            if isolated and self._version >= _LAZY_REGIONS:
                source = cursor.section()[1]
            operation.regions.append(self._region(source, [] if isolated else scope, depth))


def _signed(value: int) -> int:
    """A signed number, whose sign is its lowest bit."""
    return -(value >> 1) - 1 if value & 1 else value >> 1


def _skip_use_lists(cursor: _Cursor, values: int) -> None:
    for _ in range(cursor.count() if values > 1 else 1):
        if values > 1:
            cursor.varint()  # which value
        for _ in range(cursor.flagged()[0]):
            cursor.varint()
