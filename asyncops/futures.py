"""Futures: what a start returns and exactly one done must consume.

A future is a pytree of its leaves (source, destination and semaphores), so it passes through ``jit``, loops, ``cond``,
``shard_map`` and the boundaries of functions. Its leaves have a type that nothing but a done accepts.

What one Python object can tell, it tells at once: a second done in the same function raises, and an object that goes
out of scope unused warns, as a coroutine that was never awaited does. What happens to a future behind a boundary is
seen in the jaxpr: `asyncops.linearity`.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Protocol

import jax
import jax.extend.core

from asyncops import ops, origins
from asyncops.origins import Origin
from stateful._jax.inflight import is_in_flight
from stateful.errors import FutureError, FutureMismatchError, FutureReusedError, UnfinishedFutureWarning


class Operation(Protocol):
    """What a future belongs to: hashable, and equal for two futures that one done can finish."""

    @property
    def name(self) -> str:
        """Prefix of its functions, such as ``"ppermute"``."""
        ...


class Future:
    """A linear handle of an operation that is running.

    Args:
        operation: what was started.
        leaves: the in-flight arrays that its done needs.
        origin: the line that started it; two futures that differ only there have the same tree structure.
        refs: Refs that the operation works on, if this is a future of the Ref form inside the function that
            started it. They are not leaves: no Ref may be carried by a loop.
    """

    def __init__(
        self, operation: Operation | Any, leaves: Sequence[Any], origin: Origin, refs: tuple[Any, ...] = ()
    ) -> None:
        self.operation = operation
        self.origin = origin
        self._leaves = tuple(leaves)
        self.refs = refs
        self._consumed_at: Origin | None = None
        self._consumed_in: Any = None
        self._handed_over = False

    @property
    def form(self) -> str:
        """Suffix of the functions that take this future: "" for arrays, ``"_ref"`` for Refs."""
        return getattr(self.operation, "form", "")

    def consume(self, done: str, origin: Origin) -> tuple[Any, ...]:
        """The leaves, for the function ``done`` called at ``origin``; once.

        Raises:
            FutureMismatchError: ``done`` belongs to another operation.
            FutureReusedError: the future was consumed before in the same function.
        """
        fitting = f"{self.operation.name}_done{self.form}"
        if done != fitting:
            raise FutureMismatchError(
                f"{done} at {origin} got the future of {self.operation.name}_start{self.form} "
                f"at {self.origin}: call {fitting}"
            )
        # Two branches of a cond may each consume a future that they close over: each is a trace of its own.
        trace = jax.extend.core.get_opaque_trace_state()
        if self._consumed_at is not None and self._consumed_in == trace:
            raise FutureReusedError(
                f"{done} at {origin}: the future started at {self.origin} was already consumed "
                f"at {self._consumed_at}. Use that result, or start the operation again"
            )
        self._consumed_at, self._consumed_in = origin, trace
        return self._leaves

    def __jax_array__(self) -> Any:
        return self._refuse()

    def _refuse(self, *_: Any) -> Any:
        """What an operation on a future instead of its result comes to."""
        raise FutureError(
            f"{origins.here()} uses the future of {self.operation.name}_start{self.form} at {self.origin}: "
            f"call {self.operation.name}_done{self.form} on it first"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __matmul__ = __rmatmul__ = __pow__ = __rpow__ = __neg__ = __pos__ = __abs__ = __getitem__ = _refuse

    def __repr__(self) -> str:
        state = f"consumed at {self._consumed_at}" if self._consumed_at else "running"
        return f"<future of {self.operation.name}_start{self.form} at {self.origin}, {state}>"

    def __del__(self) -> None:
        if getattr(self, "_handed_over", True) or self._consumed_at is not None:
            return
        fitting = f"{self.operation.name}_done{self.form}"
        warnings.warn(
            f"{self.operation.name}_start{self.form} at {self.origin} was never finished: call {fitting} on its future",
            UnfinishedFutureWarning,
            stacklevel=2,
            source=self,
        )


def _flatten(future: Future) -> tuple[tuple[Any, ...], tuple[Operation, Origin]]:
    future._handed_over = True
    return future._leaves, (future.operation, future.origin)


def _unflatten(static: tuple[Operation, Origin], leaves: Sequence[Any]) -> Future:
    if any(isinstance(leaf, jax.Array) and is_in_flight(leaf) and leaf.ndim > 1 for leaf in leaves):
        leaves = ops.stack(leaves, static[1])
    future = Future(static[0], leaves, static[1])
    # It may be there to be looked at only, as by the condition of a loop; so it does not warn.
    future._handed_over = True
    return future


jax.tree_util.register_pytree_node(Future, _flatten, _unflatten)


def require_future(x: Any, done: str) -> Future:
    """``x`` if it is a future.

    Raises:
        FutureMismatchError: it is something else, such as the array that was sent.
    """
    if isinstance(x, Future):
        return x
    start = done.replace("_done", "_start")
    raise FutureMismatchError(
        f"{done} at {origins.here()}: fut must be the future that {start} returned, not {type(x).__name__}"
    )
