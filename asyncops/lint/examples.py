"""Example arguments written in the configuration: functions are checked without a line in their files.

``"float32[8,128]"`` is a shape; ``"int32[1]=[3]"`` and ``"int32[]=3"`` are values that are relied on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from asyncops.lint.targets import LintTarget
from stateful.errors import LintUsageError

_ARGUMENT = re.compile(r"\s*(?P<dtype>[a-z]\w*)\s*\[(?P<shape>[\d,\s]*)\]\s*(?:=(?P<value>.*))?", re.DOTALL)
FORM = 'must be a dtype and a shape such as "float32[8,128]", with a value if it is relied on: "int32[1]=[3]"'


@dataclass(frozen=True)
class Argument:
    """One example argument. ``value``: a number or nested lists of them, or None where only the shape counts."""

    dtype: str
    shape: tuple[int, ...]
    value: Any = None


@dataclass(frozen=True)
class Example:
    """A function in a file with its arguments. ``mesh``: axes and sizes; each of its devices gets the arguments."""

    file: str
    function: str
    args: tuple[Argument, ...]
    mesh: tuple[tuple[str, int], ...] = ()


def parse_argument(text: str) -> Argument:
    """The argument that ``text`` says.

    Raises:
      LintUsageError: it has another form, or the value is not of the shape.
    """
    match = _ARGUMENT.fullmatch(text)
    if match is None:
        raise LintUsageError(f"{text!r} {FORM}")
    shape = tuple(int(size) for size in match["shape"].split(",") if size.strip())
    try:
        value = None if match["value"] is None else json.loads(match["value"])
    except ValueError:
        raise LintUsageError(f"{text!r} {FORM}") from None
    return Argument(match["dtype"], shape, value)


def with_example(target: LintTarget, example: Example) -> LintTarget:
    """The target with the example's arguments, on every device of its mesh."""
    args = tuple(map(_array, example.args))
    options = {**target.options, "values": any(a.value is not None for a in example.args)}
    fn = target.fn
    if example.mesh:
        fn, args = _on_mesh(fn, dict(example.mesh)), tuple(_stacked(a, example.mesh) for a in args)
    return replace(target, fn=fn, args=args, options=options)


def _array(argument: Argument) -> Any:
    # Imported here: the configuration is read before JAX is needed.
    import jax
    import numpy as np

    try:
        dtype = jax.dtypes.canonicalize_dtype(argument.dtype)
    except TypeError:
        raise LintUsageError(f"{argument.dtype} is no dtype; {FORM}") from None
    if argument.value is None:
        return jax.ShapeDtypeStruct(argument.shape, dtype)
    try:
        return np.broadcast_to(np.asarray(argument.value, dtype), argument.shape)
    except (TypeError, ValueError) as error:
        raise LintUsageError(
            f"the value {argument.value} is not of shape {argument.shape}: {error}"
        ) from None


def _stacked(array: Any, mesh: tuple[tuple[str, int], ...]) -> Any:
    """One array for each device, as an array with the mesh's sizes in front."""
    import jax
    import numpy as np

    shape = (*(size for _, size in mesh), *array.shape)
    if isinstance(array, jax.ShapeDtypeStruct):
        return jax.ShapeDtypeStruct(shape, array.dtype)
    return np.broadcast_to(array, shape)


def _on_mesh(fn: Callable[..., Any], mesh: dict[str, int]) -> Callable[..., Any]:
    """``fn`` on every device; arguments and results have the mesh's sizes in front."""
    import jax

    spec = jax.sharding.PartitionSpec(*mesh)
    front = (None,) * len(mesh)

    def in_front(y: Any) -> Any:
        return y[front]

    def one_device(*args: Any) -> Any:
        results = fn(*(x.reshape(x.shape[len(mesh) :]) for x in args))
        return jax.tree.map(in_front, results)

    # Newer versions of JAX make explicit axes by default, which arguments without a sharding do not fit.
    automatic = (jax.sharding.AxisType.Auto,) * len(mesh)
    abstract = jax.sharding.AbstractMesh(tuple(mesh.values()), tuple(mesh), axis_types=automatic)
    return jax.shard_map(one_device, mesh=abstract, in_specs=spec, out_specs=spec, check_vma=False)
