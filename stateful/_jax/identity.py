"""A text that two traced programs share only if they are the same program, source lines included.

JAX's own printing leaves out what this is for: index maps, source lines, the bodies inside some parameters.
Whatever has no faithful text makes the whole program :class:`Unnameable`; nothing is guessed.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jax._src import core as _core  # jax.core is not typed

from stateful._jax.jaxprs import Literal, is_jaxpr, open_jaxpr, user_places

_ADDRESS = re.compile(r"\bat 0x[0-9a-f]+|<[\w. ]*object\b")
_PLAIN = (int, float, complex, str, bytes, bool, type(None), type(...), slice, np.dtype)


class Unnameable(ValueError):
    """A part of the program has no text that identifies it, such as a Python function in a parameter."""


def program_text(closed: Any) -> Iterator[str]:
    """The text of a traced program, in pieces."""
    yield from _Writer().jaxpr(closed)


class _Writer:
    """Writes one program. Variables are numbered in order of appearance, over all jaxprs inside."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._active: set[int] = set()

    def jaxpr(self, closed: Any) -> Iterator[str]:
        jaxpr, consts = open_jaxpr(closed)
        debug = jaxpr.debug_info
        yield f"{{{debug.func_src_info} {debug.arg_names};"
        for var in (*jaxpr.constvars, *jaxpr.invars):
            yield from (self._atom(var), ":", str(var.aval), ";")
        for const in consts:
            yield from self.value(const)
        for eqn in jaxpr.eqns:
            yield from self._equation(eqn)
        yield "->" + ",".join(map(self._atom, jaxpr.outvars)) + "}"

    def value(self, x: Any) -> Iterator[str]:
        """The text of a parameter or constant."""
        writer = next((write for fits, write in _WRITERS if fits(x)), None)
        if writer is None:
            raise Unnameable(f"{type(x).__module__}.{type(x).__qualname__}")
        if id(x) in self._active:
            raise Unnameable(f"a {type(x).__qualname__} that holds itself")
        self._active.add(id(x))
        yield f"<{type(x).__qualname__} "
        yield from writer(self, x)
        yield ">"
        self._active.discard(id(x))

    def items(self, xs: Any) -> Iterator[str]:
        for x in xs:
            yield from self.value(x)

    def fields(self, x: Any) -> Iterator[str]:
        for field in dataclasses.fields(x):
            yield f"{field.name}="
            yield from self.value(getattr(x, field.name))

    def mapping(self, x: Mapping[Any, Any]) -> Iterator[str]:
        for key, value in x.items():
            yield from self.value(key)
            yield from self.value(value)

    def unordered(self, xs: Any) -> Iterator[str]:
        yield from sorted("".join(self.value(x)) for x in xs)

    def _equation(self, eqn: Any) -> Iterator[str]:
        yield f"\n{','.join(map(self._atom, eqn.outvars))}="
        yield f"{eqn.primitive.name}/{type(eqn.primitive).__qualname__}("
        yield ",".join(map(self._atom, eqn.invars)) + ")"
        yield from (f"{v.aval};" for v in eqn.outvars)
        for key in sorted(eqn.params):
            yield f" {key}="
            yield from self.value(eqn.params[key])
        yield f"@{user_places(eqn)}"

    def _atom(self, atom: Any) -> str:
        if isinstance(atom, Literal):
            return f"{atom.val!r}:{atom.aval}"
        return f"v{self._numbers.setdefault(atom, len(self._numbers))}"


def _array(_: _Writer, x: Any) -> Iterator[str]:
    host = np.asarray(x)
    if host.dtype.hasobject:
        raise Unnameable("an array of objects")
    yield f"{host.dtype}{host.shape}{hashlib.sha256(np.ascontiguousarray(host).tobytes()).hexdigest()}"


def _mesh(_: _Writer, x: Any) -> Iterator[str]:
    yield f"{x.axis_names}{tuple(x.shape.values())}"
    if isinstance(x, jax.sharding.Mesh):
        yield f"{list(map(str, x.devices.flat))}"


def _named(_: _Writer, x: Any) -> Iterator[str]:
    yield f"{x.__module__}.{x.__qualname__}"


def _shown(_: _Writer, x: Any) -> Iterator[str]:
    text = repr(x)
    if _ADDRESS.search(text):
        raise Unnameable(text)
    yield text


def _is(*types: type) -> Callable[[Any], bool]:
    return lambda x: isinstance(x, types)


def _is_array(x: Any) -> bool:
    return isinstance(x, (np.ndarray, np.generic, jax.Array)) and not isinstance(x, _core.Tracer)


def _is_dataclass(x: Any) -> bool:
    return dataclasses.is_dataclass(x) and not isinstance(x, type)


def _is_repr_faithful(x: Any) -> bool:
    # Functions are not: two closures of one function print alike.
    return not callable(x)


_WRITERS: tuple[tuple[Callable[[Any], bool], Callable[[_Writer, Any], Iterator[str]]], ...] = (
    (is_jaxpr, _Writer.jaxpr),
    (_is(*_PLAIN, enum.Enum), _shown),
    (_is(type), _named),
    (_is_array, _array),
    (_is(jax.sharding.Mesh, jax.sharding.AbstractMesh), _mesh),
    (_is_dataclass, _Writer.fields),
    (_is(Mapping), _Writer.mapping),
    (_is(tuple, list), _Writer.items),
    (_is(set, frozenset), _Writer.unordered),
    (_is_repr_faithful, _shown),
)
