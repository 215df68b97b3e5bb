"""Editing jaxprs equation by equation: what programs that break programs on purpose need.

JAX has no public way to change one equation of a jaxpr, to put it back into the equations around it, or to look at
the index of a Ref operand that is flattened into an equation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax._src import core
from jax._src.state import indexing
from jax._src.state import types as state_types

from stateful._jax.jaxprs import Literal, is_jaxpr, is_ref
from stateful._jax.kernels import tracing_registry
from stateful._jax.transforms import Slice

Path = tuple[tuple[int, str, int], ...]
"""Where a jaxpr is: equation, parameter and position in that parameter (-1: it is the parameter), from outside in."""


@dataclass(frozen=True)
class Place:
    """An equation: the path of its jaxpr, that jaxpr, and its number there."""

    path: Path
    jaxpr: Any
    index: int

    @property
    def eqn(self) -> Any:
        """The equation."""
        return self.jaxpr.eqns[self.index]


def places(jaxpr: Any, path: Path = ()) -> Iterator[Place]:
    """Every equation of a jaxpr and of the jaxprs in its equations, in order."""
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    for i, eqn in enumerate(inner.eqns):
        yield Place(path, inner, i)
        for name, value in eqn.params.items():
            for k, sub in _jaxprs(value):
                yield from places(sub, (*path, (i, name, k)))


def _jaxprs(value: Any) -> Iterator[tuple[int, Any]]:
    if is_jaxpr(value):
        yield -1, value
    elif isinstance(value, (tuple, list)):
        yield from ((k, item) for k, item in enumerate(value) if is_jaxpr(item))


def with_equations(jaxpr: Any, path: Path, edit: Callable[[list[Any]], list[Any]]) -> Any:
    """``jaxpr`` with the equations of the jaxpr at ``path`` as ``edit`` leaves them."""
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    eqns = list(inner.eqns)
    if not path:
        new = inner.replace(eqns=edit(eqns))
    else:
        (i, name, k), *rest = path
        old = eqns[i].params[name]
        sub = with_equations(old if k < 0 else old[k], tuple(rest), edit)
        value = sub if k < 0 else type(old)([*old[:k], sub, *old[k + 1 :]])
        eqns[i] = eqns[i].replace(params={**eqns[i].params, name: value})
        new = inner.replace(eqns=eqns)
    return new if inner is jaxpr else jaxpr.replace(jaxpr=new)


def literal(value: int, like: Any) -> Any:
    """A constant operand of the type of the operand ``like``."""
    aval = like.aval
    return Literal(np.asarray(value, aval.dtype)[()], aval)


def computed(fn: Callable[..., Any], *operands: Any) -> tuple[list[Any], Any]:
    """Equations that compute ``fn`` of scalar operands of a jaxpr, and the atom of the result."""
    if all(isinstance(a, Literal) for a in operands):
        return [], literal(int(fn(*(a.val for a in operands))), operands[0])
    jaxpr = jax.make_jaxpr(lambda *xs: fn(*xs))(*(jax.ShapeDtypeStruct((), a.aval.dtype) for a in operands))
    inner = jaxpr.jaxpr
    known = dict(zip(inner.invars, operands, strict=True))
    eqns = [
        e.replace(invars=[known.get(v, v) if not isinstance(v, Literal) else v for v in e.invars])
        for e in inner.eqns
    ]
    return eqns, inner.outvars[0]


def flattened_refs(eqn: Any, key: str) -> tuple[Any, ...]:
    """The operands of an equation as its parameter ``key`` (a tree) groups them."""
    return jax.tree.unflatten(eqn.params[key], eqn.invars)


def with_operands(eqn: Any, key: str, operands: Any) -> Any:
    """The equation with regrouped operands."""
    # Only JAX's registry for tracing takes Refs seen through transforms apart.
    leaves, tree = tracing_registry.flatten(operands)
    return eqn.replace(invars=leaves, params={**eqn.params, key: tree})


def base_of(ref: Any) -> Any:
    """The Ref atom behind a Ref operand."""
    while isinstance(ref, state_types.TransformedRef):
        ref = ref.ref
    return ref


def shape_of(ref: Any) -> tuple[Any, ...]:
    """The shape of a Ref operand, through its transforms."""
    shape = base_of(ref).aval.shape
    for t in getattr(ref, "transforms", ()):
        shape = t.get_indexer_shape() if isinstance(t, indexing.NDIndexer) else ()
    return tuple(shape)


def with_base(ref: Any, base: Any) -> Any:
    """The operand with another Ref behind it."""
    return state_types.TransformedRef(base, ref.transforms) if ref is not base_of(ref) else base


def with_transforms(ref: Any, transforms: Sequence[Any]) -> Any:
    """The operand with other transforms."""
    return state_types.TransformedRef(base_of(ref), tuple(transforms))


def first_rows(ref: Any, count: int) -> Any:
    """The operand narrowed to its first ``count`` elements along its first dimension."""
    shape = shape_of(ref)
    indices = (Slice(0, count, 1), *(Slice(0, n, 1) for n in shape[1:]))
    narrowed = indexing.NDIndexer(indices, shape, ())
    return with_transforms(ref, (*getattr(ref, "transforms", ()), narrowed))


def integer_index(transforms: Sequence[Any]) -> tuple[int, int, Any, int] | None:
    """The first integer index of a dimension of two or more: (transform, dimension, atom or number, extent)."""
    for t, transform in enumerate(transforms):
        if isinstance(transform, indexing.NDIndexer):
            for d, (index, extent) in enumerate(zip(transform.indices, transform.shape, strict=True)):
                is_scalar = (
                    isinstance(index, int) or getattr(getattr(index, "aval", None), "shape", None) == ()
                )
                if is_scalar and isinstance(extent, int) and extent > 1:
                    return t, d, index, extent
    return None


def with_index(transforms: Sequence[Any], t: int, d: int, index: Any) -> tuple[Any, ...]:
    """The transforms with another index there."""
    old = transforms[t]
    indices = (*old.indices[:d], index, *old.indices[d + 1 :])
    new = indexing.NDIndexer(indices, old.shape, old.int_indexer_shape)
    return (*transforms[:t], new, *transforms[t + 1 :])


def is_ref_atom(atom: Any) -> bool:
    """True for a variable that holds a Ref."""
    return isinstance(atom, core.Var) and is_ref(atom.aval)
