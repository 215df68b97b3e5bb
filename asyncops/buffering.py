"""Loops that may carry futures: drop-in for those of ``jax.lax``, where `asyncops.program_order` is not around already.

A future that is carried, or started and finished in each iteration, needs two buffers that take turns. These loops see
to it (`asyncops.pairing`), keep what is written between start and done between them, and check that each future is
consumed exactly once. Their results and derivatives are those of ``jax.lax``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax import lax

from asyncops.ordering import program_order


def fori_loop(
    lower: Any,
    upper: Any,
    body_fun: Callable[[Any, Any], Any],
    init_val: Any,
    *,
    unroll: int | bool | None = None,
) -> Any:
    """`jax.lax.fori_loop` whose carried values may be or contain futures.

    Args:
        lower: first index, an integer or an int32 scalar.
        upper: one past the last index; where either is traced, what is left over of the pairs of iterations runs in a
            conditional, and a future that the loop returns is finished at its end.
        body_fun: ``body_fun(i, carry)`` gives the next carry.
        init_val: the first carry: arrays, futures, or pytrees of them.
        unroll: as in ``jax.lax``; odd numbers are doubled.

    Returns:
        The last carry.

    Raises:
        FutureError: the body drops a future, or consumes one twice.
    """
    return program_order(lambda init: lax.fori_loop(lower, upper, body_fun, init, unroll=unroll))(init_val)


def while_loop(cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: Any) -> Any:
    """`jax.lax.while_loop` whose carried values may be or contain futures.

    Args:
        cond_fun: ``cond_fun(carry)`` says whether another iteration follows; it may look at what is carried beside
            futures. Where it depends on counters only, it is evaluated ahead, and pairs of iterations run at a time.
        body_fun: ``body_fun(carry)`` gives the next carry.
        init_val: the first carry: arrays, futures, or pytrees of them.

    Returns:
        The last carry.

    Raises:
        FutureError: the body drops a future, or consumes one twice, or the condition consumes one.
    """
    return program_order(lambda init: lax.while_loop(cond_fun, body_fun, init))(init_val)


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    *,
    reverse: bool = False,
    unroll: int = 1,
) -> tuple[Any, Any]:
    """`jax.lax.scan` whose carried values may be or contain futures.

    Args:
        f: ``f(carry, x)`` gives the next carry and ``y``.
        init: the first carry: arrays, futures, or pytrees of them.
        xs: arrays to scan over.
        length: number of iterations, where ``xs`` does not tell.
        reverse: from the last ``x`` to the first.
        unroll: iterations at a time; odd numbers are doubled.

    Returns:
        The last carry, and the stacked ``y`` s.

    Raises:
        FutureError: ``f`` drops a future, or consumes one twice.
    """

    def scanned(init: Any, xs: Any) -> Any:
        return lax.scan(f, init, xs, length, reverse=reverse, unroll=unroll)

    return program_order(scanned)(init, xs)
