"""Scalar integer and Boolean equations as terms: enough to follow an index from a loop counter to a slice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax

from stateful import terms
from stateful.terms import Linear, Predicate, Term

Known = Term | Predicate


def _term(x: Any) -> Term:
    return x if type(x) is int or isinstance(x, Linear) else terms.from_predicate(x)


def _predicate(x: Any) -> Predicate:
    return terms.to_predicate(x) if type(x) is int or isinstance(x, Linear) else x


def _on_terms(f: Callable[..., Known]) -> Callable[..., Known]:
    return lambda *xs: f(*map(_term, xs))


def _on_predicates(f: Callable[..., Predicate]) -> Callable[..., Known | None]:
    def rule(*xs: Any) -> Known | None:
        if any(type(x) is int or isinstance(x, Linear) for x in xs):
            return None  # bits of integers, not truth values
        return f(*xs)

    return rule


_RULES: dict[Any, Callable[..., Known | None]] = {
    lax.add_p: _on_terms(terms.add),
    lax.sub_p: _on_terms(terms.sub),
    lax.mul_p: _on_terms(terms.mul),
    lax.neg_p: _on_terms(terms.negate),
    lax.div_p: _on_terms(terms.truncdiv),
    lax.rem_p: _on_terms(terms.rem),
    lax.max_p: _on_terms(terms.maximum),
    lax.min_p: _on_terms(terms.minimum),
    lax.clamp_p: _on_terms(lambda low, x, high: terms.minimum(terms.maximum(x, low), high)),
    lax.eq_p: _on_terms(terms.eq),
    lax.ne_p: _on_terms(terms.ne),
    lax.lt_p: _on_terms(terms.lt),
    lax.le_p: _on_terms(terms.le),
    lax.gt_p: _on_terms(lambda a, b: terms.lt(b, a)),
    lax.ge_p: _on_terms(lambda a, b: terms.le(b, a)),
    lax.and_p: _on_predicates(terms.logical_and),
    lax.or_p: _on_predicates(terms.logical_or),
    lax.not_p: _on_predicates(terms.logical_not),
    lax.squeeze_p: lambda x: x,
    lax.reshape_p: lambda x: x,
    lax.broadcast_in_dim_p: lambda x: x,
}


def literal(x: Any) -> Known | None:
    """An integer or Boolean number of the program; None for anything else."""
    if getattr(x, "shape", ()) != () or (not hasattr(x, "dtype") and not isinstance(x, (bool, int))):
        return None
    kind = np.asarray(x).dtype.kind
    return bool(x) if kind == "b" else int(x) if kind in "iu" else None


def is_scalar(aval: Any) -> bool:
    """True for scalar integers and Booleans, the values that are followed."""
    dtype = getattr(aval, "dtype", None)
    return getattr(aval, "shape", None) == () and isinstance(dtype, np.dtype) and dtype.kind in "iub"


def symbol(name: str, aval: Any, low: int | None = None, high: int | None = None) -> Known:
    """A free value of the right kind for a scalar."""
    kind = aval.dtype.kind
    if kind == "b":
        return terms.ne(terms.symbol(name, 0, 1), 0)
    return terms.symbol(name, 0 if kind == "u" and low is None else low, high)


def evaluate(eqn: Any, known: list[Any]) -> Known | None:
    """The value of a scalar equation from those of its operands; None where that is not known."""
    if len(eqn.outvars) != 1 or not is_scalar(eqn.outvars[0].aval) or any(x is None for x in known):
        return None
    if eqn.primitive is lax.convert_element_type_p:
        return _predicate(known[0]) if eqn.outvars[0].aval.dtype.kind == "b" else _term(known[0])
    if eqn.primitive is lax.select_n_p:
        return _select(known)
    rule = _RULES.get(eqn.primitive)
    return None if rule is None else rule(*known)


def _select(known: list[Any]) -> Known | None:
    which, *cases = known
    if len(cases) != 2:
        return cases[which] if type(which) is int and 0 <= which < len(cases) else None
    no, yes = map(_term, cases)
    return terms.select(_predicate(which), yes, no)
