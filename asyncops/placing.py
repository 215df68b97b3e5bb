"""Loop variables that operations send from or receive into, kept in HBM from the start.

A compiler for a chip with a large VMEM may let a loop variable lie there between iterations, and then moves it out
before each operation and back behind it. What begins in HBM stays there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from asyncops import ops, ref_ops
from asyncops.landing import bodies_of
from asyncops.sharing import Roots
from stateful._jax import ops as _jax
from stateful._jax.inflight import is_in_flight
from stateful.higher_order import Scan, While, normal_form

_OPERATIONS = (ops.start_p, ref_ops.start_into_p, ref_ops.finish_into_p)


def _same_type(x: Any) -> Any:
    return [x], set()


def _pin_on_tpu(site: Any, x: jax.Array) -> list[Any]:
    def nothing(before: Any, after: Any) -> None:
        """The same buffer under a new name, which is in HBM."""

    hbm = pl.BlockSpec(memory_space=pltpu.HBM)
    return [
        pl.pallas_call(
            nothing,
            out_shape=pltpu.HBM(x.shape, x.dtype),
            in_specs=[hbm],
            out_specs=hbm,
            input_output_aliases={0: 0},
            compiler_params=pltpu.CompilerParams(has_side_effects=True),
            name="in_hbm",
        )(pltpu.with_memory_space_constraint(x, pltpu.HBM))
    ]


in_hbm_p = _jax.new_primitive("async_in_hbm", _same_type)
_jax.register_lowering(in_hbm_p, lambda site, x: [x])
_jax.register_untracked_lowering(in_hbm_p, _pin_on_tpu, "tpu")


def in_hbm(operands: Sequence[Any], form: Scan | While) -> list[Any]:
    """The loop's operands, with what its body sends or receives into in HBM, as far as it is carried."""
    body = form.jaxpr if isinstance(form, Scan) else form.body
    outside = len(form.consts) if isinstance(form, Scan) else len(form.cond_consts) + len(form.body_consts)
    first = len(form.consts) if isinstance(form, Scan) else len(form.body_consts)
    carried = body.inputs[first : first + len(form.carry)]
    wanted = {outside + n for n, var in enumerate(carried) if var in _placed(body.jaxpr)}
    return [in_hbm_p.bind(x)[0] if n in wanted else x for n, x in enumerate(operands)]


def _placed(jaxpr: Any) -> set[Any]:
    """Variables whose buffers the operations of a jaxpr send from or receive into."""
    roots = Roots(jaxpr)
    found = set()
    for eqn in jaxpr.eqns:
        atoms = list(eqn.invars) if eqn.primitive in _OPERATIONS else []
        for body, operands in bodies_of(normal_form(eqn)):
            placed = _placed(body.jaxpr)
            atoms += [atom for var, atom in zip(body.inputs, operands, strict=True) if var in placed]
        # What is in flight is there already; scalars are indices of slots.
        found |= {roots.of(a) for a in atoms if getattr(a.aval, "ndim", 0) and not is_in_flight(a.aval)}
    return found - {None}
