"""Loops in which operations are started: two buffers instead of a copy in each iteration.

What arrives in iteration *i* is sent in iteration *i + 1*, so the buffer that receives in one sends in the next. A
compiler gives each loop variable one buffer, and would copy. After two iterations every variable is back in its
buffer: so two are run at a time, and what is left over at the end is run alone.

How many iterations are left is known before each pair wherever the loop's condition depends on counters only: then it
is evaluated one iteration ahead. Where it depends on what arrives, the second iteration of a pair is a loop of at most
one iteration, whose variables have changed places (`_Pairs`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jax import lax

from asyncops import ops
from asyncops.regions import is_ref, touches_futures
from stateful._jax.jaxprs import Literal, parameter_jaxprs
from stateful._jax.rewriting import Environment, evaluate
from stateful.higher_order import While, normal_form

Run = Callable[[Any, Sequence[Any], Sequence[Any]], list[Any]]
Carry = list[Any]

# -- scan ---------------------------------------------------------------------------------------------


def unrolling(eqn: Any) -> int:
    """How many iterations of a ``scan`` are to run at a time: an even number where its body starts operations."""
    asked: int = eqn.params["unroll"]
    starts = any(starts_on_arrays(body.jaxpr) for body in parameter_jaxprs(eqn))
    return asked * 2 if starts and asked % 2 else asked


def starts_on_arrays(jaxpr: Any) -> bool:
    """True when a jaxpr starts an operation on arrays, itself or in what it calls; Refs have buffers of their own."""
    return any(
        eqn.primitive is ops.start_p
        or (touches_futures(eqn) and any(starts_on_arrays(b.jaxpr) for b in parameter_jaxprs(eqn)))
        for eqn in jaxpr.eqns
    )


# -- while --------------------------------------------------------------------------------------------


class Loop:
    """A ``while`` with its constants bound: the condition and the body as functions of the carried values."""

    def __init__(self, form: While, operands: Sequence[Any], run: Run) -> None:
        m, n = len(form.cond_consts), len(form.body_consts)
        self.form = form
        self.init: Carry = list(operands[m + n :])
        self._cond_consts, self._body_consts = operands[:m], operands[m : m + n]
        self._run = run

    def cond(self, carry: Sequence[Any]) -> Any:
        """Whether another iteration follows."""
        return _bind(self.form.cond, evaluate, (*self._cond_consts, *carry))[0]

    def body(self, carry: Sequence[Any]) -> Carry:
        """One iteration, with its own operations in order."""
        return _bind(self.form.body, self._run, (*self._body_consts, *carry))

    def cond_after_one(self, carry: Sequence[Any]) -> Any:
        """`cond` after one more iteration, without running what that iteration starts; see `looks_ahead`."""
        body = self.form.body
        env = Environment(body.jaxpr, *_split(body, (*self._body_consts, *carry)))
        for eqn in _slice(self.form) or ():
            env.run(eqn)
        new = [env[v] if v in env or isinstance(v, Literal) else old for v, old in zip(body.outputs, carry, strict=True)]
        return self.cond(new)


def _split(body: Any, values: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    """The values of a body's constants and arguments."""
    if body.consts:
        return body.consts, values
    n = len(body.jaxpr.constvars)
    return values[:n], values[n:]


def _bind(body: Any, run: Run, values: Sequence[Any]) -> Carry:
    return list(run(body.jaxpr, *_split(body, values)))


def run_while(form: While, operands: Sequence[Any], run: Run) -> Carry:
    """Runs a ``while`` whose body starts operations, two iterations at a time; ``run`` evaluates bodies in order."""
    loop = Loop(form, operands, run)
    if _slice(form) is None:
        return lax.while_loop(loop.cond, loop.body, loop.init)
    carry = lax.while_loop(
        lambda c: lax.bitwise_and(loop.cond(c), loop.cond_after_one(c)), lambda c: loop.body(loop.body(c)), loop.init
    )
    return lax.cond(loop.cond(carry), loop.body, list, carry)


def _slice(form: While) -> list[Any] | None:
    """The equations of the body that the next condition depends on; None if it depends on what arrives, or on Refs."""
    inputs = form.cond.inputs[len(form.cond_consts) :]
    used = {v for eqn in form.cond.jaxpr.eqns for v in eqn.invars if not isinstance(v, Literal)}
    used |= {v for v in form.cond.outputs if not isinstance(v, Literal)}
    needed = {out for var, out in zip(inputs, form.body.outputs, strict=True) if var in used}
    needed = {v for v in needed if not isinstance(v, Literal)}
    chosen = []
    for eqn in reversed(form.body.jaxpr.eqns):
        if not needed.isdisjoint(eqn.outvars):
            if eqn.effects or normal_form(eqn) is not None or any(is_ref(v) for v in eqn.invars):
                return None
            chosen.append(eqn)
            needed.update(v for v in eqn.invars if not isinstance(v, Literal))
    return chosen[::-1]
