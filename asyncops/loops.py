"""A ``while`` equation as functions of what it carries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from asyncops.regions import is_ref
from stateful._jax.jaxprs import Literal
from stateful._jax.rewriting import Environment, evaluate
from stateful.higher_order import Body, Call, While, normal_form

Run = Callable[[Any, Sequence[Any], Sequence[Any]], list[Any]]
Carry = list[Any]


class Loop:
    """A ``while`` with its constants bound. ``run`` evaluates bodies, with their own operations in order."""

    def __init__(self, form: While, operands: Sequence[Any], run: Run) -> None:
        m, n = len(form.cond_consts), len(form.body_consts)
        self.form = form
        self.init: Carry = list(operands[m + n :])
        self._cond_consts, self._body_consts = operands[:m], operands[m : m + n]
        self._run = run
        self._counting = _counting(form)

    def cond(self, carry: Sequence[Any]) -> Any:
        """Whether another iteration follows."""
        return _bind(self.form.cond, evaluate, (*self._cond_consts, *carry))[0]

    def body(self, carry: Sequence[Any]) -> Carry:
        """One iteration."""
        return _bind(self.form.body, self._run, (*self._body_consts, *carry))

    @property
    def counts(self) -> bool:
        """True when the condition depends on counters only, so that `cond_after_one` can be asked."""
        return self._counting is not None

    def cond_after_one(self, carry: Sequence[Any]) -> Any:
        """What `cond` will be after one more iteration, which is not run for that."""
        body = self.form.body
        env = Environment(body.jaxpr, *_split(body, (*self._body_consts, *carry)))
        for eqn in self._counting or ():
            env.run(eqn)
        known = [v in env or isinstance(v, Literal) for v in body.outputs]
        after = [env[v] if k else old for v, k, old in zip(body.outputs, known, carry, strict=True)]
        return self.cond(after)


def _split(body: Body, values: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    """The values of a body's constants and arguments."""
    if body.consts:
        return body.consts, values
    n = len(body.jaxpr.constvars)
    return values[:n], values[n:]


def _bind(body: Body, run: Run, values: Sequence[Any]) -> Carry:
    return list(run(body.jaxpr, *_split(body, values)))


def _variables(atoms: Any) -> set[Any]:
    return {v for v in atoms if not isinstance(v, Literal)}


def _counting(form: While) -> list[Any] | None:
    """The equations of the body on which the next condition depends; None if one of them has an effect or is a loop."""
    looked_at = _variables(form.cond.outputs)
    for eqn in form.cond.jaxpr.eqns:
        looked_at |= _variables(eqn.invars)
    carried = form.cond.inputs[len(form.cond_consts) :]
    needed = _variables(out for var, out in zip(carried, form.body.outputs, strict=True) if var in looked_at)
    chosen = []
    for eqn in reversed(form.body.jaxpr.eqns):
        if needed.isdisjoint(eqn.outvars):
            continue
        if eqn.effects or not isinstance(normal_form(eqn), (Call, type(None))) or any(map(is_ref, eqn.invars)):
            return None
        chosen.append(eqn)
        needed |= _variables(eqn.invars)
    return chosen[::-1]
