"""After how many iterations of a loop its futures are back in the buffers where they began.

A future that is finished and started anew takes two turns. Futures that move up in the carry, as in a queue of depth
*k* (the next becomes the current one, and a new one is started), have *k + 1* buffers to receive into; if what arrives
is sent on, it is *2 k* for sending and receiving.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from asyncops import ops
from asyncops.landing import Held, maker
from stateful._jax.jaxprs import Literal
from stateful.higher_order import Body, Call, Scan, While, normal_form

# What gives an array another shape or name without moving it.
_VIEWS = ("reshape", "squeeze", "expand_dims", "async_barrier", "optimization_barrier")


def period(form: Scan | While, futures: Sequence[Held]) -> int:
    """The number of iterations to be run at a time; ``futures`` are those among what the loop carries."""
    return math.lcm(2, *(_turns(form, queue) for queue in queues(form, futures)))


def queues(form: Scan | While, futures: Sequence[Held]) -> list[list[Held]]:
    """The futures in the order in which they move up, the one started last first; a circle begins anywhere."""
    body = body_of(form)
    carried = {var: n for n, var in enumerate(_carried(form))}
    at = {held.positions[2]: held for held in futures}
    before: dict[Held, Held] = {}
    for held in futures:
        passed = _passed(body.jaxpr, body.outputs[held.positions[2]])
        if passed in carried and carried[passed] in at:
            before[held] = at[carried[passed]]
    after = {b: a for a, b in before.items()}
    left, found = list(futures), []
    while left:
        held = next((h for h in left if h not in before), left[0])
        queue = []
        while held is not None and held in left:
            left.remove(held)
            queue.append(held)
            held = after.get(held)
        found.append(queue)
    return found


def body_of(form: Scan | While) -> Body:
    """The body of a loop."""
    return form.jaxpr if isinstance(form, Scan) else form.body


def _carried(form: Scan | While) -> Sequence[Any]:
    """The body's inputs that are carried."""
    first = len(form.consts) if isinstance(form, Scan) else len(form.body_consts)
    return body_of(form).inputs[first : first + len(form.carry)]


def _passed(jaxpr: Any, atom: Any) -> Any:
    """The input of a jaxpr that ``atom`` is, under whatever name; else the variable that something made."""
    for eqn in reversed(jaxpr.eqns):
        for n, var in enumerate(eqn.outvars):
            if var is atom:
                inner = _name_before(eqn, n)
                return atom if inner is None else _passed(jaxpr, inner)
    return None if isinstance(atom, Literal) else atom


def _name_before(eqn: Any, n: int) -> Any:
    """The operand of an equation that its result ``n`` is another name for; None if it is something new."""
    if eqn.primitive is ops.stack_p:
        return eqn.invars[n]
    form = normal_form(eqn)
    if not isinstance(form, Call):
        return None
    inner = _passed(form.jaxpr.jaxpr, form.jaxpr.outputs[n])
    return next((a for v, a in zip(form.jaxpr.inputs, form.operands, strict=True) if v is inner), None)


def _turns(form: Scan | While, queue: Sequence[Held]) -> int:
    first, last = queue[0], queue[-1]
    body = body_of(form)
    if _passed(body.jaxpr, body.outputs[first.positions[2]]) in _carried(form):
        return len(queue)
    return 2 * len(queue) if is_ring(form, first, last) else len(queue) + 1


def is_ring(form: Scan | While, started: Held, finished: Held) -> bool:
    """True when the body starts the one carried future by sending what the other brought."""
    body = body_of(form)
    made = maker(body.jaxpr, body.outputs[started.first : started.first + 3])
    if made is None or made[0].primitive is not ops.start_p:
        return False
    done = done_behind(body, made[0].invars[0])
    return done is not None and done.invars[2] is handle_of(form, finished)


def handle_of(form: Scan | While, held: Held) -> Any:
    """The variable that holds a carried future's semaphores at the beginning of an iteration."""
    return _carried(form)[held.positions[2]]


def done_behind(body: Body, atom: Any) -> Any:
    """The done whose result ``atom`` is, possibly in another shape; None if it is anything else."""
    for eqn in body.jaxpr.eqns:
        for n, var in enumerate(eqn.outvars):
            if var is atom:
                if eqn.primitive is ops.done_p:
                    return eqn
                return done_behind(body, eqn.invars[n]) if eqn.primitive.name in _VIEWS else None
    return None
