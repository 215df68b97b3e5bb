"""Loops in which operations are started: two buffers instead of a copy in each iteration.

What arrives in iteration *i* is sent in iteration *i + 1*, so the buffer that receives in one sends in the next. A
compiler gives each loop variable one buffer, and would copy. After two iterations every variable is back in its
buffer: so two are run at a time, and what is left over at the end is run alone.

How many iterations are left is known before each pair wherever the loop's condition depends on counters only: then it
is evaluated one iteration ahead. Where it depends on what arrives, see `asyncops.alternating`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax import lax

from asyncops import ops
from asyncops.alternating import Alternation
from asyncops.landing import Held, as_landed, choose, finish
from asyncops.loops import Carry, Loop, Run
from asyncops.regions import touches_futures
from stateful._jax.jaxprs import parameter_jaxprs
from stateful.higher_order import While


def starts_on_arrays(jaxpr: Any) -> bool:
    """True when a jaxpr starts an operation on arrays, itself or in what it calls; Refs have buffers of their own."""
    return any(
        eqn.primitive is ops.start_p
        or (touches_futures(eqn) and any(starts_on_arrays(b.jaxpr) for b in parameter_jaxprs(eqn)))
        for eqn in jaxpr.eqns
    )


def unrolling(eqn: Any) -> int:
    """How many iterations of a ``scan`` are to run at a time: an even number where its body starts operations.

    ``scan`` runs what is left over behind its loop, and stays differentiable.
    """
    asked: int = eqn.params["unroll"]
    starts = any(starts_on_arrays(body.jaxpr) for body in parameter_jaxprs(eqn))
    return asked * 2 if starts and asked % 2 else asked


def run_while(form: While, operands: Sequence[Any], futures: Sequence[Held], run: Run) -> list[Any]:
    """Runs a ``while`` whose body starts operations, two iterations at a time.

    Args:
        form: the loop.
        operands: its operands.
        futures: those among what it carries.
        run: evaluates bodies in order.

    Returns:
        What it carries in the end, with `asyncops.landing.Landed` in the place of futures: an iteration that is left
        over is run in a conditional, which no future may leave.
    """
    loop = Loop(form, operands, run)
    if not loop.counts:
        return as_landed(Alternation(loop, futures).run(), futures)
    carry, again = _in_pairs(loop)
    rest = [lambda: finish(carry, futures), lambda: finish(loop.body(carry), futures)]
    return as_landed(choose(again, rest), futures)


def _in_pairs(loop: Loop) -> tuple[Carry, Any]:
    """Runs pairs as long as two iterations are left; tells whether one is."""
    carry = lax.while_loop(
        lambda c: loop.cond(c) & loop.cond_after_one(c), lambda c: loop.body(loop.body(c)), loop.init
    )
    return carry, loop.cond(carry)
