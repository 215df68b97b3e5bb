"""Abstract values of a compiled program: which memory a value lies in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from asyncops.compiled.hlo import Instruction, Path
from asyncops.compiled.shapes import Shape

# A tuple value has at most as many leaves as its type has characters, unless the text lies about its types.
MAX_LEAVES = 100_000


class TooLarge(Exception):
    """The text describes values that no compiler makes. Never leaves this package."""


@dataclass(eq=False, slots=True)
class Buffer:
    """A piece of memory, as one result of one execution of ``origin``.

    Attributes:
      origin: what produced it; ``path`` is where in its result.
      parameter: number of the entry parameter it is, or -1.
      copied_from: the memory whose content the compiler copied here.
      alternatives: after a conditional, the memories that it may be; empty otherwise.
      whole, index: of one semaphore of an array, the array, and which it is.
    """

    origin: Instruction
    path: Path = ()
    parameter: int = -1
    copied_from: Buffer | None = None
    alternatives: tuple[Buffer, ...] = ()
    whole: Buffer | None = None
    index: tuple[int, ...] = ()

    @property
    def shape(self) -> Shape:
        """The type of what lies in it."""
        shape = self.origin.shape
        for index in self.path:
            shape = shape.elements[index]
        return shape

    def expand(self) -> tuple[Buffer, ...]:
        """The memories that it may be: itself, unless a conditional chose."""
        return self.alternatives or (self,)

    @property
    def array(self) -> Buffer:
        """The memory that it is, or is an element of."""
        return self.whole or self

    def overlaps(self, other: Buffer) -> bool:
        """Whether both are the same, or one is an element of the other."""
        return self is other or self.whole is other or other.whole is self

    def source(self) -> Buffer:
        """The memory that its content was first computed in: copies are looked through."""
        buffer = self
        while buffer.copied_from is not None:
            buffer = buffer.copied_from
        return buffer


Value = Buffer | tuple["Value", ...]


def leaves(value: Value) -> Iterable[Buffer]:
    """The memories of a value, those behind conditionals included."""
    return value.expand() if isinstance(value, Buffer) else _leaves(value)


def _leaves(value: Value) -> Iterator[Buffer]:
    budget = MAX_LEAVES
    stack: list[Value] = [value]
    while stack:
        budget -= 1
        if budget < 0:
            raise TooLarge("a tuple with more than 100,000 elements")
        item = stack.pop()
        if isinstance(item, tuple):
            stack.extend(reversed(item))
        else:
            yield from item.expand()


def first(value: Value) -> Buffer | None:
    """The first memory of a value."""
    return next(iter(leaves(value)), None)


def element(value: Value, path: Path) -> Value | None:
    """The part of ``value`` at ``path``; None where it has none."""
    for index in path:
        if not isinstance(value, tuple) or not 0 <= index < len(value):
            return None
        value = value[index]
    return value


def fresh(instruction: Instruction, aliases: dict[Path, Value] | None = None) -> Value:
    """New memory for the result of ``instruction``, except where ``aliases`` says whose memory it shares."""
    if not instruction.shape_text.startswith("("):  # an array: its type need not be read
        return (aliases or {}).get((), None) or Buffer(instruction)
    return _fresh(instruction, instruction.shape, (), aliases or {})


def _fresh(instruction: Instruction, shape: Shape, path: Path, aliases: dict[Path, Value]) -> Value:
    if path in aliases:
        return aliases[path]
    if shape.kind == "tuple":
        return tuple(_fresh(instruction, e, (*path, i), aliases) for i, e in enumerate(shape.elements))
    return Buffer(instruction, path)


def joined(instruction: Instruction, values: list[Value], path: Path = ()) -> Value:
    """What a conditional returns: the memory that all branches agree on, else one that may be any's."""
    first = values[0]
    if all(v is first for v in values):
        return first
    if isinstance(first, tuple) and all(isinstance(v, tuple) and len(v) == len(first) for v in values):
        return tuple(
            joined(instruction, list(parts), (*path, i))  # type: ignore[arg-type]
            for i, parts in enumerate(zip(*values, strict=True))  # type: ignore[arg-type]
        )
    alternatives = dict.fromkeys(b for v in values for b in leaves(v))
    return Buffer(instruction, path, alternatives=tuple(alternatives))
