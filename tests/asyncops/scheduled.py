"""Reads what a scheduled TPU program does, for tests.

Deliberately small and independent of `asyncops.compiled`: it counts instructions by name in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)$")
_COPIES = ("copy", "copy-start")
_NO_WORK = {"bitcast", "constant", "copy", "custom-call", "get-tuple-element", "parameter", "tuple", "while"}


@dataclass(frozen=True)
class Instruction:
    """One line of a scheduled computation."""

    name: str
    type: str
    op: str
    rest: str

    @property
    def operands(self) -> list[str]:
        """Names of the operands."""
        return re.findall(r"%([\w.\-]+)", self.rest.split("), ")[0])

    @property
    def kernel(self) -> str:
        """The kernel's name without its number, for a custom call; else ""."""
        return self.name.partition(".")[0] if self.op == "custom-call" else ""

    @property
    def starts(self) -> bool:
        """True for the kernel that starts an operation."""
        return re.search(r"_start(_ref)?_*$", self.kernel) is not None

    @property
    def finishes(self) -> bool:
        """True for the kernel that waits for an operation."""
        return re.search(r"_done(_ref)?_*$", self.kernel) is not None

    @property
    def computes(self) -> bool:
        """True for an instruction that computes an array."""
        return self.op not in _NO_WORK and re.search(r"\[\d", self.type) is not None

    @property
    def is_array_copy(self) -> bool:
        """True for a copy of more than a scalar, except into VMEM: that is how the compiler reads ahead."""
        if self.op not in _COPIES or re.search(r"\[\d", self.type) is None:
            return False
        return self.op == "copy" or "S(1)" not in self.type.split("}, ")[0]


class Program:
    """The computations of a scheduled program."""

    def __init__(self, text: str) -> None:
        assert "is_scheduled=true" in text
        self.text = text
        self.computations: dict[str, list[Instruction]] = {}
        self.entry = ""
        current: list[Instruction] = []
        for line in text.splitlines():
            if header := _COMPUTATION.match(line):
                current = self.computations.setdefault(header[2], [])
                if header[1]:
                    self.entry = header[2]
            elif match := _INSTRUCTION.match(line):
                current.append(Instruction(*match.groups()))

    def _all(self) -> list[Instruction]:
        return [i for body in self.computations.values() for i in body]

    def bodies(self) -> list[list[Instruction]]:
        """The bodies of all loops."""
        names = [n for i in self._all() if i.op == "while" for n in re.findall(r"body=%([\w.\-]+)", i.rest)]
        return [self.computations[n] for n in names]

    def starts_and_dones(self, body: list[Instruction] | None = None) -> tuple[int, int]:
        """How many kernels start and finish operations, in a computation or in the whole program."""
        found = self._all() if body is None else body
        return sum(i.starts for i in found), sum(i.finishes for i in found)

    def kernels(self, name: str) -> int:
        """How many kernels there are with this in their name, in the whole program."""
        return sum(name in i.kernel for i in self._all())

    def copies_in_loops(self) -> list[Instruction]:
        """Copies of arrays in the bodies of loops."""
        return [i for body in self.bodies() for i in body if i.is_array_copy]

    def moved_in_flight(self) -> list[str]:
        """Copies of a source or destination while a start's transfer runs, and dones that got another buffer."""
        return [found for body in self.computations.values() for found in _moved(body)]

    def between(self, computation: list[Instruction] | None = None) -> list[list[Instruction]]:
        """For each start in a computation (the entry's), what is scheduled before its done there."""
        body = self.computations[self.entry] if computation is None else computation
        spans = []
        for n, i in enumerate(body):
            if i.starts:
                rest = body[n + 1 :]
                end = next((k for k, j in enumerate(rest) if j.finishes), len(rest))
                spans.append([j for j in rest[:end] if j.computes])
        return spans


def _moved(body: list[Instruction]) -> list[str]:
    root = _aliases(body)
    flying: dict[str, str] = {}
    found = []
    for i in body:
        if i.starts:
            flying.update((root(name), i.name) for name in (*i.operands, i.name))
        elif i.finishes:
            for name in i.operands:
                flying.pop(root(name), None)
        elif i.is_array_copy and i.operands and root(i.operands[0]) in flying:
            found.append(f"{i.name} copies {i.operands[0]} of {flying[root(i.operands[0])]}")
    return found


def _aliases(body: list[Instruction]) -> Callable[[str], str]:
    """Gives each name the name of the instruction whose buffer it is."""
    same = {i.name: i.operands[0] for i in body if i.op in ("bitcast", "get-tuple-element") and i.operands}
    in_place = {i.name: i.operands[-1 if "_ref" in i.kernel else 1] for i in body if i.finishes}

    def root(name: str) -> str:
        while name in same or name in in_place:
            name = same.get(name) or in_place[name]
        return name

    return root
