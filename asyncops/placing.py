"""What operations send from or receive into, kept in HBM from before the operation to its end.

A compiler may keep an array in VMEM and move it out for whoever needs it in HBM; it may compute an array twice where
that is cheap, or where memory is short. What a DMA reads must be neither: the array that a start got would be free
while it is sent, and the done would keep another one alive. So what is sent is first given a new name by a kernel that
does nothing, in place, and everybody reads it under that name from then on: a kernel's result in HBM stays there, and
is computed once. What a done brings may be such a result already, and what enters the program is not the compiler's to
move.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from asyncops import ops, ref_ops
from asyncops.landing import bodies_of
from asyncops.regions import touches_futures
from asyncops.sharing import Roots
from stateful._jax import ops as _jax
from stateful._jax.inflight import is_in_flight
from stateful.higher_order import Body, Branch, Call, Scan, While, normal_form

_OPERATIONS = (ops.start_p, ref_ops.start_into_p, ref_ops.finish_into_p)

# XLA heeds the memory space of a kernel's result only where there are several: an only one is moved to VMEM.
SECOND_RESULT = pltpu.SemaphoreType.DMA((1,))


def _same_type(x: Any) -> Any:
    return [x], set()


def pin(x: jax.Array) -> jax.Array:
    """``x`` under a new name, in HBM; for the lowering to a TPU."""
    x = pltpu.with_memory_space_constraint(x, pltpu.HBM)
    results = [pltpu.HBM(x.shape, x.dtype), SECOND_RESULT]
    return _renamed(x, pl.BlockSpec(memory_space=pltpu.HBM), results, "in_hbm")


def _renamed(x: jax.Array, spec: Any, results: list[Any], name: str) -> jax.Array:
    def nothing(before: Any, after: Any, *_: Any) -> None:
        """The same buffer under a new name."""

    return pl.pallas_call(
        nothing,
        out_shape=results,
        in_specs=[spec],
        out_specs=[spec, pl.BlockSpec(memory_space=pltpu.SEMAPHORE)][: len(results)],
        input_output_aliases={0: 0},
        compiler_params=pltpu.CompilerParams(has_side_effects=True),
        name=name,
    )(x)[0]


def _pin_on_tpu(site: Any, x: jax.Array) -> list[Any]:
    # What no kernel takes is left to the start to refuse, which knows its line.
    takes = x.dtype not in (jnp.bool_, jnp.float16, jnp.complex64)
    return [pin(x) if takes and not site.is_programs_argument(0) else x]


def _free_on_tpu(site: Any, x: jax.Array) -> list[Any]:
    return [
        _renamed(x, pl.BlockSpec(memory_space=pl.ANY), [jax.ShapeDtypeStruct(x.shape, x.dtype)], "out_of_hbm")
    ]


in_hbm_p = _jax.new_primitive("async_in_hbm", _same_type)
_jax.register_lowering(in_hbm_p, lambda site, x: [x])
_jax.register_untracked_lowering(in_hbm_p, _pin_on_tpu, "tpu")

movable_p = _jax.new_primitive("async_movable", _same_type)
_jax.register_lowering(movable_p, lambda site, x: [x])
_jax.register_untracked_lowering(movable_p, _free_on_tpu, "tpu")


def in_hbm(x: jax.Array) -> jax.Array:
    """``x`` under a new name, which nothing moves."""
    (result,) = in_hbm_p.bind(x)
    return result


def movable(x: jax.Array) -> jax.Array:
    """``x`` under a new name, which the compiler may move: it cannot have a conditional give what it may not."""
    (result,) = movable_p.bind(x)
    return result


# -- who sends what -----------------------------------------------------------------------------------


def to_place(eqn: Any) -> list[Any]:
    """The operands of an equation that it, or a body that it runs once, sends and that must be placed before."""
    if eqn.primitive is ops.start_p:
        return [eqn.invars[0]]
    form = normal_form(eqn)
    if not isinstance(form, (Call, Branch)):  # inside a shard_map there are other arrays
        return []
    atoms: dict[Any, None] = {}
    for body, operands in bodies_of(form):
        sent = sent_in(body.jaxpr)
        atoms.update((atom, None) for var, atom in zip(body.inputs, operands, strict=True) if var in sent)
    return list(atoms)


def sent_in(jaxpr: Any, operations: Container[Any] = (ops.start_p,)) -> set[Any]:
    """Variables whose buffers the operations of a jaxpr, or of a body in it, send (or receive into)."""
    roots = Roots(jaxpr)
    found = set()
    for eqn in jaxpr.eqns:
        atoms = list(eqn.invars) if eqn.primitive in operations else []
        for body, operands in bodies_of(normal_form(eqn)):
            placed = sent_in(body.jaxpr, operations)
            atoms += [atom for var, atom in zip(body.inputs, operands, strict=True) if var in placed]
        # What is in flight is there already; scalars are indices of slots.
        found |= {roots.of(a) for a in atoms if getattr(a.aval, "ndim", 0) and not is_in_flight(a.aval)}
    return found - {None}


def placed_by_done(jaxpr: Any) -> set[Any]:
    """What dones in a jaxpr bring, and starts in it send on: it is placed by the done."""
    return _brought(jaxpr) & sent_in(jaxpr)


def _brought(jaxpr: Any) -> set[Any]:
    """Results of dones that lie in HBM."""
    dones = [eqn for eqn in jaxpr.eqns if eqn.primitive is ops.done_p]
    return {eqn.outvars[0] for eqn in dones if getattr(eqn.params["transfer"], "space", "hbm") == "hbm"}


def results_in_hbm(jaxpr: Any) -> list[int]:
    """Positions of the results of a jaxpr that may lie where nothing may move them."""
    roots = Roots(jaxpr)
    placed = sent_in(jaxpr) | {v for eqn in jaxpr.eqns if touches_futures(eqn) for v in eqn.outvars}
    arrays = [(n, v) for n, v in enumerate(jaxpr.outvars) if getattr(v.aval, "ndim", 0)]
    return [n for n, v in arrays if not is_in_flight(v.aval) and roots.of(v) in placed]


# -- loops --------------------------------------------------------------------------------------------


def carried_in_hbm(operands: Sequence[Any], form: Scan | While) -> list[Any]:
    """The loop's operands, with what its body sends or receives into in HBM, as far as it is carried."""
    body, _, carried = _parts(form)
    first = len(operands) - len(carried) if isinstance(form, While) else len(form.consts)
    sent = sent_in(body.jaxpr, _OPERATIONS)
    wanted = {first + n for n, var in enumerate(carried) if var in sent}
    return [in_hbm(x) if n in wanted else x for n, x in enumerate(operands)]


