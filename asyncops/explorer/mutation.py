"""Ways to break a right kernel, one operation of its jaxpr at a time.

Each operator is a class of mistakes that people make; :func:`mutants` applies all of them, wherever they fit, to a
traced program. A mutant keeps the source lines of what it came from. Whether it is really wrong is for
:mod:`.killing` to find out: a wait that another one covers is not missed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
from jax import lax

from asyncops.explorer.unrolling import mesh_axes
from stateful import higher_order as ho
from stateful._jax import editing, jaxprs
from stateful._jax import primitives as p
from stateful._jax.editing import Place

Edit = Callable[[list[Any]], list[Any]]


@dataclass(frozen=True)
class Mutant:
    """A program with one mistake: ``jaxpr``, the ``operator`` that made it, and where."""

    operator: str
    jaxpr: Any
    where: str


def mutants(closed: Any) -> Iterator[Mutant]:
    """Every mutant of a traced program: at each equation, in order, what each operator makes of it."""
    opened = jaxprs.open_jaxpr(closed)
    devices = next(iter(mesh_axes(opened.jaxpr).values()), 1)
    for place in editing.places(closed):
        for operator, make in OPERATORS.items():
            for edit in make(place, devices):
                jaxpr = editing.with_equations(closed, place.path, edit)
                yield Mutant(operator, jaxpr, _where(place.eqn))


def _where(eqn: Any) -> str:
    found = jaxprs.user_location(eqn)
    return f"{eqn.primitive.name} at {found[0]}:{found[1]}" if found else eqn.primitive.name


# -- what the equations are --


def _is_send_wait(eqn: Any) -> bool:
    # As in stateful.signatures: JAX 0.10 marks it by the dummy device that its lowering needs.
    return bool(eqn.params.get("is_wait_send", eqn.params.get("insert_dummy_device", False)))


def _replaced(place: Place, *new: Any) -> Edit:
    return lambda eqns: [*eqns[: place.index], *new, *eqns[place.index + 1 :]]


# -- operators: each yields the edits that make its mutants at one equation --


def _drop_wait(place: Place, devices: int) -> Iterator[Edit]:
    if place.eqn.primitive is p.dma_wait and not _is_send_wait(place.eqn):
        yield _replaced(place)


def _drop_wait_send(place: Place, devices: int) -> Iterator[Edit]:
    if place.eqn.primitive is p.dma_wait and _is_send_wait(place.eqn):
        yield _replaced(place)


def _drop_start(place: Place, devices: int) -> Iterator[Edit]:
    if place.eqn.primitive is p.dma_start:
        yield _replaced(place)


def _drop_barrier(place: Place, devices: int) -> Iterator[Edit]:
    if place.eqn.primitive in (p.semaphore_signal, p.semaphore_wait):
        yield _replaced(place)


def _swap_slots(place: Place, devices: int) -> Iterator[Edit]:
    """The other slot of a buffer: the next one, where there are more than two."""
    eqn = place.eqn
    if eqn.primitive in (p.dma_start, p.dma_wait):
        operands = list(editing.flattened_refs(eqn, "tree"))
        for k in (0, 1) if eqn.primitive is p.dma_start else ():
            yield from _shifted_index(place, "tree", operands, k)
    elif eqn.primitive in (p.get, p.swap):
        yield from _shifted_load(place)


def _shifted_load(place: Place) -> Iterator[Edit]:
    eqn = place.eqn
    ref, *leaves = eqn.invars
    skip = 1 if eqn.primitive is p.swap else 0
    transforms = jax.tree.unflatten(eqn.params["tree"], leaves[skip:])
    found = editing.integer_index(transforms)
    if found is None:
        return
    t, d, index, extent = found
    more, shifted = _next(index, extent)
    changed, tree = jax.tree.flatten(editing.with_index(transforms, t, d, shifted))
    new = eqn.replace(invars=[ref, *leaves[:skip], *changed], params={**eqn.params, "tree": tree})
    yield _replaced(place, *more, new)


def _shifted_index(place: Place, key: str, operands: list[Any], k: int) -> Iterator[Edit]:
    ref = operands[k]
    transforms = getattr(ref, "transforms", ())
    found = editing.integer_index(transforms)
    if found is None:
        return
    t, d, index, extent = found
    more, shifted = _next(index, extent)
    moved = editing.with_transforms(ref, editing.with_index(transforms, t, d, shifted))
    changed = [*operands[:k], moved, *operands[k + 1 :]]
    yield _replaced(place, *more, editing.with_operands(place.eqn, key, tuple(changed)))


def _next(index: Any, extent: int) -> tuple[list[Any], Any]:
    """The index after, cyclically: new equations, and the index."""
    if isinstance(index, int):
        return [], (index + 1) % extent
    return editing.computed(lambda i: lax.rem(i + 1, i * 0 + extent), index)


def _other_semaphore(place: Place, devices: int) -> Iterator[Edit]:
    """The wait on the next semaphore of the array, or on another Ref of the kernel of the same type."""
    eqn = place.eqn
    if eqn.primitive is not p.dma_wait:
        return
    operands = list(editing.flattened_refs(eqn, "tree"))
    semaphore = operands[2]
    yield from _shifted_index(place, "tree", operands, 2)
    base = editing.base_of(semaphore)
    for other in (*place.jaxpr.constvars, *place.jaxpr.invars):
        if other is not base and str(other.aval) == str(base.aval):
            changed = [*operands[:2], editing.with_base(semaphore, other), *operands[3:]]
            yield _replaced(place, editing.with_operands(eqn, "tree", tuple(changed)))
            return


def _halve_wait(place: Place, devices: int) -> Iterator[Edit]:
    eqn = place.eqn
    if eqn.primitive is p.dma_wait:
        operands = list(editing.flattened_refs(eqn, "tree"))
        shape = editing.shape_of(operands[1])
        if shape and isinstance(shape[0], int) and shape[0] >= 2:
            # The second Ref is the one whose bytes the wait takes off, in every version.
            operands[1] = editing.first_rows(operands[1], shape[0] // 2)
            yield _replaced(place, editing.with_operands(eqn, "tree", tuple(operands)))
    elif eqn.primitive is p.semaphore_wait:
        operands = list(editing.flattened_refs(eqn, "args_tree"))
        amount = operands[2]
        if isinstance(amount, jaxprs.Literal) and int(amount.val) >= 2:
            operands[2] = editing.literal(int(amount.val) // 2, amount)
            yield _replaced(place, editing.with_operands(eqn, "args_tree", tuple(operands)))


def _shift_bound(place: Place, devices: int) -> Iterator[Edit]:
    """One trip fewer, one more, or a comparison that is off by one."""
    eqn = place.eqn
    form = ho.normal_form(eqn)
    if isinstance(form, ho.Scan) and not form.xs and form.length > 1:
        for length in (form.length - 1, form.length + 1):
            yield _replaced(place, eqn.replace(params={**eqn.params, "length": length}))
    swapped = {lax.lt_p: lax.le_p, lax.le_p: lax.lt_p, lax.gt_p: lax.ge_p, lax.ge_p: lax.gt_p}.get(
        eqn.primitive
    )
    if swapped is not None and all(getattr(v.aval, "shape", None) == () for v in eqn.invars):
        yield _replaced(place, eqn.replace(primitive=swapped))


def _early_read(place: Place, devices: int) -> Iterator[Edit]:
    """A wait that comes after the next use of memory instead of before it."""
    if place.eqn.primitive is not p.dma_wait:
        return
    for j in range(place.index + 1, len(place.jaxpr.eqns)):
        later = place.jaxpr.eqns[j]
        if later.primitive in (p.get, p.swap, p.dma_start):
            i = place.index
            yield lambda eqns, i=i, j=j: [*eqns[:i], *eqns[i + 1 : j + 1], eqns[i], *eqns[j + 1 :]]
            return
        if later.primitive in (p.dma_wait, p.semaphore_wait) or ho.normal_form(later) is not None:
            return


def _other_device(place: Place, devices: int) -> Iterator[Edit]:
    """The next device instead of the one that was meant, along the first axis that is named."""
    eqn = place.eqn
    key, k = ("tree", 4) if eqn.primitive is p.dma_start else ("args_tree", 3)
    if eqn.primitive not in (p.dma_start, p.semaphore_signal):
        return
    operands = list(editing.flattened_refs(eqn, key))
    device = operands[k]
    if device is None or devices < 2:
        return
    # A scalar, a tuple, or a dictionary from axis names: the first of its leaves is along the first axis.
    (first, *others), tree = jax.tree.flatten(device)
    more, shifted = _next(first, devices)
    operands[k] = jax.tree.unflatten(tree, [shifted, *others])
    yield _replaced(place, *more, editing.with_operands(eqn, key, tuple(operands)))


OPERATORS: dict[str, Callable[[Place, int], Iterator[Edit]]] = {
    "drop a wait": _drop_wait,
    "drop a wait for the departure": _drop_wait_send,
    "drop a start": _drop_start,
    "drop a signal or its wait": _drop_barrier,
    "swap slots": _swap_slots,
    "wait on the other semaphore": _other_semaphore,
    "halve a wait": _halve_wait,
    "shift a bound": _shift_bound,
    "use before the wait": _early_read,
    "change the device": _other_device,
}
"""The operators by what they do."""
