"""How often an HLO loop runs, where the program tells."""

from __future__ import annotations

from asyncops.compiled.hlo import Computation, Instruction, Module
from asyncops.compiled.operations import configuration

_MAX_STEPS = 1000
# How a counter that rises (or falls) is compared with its limit for as long as the loop goes on.
_UP, _DOWN = ("LT", "LE"), ("GT", "GE")


def trip_count(loop: Instruction, home: Computation, module: Module) -> int | None:
    """How often the ``while`` instruction ``loop``, which stands in ``home``, runs; None: not known."""
    return _written(loop) if _written(loop) is not None else _counted(loop, home, module)


def _written(loop: Instruction) -> int | None:
    """XLA writes ``known_trip_count`` for some targets."""
    if "known_trip_count" not in loop.attribute_text:
        return None
    known = configuration(loop).get("known_trip_count")
    text = str(known.get("n")) if isinstance(known, dict) else ""
    return int(text) if text.isdecimal() and len(text) < 20 else None


def _counted(loop: Instruction, home: Computation, module: Module) -> int | None:
    """A counter from a constant, by a constant, compared with a constant, as ``fori_loop`` has it; up or down."""
    condition = _callee(loop, "condition", module)
    body = _callee(loop, "body", module)
    test = condition.root if condition else None
    if (
        condition is None
        or body is None
        or test is None
        or test.opcode != "compare"
        or len(test.operands) != 2
    ):
        return None
    counter = _carried(test.operands[0], condition)
    limit = _constant(test.operands[1], condition)
    first = _initial(loop, counter, home)
    step = _step(counter, body)
    direction = test.attributes.get("direction", "")
    if limit is None or first is None or not step or direction not in _UP + _DOWN:
        return None
    if (step > 0) != (direction in _UP):
        return None  # it does not run, or ends by overflow
    distance = (limit - first if step > 0 else first - limit) + (direction in ("LE", "GE"))
    return max(0, -(-distance // abs(step)))


def runs_at_most_once(loop: Instruction, module: Module) -> bool:
    """Whether the ``while`` instruction ``loop`` runs no second iteration: to go on, a counter must be a constant.

    A counter to which each iteration adds a constant other than 0 is that only once. What else the condition asks
    for does not matter.
    """
    condition, body = _callee(loop, "condition", module), _callee(loop, "body", module)
    if condition is None or body is None or condition.root is None:
        return False
    return any(
        _constant(other, condition) is not None and _step(_carried(counter, condition), body)
        for test in _all_of(condition.root, condition)
        if test.opcode == "compare" and test.attributes.get("direction") == "EQ" and len(test.operands) == 2
        for counter, other in (test.operands, test.operands[::-1])
    )


def carried_in(
    loop: Instruction, number: int, iteration: int, home: Computation, module: Module
) -> int | str:
    """The number that an element of the carry has in an iteration, where the program tells.

    The name of an instruction in ``home`` where the loop only hands that one's value on; "" where it is not known.
    """
    body = _callee(loop, "body", module)
    root = body.root if body is not None else None
    carry = home.by_name.get(loop.operands[0]) if loop.operands else None
    if body is None or root is None or carry is None or (carry.opcode, root.opcode) != ("tuple", "tuple"):
        return ""
    if not 0 <= number < min(len(carry.operands), len(root.operands)):
        return ""
    if _carried(root.operands[number], body) == number:
        return carry.operands[number]
    first, step = _initial(loop, number, home), _step(number, body)
    return "" if first is None or step is None else first + iteration * step


def _all_of(test: Instruction, computation: Computation) -> list[Instruction]:
    """The tests that must all hold where ``test`` does."""
    found = [test]
    for one in found:
        if one.opcode == "and" and len(found) < _MAX_STEPS:
            found += [i for name in one.operands if (i := _behind(name, computation)) is not None]
    return found


def _callee(loop: Instruction, role: str, module: Module) -> Computation | None:
    return module.computations.get(loop.attributes.get(role, "").lstrip("%"))


def _carried(name: str, computation: Computation) -> int:
    """Which element of the carry ``name`` is; -1: none."""
    instruction = _behind(name, computation)
    if instruction is None or instruction.opcode != "get-tuple-element" or not instruction.operands:
        return -1
    parameter = computation.by_name.get(instruction.operands[0])
    return instruction.index if parameter is not None and parameter.opcode == "parameter" else -1


def _behind(name: str, computation: Computation) -> Instruction | None:
    """The instruction behind copies and bitcasts of ``name``."""
    instruction = computation.by_name.get(name)
    for _ in range(_MAX_STEPS):
        if instruction is None or instruction.opcode not in ("copy", "bitcast") or not instruction.operands:
            return instruction
        instruction = computation.by_name.get(instruction.operands[0])
    return None


def _constant(name: str, computation: Computation) -> int | None:
    instruction = _behind(name, computation)
    if instruction is None or instruction.opcode != "constant":
        return None
    text = instruction.inside.strip()
    return int(text) if text.lstrip("-").isdecimal() and len(text) < 20 else None


def _initial(loop: Instruction, counter: int, home: Computation) -> int | None:
    carry = home.by_name.get(loop.operands[0]) if loop.operands else None
    if carry is None or carry.opcode != "tuple" or not 0 <= counter < len(carry.operands):
        return None
    return _constant(carry.operands[counter], home)


def _step(counter: int, body: Computation) -> int | None:
    root = body.root
    if root is None or root.opcode != "tuple" or not 0 <= counter < len(root.operands):
        return None
    add = _behind(root.operands[counter], body)
    if add is None or add.opcode not in ("add", "subtract") or len(add.operands) != 2:
        return None
    for carried, other in (add.operands, add.operands[::-1]):
        by = _constant(other, body) if _carried(carried, body) == counter else None
        if by is not None:
            return by if add.opcode == "add" else -by if carried == add.operands[0] else None
    return None
