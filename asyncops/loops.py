"""A ``while`` equation as functions of what it carries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp

from asyncops.regions import is_ref
from asyncops.sharing import Shared
from stateful._jax.jaxprs import Literal
from stateful._jax.rewriting import Environment, evaluate
from stateful.higher_order import Body, Call, While, normal_form

Run = Callable[[Any, Sequence[Any], Sequence[Any]], list[Any]]
Carry = list[Any]


class Loop:
    """A ``while`` with its constants bound.

    Args:
        form: the loop.
        operands: its operands.
        shared: what it would hold twice; `init` and the other lists of what is carried are without that.
        run: evaluates the body, with its own operations in order.
    """

    def __init__(self, form: While, operands: Sequence[Any], shared: Shared, run: Run) -> None:
        m, n = len(form.cond_consts), len(form.body_consts)
        operands = shared.copy(operands)
        self.form = form
        self.init: Carry = shared.reduce(operands[m + n :])
        self._shared = shared
        self._cond_consts, self._body_consts = operands[:m], operands[m : m + n]
        self._run = run
        self._counting = counting(form)

    def cond(self, carry: Sequence[Any]) -> Any:
        """Whether another iteration follows."""
        return self._cond(self._shared.expand(carry))

    def _cond(self, carry: Sequence[Any]) -> Any:
        return evaluate_body(self.form.cond, (*self._cond_consts, *carry), evaluate)[0]

    def body(self, carry: Sequence[Any]) -> Carry:
        """One iteration."""
        return self.body_and(carry, ())[0]

    def body_and(self, carry: Sequence[Any], also: Sequence[Any]) -> tuple[Carry, Carry]:
        """One iteration, and the values that some variables of the body have in it."""
        body = self.form.body
        jaxpr = body.jaxpr
        outputs = SimpleNamespace(
            constvars=jaxpr.constvars, invars=jaxpr.invars, eqns=jaxpr.eqns, outvars=[*jaxpr.outvars, *also]
        )
        values = (*self._body_consts, *self._shared.expand(carry))
        results = list(self._run(outputs, *bound(body, values)))
        size = len(jaxpr.outvars)
        return self._shared.reduce(results[:size]), results[size:]

    def whole(self, carry: Sequence[Any]) -> Carry:
        """All that the loop carries."""
        return self._shared.expand(carry)

    def ahead(self, carry: Sequence[Any], most: int) -> Any:
        """How many more iterations follow, up to ``most``, without running them; only where the loop counts."""
        whole = self._shared.expand(carry)
        follows = self._cond(whole)
        count = follows.astype(jnp.int32)
        for _ in range(most - 1):
            whole = self._counted(whole)
            follows = follows & self._cond(whole)
            count += follows.astype(jnp.int32)
        return count

    def _counted(self, whole: Sequence[Any]) -> list[Any]:
        """What is carried after one more iteration, as far as the condition looks at it; the rest stays as it is."""
        body = self.form.body
        env = Environment(body.jaxpr, *bound(body, (*self._body_consts, *whole)))
        for eqn in self._counting or ():
            env.run(eqn)
        known = [v in env or isinstance(v, Literal) for v in body.outputs]
        return [env[v] if k else x for v, k, x in zip(body.outputs, known, whole, strict=True)]


def bound(body: Body, values: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    """The values of a body's constants and arguments, given those of its inputs."""
    if body.consts:
        return body.consts, values
    n = len(body.jaxpr.constvars)
    return values[:n], values[n:]


def evaluate_body(body: Body, values: Sequence[Any], run: Run) -> Carry:
    """A body's results, given the values of its inputs."""
    return list(run(body.jaxpr, *bound(body, values)))


def _variables(atoms: Any) -> set[Any]:
    return {v for v in atoms if not isinstance(v, Literal)}


def counting(form: While) -> list[Any] | None:
    """The equations of the body on which the next condition depends; None if one of them has an effect or is a loop.

    Where there are such equations, the condition can be evaluated one iteration ahead.
    """
    looked_at = _variables(form.cond.outputs)
    for eqn in form.cond.jaxpr.eqns:
        looked_at |= _variables(eqn.invars)
    carried = form.cond.inputs[len(form.cond_consts) :]
    needed = _variables(out for var, out in zip(carried, form.body.outputs, strict=True) if var in looked_at)
    chosen = []
    for eqn in reversed(form.body.jaxpr.eqns):
        if needed.isdisjoint(eqn.outvars):
            continue
        if (
            eqn.effects
            or not isinstance(normal_form(eqn), (Call, type(None)))
            or any(map(is_ref, eqn.invars))
        ):
            return None
        chosen.append(eqn)
        needed |= _variables(eqn.invars)
    return chosen[::-1]
