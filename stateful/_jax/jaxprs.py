"""Jaxprs of every supported JAX version in one shape, and the user's source line behind an equation.

JAX 0.12 merged ``ClosedJaxpr`` into ``Jaxpr``; source frames are private API in every version.
"""

from __future__ import annotations

import functools
import os
import sysconfig
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jax._src import core as _core
from jax._src import effects as _effects
from jax._src import source_info_util as _source_info
from jax._src.state import types as _state_types

# Public ``jax.extend.core`` has the classes, but not under one name for closed jaxprs in 0.12.
Jaxpr = _core.Jaxpr
ClosedJaxpr = getattr(_core, "ClosedJaxpr", _core.Jaxpr)
JaxprEqn = _core.JaxprEqn
Var = _core.Var
Literal = _core.Literal
DropVar = _core.DropVar
Primitive = _core.Primitive
Tracer = _core.Tracer
Atom = Var | Literal

# Equations that say which of their inputs they read or write carry this effect; there is no public name.
JaxprInputEffect = _effects.JaxprInputEffect


Frame = tuple[str, int, str]
Place = tuple[str, int, str, int | None, int | None]


class Body(NamedTuple):
    """A sub-jaxpr opened: the jaxpr, and the constants that its ``constvars`` are bound to.

    ``consts`` is empty where the equation's own operands bind the ``constvars``; ``inputs`` are the variables
    that the operands bind, in operand order, in both cases.
    """

    jaxpr: Any
    consts: tuple[Any, ...] = ()

    @property
    def inputs(self) -> tuple[Any, ...]:
        """The variables that positional operands bind."""
        j = self.jaxpr
        return tuple(j.invars) if self.consts else (*j.constvars, *j.invars)

    @property
    def names(self) -> tuple[str | None, ...]:
        """The parameter names of the traced function, aligned with ``inputs``; None where there is none."""
        inputs = self.inputs
        found = getattr(self.jaxpr.debug_info, "arg_names", None) or ()
        named = tuple(str(n) if n else None for n in found)
        missing = len(inputs) - len(named)
        if missing not in (0, len(self.jaxpr.constvars)):
            return (None,) * len(inputs)
        return (None,) * missing + named

    @property
    def source(self) -> Frame | None:
        """Where the traced function is defined: (file, line, name)."""
        name, _, place = self.jaxpr.debug_info.func_src_info.partition(" at ")
        file, _, line = place.rpartition(":")
        return (file, int(line), name) if line.isdigit() else None

    @property
    def outputs(self) -> tuple[Any, ...]:
        """The result atoms."""
        return tuple(self.jaxpr.outvars)


def open_jaxpr(jaxpr: Any) -> Body:
    """The jaxpr and its constants, from any of JAX's jaxpr classes."""
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    _note_uses(inner)
    return Body(inner, tuple(getattr(jaxpr, "consts", ())))


def open_called_jaxpr(jaxpr: Any, operands: int) -> Body:
    """A jaxpr that an equation calls with so many operands, in whichever way its constants are bound."""
    body = open_jaxpr(jaxpr)
    return body if len(body.inputs) == operands else open_operand_jaxpr(jaxpr)


def open_operand_jaxpr(jaxpr: Any) -> Body:
    """A jaxpr whose ``constvars`` are bound by the operands of the equation that holds it.

    JAX 0.12 leaves the tracers of the enclosing trace attached to such a jaxpr; they mean nothing afterwards.
    """
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    _note_uses(inner)
    return Body(inner, ())


def is_jaxpr(x: Any) -> bool:
    """True for every class of jaxpr."""
    return isinstance(x, (Jaxpr, ClosedJaxpr))


def parameter_jaxprs(eqn: Any) -> Iterator[Body]:
    """The jaxprs among an equation's parameters, in whatever role: for primitives without a normal form."""
    for value in eqn.params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if is_jaxpr(item):
                yield open_jaxpr(item)


