"""The numbers that a compiled program computes from constants and loop counters."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

import numpy as np

from asyncops.compiled.hlo import Computation, Instruction, Module
from asyncops.compiled.loops import carried_in
from asyncops.compiled.sites import Sites

_MAX_DEPTH, _MAX_SIZE = 100, 64
_PADDING = re.compile(r"(\d{1,3})_(\d{1,3})")
_LITERAL = re.compile(r"-?\d+|true|false")
_SAME = frozenset({"copy", "bitcast", "reshape"})
_UNARY: dict[str, Callable] = {"negate": np.negative, "not": np.invert, "abs": np.abs}
_BINARY: dict[str, Callable] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "minimum": np.minimum,
    "maximum": np.maximum,
}
_COMPARISONS: dict[str, Callable] = {
    "EQ": operator.eq,
    "NE": operator.ne,
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
}
_TYPES = {"s32": np.int32, "pred": np.bool_}


class NotKnown(Exception):
    """The program does not tell. Never leaves this package."""


class Numbers:
    """Values of small arrays of 32-bit integers in one ``iteration`` of the loop around, if there is one."""

    def __init__(self, sites: Sites, iteration: int) -> None:
        self._sites = sites
        self._module: Module = sites.module
        self._iteration = iteration
        self._known: dict[Instruction, np.ndarray] = {}
        self._depth = 0

    def value(self, name: str, home: Computation) -> np.ndarray:
        """The value of an instruction of ``home``, of its own shape; `NotKnown` where the program does not tell."""
        instruction = home.by_name.get(name)
        if instruction is None:
            raise NotKnown
        if instruction not in self._known:
            self._depth += 1
            if self._depth > _MAX_DEPTH or instruction.shape.size > _MAX_SIZE:
                raise NotKnown
            try:
                with np.errstate(over="ignore"):
                    self._known[instruction] = self._shaped(instruction, self._computed(instruction, home))
            except (TypeError, ValueError) as error:  # operands that do not fit: the text is damaged
                raise NotKnown from error
            self._depth -= 1
        return self._known[instruction]

    def _shaped(self, instruction: Instruction, value: np.ndarray) -> np.ndarray:
        shape = instruction.shape
        if shape.dtype not in _TYPES or value.dtype != _TYPES[shape.dtype] or value.size != shape.size:
            raise NotKnown
        return value.reshape(shape.dims)

    def _computed(self, instruction: Instruction, home: Computation) -> np.ndarray:
        opcode = instruction.opcode
        if opcode == "constant":
            return _literal(instruction)
        if opcode == "get-tuple-element":
            return self._carried(instruction, home)
        if opcode == "parameter":
            return self._given(instruction, home)
        if opcode == "fusion":
            return self._fused(instruction)
        operands = [self.value(name, home) for name in instruction.operands]
        if opcode in _SAME and len(operands) == 1:
            return operands[0]
        if opcode in _UNARY and len(operands) == 1:
            return _UNARY[opcode](operands[0])
        if opcode in _BINARY and len(operands) == 2:
            return _BINARY[opcode](*operands)
        return _of_more(instruction, operands)

    def _fused(self, instruction: Instruction) -> np.ndarray:
        callee = self._module.computations.get(instruction.callees[0]) if instruction.callees else None
        if callee is None or callee.root is None:
            raise NotKnown
        return self.value(callee.root.name, callee)

    def _given(self, parameter: Instruction, home: Computation) -> np.ndarray:
        """What a fusion is given."""
        caller = self._sites.caller(parameter)
        outside = self._sites.home(caller) if caller is not None else None
        if caller is None or outside is None or caller.opcode != "fusion" or home.is_entry:
            raise NotKnown
        if not 0 <= parameter.index < len(caller.operands):
            raise NotKnown
        return self.value(caller.operands[parameter.index], outside)

    def _carried(self, element: Instruction, home: Computation) -> np.ndarray:
        """What the loop around carries."""
        tuple_ = home.by_name.get(element.operands[0]) if element.operands else None
        loop = self._sites.caller(element)
        outside = self._sites.home(loop) if loop is not None else None
        if tuple_ is None or tuple_.opcode != "parameter" or loop is None or outside is None:
            raise NotKnown
        if loop.opcode != "while" or loop.attributes.get("body", "").lstrip("%") != home.name:
            raise NotKnown
        if self._sites.caller(loop) is not None:  # a loop around that one has an iteration of its own
            raise NotKnown
        found = carried_in(loop, element.index, self._iteration, outside, self._module)
        if isinstance(found, str):
            return self.value(found, outside)
        if not -(2**31) <= found < 2**31:
            raise NotKnown
        return np.asarray(found, np.int32)


def _literal(instruction: Instruction) -> np.ndarray:
    words = _LITERAL.findall(instruction.inside) if instruction.shape.size <= _MAX_SIZE else []
    kind = _TYPES.get(instruction.shape.dtype)
    if kind is None or any(len(word) > 11 for word in words):
        raise NotKnown
    numbers = [word == "true" if word in ("true", "false") else int(word) for word in words]
    if any(not -(2**31) <= n < 2**31 for n in numbers):
        raise NotKnown
    return np.asarray(numbers, kind)


def _of_more(instruction: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    """Comparisons, choices, and what arrays are put together from."""
    opcode, attributes = instruction.opcode, instruction.attributes
    compare = _COMPARISONS.get(attributes.get("direction", "")) if opcode == "compare" else None
    if compare is not None and len(operands) == 2:
        return np.asarray(compare(*operands))
    if opcode == "select" and len(operands) == 3:
        return np.where(*operands)
    if opcode == "broadcast" and len(operands) == 1 and operands[0].size == 1:
        return np.full(instruction.shape.dims, operands[0].reshape(()))
    if opcode == "concatenate" and operands and all(o.ndim == 1 for o in operands):
        return np.concatenate(operands)
    padding = _PADDING.fullmatch(attributes.get("padding", "")) if opcode == "pad" else None
    if padding is not None and len(operands) == 2 and operands[0].ndim == 1 and operands[1].size == 1:
        low, high = int(padding[1]), int(padding[2])
        return np.pad(operands[0], (low, high), constant_values=operands[1].item())
    raise NotKnown
