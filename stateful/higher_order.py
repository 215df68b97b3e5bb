"""One normal form of every higher-order primitive's sub-jaxprs.

:func:`normal_form` turns an equation into one of a few records; inference, discharge and the checker walk
those and never look at raw parameters. The same rule binds variables everywhere: ``body.consts`` bind the
body's ``constvars`` where there are any, and the listed operands bind ``body.inputs`` in order::

    form = normal_form(eqn)
    if isinstance(form, Scan):
        bind(form.jaxpr.inputs, [*form.consts, *carry, *slices])
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stateful._jax import jaxprs, kernels, pipelines
from stateful._jax import primitives as p
from stateful._jax.jaxprs import Body
from stateful.kernel_forms import (
    BlockDim,
    BlockWindow,
    KernelForm,
    PipelineForm,
    Program,
    kernel_form,
    pipeline_form,
)
from stateful.types import RefType, ref_type

Atom = Any  # a variable or literal of the jaxpr that holds the equation

__all__ = [
    "BlockDim",
    "BlockWindow",
    "Body",
    "Branch",
    "Call",
    "HigherOrder",
    "Kernel",
    "KernelForm",
    "ParallelLoop",
    "Pipeline",
    "PipelineBody",
    "PipelineForm",
    "Program",
    "RunState",
    "Scan",
    "Scoped",
    "ShardMap",
    "While",
    "bodies",
    "normal_form",
    "register_call",
]


@dataclass(frozen=True, eq=False)
class Call:
    """A body run once: jit, closed_call, remat, custom_jvp/vjp, custom_vmap, compute_on, ...

    The operands bind the body's inputs, its results are the equation's. ``name`` is the function's where it
    has one.
    """

    kind: str
    jaxpr: Body
    operands: tuple[Atom, ...]
    name: str = ""

    @property
    def consts(self) -> tuple[Any, ...]:
        """Values of the body's constants."""
        return self.jaxpr.consts


@dataclass(frozen=True, eq=False)
class ShardMap:
    """A body run by every device of ``mesh`` (axis name to size, in order) on its shard."""

    jaxpr: Body
    operands: tuple[Atom, ...]
    mesh: dict[str, int]
    in_specs: tuple[Any, ...]
    out_specs: tuple[Any, ...]
    manual_axes: frozenset[str]
    jax_mesh: Any = None


@dataclass(frozen=True, eq=False)
class Branch:
    """``cond`` and ``switch``: ``index``, clamped, chooses; a Boolean one has the False branch first."""

    index: Atom
    branches: tuple[Body, ...]
    operands: tuple[Atom, ...]


@dataclass(frozen=True, eq=False)
class While:
    """``cond(cond_consts, carry)`` decides before each ``carry = body(body_consts, carry)``."""

    cond: Body
    cond_consts: tuple[Atom, ...]
    body: Body
    body_consts: tuple[Atom, ...]
    carry: tuple[Atom, ...]


@dataclass(frozen=True, eq=False)
class Scan:
    """``length`` times ``carry, y = body(consts, carry, x)``; last x first if ``reverse``."""

    jaxpr: Body
    consts: tuple[Atom, ...]
    carry: tuple[Atom, ...]
    xs: tuple[Atom, ...]
    length: int
    reverse: bool


@dataclass(frozen=True, eq=False)
class ParallelLoop:
    """``carry = body(consts, i, carry)`` for ``i`` in ``range(lower, upper, step)``, the order left to the compiler:
    iterations may overlap, and must not touch what another one writes."""

    jaxpr: Body
    consts: tuple[Atom, ...]
    lower: Atom
    upper: Atom
    step: Atom
    carry: tuple[Atom, ...]


@dataclass(frozen=True, eq=False)
class Scoped:
    """``run_scoped``: operands, then fresh Refs of the types ``allocations``, bind the body's inputs.

    ``collective_axes``: programs that differ in these axes only share one allocation.
    """

    jaxpr: Body
    operands: tuple[Atom, ...]
    allocations: tuple[RefType, ...]
    collective_axes: tuple[Any, ...] = ()

    @property
    def outer(self) -> tuple[Any, ...]:
        """The body's variables that the operands bind."""
        return self.jaxpr.inputs[: len(self.operands)]

    @property
    def inner(self) -> tuple[Any, ...]:
        """The body's variables that the fresh Refs bind."""
        return self.jaxpr.inputs[len(self.operands) :]


