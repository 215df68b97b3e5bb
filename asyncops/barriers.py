"""A barrier that the compiler schedules nothing across, for arrays, semaphores and Refs alike.

`jax.lax.optimization_barrier` takes no Refs in JAX 0.10, and asks that all its operands vary along the same mesh axes.
"""

from __future__ import annotations

from typing import Any

import jax
from jax import lax
from jax.interpreters import ad

from stateful._jax import ops as _jax


def _type(*avals: Any) -> Any:
    refs = [n for n, aval in enumerate(avals) if _jax.is_ref_type(aval)]
    effects = {effect(n) for n in refs for effect in (_jax.reads, _jax.writes)}
    return [aval for aval in avals if not _jax.is_ref_type(aval)], effects


def _jvp(primals: Any, tangents: Any) -> Any:
    results = barrier_p.bind(*primals)
    moving = [t for t in tangents if type(t) is not ad.Zero]
    ordered = iter(barrier_p.bind(*moving))
    outputs = [t for p, t in zip(primals, tangents, strict=True) if not _jax.is_ref_type(jax.typeof(p))]
    return results, [t if type(t) is ad.Zero else next(ordered) for t in outputs]


def _transpose(cts: Any, *operands: Any) -> Any:
    moving = iter(barrier_p.bind(*[ct for ct in cts if type(ct) is not ad.Zero]))
    return [ct if type(ct) is ad.Zero else next(moving) for ct in cts]


def _batch(size: int, name: Any, operands: Any, dims: Any) -> Any:
    return barrier_p.bind(*operands), dims


def _discharge(avals: Any, *operands: Any) -> Any:
    ordered = barrier_p.bind(*operands)
    refs = [_jax.is_ref_type(aval) for aval in avals]
    new = [x if ref else None for x, ref in zip(ordered, refs, strict=True)]
    return new, [x for x, ref in zip(ordered, refs, strict=True) if not ref]


barrier_p = _jax.new_primitive("async_barrier", _type)
ad.primitive_jvps[barrier_p] = _jvp
ad.primitive_transposes[barrier_p] = _transpose
_jax.register_batching(barrier_p, _batch)
_jax.register_discharge(barrier_p, _discharge)
_jax.register_untracked_lowering(barrier_p, lambda site, *xs: lax.optimization_barrier(xs))


def tie(operands: list[Any]) -> list[Any]:
    """What computes any of the operands comes before what uses any of the results, one for each that is no Ref."""
    return list(barrier_p.bind(*operands)) if operands else []
