"""A ``while`` that starts operations and whose condition depends on what arrives.

It runs an iteration and, if another follows, that one, until none follows. The second is a loop of at most one
iteration, not a conditional: a loop works in place. Between the two, loop variables have changed places:

* source and destination of a ring, which sends from where it received;
* the destination of any other future and a spare one, since what arrived may be in use while the next arrives;
* an array that is what arrived, and a spare one.

So every buffer is written where nobody needs what was in it, and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from asyncops import ops
from asyncops.landing import Held, as_landed, choose, finish, shifted
from asyncops.loops import Carry, Loop
from asyncops.periods import done_behind, handle_of, is_ring, queues
from stateful._jax import ops as _jax
from stateful._jax.inflight import is_in_flight
from stateful._jax.jaxprs import Literal
from stateful.higher_order import Body, While


class Alternation:
    """One such loop; `run` gives what it carries in the end.

    A future whose done is not in the body itself, but in something that it calls, or that moves up in the carry, is
    finished at the end of each iteration (``early``), and what arrived is carried.
    """

    def __init__(self, loop: Loop, futures: Sequence[Held]) -> None:
        body = loop.form.body
        self._loop = loop
        alone = [queue[0] for queue in queues(loop.form, futures) if len(queue) == 1]
        rings = [held for held in alone if is_ring(loop.form, held, held)]
        others = {held: _done_of(loop.form, held) for held in futures if held not in rings}
        others.update((held, None) for held in futures if held not in alone)
        self._early = [held for held, done in others.items() if done is None]
        self._fresh = [(held, done.outvars[0]) for held, done in others.items() if done is not None]
        kept = _kept(len(body.outputs), self._early)
        self._arrived = [n for n, old in enumerate(kept) if _is_what_arrived(body, body.outputs[old])]
        self._carried = shifted([held for held in futures if held not in self._early], self._early)
        self._size = len(kept)
        self._swaps = self._places(shifted(rings, self._early), len(kept))

    def _places(self, rings: Sequence[Held], spare: int) -> list[tuple[int, int]]:
        """Positions of variables that change places; those of spare ones begin at ``spare``."""
        fresh = shifted([held for held, _ in self._fresh], self._early)
        paired = [*self._arrived, *(held.positions[1] for held in fresh)]
        return [held.positions[:2] for held in rings] + [(n, spare + k) for k, n in enumerate(paired)]

    def run(self) -> list[Any]:
        """Runs the loop; gives what it carries, with what arrived in the place of each future."""
        init = finish(self._loop.init, self._early)
        spares = [jnp.zeros_like(init[n]) for n in self._arrived]
        spares += [_like(self._loop.init[held.positions[1]], held.batch) for held, _ in self._fresh]
        slots = lax.while_loop(self._even_and_more, self._pair, (jnp.int32(0), [*init, *spares]))
        odd, ends = slots[0], (slots[1], self._crossed(slots[1]))
        return choose(odd == 1, [lambda: self._finished(ends[0]), lambda: self._finished(ends[1])])

    def _finished(self, slots: Carry) -> list[Any]:
        return finish(slots[: self._size], self._carried)

    # -- one iteration, on what is carried ------------------------------------------------------------

    def _more(self, slots: Carry) -> Any:
        return self._loop.cond(as_landed(slots[: self._size], self._early))

    def _step(self, slots: Carry) -> Carry:
        carry = as_landed(slots[: self._size], self._early)
        for held in self._early:
            carry[held.first : held.first + 3] = carry[held.first].leaves()
        new, arrived = self._loop.body_and(carry, [result for _, result in self._fresh])
        spares = [slots[n] for n in self._arrived]
        for (held, _), array in zip(self._fresh, arrived, strict=True):
            spares.append(ops.label(array, carry[held.positions[1]].dtype, held.batch))
        return [*finish(new, self._early), *spares]

    # -- two iterations, on what lies in the loop's variables -----------------------------------------

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
        return lax.while_loop(
            lambda s: (s[0] == 1) & self._more(self._crossed(s[1])),
            lambda s: (s[0] - 1, self._step(self._crossed(s[1]))),
            (odd + 1, self._crossed(self._step(slots))),
        )


def _like(destination: Any, batch: int) -> Any:
    """A buffer that a future may receive into."""
    dtype = destination.dtype
    empty = jnp.zeros((*destination.shape[:batch], *dtype.element), dtype.physical)
    return ops.label(_jax.varying_as(empty, jax.typeof(destination)), dtype, batch)


def _kept(size: int, futures: Sequence[Held]) -> list[int]:
    """Which of ``size`` leaves `finish` leaves in place, in order."""
    gone = {held.first + k for held in futures for k in (1, 2)}
    return [n for n in range(size) if n not in gone]


def _is_what_arrived(body: Body, atom: Any) -> bool:
    return (
        not isinstance(atom, Literal) and not is_in_flight(atom.aval) and done_behind(body, atom) is not None
    )


def _done_of(form: While, held: Held) -> Any:
    """The done, in the body itself, of a carried future; None if it is elsewhere."""
    handle = handle_of(form, held)
    dones = (eqn for eqn in form.body.jaxpr.eqns if eqn.primitive is ops.done_p)
    return next((eqn for eqn in dones if eqn.invars[2] is handle), None)
