"""``@program_order``: what is written between a start and its done stays between them in the compiled program."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np

from asyncops import linearity
from asyncops.sequencing import ordered_p
from stateful._jax.calls import call
from stateful._jax.rewriting import trace

F = TypeVar("F", bound=Callable[..., Any])


def program_order(fn: F) -> F:
    """Keeps, in the compiled program, what ``fn`` does between a start and its done between them.

    Also checks that each future is consumed exactly once, and gives loops that carry futures the two buffers they
    need (how: `asyncops.sequencing`). Values, derivatives and batches are those of ``fn``; derivatives are in order,
    too.

    Args:
        fn: function of arrays, futures, Refs and pytrees of them; other arguments are passed on as they are.

    Returns:
        A function with the same arguments and results, to be called anywhere ``fn`` can be.

    Raises:
        FutureError: from the returned function, if ``fn`` drops a future, consumes one twice, mixes two, or uses what
            is in flight. The message names the lines.
    """

    @functools.wraps(fn)
    def ordered(*args: Any, **kwargs: Any) -> Any:
        leaves, tree = jax.tree.flatten((args, kwargs))
        dynamic = [n for n, leaf in enumerate(leaves) if _is_dynamic(leaf)]

        def of_arrays(*arrays: Any) -> Any:
            given = list(leaves)
            for n, array in zip(dynamic, arrays, strict=True):
                given[n] = array
            args, kwargs = jax.tree.unflatten(tree, given)
            return fn(*args, **kwargs)

        arrays = [leaves[n] for n in dynamic]
        jaxpr, consts, results = trace(of_arrays, *arrays)
        linearity.check(jaxpr)
        return jax.tree.unflatten(results, call(ordered_p, jaxpr, consts, arrays))

    return ordered  # type: ignore[return-value]


def _is_dynamic(leaf: Any) -> bool:
    return isinstance(leaf, (jax.Array, np.ndarray, np.generic, jax.Ref))