def constants_to_place(form: Scan | While) -> list[Any]:
    """The operands that the loop's body sends in every iteration."""
    body, constants, _ = _parts(form)
    sent = sent_in(body.jaxpr)
    outside = form.consts if isinstance(form, Scan) else form.body_consts
    return [atom for var, atom in zip(constants, outside, strict=True) if var in sent]


def placed_in_body(form: Scan | While) -> set[Any]:
    """Variables of a loop's body that lie in HBM, if `carried_in_hbm` and `constants_to_place` do.

    They are inputs, and what dones bring for an iteration to come.
    """
    body, constants, carried = _parts(form)
    roots, brought = Roots(body.jaxpr), _brought(body.jaxpr)
    sent = sent_in(body.jaxpr)
    placed = {v for v in (*constants, *carried) if v in sent}
    outputs = {v: roots.of(out) for v, out in zip(carried, body.outputs, strict=False)}
    while True:
        left = {v for v in placed if v not in outputs or outputs[v] in placed | brought}
        if left == placed:
            return placed | ({outputs[v] for v in placed if v in outputs} & brought)
        placed = left


def _parts(form: Scan | While) -> tuple[Body, Sequence[Any], Sequence[Any]]:
    """The body of a loop, and its inputs that are constants and that are carried."""
    body = form.jaxpr if isinstance(form, Scan) else form.body
    consts = len(form.consts) if isinstance(form, Scan) else len(form.body_consts)
    return body, body.inputs[:consts], body.inputs[consts : consts + len(form.carry)]
