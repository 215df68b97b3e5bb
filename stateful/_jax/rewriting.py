"""Running a jaxpr's equations one by one, and tracing a jaxpr anew with some of them changed.

JAX has no public interpreter that lets one change equations on the way, keeps their source lines, and puts a changed
body back into ``scan``, ``cond``, ``jit`` and the rest, whose parameters differ between versions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from typing import Any

import jax
from jax._src import api_util, config, core, source_info_util
from jax._src import shard_map as _shard_map
from jax._src.interpreters import partial_eval
from jax.extend import linear_util

from stateful._jax import primitives
from stateful._jax.jaxprs import ClosedJaxpr, Jaxpr, Literal, is_jaxpr, open_jaxpr

Evaluate = Callable[[Any, Sequence[Any], Sequence[Any]], list[Any]]


class Environment:
    """The values of a jaxpr's variables while its equations are run."""

    def __init__(self, jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> None:
        names = (*jaxpr.constvars, *jaxpr.invars)
        self._values: dict[Any, Any] = dict(zip(names, (*consts, *args), strict=True))

    def __getitem__(self, atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else self._values[atom]

    def __setitem__(self, var: Any, value: Any) -> None:
        self._values[var] = value

    def __contains__(self, atom: Any) -> bool:
        return not isinstance(atom, Literal) and atom in self._values

    def run(self, eqn: Any, operands: Sequence[Any] | None = None, **changed: Any) -> None:
        """Binds the equation's primitive to the current values (or ``operands``), with some parameters changed."""
        if operands is None:
            operands = [self[v] for v in eqn.invars]
        with at_source_of(eqn, operands):
            params = eqn.primitive.get_bind_params({**eqn.params, **changed})
            results = eqn.primitive.bind(*operands, **params)
        self.define(eqn, results if eqn.primitive.multiple_results else [results])

    def define(self, eqn: Any, results: Sequence[Any]) -> None:
        """Sets the equation's results."""
        for var, value in zip(eqn.outvars, results, strict=True):
            self._values[var] = value


@contextlib.contextmanager
def at_source_of(eqn: Any, operands: Sequence[Any]) -> Generator[None]:
    """New equations get the source line and the settings of this one; their mesh is that of its operands.

    A program may have been moved to other devices since the equation was made, and the equation not know.
    """
    names = source_info_util.current_name_stack() + eqn.source_info.name_stack
    with source_info_util.user_context(eqn.source_info.traceback, name_stack=names), eqn.ctx.manager:
        mesh = next(filter(None, map(_mesh, operands)), None)
        with _shard_map.use_abstract_mesh(mesh) if mesh is not None else contextlib.nullcontext():  # pyright: ignore[reportPrivateImportUsage]
            yield


def _mesh(x: Any) -> Any:
    mesh = getattr(getattr(core.typeof(x), "sharding", None), "mesh", None)
    return None if mesh is None or mesh.empty else mesh


def evaluate(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    """Runs a jaxpr unchanged."""
    return list(core.eval_jaxpr(jaxpr, consts, *args))


def trace(fn: Callable[..., Any], *args: Any) -> tuple[Any, list[Any], Any]:
    """Traces ``fn`` at values of any type (futures and Refs, too); gives (jaxpr, its constants, "
    "tree of the results)."""
    results: list[Any] = []

    def flat(*values: Any) -> list[Any]:
        leaves, tree = jax.tree.flatten(fn(*values))
        results.append(tree)
        return leaves

    types = [core.typeof(x) for x in args]
    jaxpr, consts = _trace(flat, types, _debug_info(fn, args))
    return jaxpr, consts, results[0]


def _debug_info(fn: Callable[..., Any], args: Sequence[Any]) -> Any:
    # Without the names of arguments: constants will join them.
    return api_util.debug_info("program_order", fn, tuple(args), {}).with_unknown_names()


def _trace(fn: Callable[..., Any], types: Sequence[Any], debug_info: Any) -> tuple[Any, list[Any]]:
    wrapped = linear_util.wrap_init(fn, debug_info=debug_info)
    jaxpr, _, consts = partial_eval.trace_to_jaxpr_dynamic(wrapped, list(types))
    return jaxpr, list(consts)


def retrace(jaxpr: Any, run: Evaluate) -> Any:
    """``jaxpr`` (open or closed) as ``run(jaxpr, consts, args)`` leaves it: the same class, inputs and results."""
    inner, consts = open_jaxpr(jaxpr)
    bound = list(consts)
    inputs = inner.invars if bound else [*inner.constvars, *inner.invars]
    split = 0 if bound else len(inner.constvars)

    def body(*args: Any) -> list[Any]:
        return run(inner, bound or args[:split], args[split:])

    new, new_consts = _trace(body, [v.aval for v in inputs], inner.debug_info)
    return _as_class_of(jaxpr, new, new_consts, split)


def _as_class_of(old: Any, new: Any, consts: list[Any], split: int) -> Any:
    if ClosedJaxpr is not Jaxpr:
        if isinstance(old, ClosedJaxpr):
            return ClosedJaxpr(new, consts)  # pyright: ignore[reportCallIssue]
        if consts:
            raise AssertionError("a body without constants got one by being reordered")
        return new.replace(constvars=new.invars[:split], invars=new.invars[split:]) if split else new
    return new.replace(consts=consts) if consts else new


def changed_bodies(eqn: Any, run: Evaluate) -> dict[str, Any]:
    """Parameters of ``eqn`` with every jaxpr among them traced anew by ``run``."""
    changed = {}
    with _inside(eqn):
        for name, value in eqn.params.items():
            if is_jaxpr(value):
                changed[name] = retrace(value, run)
            elif isinstance(value, (tuple, list)) and any(map(is_jaxpr, value)):
                changed[name] = type(value)(retrace(v, run) for v in value)
    return changed


@contextlib.contextmanager
def _inside(eqn: Any) -> Generator[None]:
    """The settings under which the equation's body was traced: a ``shard_map`` binds its mesh axes."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(eqn.ctx.manager)
        if eqn.primitive is primitives.shard_map:
            mesh, manual = eqn.params["mesh"], eqn.params["newly_manual_axes"]
            stack.enter_context(_shard_map._extend_axis_env(mesh, manual))
            stack.enter_context(_shard_map.use_abstract_mesh(_shard_map._as_manual_mesh(mesh, manual)))  # pyright: ignore[reportPrivateImportUsage]
            stack.enter_context(config._check_vma(eqn.params["check_vma"]))
        yield
