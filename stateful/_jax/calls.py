"""A call primitive of our own: a marked piece of program that every transformation keeps, rewritten when it is lowered.

JAX 0.12 makes call primitives for others (``jax.extend.core.create_call_primitive``), and nobody can give one another
lowering but through ``jax.interpreters.mlir``; before, one has to register by hand the rules of ``closed_call``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax.extend.core as extend
from jax._src import core
from jax._src.interpreters import ad, mlir, partial_eval
from jax._src.state import discharge
from jax.extend import linear_util

from stateful._jax.jaxprs import ClosedJaxpr

_MADE_BY_JAX = hasattr(extend, "create_call_primitive")


def new_call(name: str, rewrite: Callable[[Any], Any]) -> Any:
    """A call primitive; ``rewrite`` gives the closed jaxpr that is lowered in place of the one that is called."""
    primitive = extend.create_call_primitive(name) if _MADE_BY_JAX else _closed_call(name)  # pyright: ignore[reportAttributeAccessIssue]

    def lowering(ctx: Any, *operands: Any, call_jaxpr: Any, **_: Any) -> Any:
        return mlir.core_call_lowering(ctx, *operands, name=name, call_jaxpr=rewrite(call_jaxpr))

    mlir.register_lowering(primitive, lowering, cacheable=False)
    return primitive


def call(primitive: Any, jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    """Calls an open ``jaxpr``; its constants become operands of the call."""
    if _MADE_BY_JAX:
        closed = jaxpr.replace(constvars=[], invars=[*jaxpr.constvars, *jaxpr.invars])
        return list(primitive.bind(*consts, *args, call_jaxpr=closed))
    closed = ClosedJaxpr(partial_eval.convert_constvars_jaxpr(jaxpr), ())  # pyright: ignore[reportCallIssue]
    fn = linear_util.wrap_init(core.jaxpr_as_fun(closed), debug_info=jaxpr.debug_info)
    return list(primitive.bind(*consts, *args, subfuns=(fn,)))


# -- JAX 0.10 and 0.11 --------------------------------------------------------------------------------


def _closed_call(name: str) -> Any:
    """A primitive with the rules of ``closed_call``, which name their primitive where they make new equations."""
    p = core.ClosedCallPrimitive(name)
    p.def_impl(core.call_impl)
    p.def_effectful_abstract_eval(core.closed_call_p.abstract_eval)
    core.custom_typechecks[p] = core.custom_typechecks[core.closed_call_p]
    partial_eval.dce_rules[p] = partial_eval.dce_rules[core.closed_call_p]
    rules = partial_eval.partial_eval_jaxpr_custom_rules
    rules[p] = rules[core.closed_call_p]
    ad.fancy_transposes[p] = partial(_transpose, p)
    discharge.register_discharge_rule(p)(partial(_discharge, p))
    return p


def _transpose(primitive: Any, ct: Any, *args: Any, call_jaxpr: Any) -> None:
    opened = partial_eval.convert_constvars_jaxpr(call_jaxpr.jaxpr)
    ad.call_transpose_fancy(primitive, ct, *call_jaxpr.consts, *args, call_jaxpr=opened)


def _discharge(primitive: Any, in_avals: Any, out_avals: Any, *args: Any, call_jaxpr: Any) -> Any:
    pure = discharge.discharge_state(call_jaxpr)
    results = call(primitive, pure.jaxpr, pure.consts, args)
    count = len(call_jaxpr.out_avals)
    updated = iter(results[count:])
    refs = [isinstance(aval, discharge.AbstractRef) for aval in in_avals]  # pyright: ignore[reportPrivateImportUsage]
    return [next(updated) if ref else None for ref in refs], results[:count]
