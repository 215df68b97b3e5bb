"""Sees the programs that JAX traces while it is asked to.

JAX has no public hook into tracing. ``jax.jit`` (and so ``pallas_call``, which always runs under it) traces
through ``partial_eval.trace_to_jaxpr`` in every supported version, looked up in its module at each call;
while somebody records, that name is bound to a :class:`_Tap`.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, cast

import jax
from jax._src import core as _core
from jax._src.interpreters import partial_eval as _partial_eval

from stateful._jax import primitives
from stateful._jax.jaxprs import Body, Frame, Literal, is_ref, open_jaxpr, parameter_jaxprs, user_location
from stateful._jax.ops import async_effect

_KERNELS = [p for p in (primitives.pallas_call, primitives.mpmd_map, primitives.core_map) if p is not None]


@dataclass(frozen=True)
class TracedProgram:
    """A traced program with a kernel or an operation in it, as a function that traces to the same equations.

    Attributes:
      location: the user's line of the first kernel call, else where its kernel is defined.
      jaxpr: identifies the trace: JAX's caches return the same object for the same function and shapes.
      kernels: the equations of all kernel calls and operations inside; a loop body that was traced before its
        loop shares them with the loop.
    """

    name: str
    fn: Callable[..., Any]
    args: tuple[jax.ShapeDtypeStruct, ...]
    location: Frame | None
    jaxpr: Any
    kernels: tuple[Any, ...]


Sink = Callable[[TracedProgram], None]


class _State(threading.local):
    """Per thread: how deep in traces we are, and whether what is traced is somebody's check."""

    depth = 0
    muted = False


_state = _State()
_sinks: list[Sink] = []
_lock = threading.Lock()


@contextlib.contextmanager
def record_programs(sink: Sink) -> Generator[None]:
    """Calls ``sink`` with every outermost program that is traced inside and holds a kernel, in any thread."""
    with _lock:
        _sinks.append(sink)
        if len(_sinks) == 1:
            _install(_Tap(_partial_eval.trace_to_jaxpr))
    try:
        yield
    finally:
        with _lock:
            _sinks.remove(sink)
            if not _sinks:
                _install(cast("_Tap", _partial_eval.trace_to_jaxpr).original)


@contextlib.contextmanager
def muted() -> Generator[None]:
    """What this thread traces inside is not recorded."""
    before, _state.muted = _state.muted, True
    try:
        yield
    finally:
        _state.muted = before


class _Tap:
    """Stands in for ``trace_to_jaxpr``; has its attributes (it is a cache that callers evict from)."""

    def __init__(self, original: Any) -> None:
        self.original = original

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        _state.depth += 1
        try:
            result = self.original(*args, **kwargs)
        finally:
            _state.depth -= 1
        if _state.depth == 0 and not _state.muted:
            _record(result[0])
        return result


def _install(trace_to_jaxpr: Any) -> None:
    _partial_eval.trace_to_jaxpr = trace_to_jaxpr


def _record(closed: Any) -> None:
    kernels = tuple(_kernel_equations(closed))
    if not kernels:
        return
    try:
        program = _program(closed, kernels)
    except Exception as error:  # whatever it is, it must not end the user's program
        program = TracedProgram("program", _raiser(error), (), _place(kernels[0]), closed, kernels)
    for sink in tuple(_sinks):
        sink(program)


def _raiser(error: Exception) -> Callable[..., Any]:
    def fails() -> None:
        raise error

    return fails


def _kernel_equations(closed: Any) -> Iterator[Any]:
    for eqn in open_jaxpr(closed).jaxpr.eqns:
        bodies = tuple(parameter_jaxprs(eqn))
        if any(eqn.primitive is p for p in _KERNELS) or (async_effect in eqn.effects and not bodies):
            yield eqn
        else:
            for body in bodies:
                yield from _kernel_equations(body.jaxpr)


def _program(closed: Any, kernels: tuple[Any, ...]) -> TracedProgram:
    jaxpr, consts = open_jaxpr(closed)
    # A constant may be a tracer of a transformation around the call; it must not outlive that, its shape may.
    shapes = tuple(_shape(v.aval) for v in (*jaxpr.constvars, *jaxpr.invars))
    refs = tuple(is_ref(v.aval) for v in (*jaxpr.constvars, *jaxpr.invars))
    kept = {n: c for n, c in enumerate(consts) if is_ref(_core.typeof(c)) and not isinstance(c, _core.Tracer)}

    def evaluate(*values: Any) -> Any:
        bound = [
            kept.get(n, jax.new_ref(x) if r else x) for n, (x, r) in enumerate(zip(values, refs, strict=True))
        ]
        split = len(jaxpr.constvars)
        return _core.eval_jaxpr(jaxpr, bound[:split], *bound[split:])

    name = jaxpr.debug_info.func_name
    names = _names(Body(jaxpr), kernels)
    evaluate.__signature__ = _signature(names)  # pyright: ignore[reportFunctionMemberAccess]
    return TracedProgram(name, _over_mesh(evaluate), shapes, _place(kernels[0]), closed, kernels)


def _names(program: Body, kernels: tuple[Any, ...]) -> tuple[str | None, ...]:
    """What the user's function calls the inputs; of a kernel call outside of one, what the kernel calls them."""
    called: dict[Any, str | None] = {}
    for kernel in kernels:
        if kernel.primitive is primitives.pallas_call:
            bounds = kernel.params["grid_mapping"].num_dynamic_grid_bounds
            inner = open_jaxpr(kernel.params["jaxpr"]).names
            called.update((a, n) for a, n in zip(kernel.invars[bounds:], inner) if not isinstance(a, Literal))
    return tuple(
        name if name and name.isidentifier() else called.get(atom)
        for name, atom in zip(program.names, program.inputs, strict=True)
    )


def _signature(names: tuple[str | None, ...]) -> inspect.Signature:
    """Parameters named as in the user's function, as far as they can be: JAX and so the findings call them that."""
    usable = [n if n and n.isidentifier() and names.count(n) == 1 else f"arg{i}" for i, n in enumerate(names)]
    return inspect.Signature([inspect.Parameter(n, inspect.Parameter.POSITIONAL_ONLY) for n in usable])


def _place(kernel: Any) -> Frame | None:
    # Called outside of a user's jit, a kernel call has no user frame: its own jit starts the traceback anew.
    bodies = (body.source for body in parameter_jaxprs(kernel))
    return user_location(kernel) or next(filter(None, bodies), None)


def _shape(aval: Any) -> jax.ShapeDtypeStruct:
    inner = getattr(aval, "inner_aval", aval)
    return jax.ShapeDtypeStruct(inner.shape, inner.dtype)


def _over_mesh(fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn`` with the mesh axes that are bound now: an eager ``shard_map`` traces one shard at a time."""
    axes = _core.get_axis_env().axis_sizes
    if not axes:
        return fn
    mesh = jax.sharding.AbstractMesh(tuple(axes.values()), tuple(axes))
    spec = jax.sharding.PartitionSpec()
    return jax.shard_map(fn, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
