"""Loops in which operations are started: two buffers instead of a copy in each iteration.

What arrives in iteration *i* is sent in iteration *i + 1*, so the buffer that receives in one sends in the next. A
compiler gives each loop variable one buffer, and would copy. After two iterations every variable is back in its
buffer: so two are run at a time, and what is left over at the end is run alone.

Where futures move up in the carry (the next becomes the current one), more buffers take turns, and more iterations are
run at a time: `period`.

How many iterations are left is known before each pair wherever the loop's condition depends on counters only: then it
is evaluated ahead. Where it depends on what arrives, see `asyncops.alternating`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from jax import lax

from asyncops import ops
from asyncops.landing import Held, arrays_of, as_landed, choose, finish, landed_among
from asyncops.loops import Carry, Loop, Run, evaluate_body
from asyncops.periods import period
from asyncops.placing import movable, results_in_hbm
from asyncops.regions import touches_futures
from asyncops.sharing import Shared
from asyncops.stacks import Stacks
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
    form: Scan, operands: Sequence[Any], unroll: int, futures: Sequence[Held], stacked: Sequence[Held], shared: Shared,
    run: Run,
) -> list[Any]:  # fmt: skip
    """Runs a ``scan`` whose body starts operations, two iterations (or more, see `period`) at a time.

    ``lax.scan`` runs what is left over behind its loop. A stack of futures would be filled by moving what is in
    flight: so each iteration finishes its future, and what arrived is stacked.

    Args:
        form: the loop.
        operands: its operands; `asyncops.landing.Landed` stacks among what it scans over.
        unroll: how many iterations the program asked to run at a time.
        futures: those among what it carries.
        stacked: the futures among what it stacks, counted from the first stack.
        shared: what the loop would hold twice.
        run: evaluates bodies in order.

    Returns:
        Its results, with `asyncops.landing.Landed` in the place of stacked futures.
    """
    m, n = len(form.consts), len(form.consts) + len(form.carry)
    operands = shared.copy(operands)
    consts, landed = operands[:m], landed_among(operands[n:])
    stacks = Stacks(form, stacked)

    def step(state: Any, xs: Carry) -> tuple[Any, Carry]:
        reduced, written = state
        inputs = (*consts, *shared.expand(reduced), *as_landed(xs, landed))
        results = evaluate_body(form.jaxpr, inputs, run)
        carry, ys = shared.reduce(results[: n - m]), finish(results[n - m :], stacked)
        return stacks.write(carry, written, ys)

    unroll = math.lcm(unroll, period(form, futures))
    init = shared.reduce(operands[m:n]), stacks.empty()
    xs = arrays_of(operands[n:], landed)
    (carry, written), left = lax.scan(step, init, xs, form.length, reverse=form.reverse, unroll=unroll)
    return [*shared.expand(carry), *as_landed(stacks.read(written, left), stacked, stacked=True)]


def run_while(
    form: While, operands: Sequence[Any], futures: Sequence[Held], shared: Shared, run: Run
) -> list[Any]:
    """Runs a ``while`` whose body starts operations, two iterations (or more, see `period`) at a time.

    Args:
        form: the loop.
        operands: its operands.
        futures: those among what it carries.
        shared: what the loop would hold twice.
        run: evaluates bodies in order.

    Returns:
        What it carries in the end, with `asyncops.landing.Landed` in the place of futures: iterations that are left
        over are run in a conditional, which no future may leave.
    """
    loop = Loop(form, operands, shared, run)
    carry, left = _together(loop, period(form, futures))
    rest = [functools.partial(_finished, loop, carry, n, futures) for n in range(period(form, futures))]
    return as_landed(choose(left, rest), futures)


def _together(loop: Loop, size: int) -> tuple[Carry, Any]:
    """Runs ``size`` iterations at a time as long as so many are left; tells how many are left then."""

    def run(carry: Carry) -> Carry:
        for _ in range(size):
            carry = loop.body(carry)
        return carry

    carry = lax.while_loop(lambda c: loop.ahead(c, size) == size, run, loop.init)
    return carry, loop.ahead(carry, size)


def _finished(loop: Loop, carry: Carry, more: int, futures: Sequence[Held]) -> list[Any]:
    """What is carried after so many more iterations, futures as what arrived."""
    for _ in range(more):
        carry = loop.body(carry)
    whole = loop.whole(carry)
    fixed = results_in_hbm(loop.form.body.jaxpr) if more else ()
    return finish([movable(x) if n in fixed else x for n, x in enumerate(whole)], futures)
