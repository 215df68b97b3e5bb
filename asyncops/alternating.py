"""A ``while`` that starts operations and whose condition depends on what arrives.

It runs an iteration and, if another follows, that one, until none follows. The second is a loop of at most one
iteration, not a conditional: a loop works in place. Between the two, what was received into is sent from, so the loop
variables have changed places: those of a ring's source and destination, and those of an array and a spare one where
the array is what arrived.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from asyncops import ops
from asyncops.landing import Held, as_landed, choose, finish, maker, shifted
from asyncops.loops import Carry, Loop
from stateful._jax.inflight import is_in_flight
from stateful._jax.jaxprs import Literal
from stateful.higher_order import Body

# What gives an array another shape without moving it.
_VIEWS = ("reshape", "squeeze", "expand_dims", "async_barrier", "optimization_barrier")


class Alternation:
    """One such loop.

    A future that does not send on what it received has no place to change with: it is finished at the end of each
    iteration (``early``), and what arrived is carried.
    """

    def __init__(self, loop: Loop, futures: Sequence[Held]) -> None:
        body = loop.form.body
        self._loop = loop
        self._rings = [held for held in futures if _is_ring(body, held)]
        self._early = [held for held in futures if held not in self._rings]
        self._carried_rings = shifted(self._rings, self._early)
        arrives = [_arrived(body.jaxpr, atom) is not None for atom in body.outputs]
        kept = finish_positions(len(body.outputs), self._early)
        self._spared = [n for n, old in enumerate(kept) if arrives[old] and not _in_flight(body.outputs[old])]
        size = len(kept)
        self._swaps = [(held.first, held.first + 1) for held in self._carried_rings]
        self._swaps += [(n, size + k) for k, n in enumerate(self._spared)]

    def run(self) -> list[Any]:
        """What the loop carries in the end, with what arrived in the place of each future."""
        init = finish(self._loop.init, self._early)
        spares = [jnp.zeros_like(init[n]) for n in self._spared]
        slots = lax.while_loop(self._even_and_more, self._pair, (jnp.int32(0), [*init, *spares]))
        odd, ends = slots[0], (slots[1], self._crossed(slots[1]))
        return choose(odd == 1, [lambda: self._finished(ends[0]), lambda: self._finished(ends[1])])

    def _finished(self, slots: Carry) -> list[Any]:
        return finish(self._carry(slots), self._carried_rings)

    # -- one iteration, on what is carried -------------------------------------------------------------

    def _carry(self, slots: Carry) -> Carry:
        return slots[: len(slots) - len(self._spared)]

    def _more(self, slots: Carry) -> Any:
        return self._loop.cond(as_landed(self._carry(slots), self._early))

    def _step(self, slots: Carry) -> Carry:
        carry = self._carry(slots)
        whole = as_landed(carry, self._early)
        for held in self._early:
            whole[held.first : held.first + 3] = whole[held.first].leaves()
        new = finish(self._loop.body(whole), self._early)
        return [*new, *(carry[n] for n in self._spared)]

    # -- two iterations, on what lies in the loop's variables ------------------------------------------

    def _crossed(self, slots: Carry) -> Carry:
        """Exchanges the places; its own inverse."""
        crossed = list(slots)
        for a, b in self._swaps:
            crossed[a], crossed[b] = slots[b], slots[a]
        return crossed

    def _even_and_more(self, state: Any) -> Any:
        odd, slots = state
        return (odd == 0) & self._more(slots)

    def _pair(self, state: Any) -> Any:
        odd, slots = state
        crossed = self._crossed(self._step(slots))
        return lax.while_loop(
            lambda s: (s[0] == 1) & self._more(self._crossed(s[1])),
            lambda s: (s[0] - 1, self._step(self._crossed(s[1]))),
            (odd + 1, crossed),
        )


def finish_positions(size: int, futures: Sequence[Held]) -> list[int]:
    """Which of ``size`` leaves `finish` leaves in place, in order."""
    gone = {held.first + k for held in futures for k in (1, 2)}
    return [n for n in range(size) if n not in gone]


def _in_flight(atom: Any) -> bool:
    return not isinstance(atom, Literal) and is_in_flight(atom.aval)


def _arrived(jaxpr: Any, atom: Any) -> Any:
    """The done whose result ``atom`` is, possibly in another shape; None if it is anything else."""
    for eqn in jaxpr.eqns:
        for n, var in enumerate(eqn.outvars):
            if var is atom:
                if eqn.primitive is ops.done_p:
                    return eqn
                return _arrived(jaxpr, eqn.invars[n]) if eqn.primitive.name in _VIEWS else None
    return None


def _is_ring(body: Body, held: Held) -> bool:
    """True when the body sends on what it received from the same future."""
    made = maker(body.jaxpr, body.outputs[held.first : held.first + 3])
    if made is None or made[0].primitive is not ops.start_p:
        return False
    done = _arrived(body.jaxpr, made[0].invars[0])
    carried = body.inputs[len(body.inputs) - len(body.outputs) :]
    return done is not None and done.invars[2] is carried[held.first + 2]
