"""Ahead-of-time compilation with the real TPU compiler, on any machine."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from asyncops.compiled.topology import place, topology_devices
from stateful._jax.compiled import Retargeting, trace
from stateful.errors import CompilerError

# The program as it was handed to the compiler, by the program that came back: what is missing in the latter
# (a start that was merged or removed) has a line only in the former.
_ORIGINS: weakref.WeakKeyDictionary[jax.stages.Compiled, str] = weakref.WeakKeyDictionary()


def compile_for(topology: str, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> jax.stages.Compiled:
    """``fn`` compiled for a TPU topology by XLA:TPU and Mosaic themselves; no TPU is needed.

    Meshes that ``fn`` or its arguments name, of whatever devices or abstract, are mapped onto the topology.

    Args:
      topology: chips and layout, such as ``"v5e:2x2"``, ``"v5p:2x2x1"``, ``"v6e:2x4"`` or ``"tpu7x:2x2x1"``.
      fn: what ``jax.jit`` takes or what it returned (static and donated arguments are respected).
      *args, **kwargs: arrays or ``jax.ShapeDtypeStruct``; only shapes, dtypes and shardings matter.

    Returns:
      A `jax.stages.Compiled`: ``.as_text()`` is the scheduled HLO, and `check_compiled` takes it.

    Raises:
      CompilerError: ``libtpu`` is not installed, or the program or one of its kernels does not compile.
      InvalidArgumentError: the topology is not known, or a mesh does not fit on it.
    """
    devices = topology_devices(topology)
    move = Retargeting(lambda mesh: place(mesh, devices, topology))
    args, kwargs = jax.tree.map(_shape_of, (args, kwargs))
    traced = trace(fn, args, kwargs, devices[0])
    _refuse_semaphores(traced)
    traced = move.traced(traced, default=SingleDeviceSharding(devices[0]))
    try:
        lowered = traced.lower()
        compiled = lowered.compile()
    except Exception as error:  # Mosaic, XLA and Pallas raise types of their own
        raise CompilerError(_explain(str(error), topology)) from error
    _ORIGINS[compiled] = lowered.as_text("hlo", debug_info=True)
    return compiled


def origin_of(compiled: jax.stages.Compiled) -> str | None:
    """HLO of the program before the compiler touched it; None for what `compile_for` did not make."""
    return _ORIGINS.get(compiled)


def _shape_of(x: Any) -> Any:
    """An array as its shape, so that its one device plays no role; static arguments as they are."""
    if not isinstance(x, (jax.Array, jax.ShapeDtypeStruct, np.ndarray, np.generic)):
        return x
    sharding = getattr(x, "sharding", None)
    if isinstance(sharding, SingleDeviceSharding) and sharding.memory_kind != "pinned_host":
        sharding = None
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding, weak_type=getattr(x, "weak_type", False))


def _refuse_semaphores(traced: Any) -> None:
    """The compiler ends the process over a semaphore at the program's border (libtpu 0.0.52): it cannot be caught."""
    for part, values in (("takes", traced.in_avals), ("returns", traced.out_info)):
        if any("sem" in str(getattr(x, "dtype", "")) for x in jax.tree.leaves(values)):
            raise CompilerError(
                f"the function {part} a semaphore, which the TPU compiler has no place for outside a program: "
                "compile a function that both starts and waits"
            )


_MOSAIC = re.compile(
    r"Mosaic failed to compile TPU kernel(?: with MLIR module name `(?P<module>[^`]*)`)?"
    r"(?: HLO name `(?P<call>[^`]*)`)?:\s*(?P<reason>.*)",
    re.DOTALL,
)
_PLACE = re.compile(r'"([^"<>]+\.py)":(\d+)')
_MEMORY = re.compile(r"RESOURCE_EXHAUSTED: .*?\(size=(\d+)\) would exceed memory \(size=(\d+)\)", re.DOTALL)
_END = re.compile(r"\n\s*\n|\n\s*at location|Please (?:file an issue|report a bug)")


def _explain(message: str, topology: str) -> str:
    """What the user can act on in a compiler's message: reason, kernel and line."""
    if found := _MOSAIC.search(message):
        names = [n for n in (found["module"], found["call"]) if n and not n.startswith("<")]
        kernel = f"kernel {names[0]}" if names else "a kernel"
        line = _PLACE.search(message)
        where = f" (at {line[1]}:{line[2]})" if line else ""
        return f"{kernel} does not compile for {topology}: {_first_paragraph(found['reason'])}{where}"
    if found := _MEMORY.search(message):
        return (
            f"the program needs {int(found[1]):,} bytes where {topology} has {int(found[2]):,}: "
            f"make blocks or scratch smaller. {_first_paragraph(message)}"
        )
    return f"the program does not compile for {topology}: {_first_paragraph(message)}"


def _first_paragraph(message: str) -> str:
    text = " ".join(_END.split(message.strip(), maxsplit=1)[0].split())
    return text if len(text) <= 500 else text[:497] + "..."
