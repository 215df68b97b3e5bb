"""When the rules about grid steps and blocks (AO206 to AO209) need every step of a grid.

Most kernels visit each output block in consecutive steps and alias nothing: their index maps say so without running a
step. The others are run step by step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from asyncops.checker.parallel import parallel_axes
from asyncops.checker.skeleton import bodies_of
from stateful import higher_order as ho

CODES = frozenset({"AO206", "AO207", "AO208", "AO209"})


def needs_steps(jaxpr: Any) -> bool:
    """True where a kernel in the program depends on which step sees which block."""
    for eqn in jaxpr.eqns:
        form = ho.normal_form(eqn)
        if isinstance(form, ho.Kernel):
            if _needs_steps(form.form):
                return True
        elif form is not None and any(needs_steps(b.jaxpr) for b in bodies_of(form)):
            return True
    return False


def _needs_steps(form: Any) -> bool:
    if form.backend != "tpu" or not form.grid:
        return False
    if _spread_axes(form) and not _is_independent(form):
        return True
    inputs = len(form.inputs)
    aliased = any(
        form.windows[i].pipelined and form.windows[inputs + o].pipelined for i, o in form.aliases.items()
    )
    return aliased or not all(is_consecutive(w, form) for w in form.windows[inputs:] if w.pipelined)


def _spread_axes(form: Any) -> tuple[int, ...]:
    """The parallel dimensions that have more than one step to spread over cores."""
    return tuple(a for a in parallel_axes(form) if form.grid[a] != 1)


def _is_independent(form: Any) -> bool:
    """True where parallel steps share nothing: no scratch, arrays passed by block only, outputs told apart."""
    axes = _spread_axes(form)
    inputs = len(form.inputs)
    if form.scratch or any(not w.pipelined for w in form.windows):
        return False
    return all(set(axes) <= set(block_axes(w) or ()) for w in form.windows[inputs:])


def block_axes(window: Any) -> tuple[int, ...] | None:
    """The grid axes that an index map returns unchanged; None where it computes anything or reads memory."""
    body = window.index_map
    inputs = {v: i for i, v in enumerate(body.inputs)}
    if body.jaxpr.eqns:
        return None
    if not all(hasattr(v, "val") or v in inputs for v in body.outputs):
        return None
    return tuple(inputs[v] for v in body.outputs if not hasattr(v, "val"))


def is_consecutive(window: Any, form: Any) -> bool:
    """True where every block is visited in consecutive steps: the axes that choose it come before all others.

    Axes of size one choose nothing.
    """
    axes = block_axes(window)
    if axes is None:
        return False
    wide = [d for d, n in enumerate(form.grid) if n != 1]
    used = [d for d in wide if d in axes]
    return used == wide[: len(used)]


def live_results(jaxpr: Any, live: Sequence[bool], found: dict[int, set[int]]) -> list[bool]:
    """Which inputs of a body matter if these of its outputs do; ``found``: per kernel equation, its results that do.

    Bodies that are called are followed; of loops and branches every result is taken to matter.
    """
    wanted = {v for v, is_live in zip(jaxpr.outvars, live) if is_live and not hasattr(v, "val")}
    for eqn in reversed(jaxpr.eqns):
        form = ho.normal_form(eqn)
        used = [v in wanted for v in eqn.outvars]
        if isinstance(form, ho.Kernel):
            found.setdefault(id(eqn), set()).update(i for i, is_used in enumerate(used) if is_used)
        elif isinstance(form, ho.Call | ho.ShardMap):
            needed = live_results(form.jaxpr.jaxpr, used, found)
            wanted.update(
                v for v, n in zip(form.operands[-len(needed) :], needed) if n and not hasattr(v, "val")
            )
            continue
        elif form is not None:
            for body in bodies_of(form):
                live_results(body.jaxpr, [True] * len(body.jaxpr.outvars), found)
        wanted.update(v for v in eqn.invars if not hasattr(v, "val"))
    return [v in wanted for v in jaxpr.invars]
