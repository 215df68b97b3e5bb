"""What an HLO instruction is to one who follows memory: plumbing, an asynchronous half, a copy, work."""

from __future__ import annotations

import json
import re
from typing import Any

from asyncops.compiled.hlo import Computation, Instruction, Module, Path
from asyncops.compiled.mosaic import TARGET

# The result is the operand's memory under another name or type.
PASS_THROUGH = frozenset({"bitcast", "optimization-barrier", "opt-barrier", "add-dependency", "domain"})
# Names and numbers, no work.
PLUMBING = PASS_THROUGH | {
    "parameter",
    "constant",
    "iota",
    "tuple",
    "get-tuple-element",
    "after-all",
    "partition-id",
}
# They run other computations.
CONTROL = frozenset({"while", "conditional", "call"})
# The first operand is updated where it lies.
_IN_PLACE = frozenset({"dynamic-update-slice", "scatter"})
_UNPAIRED = {"send": "send-done", "recv": "recv-done"}
COLLECTIVES = ("all-gather", "all-reduce", "all-to-all", "collective", "reduce-scatter", "ragged-all-to-all")
# XLA's own asynchronous collectives on some TPUs are fusions around these custom calls.
_FUSED_START, _FUSED_DONE = "AsyncCollectiveStart", "AsyncCollectiveDone"
# Custom calls that stand for memory, not for work.
_NO_WORK = frozenset({"AllocateBuffer", "ConcatBitcast"})
_CYCLES = re.compile(r'"estimated_cycles":\s*"?(\d{1,18})\b')


def is_kernel(instruction: Instruction) -> bool:
    """True for the call of a Pallas TPU kernel."""
    return instruction.opcode == "custom-call" and instruction.target == TARGET


def is_start(instruction: Instruction, module: Module) -> bool:
    """True for the first half of one of XLA's own asynchronous pairs."""
    if instruction.opcode == "fusion":
        return _fused_target(instruction, module) == _FUSED_START
    return instruction.opcode.endswith("-start") or instruction.opcode in _UNPAIRED


def is_done(instruction: Instruction, module: Module) -> bool:
    """True for the last half of one of XLA's own asynchronous pairs."""
    if instruction.opcode == "fusion":
        return _fused_target(instruction, module) == _FUSED_DONE
    return instruction.opcode.endswith("-done")


def is_update(instruction: Instruction) -> bool:
    """True for a middle part of an asynchronous pair, which passes everything on."""
    return instruction.opcode.endswith("-update") and instruction.opcode.startswith(
        ("async", "slice", "copy")
    )


def is_copy(instruction: Instruction) -> bool:
    """True where the compiler moves or duplicates an array: in place of a name for it, a second memory."""
    return instruction.opcode in ("copy", "copy-start")


def is_work(instruction: Instruction) -> bool:
    """True for what takes time on the core: arithmetic on arrays, kernels, blocking collectives."""
    opcode = instruction.opcode
    if opcode in PLUMBING or opcode in CONTROL or is_copy(instruction) or instruction.target in _NO_WORK:
        return False
    return not opcode.endswith(("-start", "-done", "-update")) and opcode not in _UNPAIRED


def _fused_target(instruction: Instruction, module: Module) -> str:
    if "kCustom" not in instruction.attribute_text:
        return ""
    root = _callee_root(instruction, module)
    return root.target if root is not None and root.opcode == "custom-call" else ""


def _callee_root(instruction: Instruction, module: Module) -> Instruction | None:
    callee = module.computations.get(instruction.callees[0]) if instruction.callees else None
    return callee.root if callee is not None else None


def source_and_destination(instruction: Instruction) -> tuple[Path | None, Path | None]:
    """Where in the result of a start its source and its destination lie; None for one that is not in it."""
    elements = instruction.shape.elements
    if instruction.opcode == "copy-start":  # (destination, source, context)
        return (1,), (0,)
    if instruction.opcode == "send":  # (source, context, token)
        return (0,), None
    if instruction.opcode == "recv":  # (destination, context, token)
        return None, (0,)
    if len(elements) < 2 or instruction.opcode == "all-reduce-start":  # results only
        return None, ()
    return (0,), (1,)


