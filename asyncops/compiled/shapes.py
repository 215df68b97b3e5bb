"""Types of HLO values: arrays in a memory space, tuples of them, and how many bytes they take."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from asyncops.compiled.brackets import closing, split_commas

VMEM, SEMAPHORES = 1, 2
# What libtpu's number means in `{...S(n)}`; 0 (not printed) is the device's main memory.
SPACES = {0: "HBM", VMEM: "VMEM", SEMAPHORES: "semaphores", 4: "SMEM", 5: "host", 6: "SMEM"}
# Deeper tuples than any program has: a text that nests deeper is refused, not followed.
MAX_DEPTH = 64

_ARRAY = re.compile(r"(?P<dtype>[a-z][a-z0-9]*)\[(?P<dims>[^\]]*)\](?:\{(?P<layout>.*)\})?$", re.DOTALL)
_SPACE = re.compile(r"(?<![A-Z])S\((\d{1,6})\)")
_TILE = re.compile(r"T\(([\d,]*)\)")
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_BITS = re.compile(r"[a-z]+(\d+)")


@dataclass(frozen=True, slots=True)
class Shape:
    """The type of a value: ``kind`` is "array", "tuple", "token", or "unknown" for what could not be read.

    ``space`` is the memory space of an array, ``pinned`` tells that the compiler may not move it
    (``b(...)``).
    """

    kind: str
    dtype: str = ""
    dims: tuple[int, ...] = ()
    space: int = 0
    tile: tuple[int, ...] = ()
    order: tuple[int, ...] = ()
    elements: tuple[Shape, ...] = ()
    pinned: bool = False

    def leaves(self) -> Iterator[Shape]:
        """The arrays of a tuple, flattened; an array is its own only leaf."""
        if self.kind != "tuple":
            yield self
        for element in self.elements:
            yield from element.leaves()

    @property
    def is_semaphore(self) -> bool:
        """True for a semaphore (TPU programs keep them in a memory space of their own)."""
        return self.kind == "array" and self.space == SEMAPHORES

    @property
    def place(self) -> str:
        """The name of the memory space."""
        return SPACES.get(self.space, f"memory space {self.space}")

    @property
    def size(self) -> int:
        """Number of elements of an array; of a tuple, of its largest leaf."""
        if self.kind == "tuple":
            return max((leaf.size for leaf in self.leaves()), default=0)
        return math.prod(self.dims) if self.kind == "array" else 0

    @property
    def nbytes(self) -> int:
        """Bytes in memory, the padding of tiles included."""
        if self.kind == "tuple":
            return sum(leaf.nbytes for leaf in self.leaves())
        return -(-math.prod(self._padded()) * _bits(self.dtype) // 8) if self.kind == "array" else 0

    def _padded(self) -> tuple[int, ...]:
        minor_first = self.order or tuple(reversed(range(len(self.dims))))
        if (
            not self.tile
            or len(self.tile) > len(self.dims)
            or sorted(minor_first) != list(range(len(self.dims)))
        ):
            return self.dims
        dims = list(self.dims)
        for axis, unit in zip(minor_first, reversed(self.tile), strict=False):
            dims[axis] = -(-dims[axis] // unit) * unit if unit else dims[axis]
        return tuple(dims)

    def __str__(self) -> str:
        if self.kind == "tuple":
            return "(" + ", ".join(map(str, self.elements)) + ")"
        return f"{self.dtype}[{','.join(map(str, self.dims))}]" if self.kind == "array" else self.kind


UNKNOWN = Shape("unknown")


def _bits(dtype: str) -> int:
    if dtype == "pred":
        return 8
    match = _BITS.match(dtype)  # f8e4m3fn has 8 bits, s32 has 32
    bits = int(match[1]) if match else 0
    return bits if bits <= 128 else 0


@functools.lru_cache(maxsize=4096)  # a program has few types and many instructions
def parse_shape(text: str) -> Shape:
    """The type that ``text`` writes down; `UNKNOWN` for one that cannot be read."""
    return _parse(text, 0)


def _parse(text: str, depth: int) -> Shape:
    text = _COMMENT.sub("", text).strip()
    if depth > MAX_DEPTH:
        return UNKNOWN
    if text.startswith("("):
        if closing(text, 0) != len(text) - 1:
            return UNKNOWN
        elements = tuple(_parse(part, depth + 1) for part in split_commas(text[1:-1]))
        return UNKNOWN if UNKNOWN in elements else Shape("tuple", elements=elements)
    if text.startswith("b(") and text.endswith(")"):
        return _pinned(_parse(text[2:-1], depth + 1))
    return _array(text)


def _pinned(shape: Shape) -> Shape:
    if shape.kind != "array":
        return shape
    return Shape("array", shape.dtype, shape.dims, shape.space, shape.tile, shape.order, pinned=True)


def _array(text: str) -> Shape:
    if text.startswith(("token[", "opaque[")):
        return Shape("token")
    match = _ARRAY.match(text)
    if match is None:
        return UNKNOWN
    dims = _integers(match["dims"].replace("<=", "").replace("?", "0"))
    if dims is None:
        return UNKNOWN
    layout = match["layout"] or ""
    order = _integers(layout.partition(":")[0]) or ()
    tile = _TILE.search(layout)
    space = _SPACE.search(layout)
    return Shape(
        "array",
        match["dtype"],
        dims,
        int(space[1]) if space else 0,
        _integers(tile[1]) or () if tile else (),
        order,
    )


def _integers(text: str) -> tuple[int, ...] | None:
    """Comma-separated numbers; None where there is anything else, or a number no array has."""
    parts = [p.strip() for p in text.split(",")] if text.strip() else []
    if not all(p.isdecimal() and len(p) < 20 for p in parts):
        return None
    return tuple(map(int, parts))
