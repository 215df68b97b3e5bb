"""Moving a traced function to other devices than those its meshes were made of.

Private names, and why the public API does not do: a function closes over meshes of the devices at hand, and
`jax.stages.Traced` offers no way to exchange them (``Lowered.compile(device_assignment=...)`` only serves
functions whose meshes are all abstract). So the meshes are exchanged in the traced jaxpr.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax._src import core  # Jaxpr.replace and JaxprEqn.replace: there is no public way to rewrite a jaxpr
from jax._src.interpreters import partial_eval  # dead code is dropped by lowering, in no public function
from jax._src.named_sharding import UNSPECIFIED  # "the user named no sharding", in Traced's parameters
from jax._src.state.discharge import discharge_state  # lowering calls it; the public API does not offer it
from jax.experimental.layout import Format
from jax.sharding import AbstractDevice, AbstractMesh, Mesh, NamedSharding, Sharding

AnyMesh = Mesh | AbstractMesh
_CLOSED = getattr(core, "ClosedJaxpr", core.Jaxpr)  # 0.12 merged the two classes
_JAXPRS = (core.Jaxpr, _CLOSED)
# A shard_map names the axes it binds in this parameter; inside it, abstract meshes speak of those axes.
_MANUAL = ("newly_manual_axes", "manual_axes")


class Retargeting:
    """Exchanges the meshes of traced functions: ``exchange`` gives the mesh to use instead of one met.

    ``met`` tells afterwards whether there was any mesh.
    """

    def __init__(self, exchange: Callable[[AnyMesh], Mesh]) -> None:
        self._exchange = functools.cache(exchange)
        self.met = False

    def traced(self, traced: Any, default: Sharding) -> Any:
        """``traced`` (a fresh `jax.stages.Traced`) with its meshes exchanged; it is changed and returned.

        ``default`` places the arguments and results of a function in which no mesh is named at all.
        """
        params = dict(traced._params)
        params["jaxpr"] = self._jaxpr(params["jaxpr"], bound=False)
        for key in ("ctx_mesh", "in_shardings", "out_shardings"):
            params[key] = self._value(params[key], bound=False)
        if not self.met:
            for key in ("in_shardings", "out_shardings"):
                params[key] = tuple(default if s is UNSPECIFIED else s for s in params[key])
        traced._params = params
        traced._meta_tys_flat = [self._argument(a) for a in traced._meta_tys_flat]
        return traced

    def _argument(self, argument: Any) -> Any:
        sharding = self._value(argument.sharding, bound=False)
        if sharding is argument.sharding:
            return argument
        form = argument.format and Format(argument.format.layout, sharding)
        return argument.replace(sharding=sharding, format=form)

    def _value(self, value: Any, bound: bool) -> Any:
        if isinstance(value, Mesh) or (isinstance(value, AbstractMesh) and not bound):
            return value if value.empty else self._mesh(value)
        if isinstance(value, NamedSharding):
            return self._named(value, bound)
        if isinstance(value, _JAXPRS):
            return self._jaxpr(value, bound)
        if type(value) is tuple or type(value) is list:  # no named tuples: they are JAX's own structures
            new = [self._value(v, bound) for v in value]
            unchanged = all(a is b for a, b in zip(new, value, strict=True))
            return value if unchanged else type(value)(new)
        return value

    def _mesh(self, mesh: AnyMesh) -> Mesh:
        self.met = True
        return self._exchange(mesh)

    def _named(self, sharding: NamedSharding, bound: bool) -> NamedSharding:
        mesh = self._value(sharding.mesh, bound)
        if mesh is sharding.mesh:
            return sharding
        # The default memory of a CPU device has another name than a TPU's: only a deliberate choice is kept.
        kind = sharding.memory_kind if sharding.memory_kind == "pinned_host" else None
        return NamedSharding(mesh, sharding.spec, memory_kind=kind)

    def _jaxpr(self, jaxpr: Any, bound: bool) -> Any:
        if not isinstance(jaxpr, core.Jaxpr):
            return jaxpr.replace(jaxpr=self._jaxpr(jaxpr.jaxpr, bound))
        equations = [self._equation(e, bound) for e in jaxpr.eqns]
        if all(new is old for new, old in zip(equations, jaxpr.eqns, strict=True)):
            return jaxpr
        return jaxpr.replace(eqns=equations)

    def _equation(self, eqn: Any, bound: bool) -> Any:
        inner = bound or any(name in eqn.params for name in _MANUAL)
        changed = {}
        for name, value in eqn.params.items():
            new = self._value(value, inner if isinstance(value, _JAXPRS) else bound)
            if new is not value:
                changed[name] = new
        return eqn.replace(params={**eqn.params, **changed}) if changed else eqn


def is_traceable(fn: Any) -> bool:
    """True for what ``jax.jit`` made: it traces itself, with its static and donated arguments."""
    return hasattr(fn, "trace") and hasattr(fn, "lower")


def trace(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], device: Any) -> Any:
    """`jax.stages.Traced` of ``fn``, jitted first where the user has not done it; Refs inside are discharged.

    Outside every mesh, a kernel that asks what chip it runs on is told ``device``'s.
    """
    jitted = fn if is_traceable(fn) else jax.jit(fn)
    if not jax.sharding.get_abstract_mesh().empty:
        return _without_refs(jitted.trace(*args, **kwargs))
    chip = AbstractDevice(device.device_kind, device.num_cores, platform=device.platform)
    with jax.sharding.use_abstract_mesh(AbstractMesh((), (), abstract_device=chip)):
        return _without_refs(jitted.trace(*args, **kwargs))


def _without_refs(traced: Any) -> Any:
    """Does now what lowering would do: to discharge is to trace again, with the meshes that the types name."""
    jaxpr = traced._params["jaxpr"]
    if any(isinstance(effect, core.InternalMutableArrayEffect) for effect in jaxpr.effects):
        live = jaxpr if traced._params.get("keep_unused") else _live(jaxpr)
        traced._params = {**traced._params, "jaxpr": _discharged(live)}
    return traced


def _live(jaxpr: Any) -> Any:
    """Without what JAX drops as unused, which it does before it discharges: what has no effect to JAX is lost."""
    is_open = isinstance(jaxpr, core.Jaxpr)
    body = jaxpr if is_open else jaxpr.jaxpr
    live, _, _ = partial_eval.dce_jaxpr_consts(body, [True] * len(body.outvars), instantiate=True)
    return live if is_open else jaxpr.replace(jaxpr=live)


def _discharged(jaxpr: Any) -> Any:
    pure: Any = discharge_state(jaxpr)
    if isinstance(pure, core.Jaxpr):
        return pure.replace(debug_info=jaxpr.debug_info)
    return pure.replace(jaxpr=pure.jaxpr.replace(debug_info=jaxpr.jaxpr.debug_info))