def is_ref(aval: Any) -> bool:
    """True for the abstract value of a Ref."""
    return isinstance(aval, _state_types.AbstractRef)


# -- unused results ------------------------------------------------------------------------------------------

# JAX names the result of every ``swap``, used or not, and an equation does not know its jaxpr. So the results
# that nothing in their jaxpr uses are noted when a jaxpr is opened, and forgotten when it dies.
_noted: weakref.WeakSet[Any] = weakref.WeakSet()
_unused: set[Any] = set()


def _note_uses(jaxpr: Any) -> None:
    if jaxpr in _noted:
        return
    _noted.add(jaxpr)
    used = {v for v in jaxpr.outvars if type(v) is not Literal}
    for eqn in jaxpr.eqns:
        used.update(v for v in eqn.invars if type(v) is not Literal)
    unused = [v for eqn in jaxpr.eqns if len(eqn.outvars) == 1 for v in eqn.outvars if v not in used]
    _unused.difference_update(used)  # jaxprs may share equations: used in one is used
    _unused.update(unused)
    weakref.finalize(jaxpr, _unused.difference_update, unused)


def is_unused(var: Any) -> bool:
    """True for the only result of an equation in an opened jaxpr when nothing in that jaxpr uses it."""
    return type(var) is DropVar or var in _unused


# -- source lines --------------------------------------------------------------------------------------------

_JAX = os.path.dirname(os.path.abspath(jax.__file__)) + os.sep
# The kernels that ship in the wheel are kernels like any user's, not JAX's machinery.
_JAX_KERNELS = os.path.join(_JAX, "experimental", "pallas", "ops") + os.sep
_HERE = str(Path(__file__).resolve().parents[1])
_OWN = (_HERE + os.sep, os.path.join(os.path.dirname(_HERE), "asyncops") + os.sep)
# So are the kernels of the benchmark.
_OWN_KERNELS = os.path.join(os.path.dirname(_HERE), "asyncops", "bench", "kernels") + os.sep
_STDLIB = tuple({sysconfig.get_path(k) + os.sep for k in ("stdlib", "platstdlib")})
_SITE = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)


@functools.lru_cache(maxsize=4096)
def _is_user_file(name: str) -> bool:
    if name.startswith(_JAX):
        return name.startswith(_JAX_KERNELS)
    if name.startswith(_OWN_KERNELS):
        return True
    if name.startswith(_OWN) or name.startswith("<frozen "):
        return False
    # A package beside the standard library (no virtual environment) is user code; functools and contextlib
    # are not.
    return not name.startswith(_STDLIB) or any(part in name for part in _SITE)


@functools.lru_cache(maxsize=16384)
def _frames(traceback: Any) -> tuple[Place, ...]:
    codes, instructions = traceback.raw_frames()
    found = []
    for code, instruction in zip(codes, instructions, strict=True):
        if _is_user_file(code.co_filename):
            frame = _source_info.raw_frame_to_frame(code, instruction)
            # What goes on below has no end in its line.
            end = frame.end_column if frame.end_line == frame.start_line else None
            found.append((frame.file_name, frame.start_line, frame.function_name, frame.start_column, end))
    return tuple(found)


def user_places(eqn: Any) -> tuple[Place, ...]:
    """All frames of the user's code behind the equation, innermost first: (file, line, function, column, end column).

    Columns count bytes of UTF-8 from 0, as Python does.
    """
    traceback = eqn.source_info.traceback
    return _frames(traceback) if traceback is not None else ()


def user_locations(eqn: Any) -> tuple[Frame, ...]:
    """The frames of :func:`user_places` as (file, line, function)."""
    return tuple(place[:3] for place in user_places(eqn))


def user_location(eqn: Any) -> Frame | None:
    """The innermost frame of the user's code: not JAX's, this package's or the standard library's."""
    frames = user_locations(eqn)
    return frames[0] if frames else None
