"""HLO modules as data: computations of instructions in schedule order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from asyncops.compiled.brackets import split_commas
from asyncops.compiled.frames import Frames
from asyncops.compiled.shapes import Shape, parse_shape

UNKNOWN_OPCODE = "unknown"
_FRAME = re.compile(r"stack_frame_id=(\d{1,9})")
_SOURCE = re.compile(r'source_file="([^"]*)"\s+source_line=(\d{1,9})')
_REFERENCE = re.compile(r"%?([\w.\-]+)")
_SINGLE_CALLEES = (
    "calls",
    "to_apply",
    "body",
    "condition",
    "called_computation",
    "comparator",
    "select",
    "scatter",
)
_ALIAS = re.compile(r"\{([\d,\s]*)\}:\s*\((\d{1,9}),\s*\{([\d,\s]*)\}")

Path = tuple[int, ...]
"""Where in a tuple: one index per level; empty for the value itself."""


@dataclass(eq=False)
class Instruction:
    """One instruction. What is rarely needed is read from its text on demand.

    ``operands`` are names; ``inside`` is the raw text between the parentheses (a parameter's number, a
    literal). An instruction that could not be parsed has the opcode "unknown" and its whole ``text``.
    """

    name: str
    opcode: str
    operands: tuple[str, ...] = ()
    shape_text: str = ""
    inside: str = ""
    attribute_text: str = ""
    is_root: bool = False
    text: str = ""

    @cached_property
    def shape(self) -> Shape:
        """The type of the result."""
        return parse_shape(self.shape_text)

    @cached_property
    def attributes(self) -> dict[str, str]:
        """Attribute values as text, by name; what follows no `name=` is skipped."""
        pairs = (part.partition("=") for part in split_commas(self.attribute_text))
        return {name.strip(): value.strip() for name, equals, value in pairs if equals}

    @cached_property
    def index(self) -> int:
        """The element that a get-tuple-element takes, the number of a parameter; -1 where there is none."""
        text = self.attributes.get("index", "") if self.opcode == "get-tuple-element" else self.inside
        return int(text) if text.strip().isdecimal() and len(text) < 10 else -1

    @cached_property
    def frame(self) -> int:
        """Id of the stack frame in the module's tables; 0 where none is recorded."""
        found = _FRAME.search(self.attribute_text)
        return int(found[1]) if found else 0

    @cached_property
    def source_line(self) -> tuple[str, int] | None:
        """(file, line) where they stand in the instruction itself, as older printers have it."""
        found = _SOURCE.search(self.attribute_text)
        return (found[1], int(found[2])) if found else None

    @cached_property
    def callees(self) -> tuple[str, ...]:
        """Names of the computations it calls, in the order of its attributes; branches in branch order."""
        names: list[str] = []
        for attribute in _SINGLE_CALLEES:
            names += _REFERENCE.findall(self.attributes.get(attribute, ""))[:1]
        for attribute in ("true_computation", "false_computation", "branch_computations"):
            names += _REFERENCE.findall(self.attributes.get(attribute, ""))
        return tuple(names)

    @cached_property
    def aliases(self) -> dict[Path, tuple[int, Path]]:
        """Result path -> (operand number, path in it) of the memory they share, as
        `output_to_operand_aliasing`."""
        if "output_to_operand_aliasing" not in self.attribute_text:
            return {}
        return parse_aliasing(self.attributes.get("output_to_operand_aliasing", ""))

    @property
    def target(self) -> str:
        """What a custom call calls."""
        return self.attributes.get("custom_call_target", "").strip('"')

    @property
    def has_side_effect(self) -> bool:
        """True where the compiler may neither drop, merge nor reorder the call among its like."""
        return self.attributes.get("custom_call_has_side_effect", "") == "true"

    def __str__(self) -> str:
        return f"%{self.name}"


def parse_aliasing(text: str) -> dict[Path, tuple[int, Path]]:
    """``{{2}: (0, {}), ...}`` as result path -> (operand or parameter number, path)."""
    return {_path(out): (int(number), _path(inner)) for out, number, inner in _ALIAS.findall(text)}


def _path(text: str) -> Path:
    return tuple(int(p) for p in text.split(",") if p.strip().isdecimal() and len(p) < 10)


@dataclass(eq=False)
class Computation:
    """A list of instructions; in a scheduled module, in the order in which they run."""

    name: str
    instructions: tuple[Instruction, ...]
    is_entry: bool = False

    @cached_property
    def by_name(self) -> dict[str, Instruction]:
        """Instructions by name."""
        return {i.name: i for i in self.instructions}

    @cached_property
    def root(self) -> Instruction | None:
        """The instruction whose value the computation returns."""
        marked = next((i for i in self.instructions if i.is_root), None)
        return marked or (self.instructions[-1] if self.instructions else None)

    @cached_property
    def users(self) -> dict[str, tuple[Instruction, ...]]:
        """Instructions that use a value, by its name, in order."""
        users: dict[str, list[Instruction]] = {}
        for instruction in self.instructions:
            for operand in dict.fromkeys(instruction.operands):
                users.setdefault(operand, []).append(instruction)
        return {name: tuple(found) for name, found in users.items()}


@dataclass(eq=False)
class Module:
    """A module. ``notes`` say what of its text could not be read."""

    name: str
    computations: dict[str, Computation]
    entry: Computation
    attributes: dict[str, str] = field(default_factory=dict)
    frames: Frames = field(default_factory=Frames)
    notes: tuple[str, ...] = ()

    @property
    def is_scheduled(self) -> bool:
        """True where the order of the instructions is the order in which they run."""
        return self.attributes.get("is_scheduled") == "true"

    @cached_property
    def donated(self) -> frozenset[int]:
        """Numbers of the entry parameters whose memory the program may reuse for a result."""
        aliasing = parse_aliasing(self.attributes.get("input_output_alias", ""))
        return frozenset(number for number, _ in aliasing.values())

    def instructions(self) -> Iterator[Instruction]:
        """Every instruction of every computation."""
        for computation in self.computations.values():
            yield from computation.instructions
