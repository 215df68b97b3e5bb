"""Where in a jaxpr futures run: the equations that start or finish them, and what is computed between those."""

from __future__ import annotations

import functools
from typing import Any

from stateful._jax import ops as _jax
from stateful._jax.inflight import is_handle, is_in_flight
from stateful._jax.jaxprs import DropVar, Literal, parameter_jaxprs


@functools.lru_cache(maxsize=1 << 14)
def touches_futures(eqn: Any) -> bool:
    """True when the equation starts or finishes an operation, or calls what does."""
    return _jax.async_effect in eqn.effects or any(
        touches_futures(inner) for body in parameter_jaxprs(eqn) for inner in body.jaxpr.eqns
    )


class Region:
    """The stretches of a jaxpr between equations that touch futures. Positions count equations."""

    def __init__(self, jaxpr: Any) -> None:
        self._jaxpr = jaxpr
        self._anchors = [n for n, eqn in enumerate(jaxpr.eqns) if touches_futures(eqn)]
        self._last_use = _last_uses(jaxpr)
        self._handles = _handles(jaxpr, self._last_use)

    def running_before(self, position: int) -> list[Any]:
        """The semaphores of the futures that run as the equation at ``position`` is reached."""
        return [handle for handle, made, taken in self._handles if made < position <= taken]

    def produced_before(self, position: int) -> list[Any]:
        """What the stretch that ends at ``position`` computes and somebody needs later; Refs that it uses."""
        found: dict[Any, None] = {}
        for eqn in self._jaxpr.eqns[self._begin(position) : position]:
            for var in (*eqn.outvars, *filter(is_ref, eqn.invars)):
                needed = self._last_use.get(var, -1) >= position or is_ref(var)
                if needed and not is_in_flight(var.aval):
                    found[var] = None
        return list(found)

    def needed_after(self, position: int) -> list[Any]:
        """What the stretch that begins at ``position`` reads."""
        found: dict[Any, None] = {}
        for eqn in self._jaxpr.eqns[position : self._end(position)]:
            for atom in eqn.invars:
                if not isinstance(atom, Literal) and not is_in_flight(atom.aval):
                    found[atom] = None
        return list(found)

    def _begin(self, position: int) -> int:
        return next((n + 1 for n in reversed(self._anchors) if n < position), 0)

    def _end(self, position: int) -> int:
        return next((n for n in self._anchors if n >= position), len(self._jaxpr.eqns))


def is_ref(atom: Any) -> bool:
    """True for a variable that holds a Ref."""
    return not isinstance(atom, Literal) and _jax.is_ref_type(atom.aval)


def is_dropped(var: Any) -> bool:
    """True for the result of an equation that nothing uses and the jaxpr has no name for."""
    return isinstance(var, DropVar)


def _last_uses(jaxpr: Any) -> dict[Any, int]:
    last: dict[Any, int] = {}
    for n, eqn in enumerate(jaxpr.eqns):
        last.update((v, n) for v in eqn.invars if not isinstance(v, Literal))
    last.update((v, len(jaxpr.eqns)) for v in jaxpr.outvars if not isinstance(v, Literal))
    return last


def _handles(jaxpr: Any, last_use: dict[Any, int]) -> list[tuple[Any, int, int]]:
    """For each future, its semaphores, the equation that makes it (-1: an argument) and the one that takes it."""
    made = [(v, -1) for v in (*jaxpr.constvars, *jaxpr.invars)]
    made += [(v, n) for n, eqn in enumerate(jaxpr.eqns) for v in eqn.outvars]
    return [(v, n, last_use.get(v, n)) for v, n in made if is_handle(v.aval)]
