"""Making Refs (JAX's own, ``jax.Ref``), using them for a while, and keeping operations on them in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax import lax
from jax.experimental import pallas as pl

from stateful._jax import jaxprs
from stateful.errors import InvalidArgumentError


def make_ref(value: Any) -> Any:
    """A new Ref for each array of a pytree, holding a copy of it: ``x_ref = make_ref(x)``."""
    return jax.tree.map(jax.new_ref, value)


def freeze(ref: Any) -> Any:
    """What the Refs of a pytree hold; they cannot be used afterwards, so nothing has to be copied."""
    return jax.tree.map(jax.freeze, ref, is_leaf=_is_ref)


def run_state(fn: Callable[..., None]) -> Callable[..., Any]:
    """``run_state(fn)(x)`` calls ``fn(x_ref)`` on a Ref that holds ``x`` and returns what it holds in the
    end.

    ``x`` may be a pytree; ``fn`` gets a pytree of Refs.
    """
    return pl.run_state(fn)


def run_scoped(fn: Callable[..., Any], *types: Any, **named_types: Any) -> Any:
    """Calls ``fn`` with fresh Refs of the given Pallas types, which end with the call."""
    return pl.run_scoped(fn, *types, **named_types)


def opt_barrier(*operands: Any) -> Any:
    """Keeps what comes before in the program before, and what comes after, after, also for the compiler.

    Operands are pytrees of arrays and Refs. Arrays come back as the values to go on with; the Refs are the
    same ones, and every later use of them depends on every operand. It is the note's
    ``opt_barrier_stateful``::

        x, y_ref = opt_barrier(x, y_ref)
    """
    leaves, tree = jax.tree.flatten(operands, is_leaf=_is_ref)
    if not leaves:
        raise InvalidArgumentError("operands: give opt_barrier at least one array or Ref to keep in order")
    held = [leaf[...] if _is_ref(leaf) else leaf for leaf in leaves]
    passed = lax.optimization_barrier(held)
    results = []
    for leaf, value in zip(leaves, passed, strict=True):
        if _is_ref(leaf):
            leaf[...] = value
        results.append(leaf if _is_ref(leaf) else value)
    whole = jax.tree.unflatten(tree, results)
    return whole[0] if len(operands) == 1 else whole


def _is_ref(x: Any) -> bool:
    return jaxprs.is_ref(jax.typeof(x)) if isinstance(x, (jax.Array, jax.Ref)) else False