@dataclass(frozen=True, eq=False)
class RunState:
    """``run_state``: one Ref per body input, holding the next operand where ``is_initialized`` (operands that
    are Refs already are passed on); the results are what all of them hold in the end."""

    jaxpr: Body
    operands: tuple[Atom, ...]
    is_initialized: tuple[bool, ...]

    @property
    def types(self) -> tuple[RefType, ...]:
        """The type of each Ref."""
        return tuple(ref_type(v.aval) for v in self.jaxpr.inputs)


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel call: ``form`` is static, the rest are the atoms in each role."""

    form: KernelForm
    operands: tuple[Atom, ...]
    constants: tuple[Atom, ...]
    bounds: tuple[Atom, ...]
    scalars: tuple[Atom, ...]
    inputs: tuple[Atom, ...]

    @property
    def grid(self) -> tuple[Any, ...]:
        """Grid sizes: integers, or the atom of a dynamic bound."""
        bounds = iter(self.bounds)
        return tuple(next(bounds) if g is None else g for g in self.form.grid)


@dataclass(frozen=True, eq=False)
class Pipeline:
    """``emit_pipeline`` as one equation: block windows over Refs of the enclosing kernel.

    ``grid``, ``offsets`` and ``core_id`` hold integers or atoms. ``refs`` are the windowed arrays, inputs
    first: Ref atoms or JAX ``TransformedRef`` of atoms. ``index_constants[i]`` bind the first inputs of
    window i's index map.
    """

    form: PipelineForm
    operands: tuple[Atom, ...]
    constants: tuple[Atom, ...]
    grid: tuple[Any, ...]
    offsets: tuple[Any, ...]
    refs: tuple[Any, ...]
    index_constants: tuple[tuple[Atom, ...], ...]
    core_id: Any


@dataclass(frozen=True, eq=False)
class PipelineBody:
    """The body of an ``emit_pipeline`` equation at one step, as it stands in the loops that the equation stands for.

    ``indices`` are the step's grid indices. ``consts``, ``scalars`` and the windows ``refs`` (Ref atoms or JAX
    ``TransformedRef`` of atoms) bind the body's inputs.
    """

    jaxpr: Body
    indices: tuple[Any, ...]
    consts: tuple[Atom, ...]
    scalars: tuple[Atom, ...]
    refs: tuple[Any, ...]


HigherOrder = (
    Call
    | ShardMap
    | Branch
    | While
    | Scan
    | ParallelLoop
    | Scoped
    | RunState
    | Kernel
    | Pipeline
    | PipelineBody
)


@functools.lru_cache(maxsize=1 << 14)
def normal_form(eqn: Any) -> HigherOrder | None:
    """The normal form of an equation; None when its primitive is first-order."""
    rule = _RULES.get(eqn.primitive)
    if rule is None and eqn.primitive is p.sparse_core("parallel_loop_p"):
        rule = _parallel_loop
    return None if rule is None else rule(eqn)


def bodies(form: HigherOrder) -> tuple[Body, ...]:
    """Every body that the equation runs; index maps of windows are not among them."""
    if isinstance(form, Branch):
        return form.branches
    if isinstance(form, While):
        return form.cond, form.body
    if isinstance(form, Kernel):
        return tuple(program.body for program in form.form.programs)
    return (form.form.body,) if isinstance(form, Pipeline) else (form.jaxpr,)


# -- one function per primitive ------------------------------------------------------------------------------


def _call(kind: str, parameter: str) -> Callable[[Any], Call]:
    def rule(eqn: Any) -> Call:
        body = jaxprs.open_called_jaxpr(eqn.params[parameter], len(eqn.invars))
        return Call(kind, body, tuple(eqn.invars), str(eqn.params.get("name") or ""))

    return rule


def _shard_map(eqn: Any) -> ShardMap:
    q = eqn.params
    return ShardMap(
        jaxprs.open_called_jaxpr(q["jaxpr"], len(eqn.invars)),
        tuple(eqn.invars),
        {str(name): int(size) for name, size in q["mesh"].shape.items()},
        tuple(q["in_specs"]),
        tuple(q["out_specs"]),
        frozenset(map(str, q["newly_manual_axes"])),
        q["mesh"],
    )


def _cond(eqn: Any) -> Branch:
    index, *operands = eqn.invars
    branches = tuple(jaxprs.open_called_jaxpr(b, len(operands)) for b in eqn.params["branches"])
    return Branch(index, branches, tuple(operands))


def _while(eqn: Any) -> While:
    q, atoms = eqn.params, tuple(eqn.invars)
    n, m = q["cond_nconsts"], q["body_nconsts"]
    carry = atoms[n + m :]
    return While(
        jaxprs.open_called_jaxpr(q["cond_jaxpr"], n + len(carry)),
        atoms[:n],
        jaxprs.open_called_jaxpr(q["body_jaxpr"], m + len(carry)),
        atoms[n : n + m],
        carry,
    )


def _scan(eqn: Any) -> Scan:
    q, atoms = eqn.params, tuple(eqn.invars)
    if "ft_in" in q:  # 0.12 replaced the counts by trees
        n, m = (len(part) for part in q["ft_in"].unpack()[:2])
    else:
        n, m = q["num_consts"], q["num_carry"]
    body = jaxprs.open_called_jaxpr(q["jaxpr"], len(atoms))
    return Scan(body, atoms[:n], atoms[n : n + m], atoms[n + m :], int(q["length"]), bool(q["reverse"]))


def _parallel_loop(eqn: Any) -> ParallelLoop:
    lower, upper, step, consts, carry = eqn.params["tree"].unflatten(eqn.invars)
    body = jaxprs.open_operand_jaxpr(eqn.params["jaxpr"])
    return ParallelLoop(body, tuple(consts), lower, upper, step, tuple(carry))


def _scoped(eqn: Any) -> Scoped:
    body = jaxprs.open_operand_jaxpr(eqn.params["jaxpr"])
    operands = tuple(eqn.invars)
    fresh = tuple(ref_type(v.aval) for v in body.inputs[len(operands) :])
    return Scoped(body, operands, fresh, tuple(eqn.params["collective_axes"]))


def _run_state(eqn: Any) -> RunState:
    body = jaxprs.open_operand_jaxpr(eqn.params["jaxpr"])
    return RunState(body, tuple(eqn.invars), tuple(eqn.params["is_initialized"]))


@functools.lru_cache(maxsize=1 << 12)
def _kernel_form(eqn: Any) -> KernelForm:
    n = len(eqn.invars)
    if eqn.primitive is p.pallas_call:
        return kernel_form(kernels.pallas_call(eqn.params))
    if eqn.primitive is p.mpmd_map:
        return kernel_form(kernels.mpmd_map(eqn.params, n))
    return kernel_form(kernels.core_map(eqn.params, n))


def _kernel(eqn: Any) -> Kernel:
    form, atoms = _kernel_form(eqn), tuple(eqn.invars)
    a = form.constants
    b = a + form.dynamic_bounds
    c = b + form.scalar_prefetch
    return Kernel(form, atoms, atoms[:a], atoms[a:b], atoms[b:c], atoms[c:])


def _pipeline(eqn: Any) -> Pipeline:
    raw = kernels.emit_pipeline(eqn.params, list(eqn.invars))
    return Pipeline(
        pipeline_form(raw),
        tuple(eqn.invars),
        raw.body_constants,
        raw.grid,
        raw.offsets,
        raw.refs,
        raw.index_constants,
        raw.core_id,
    )


def _pipeline_body(eqn: Any) -> PipelineBody:
    raw = pipelines.pipeline_body(eqn)
    return PipelineBody(raw.body, raw.indices, raw.consts, raw.scalars, raw.refs)


_RULES: dict[Any, Callable[[Any], HigherOrder]] = {
    primitive: rule
    for primitive, rule in (
        (p.jit, _call("jit", "jaxpr")),
        (p.closed_call, _call("closed_call", "call_jaxpr")),
        (p.core_call, _call("call", "call_jaxpr")),
        (p.eval_jaxpr, _call("eval_jaxpr", "call_jaxpr")),
        (p.remat, _call("remat", "jaxpr")),
        (p.custom_jvp_call, _call("custom_jvp_call", "call_jaxpr")),
        (p.custom_vjp_call, _call("custom_vjp_call", "call_jaxpr")),
        (p.custom_vmap_call, _call("custom_vmap_call", "call")),
        (p.custom_partitioning, _call("custom_partitioning", "call")),
        (p.compute_on, _call("compute_on", "jaxpr")),
        (p.program_order, _call("program_order", "call_jaxpr")),
        (p.xla_metadata_call, _call("xla_metadata_call", "jaxpr")),
        (p.shard_map, _shard_map),
        (p.cond, _cond),
        (p.while_loop, _while),
        (p.scan, _scan),
        (p.run_scoped, _scoped),
        (p.run_state, _run_state),
        (p.pallas_call, _kernel),
        (p.mpmd_map, _kernel),
        (p.core_map, _kernel),
        (p.emit_pipeline, _pipeline),
        (p.pipeline_body, _pipeline_body),
    )
    if primitive is not None
}


def register_call(primitive: Any, kind: str, parameter: str) -> None:
    """Makes a primitive known that calls the jaxpr in one of its parameters with its operands."""
    _RULES[primitive] = _call(kind, parameter)
