"""The signature table: from a primitive, matched by identity, to what its equations do.

:func:`operations` is the one question walkers ask about a first-order equation. Decoding an equation's
parameters happens once; asking again only puts the current values of its atoms in. Everything in JAX that
touches a Ref, a barrier or a semaphore is either in the table or comes out as :class:`Unmodelled`, and so
does any primitive of other packages that touches a Ref or has effects, until someone registers it::

    stateful.register_effects(my_read_p, lambda eqn, value: [Load(value(eqn.invars[0]))])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax

from stateful import effects as fx
from stateful._jax import jaxprs, transforms
from stateful._jax import primitives as p
from stateful.errors import InvalidArgumentError
from stateful.operations import (
    OPERATIONS,
    Accumulate,
    Allocate,
    BarrierSemaphore,
    FetchAndAdd,
    Free,
    Load,
    Operation,
    Pure,
    ReadSemaphore,
    Signal,
    StartCopy,
    Store,
    SubcoreBarrier,
    Unmodelled,
    Wait,
    WaitCopy,
)
from stateful.recipes import Recipe, UndecidedRef, Value, scalar
from stateful.types import View, ref_type

__all__ = [
    "Accumulate",
    "Allocate",
    "BarrierSemaphore",
    "FetchAndAdd",
    "Free",
    "Load",
    "Operation",
    "Pure",
    "ReadSemaphore",
    "Signal",
    "StartCopy",
    "Store",
    "SubcoreBarrier",
    "Unmodelled",
    "Wait",
    "WaitCopy",
    "is_known_pure",
    "is_remote",
    "is_to_others",
    "operations",
    "register_effects",
]

Atom = Any
Run = Callable[[Value], tuple[Operation, ...]]
Rule = Callable[[Any, Value], Iterable["Operation | fx.Effect"]]

PURE: tuple[Operation, ...] = (Pure(),)


def operations(eqn: Any, value: Value) -> tuple[Operation, ...]:
    """What a first-order equation does, in order.

    ``value(atom)`` gives the View of a Ref atom, the Term of a scalar one, None where a scalar is not known.
    """
    run = _decoded.get(id(eqn))
    if run is None:
        run = _decode(eqn)
    try:
        return run[1](value)
    except UndecidedRef as e:
        return (Unmodelled(f"`{eqn.primitive.name}`: {e}"),)


def register_effects(primitive: Any, rule: Rule) -> None:
    """Declares what the equations of a primitive do.

    ``rule(eqn, value)`` returns operations (``stateful.operations``) or, where these suffice, the effects
    ``Read``, ``Write``, ``Accumulate``, ``Signal`` and ``Wait``; an empty list declares the primitive pure. A
    second registration replaces the first.
    """
    if not isinstance(primitive, jaxprs.Primitive):
        raise InvalidArgumentError(f"primitive must be a jax.extend.core.Primitive, got {primitive!r}")
    if not callable(rule):
        raise InvalidArgumentError(f"rule must be a function of an equation and `value`, got {rule!r}")

    def decode(eqn: Any) -> Run:
        return lambda value: tuple(_as_operation(x, primitive) for x in rule(eqn, value)) or PURE

    _table[primitive] = decode
    _decoded.clear()


def is_known_pure(primitive: Any) -> bool:
    """True for a primitive that never touches a Ref, a barrier or a semaphore, so that its equations can be
    skipped.

    Every primitive of JAX that is not in the table and belongs to no other kernel language is: JAX's own
    types do not let it touch a Ref unless an operand is one.
    """
    known = _known.get(primitive)
    if known is None:
        known = _known[primitive] = _is_known_pure(primitive)
    return known


def is_remote(eqn: Any) -> bool:
    """True for a copy or signal that names another device."""
    if eqn.primitive is p.dma_start:
        return jax.tree.unflatten(eqn.params["tree"], eqn.invars)[4] is not None
    if eqn.primitive is p.semaphore_signal:
        return jax.tree.unflatten(eqn.params["args_tree"], eqn.invars)[3] is not None
    return False


def is_to_others(eqn: Any) -> bool:
    """True for an operation that may reach or wait for another core or device, or name what they share."""
    if (
        eqn.primitive is p.semaphore_signal
        and jax.tree.unflatten(eqn.params["args_tree"], eqn.invars)[4] is not None
    ):
        return True
    shared = (p.get_barrier_semaphore, p.sparse_core("barrier_p"), p.sparse_core("fetch_and_add_p"))
    return is_remote(eqn) or any(eqn.primitive is x for x in shared if x is not None)


# -- the machinery -------------------------------------------------------------------------------------------

_LIMIT = 1 << 16
_decoded: dict[int, tuple[Any, Run]] = {}  # by identity of the equation, which the entry keeps alive
_known: dict[Any, bool] = {}
_table: dict[Any, Callable[[Any], Run]] = {}
_tables_of_modules: set[str] = set()


def _decode(eqn: Any) -> tuple[Any, Run]:
    if len(_decoded) >= _LIMIT:
        _decoded.clear()
    entry = (eqn, _run_of(eqn))
    _decoded[id(eqn)] = entry
    return entry


def _run_of(eqn: Any) -> Run:
    _load_families()
    rule = _table.get(eqn.primitive)
    if rule is not None:
        return rule(eqn)
    reason = _why_unmodelled(eqn)
    result = PURE if reason is None else (Unmodelled(reason),)
    return lambda value: result


def _why_unmodelled(eqn: Any) -> str | None:
    name = f"`{eqn.primitive.name}`"
    family = p.family(eqn.primitive)
    if family is not None:
        return f"{name}: a primitive of {family} kernels that has no model"
    if any(jaxprs.is_ref(v.aval) for v in (*eqn.invars, *eqn.outvars)):
        return f"{name} touches a Ref and has no model; stateful.register_effects gives it one"
    if any(b.jaxpr.effects for b in jaxprs.parameter_jaxprs(eqn)):
        return f"{name} holds a jaxpr with effects and has no model"
    if eqn.effects and not is_known_pure(eqn.primitive):
        return f"{name} has effects ({', '.join(sorted(map(str, eqn.effects)))}) and no model"
    return None


def _as_operation(x: Any, primitive: Any) -> Operation:
    if isinstance(x, OPERATIONS):
        return x  # type: ignore[return-value]
    converted = _FROM_EFFECT.get(type(x))
    if converted is None:
        raise InvalidArgumentError(
            f"the rule registered for `{primitive.name}` returned {x!r}: it must return operations, or the "
            "effects Read, Write, Accumulate, Signal and Wait"
        )
    return converted(x)


_FROM_EFFECT: dict[type, Callable[[Any], Operation]] = {
    fx.Read: lambda e: Load(e.view),
    fx.Write: lambda e: Store(e.view, None, e.partial),
    fx.Accumulate: lambda e: Accumulate(e.view),
    fx.Signal: lambda e: Signal(e.view, e.amount, e.device),
    fx.Wait: lambda e: Wait(e.view, e.amount, e.decrement),
    fx.Free: lambda e: Free(e.view),
}


def _is_known_pure(primitive: Any) -> bool:
    _load_families()
    if primitive in _PURE:
        return True
    if primitive in _table or p.family(primitive) is not None:
        return False
    return p.is_jax_primitive(primitive)


# -- decoders: one for each shape of parameters --------------------------------------------------------------


def _get(eqn: Any) -> Run:
    ref, *rest = eqn.invars
    view = Recipe.of(ref, jax.tree.unflatten(eqn.params["tree"], rest))
    return lambda value: (Load(view(value)),)


def _swap(eqn: Any) -> Run:
    ref, new, *rest = eqn.invars
    view = Recipe.of(ref, jax.tree.unflatten(eqn.params["tree"], rest))
    return _exchange(eqn, view, new)


def _exchange(eqn: Any, view: Recipe, new: Atom, mask: Atom = None) -> Run:
    """A swap is a load and a store; where nothing uses the old value, the store alone."""
    masked = mask is not None
    if jaxprs.is_unused(eqn.outvars[0]):
        return lambda value: (Store(view(value), new, masked, mask),)

    def both(value: Value) -> tuple[Operation, ...]:
        seen = view(value)
        return Load(seen, masked, mask), Store(seen, new, masked, mask)

    return both


def _addupdate(eqn: Any) -> Run:
    ref, new, *rest = eqn.invars
    view = Recipe.of(ref, jax.tree.unflatten(eqn.params["tree"], rest))
    return lambda value: (Accumulate(view(value), new),)


def _masked_load(eqn: Any) -> Run:
    ref, transforms, mask, other = jax.tree.unflatten(eqn.params["args_tree"], eqn.invars)
    view = Recipe.of(ref, transforms)
    return lambda value: (Load(view(value), mask is not None, mask, other),)


def _masked_swap(eqn: Any) -> Run:
    ref, transforms, new, mask = jax.tree.unflatten(eqn.params["args_tree"], eqn.invars)
    return _exchange(eqn, Recipe.of(ref, transforms), new, mask)


def _new_ref(eqn: Any) -> Run:
    made = (Allocate(ref_type(eqn.outvars[0].aval), eqn.invars[0] if eqn.invars else None),)
    return lambda value: made


def _freeze(eqn: Any) -> Run:
    (ref,) = eqn.invars
    return lambda value: (Free(value(ref), read=True),)


def _free_ref(eqn: Any) -> Run:
    (ref,) = eqn.invars
    return lambda value: (Free(value(ref)),)


def _dma_start(eqn: Any) -> Run:
    source, target, target_sem, source_sem, device = jax.tree.unflatten(eqn.params["tree"], eqn.invars)
    read, written = Recipe.of(source), Recipe.of(target)
    read_sem, written_sem = Recipe.maybe(source_sem), Recipe.maybe(target_sem)
    where = _device(device, eqn.params["device_id_type"])
    add, priority = bool(eqn.params["add"]), int(eqn.params["priority"])
    indices = [Recipe.of(r) for end in (source, target) for r in transforms.index_refs(end)]

    def run(value: Value) -> tuple[Operation, ...]:
        from_, to = read(value), written(value)
        return (
            StartCopy(
                from_,
                to,
                read_sem and read_sem(value),
                written_sem and written_sem(value),
                read.nbytes(from_),
                written.nbytes(to),
                where and where(value),
                add,
                priority,
                tuple(index(value) for index in indices),
            ),
        )

    return run


def _dma_wait(eqn: Any) -> Run:
    # In both JAX versions a wait for the source (``wait_send``) has source and destination, and their
    # semaphores, swapped, so the second Ref is always the one whose bytes the lowering takes off, and the
    # third its semaphore.
    _, seen, semaphore, _, _ = jax.tree.unflatten(eqn.params["tree"], eqn.invars)
    view, sem = Recipe.of(seen), Recipe.maybe(semaphore)
    # 0.10 marks the swapped wait only through the dummy device that its lowering needs.
    is_send = eqn.params.get("is_wait_send", eqn.params.get("insert_dummy_device", False))
    direction = "send" if is_send else "receive"

    def run(value: Value) -> tuple[Operation, ...]:
        v = view(value)
        return (WaitCopy(sem and sem(value), view.nbytes(v), v, direction),)

    return run


def _device(device: Any, kind: Any) -> Callable[[Value], fx.DeviceId] | None:
    if device is None:
        return None
    name = str(getattr(kind, "value", kind)).lower()
    if isinstance(device, dict):
        parts = {_axis_name(k): scalar(v) for k, v in device.items()}
        return lambda value: fx.DeviceId(name, {k: read(value) for k, read in parts.items()})
    if isinstance(device, (tuple, list)):
        entries = [scalar(v) for v in device]
        return lambda value: fx.DeviceId(name, tuple(read(value) for read in entries))
    one = scalar(device)
    return lambda value: fx.DeviceId(name, one(value))


def _axis_name(k: Any) -> Any:
    return tuple(map(str, k)) if isinstance(k, tuple) else str(k)


def _semaphore_signal(eqn: Any) -> Run:
    ref, transforms, amount, device, core = jax.tree.unflatten(eqn.params["args_tree"], eqn.invars)
    semaphore, count = Recipe.of(ref, transforms), scalar(amount)
    where = _device(device, eqn.params["device_id_type"])
    which = scalar(core) if core is not None else None

    def run(value: Value) -> tuple[Operation, ...]:
        return (Signal(semaphore(value), count(value), where and where(value), which and which(value)),)

    return run


def _semaphore_wait(eqn: Any) -> Run:
    ref, transforms, amount, decrement = jax.tree.unflatten(eqn.params["args_tree"], eqn.invars)
    semaphore, count, takes = Recipe.of(ref, transforms), scalar(amount), scalar(decrement)

    def run(value: Value) -> tuple[Operation, ...]:
        decrements = takes(value)
        if not isinstance(decrements, int):
            return (Unmodelled("`semaphore_wait` whose `decrement` is not known"),)
        return (Wait(semaphore(value), count(value), bool(decrements)),)

    return run


def _semaphore_read(eqn: Any) -> Run:
    ref, transforms = jax.tree.unflatten(eqn.params["args_tree"], eqn.invars)
    semaphore = Recipe.of(ref, transforms)
    return lambda value: (ReadSemaphore(semaphore(value)),)


def _barrier_semaphore(eqn: Any) -> Run:
    made = (BarrierSemaphore(eqn.params.get("tag")),)
    return lambda value: made


def _matmul_pop(eqn: Any) -> Run:
    if not eqn.invars:  # 0.10: accumulators are numbers, not Refs
        return lambda value: PURE
    ref, *rest = eqn.invars
    view = Recipe.of(ref, jax.tree.unflatten(eqn.params["acc_transforms_tree"], rest))
    return lambda value: (Load(view(value)),)


def _matmul_acc(eqn: Any) -> Run:
    if "acc_transforms_tree" not in eqn.params:
        return lambda value: PURE
    ref, _, *rest = eqn.invars
    view = Recipe.of(ref, jax.tree.unflatten(eqn.params["acc_transforms_tree"], rest))
    return lambda value: (Accumulate(view(value)),)


def _pure(eqn: Any) -> Run:
    return lambda value: PURE


def _unmodelled(reason: str) -> Callable[[Any], Run]:
    def decode(eqn: Any) -> Run:
        result = (Unmodelled(f"`{eqn.primitive.name}`: {reason}"),)
        return lambda value: result

    return decode


# -- SparseCore and Mosaic GPU: the part that is loads and stores --------------------------------------------


def _sc_load(eqn: Any) -> Run:
    ref, *rest = eqn.invars
    rest, mask = _sc_mask(eqn, rest)
    view = Recipe.of(ref, jax.tree.unflatten(eqn.params["tree"], rest))
    return lambda value: (Load(view(value), mask is not None, mask),)


def _sc_swap(eqn: Any) -> Run:
    ref, new, *rest = eqn.invars
    rest, mask = _sc_mask(eqn, rest)
    view = Recipe.of(ref, jax.tree.unflatten(eqn.params["tree"], rest))
    if eqn.params["add"]:
        return lambda value: (Accumulate(view(value), new),)
    return _exchange(eqn, view, new, mask)


def _sc_mask(eqn: Any, rest: list[Atom]) -> tuple[list[Atom], Atom]:
    return (rest[:-1], rest[-1]) if eqn.params["has_mask"] else (rest, None)


def _sc_gather(eqn: Any) -> Run:
    ref, transforms, _, _ = jax.tree.unflatten(eqn.params["tree"], eqn.invars)
    view = Recipe.of(ref, transforms, exact=False)
    return lambda value: (Load(view(value), masked=True),)


def _sc_scatter(eqn: Any) -> Run:
    ref, transforms, _, new, _ = jax.tree.unflatten(eqn.params["tree"], eqn.invars)
    view = Recipe.of(ref, transforms, exact=False)
    if eqn.params["add"]:
        return lambda value: (Accumulate(view(value), new),)
    return lambda value: (Store(view(value), new, masked=True),)


def _sc_fetch_and_add(eqn: Any) -> Run:
    ref, _, *indices, subcore = eqn.invars
    which, at = scalar(subcore), [scalar(i) for i in indices]

    def run(value: Value) -> tuple[Operation, ...]:
        base = value(ref)
        view = base.element(tuple(read(value) for read in at)) if isinstance(base, View) else base
        return (FetchAndAdd(view, which(value)),)

    return run


def _sc_barrier(eqn: Any) -> Run:
    made = (SubcoreBarrier(),)
    return lambda value: made


def _gpu_store(eqn: Any) -> Run:
    ref, new, *rest = eqn.invars
    view = Recipe.of(ref, jax.tree.unflatten(eqn.params["tree"], rest))
    return lambda value: (Store(view(value), new),)


# -- the table -----------------------------------------------------------------------------------------------

# In the table although no Ref or semaphore is touched: JAX gives them effects (on random state, matrix units,
# time, the screen), or an operand that is a Ref without an access to it.
_PURE = {
    x
    for x in (
        p.delay,
        p.prng_seed,
        p.prng_random_bits,
        p.trace_value,
        p.matmul_push_rhs,
        p.matmul_lhs_fifo,
        p.matmul_pop_fifo,
        p.debug_callback,
        p.debug_print,
        p.io_callback,
        p.pure_callback,
        p.with_memory_space_constraint,
        p.pin,
        p.unpin,
        p.create_linear,
    )
    if x is not None
}

_table.update(
    {
        primitive: rule
        for primitive, rule in (
            (p.get, _get),
            (p.swap, _swap),
            (p.addupdate, _addupdate),
            (p.masked_load, _masked_load),
            (p.masked_swap, _masked_swap),
            (p.new_ref, _new_ref),
            (p.empty_ref, _new_ref),
            (p.freeze, _freeze),
            (p.free_ref, _free_ref),
            (p.touch, _pure),  # keeps a Ref alive and in order; no access
            (p.dma_start, _dma_start),
            (p.dma_wait, _dma_wait),
            (p.semaphore_signal, _semaphore_signal),
            (p.semaphore_wait, _semaphore_wait),
            (p.semaphore_read, _semaphore_read),
            (p.get_barrier_semaphore, _barrier_semaphore),
            (p.matmul_acc_lhs, _matmul_acc),
            (p.matmul_pop, _matmul_pop),
            (p.get_global, _unmodelled("memory that outlives the kernel call has no model")),
            (p.accum_grad_in_ref, _unmodelled("occurs inside automatic differentiation only")),
            (p.jaxpr_call, _unmodelled("pipelined bodies of Mosaic GPU have no model")),
            *((x, _pure) for x in _PURE),
        )
        if primitive is not None
    }
)

_SPARSE_CORE: dict[str, Callable[[Any], Run]] = {
    "load_p": _sc_load,
    "swap_p": _sc_swap,
    "gather_p": _sc_gather,
    "scatter_p": _sc_scatter,
    "barrier_p": _sc_barrier,
    "fetch_and_add_p": _sc_fetch_and_add,
}
_SPARSE_CORE_PURE = (
    "bitcast_p", "scan_count_p", "masked_cummax_p", "masked_cummin_p", "masked_cumsum_p", "masked_sort_p",
    "pack_p", "unpack_p", "all_reduce_population_count_p", "all_reduce_ffs_p",
)  # fmt: skip

_MOSAIC_GPU: dict[str, Callable[[Any], Run]] = {"load_p": _get, "store_p": _gpu_store}
_MOSAIC_GPU_PURE = (
    "layout_cast_p", "print_layout_p", "set_max_registers_p", "mma_p", "reduce_sum_p", "reduce_max_p",
    "reduce_min_p", "reduce_prod_p",
)  # fmt: skip


def _load_families() -> None:
    """Puts the primitives of kernel languages that were imported meanwhile into the table."""
    for name in p.loaded_families():
        if name in _tables_of_modules:
            continue
        _tables_of_modules.add(name)
        for find, rules, pure in (
            (p.sparse_core, _SPARSE_CORE, _SPARSE_CORE_PURE),
            (p.mosaic_gpu, _MOSAIC_GPU, _MOSAIC_GPU_PURE),
        ):
            for attribute, rule in (*rules.items(), *((a, _pure) for a in pure)):
                primitive = find(attribute)
                if primitive is not None:
                    _table.setdefault(primitive, rule)
                    if rule is _pure:
                        _PURE.add(primitive)
        _known.clear()
