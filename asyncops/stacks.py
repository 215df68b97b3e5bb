"""What a ``scan`` stacks, written in each iteration.

Where several iterations are run at a time, ``lax.scan`` would stack what they give at the end of the last of them, and
keep it till then: also what has arrived, in a buffer that the next operation should receive into. So what is stacked is
carried, and written before the next iteration begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from asyncops.barriers import tie
from asyncops.landing import Held
from asyncops.loops import Carry
from stateful._jax import ops as _jax
from stateful._jax.inflight import is_handle, is_in_flight
from stateful.higher_order import Scan


class Stacks:
    """The stacks of one loop; ``futures`` are those among what it stacks, counted from the first stack."""

    def __init__(self, form: Scan, futures: Sequence[Held]) -> None:
        self._length, self._reverse = form.length, form.reverse
        outputs = form.jaxpr.outputs[len(form.carry) :]
        first = {held.first: held for held in futures}
        skipped = {held.first + k for held in futures for k in (1, 2)}
        kept = [n for n in range(len(outputs)) if n not in skipped]
        self._types = [
            _landed_type(outputs[first[n].positions[1]].aval, first[n].batch)
            if n in first
            else outputs[n].aval
            for n in kept
        ]
        # JAX has no public empty array of such a type; it stays with lax.scan.
        self._left = [jnp.issubdtype(t.dtype, jax.dtypes.extended) for t in self._types]

    def empty(self) -> Any:
        """The stacks before the loop, and the number of the iteration."""
        stacks = [self._empty(t) for t, left in zip(self._types, self._left, strict=True) if not left]
        return jnp.int32(0), stacks

    def _empty(self, aval: Any) -> jax.Array:
        return _jax.varying_as(jnp.zeros((self._length, *aval.shape), aval.dtype), aval)

    def write(self, carry: Carry, written: Any, ys: Sequence[Any]) -> tuple[Any, Carry]:
        """What a step of the loop gives: its carry, with what it stacks in place, and the rest for ``lax.scan``."""
        n, stacks = written
        at = self._length - 1 - n if self._reverse else n
        new = [y for y, left in zip(ys, self._left, strict=True) if not left]
        stacks = [lax.dynamic_update_index_in_dim(s, y, at, 0) for s, y in zip(stacks, new, strict=True)]
        carry, stacks = _before_the_next(carry, stacks)
        return (carry, (n + 1, stacks)), [y for y, left in zip(ys, self._left, strict=True) if left]

    def read(self, written: Any, left: Carry) -> list[Any]:
        """All stacks, behind the loop."""
        mine, others = iter(written[1]), iter(left)
        return [next(others) if is_left else next(mine) for is_left in self._left]


def _landed_type(destination: Any, batch: int) -> Any:
    shape = (*destination.shape[:batch], *destination.dtype.element)
    return _jax.retyped(destination, shape, destination.dtype.physical)


def _before_the_next(carry: Carry, stacks: Carry) -> tuple[Carry, Carry]:
    """The same, with what is stacked written before anything that is carried is used."""
    types = [jax.typeof(x) for x in carry]
    tied = [n for n, t in enumerate(types) if is_handle(t) or not is_in_flight(t)]
    if not stacks or not tied:
        return carry, stacks
    values = tie([*(carry[n] for n in tied), *stacks])
    carry = list(carry)
    for n, value in zip(tied, values, strict=False):
        carry[n] = value
    return carry, values[len(tied) :]
