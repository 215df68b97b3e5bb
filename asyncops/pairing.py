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
from asyncops.landing import Held, arrays_of, as_landed, choose, finish, landed_among
from asyncops.loops import Carry, Loop, Run, counting, evaluate_body
from asyncops.regions import touches_futures
from asyncops.sharing import Shared
from stateful._jax.jaxprs import parameter_jaxprs
from stateful.higher_order import Scan, While


def handles_arrays(form: Scan | While) -> bool:
    """True when a loop's body starts or finishes operations on arrays; those on Refs have buffers of their own."""
    return _handles((form.jaxpr if isinstance(form, Scan) else form.body).jaxpr)


def _handles(jaxpr: Any) -> bool:
    return any(
        eqn.primitive in (ops.start_p, ops.done_p)
        or (touches_futures(eqn) and any(_handles(body.jaxpr) for body in parameter_jaxprs(eqn)))
        for eqn in jaxpr.eqns
    )


def run_scan(
    form: Scan, operands: Sequence[Any], unroll: int, stacked: Sequence[Held], shared: Shared, run: Run
) -> list[Any]:
    """Runs a ``scan`` whose body starts operations, two iterations (or a multiple) at a time.

    ``lax.scan`` runs what is left over behind its loop. A stack of futures would be filled by moving what is in
    flight: so each iteration finishes its future, and what arrived is stacked.

    Args:
        form: the loop.
        operands: its operands; `asyncops.landing.Landed` stacks among what it scans over.
        unroll: how many iterations the program asked to run at a time.
        stacked: the futures among what it stacks, counted from the first stack.
        shared: what the loop would hold twice.
        run: evaluates bodies in order.

    Returns:
        Its results, with `asyncops.landing.Landed` in the place of stacked futures.
    """
    m, n = len(form.consts), len(form.consts) + len(form.carry)
    operands = shared.copy(operands)
    consts, landed = operands[:m], landed_among(operands[n:])

    def step(reduced: Carry, xs: Carry) -> tuple[Carry, Carry]:
        inputs = (*consts, *shared.expand(reduced), *as_landed(xs, landed))
        results = evaluate_body(form.jaxpr, inputs, run)
        return shared.reduce(results[: n - m]), finish(results[n - m :], stacked)

    carry, ys = lax.scan(
        step,
        shared.reduce(operands[m:n]),
        arrays_of(operands[n:], landed),
        length=form.length,
        reverse=form.reverse,
        unroll=unroll * 2 if unroll % 2 else unroll,
    )
    return [*shared.expand(carry), *as_landed(ys, stacked, stacked=True)]


def run_while(
    form: While, operands: Sequence[Any], futures: Sequence[Held], shared: Shared, run: Run
) -> list[Any]:
    """Runs a ``while`` whose body starts operations, two iterations at a time.

    Args:
        form: the loop.
        operands: its operands.
        futures: those among what it carries.
        shared: what the loop would hold twice.
        run: evaluates bodies in order.

    Returns:
        What it carries in the end, with `asyncops.landing.Landed` in the place of futures: an iteration that is left
        over is run in a conditional, which no future may leave.
    """
    if counting(form) is None:
        loop = Loop(form, operands, shared.apart(form), run)
        return as_landed(Alternation(loop, futures).run(), futures)
    loop = Loop(form, operands, shared, run)
    carry, again = _in_pairs(loop)
    rest = [
        lambda: finish(loop.whole(carry), futures),
        lambda: finish(loop.whole(loop.body(carry)), futures),
    ]
    return as_landed(choose(again, rest), futures)


def _in_pairs(loop: Loop) -> tuple[Carry, Any]:
    """Runs pairs as long as two iterations are left; tells whether one is."""
    carry = lax.while_loop(
        lambda c: loop.cond(c) & loop.cond_after_one(c), lambda c: loop.body(loop.body(c)), loop.init
    )
    return carry, loop.cond(carry)
