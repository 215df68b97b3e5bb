"""Whether an instruction reads a part of an array that a copy in flight does not write, as the other of two slots."""

from __future__ import annotations

import re
from collections.abc import Iterator

from asyncops.compiled.facts import Touch, loops
from asyncops.compiled.hlo import Computation, Instruction
from asyncops.compiled.numbers import NotKnown, Numbers
from asyncops.compiled.sites import Sites

# A loop of more iterations is not looked at one by one.
MAX_ITERATIONS = 1024
_SLICE = re.compile(r"\[(\d{1,12}):(\d{1,12})(?::(\d{1,12}))?\]")

Range = tuple[int, int]


def reads_beside(touch: Touch, sites: Sites) -> bool:
    """True where in every iteration all that is read lies outside the part that the copy writes.

    False also where that is not known: where either part is not told by constants and the loop's counter, or the loop
    does not tell how often it runs.
    """
    around = loops(touch.path)
    trips = around[-1].trips if around else 1
    if trips is None or trips > MAX_ITERATIONS or len(around) > 1:
        return False
    if around and sites.caller(touch.instruction) is not around[-1].instruction:
        return False
    home = sites.home(touch.instruction)
    if home is None or home is not sites.home(touch.flight.start):
        return False
    try:
        reads = list(_reads(touch.instruction, touch.operand, home, sites))
        return bool(reads) and all(_is_beside(touch, reads, Numbers(sites, k), sites) for k in range(trips))
    except NotKnown:
        return False


Read = tuple[Instruction, Computation]


def _reads(instruction: Instruction, operand: int, home: Computation, sites: Sites) -> Iterator[Read]:
    """The slices through which alone an operand is read, in the instruction or in what was fused into it."""
    if instruction.opcode in ("slice", "dynamic-slice") and operand == 0:
        yield instruction, home
        return
    callees = instruction.callees if instruction.opcode == "fusion" else ()
    inside = sites.module.computations.get(callees[0]) if callees else None
    parameters = [i for i in inside.instructions if i.opcode == "parameter"] if inside is not None else []
    parameter = next((p for p in parameters if p.index == operand), None)
    if inside is None or parameter is None or parameter is inside.root:
        raise NotKnown
    for user in inside.users.get(parameter.name, ()):
        if parameter.name in user.operands[1:]:
            raise NotKnown
        yield from _reads(user, 0, inside, sites)


def _is_beside(touch: Touch, reads: list[Read], numbers: Numbers, sites: Sites) -> bool:
    written = _written(touch, numbers, sites)
    extents = tuple(extent for _, _, extent in touch.flight.destination_part or ())
    return all(_are_apart(written, _read(*read, extents, numbers)) for read in reads)


def _are_apart(one: list[Range], other: list[Range]) -> bool:
    pairs = zip(one, other, strict=False)
    return len(one) == len(other) and any(a[1] <= b[0] or b[1] <= a[0] for a, b in pairs)


def _written(touch: Touch, numbers: Numbers, sites: Sites) -> list[Range]:
    """The part that the copy writes."""
    start = touch.flight.start
    home = sites.home(start)
    ranges: list[Range] = []
    for offset, size, _ in touch.flight.destination_part or ():
        begin = offset
        if not isinstance(begin, int):
            operand, at = begin
            if home is None or not 0 <= operand < len(start.operands):
                raise NotKnown
            values = numbers.value(start.operands[operand], home).reshape(-1)
            if not 0 <= at < values.size:
                raise NotKnown
            begin = int(values[at])
        ranges.append((begin, begin + size))
    return ranges


def _read(read: Instruction, home: Computation, extents: tuple[int, ...], numbers: Numbers) -> list[Range]:
    """The part that a slice takes; a dynamic one that would leave the array is moved inside.

    The array must have the shape and the order of dimensions that the kernel sees (row-major), else the same numbers
    name other elements.
    """
    array = home.by_name.get(read.operands[0])
    if (
        array is None
        or array.shape.dims != extents
        or array.shape.order != tuple(reversed(range(len(extents))))
    ):
        raise NotKnown
    if read.opcode == "slice":
        found = _SLICE.findall(read.attributes.get("slice", ""))
        return [(int(begin), int(end)) for begin, end, _ in found]
    sizes = read.shape.dims
    begins = [numbers.value(name, home) for name in read.operands[1:]]
    if not len(extents) == len(sizes) == len(begins) or any(b.size != 1 for b in begins):
        raise NotKnown
    moved = [max(0, min(int(b.item()), d - s)) for b, d, s in zip(begins, extents, sizes, strict=True)]
    return [(b, b + s) for b, s in zip(moved, sizes, strict=True)]