def aliases(instruction: Instruction, module: Module) -> dict[Path, tuple[int, Path]]:
    """Result path -> (operand, path) of the memory that they share for certain."""
    if instruction.opcode in _IN_PLACE:
        return {(): (0, ())}
    if instruction.opcode == "fusion" and not instruction.aliases:
        root = _callee_root(instruction, module)
        return _fused_updates(root, module.computations[instruction.callees[0]]) if root is not None else {}
    return instruction.aliases


def updates(instruction: Instruction, module: Module) -> frozenset[int]:
    """Numbers of the operands that it writes where they lie."""
    if instruction.opcode in _IN_PLACE or instruction.opcode == "fusion":
        if is_start(instruction, module) or is_done(instruction, module) or instruction.aliases:
            return frozenset()
        return frozenset(operand for operand, _ in aliases(instruction, module).values())
    return frozenset()


def _fused_updates(root: Instruction, computation: Computation) -> dict[Path, tuple[int, Path]]:
    """A fusion that ends in an update in place is itself one, of the operand that the update began with."""
    if root.opcode == "tuple":
        outputs = {(i,): computation.by_name.get(name) for i, name in enumerate(root.operands)}
    else:
        outputs = {(): root}
    found: dict[Path, tuple[int, Path]] = {}
    for path, output in outputs.items():
        number = _updated_parameter(output, computation)
        if number >= 0:
            found[path] = (number, ())
    return found


def _updated_parameter(output: Instruction | None, computation: Computation) -> int:
    updated, steps = False, 0
    while output is not None and steps <= len(computation.instructions):
        steps += 1
        if output.opcode == "parameter":
            return output.index if updated else -1
        if output.opcode not in _IN_PLACE and output.opcode != "bitcast":
            return -1
        updated = updated or output.opcode in _IN_PLACE
        output = computation.by_name.get(output.operands[0]) if output.operands else None
    return -1


def configuration(instruction: Instruction) -> dict[str, Any]:
    """``backend_config`` as JSON; empty where there is none or it is none."""
    try:
        config = json.loads(instruction.attributes.get("backend_config", "{}"))
    except (ValueError, RecursionError):
        return {}
    return config if isinstance(config, dict) else {}


def placed(kernel: Instruction) -> frozenset[Path]:
    """The results whose memory space a Pallas kernel chose itself, as with ``pltpu.VMEM(shape, dtype)``."""
    call = configuration(kernel).get("custom_call_config")
    colors = call.get("output_memory_space_colors") if isinstance(call, dict) else None
    paths = [c.get("shape_index") for c in colors if isinstance(c, dict)] if isinstance(colors, list) else []
    texts = (tuple(map(str, path)) for path in paths if isinstance(path, list))
    return frozenset(tuple(map(int, text)) for text in texts if all(map(str.isdecimal, text)))


def estimated_cycles(instruction: Instruction) -> int | None:
    """The compiler's own estimate of its cost, where it wrote one down."""
    found = _CYCLES.search(instruction.attribute_text)
    return int(found[1]) if found else None


def describe(instruction: Instruction) -> str:
    """A short name for people: opcode, or the kernel's name."""
    if is_kernel(instruction):
        return f"kernel {kernel_name(instruction)}"
    if instruction.opcode.startswith(COLLECTIVES):
        return instruction.opcode
    return "computation" if instruction.opcode == "fusion" else instruction.opcode


def operation_path(instruction: Instruction) -> list[str]:
    """The parts of the ``op_name`` that JAX gave it: transformations, control flow, the primitive last."""
    metadata = instruction.attributes.get("metadata", "")
    return metadata.partition('op_name="')[2].partition('"')[0].split("/")


def is_transposed(instruction: Instruction) -> bool:
    """True for a part of the backward pass of a gradient: it has the lines of the forward pass, in another order."""
    return any(part.startswith("transpose(") for part in operation_path(instruction))


def kernel_name(instruction: Instruction) -> str:
    """A Pallas kernel's name, from its ``op_name`` (.../NAME/pallas_call), else the instruction's."""
    path = operation_path(instruction)
    if len(path) >= 2 and path[-1] in ("pallas_call", "mpmd_map") and "(" not in path[-2]:
        return path[-2]
    return instruction.name
