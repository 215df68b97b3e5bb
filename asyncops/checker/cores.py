"""The cores of a device: which of them a kernel runs on, and whose memory a Ref is.

A kernel over a mesh of cores (``pl.kernel``, ``core_map``, ``mpmd_map``) runs one program on every TensorCore, on every
scalar subcore or on every vector subcore of the SparseCores, or several programs on cores of several kinds at once. HBM
is shared by all of them, shared VMEM by the subcores of one SparseCore; all other memory and every semaphore is one
core's own (JAX docs `pallas/tpu/core_map` and `pallas/tpu/sparsecore`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax import lax

from asyncops.checker.skeleton import Place, bodies_of
from stateful import higher_order as ho
from stateful import signatures, terms
from stateful._jax import jaxprs
from stateful.types import MemorySpace, RefType, ref_type

TENSOR_CORE, SCALAR_SUBCORE, VECTOR_SUBCORE = "tc", "sc_scalar_subcore", "sc_vector_subcore"
_WORDS = {TENSOR_CORE: "TensorCore", SCALAR_SUBCORE: "scalar subcore", VECTOR_SUBCORE: "vector subcore"}
_OF_THE_DEVICE = {MemorySpace.HBM, MemorySpace.ANY, MemorySpace.HOST, MemorySpace.DEFAULT}
_SHARED = {MemorySpace.HBM, MemorySpace.ANY, MemorySpace.HOST, MemorySpace.VMEM_SHARED}
CORE_INDEX = "core index"
"""What the index of a core is called where it may be any."""


@dataclass(frozen=True, slots=True)
class Core:
    """One core of a device: its kind, and its index along the axes of that kind's mesh."""

    kind: str
    index: tuple[int, ...] = ()

    def __str__(self) -> str:
        where = f" {self.index[0]}" if len(self.index) == 1 else f" {self.index}" if self.index else ""
        return f"{_WORDS.get(self.kind, self.kind)}{where}"


@dataclass(frozen=True, slots=True)
class Group:
    """Cores that share memory: those with this index along these axes."""

    axes: tuple[str, ...]
    index: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"the cores with {', '.join(f'{a}={i}' for a, i in zip(self.axes, self.index))}"


def sparse_core(number: int) -> Group:
    """A SparseCore as the owner of the memory that its subcores share."""
    return Group(("SparseCore",), (number,))


@dataclass(frozen=True, slots=True)
class Station:
    """A program on one core: the thread that a place runs."""

    program: Any
    core: Core
    axes: tuple[tuple[str, int, int], ...]

    @property
    def asked(self) -> tuple[int, ...]:
        """Which of the axes the program asks its index along."""
        names = asked_axes(self.program.body.jaxpr)
        return tuple(d for d, (name, _, _) in enumerate(self.axes) if name in names)

    @property
    def told_apart(self) -> tuple[int, ...]:
        """The index along the axes that the program asks for: cores that agree in it do the same."""
        return tuple(self.axes[d][1] for d in self.asked)

    def seen_from(self, place: Place) -> Place:
        """The place inside the kernel, from the place of the program that calls it."""
        names = tuple(name for name, _, _ in self.axes)
        return dataclasses.replace(place, core=self.core, axes=(*place.axes, *self.axes), core_axes=names)


_ASKED: dict[int, tuple[Any, frozenset[str]]] = {}


def asked_axes(jaxpr: Any) -> frozenset[str]:
    """The axes whose index a body asks for, however deep."""
    found = _ASKED.get(id(jaxpr))
    if found is None:
        found = _ASKED[id(jaxpr)] = (jaxpr, frozenset(_asked(jaxpr)))
    return found[1]


def _asked(jaxpr: Any) -> Iterator[str]:
    for eqn in jaxpr.eqns:
        form = ho.normal_form(eqn)
        if form is not None:
            for body in bodies_of(form):
                yield from asked_axes(body.jaxpr)
        elif eqn.primitive is lax.axis_index_p:
            axes = eqn.params["axis_name"]
            yield from map(str, axes if isinstance(axes, tuple | list) else (axes,))


def is_meshed(form: Any) -> bool:
    """True for a kernel over a mesh of cores."""
    return any(program.axes for program in form.programs)


def stations(form: Any) -> list[Station]:
    """Every core that a kernel runs on; empty for a kernel without a mesh of cores, which runs on one."""
    found = []
    for program in form.programs if is_meshed(form) else ():
        sizes = [size for _, size in program.axes]
        for index in np.ndindex(*sizes):
            axes = tuple((name, int(i), size) for (name, size), i in zip(program.axes, index))
            found.append(Station(program, Core(program.core, tuple(map(int, index))), axes))
    return found


def any_station(form: Any, call: int) -> Station:
    """A core of a kernel with one program, whichever: its index along each axis is a symbol."""
    (program,) = form.programs
    axes = tuple(
        (name, terms.symbol(f"{CORE_INDEX} {name} in call {call}", 0, size - 1) if size > 1 else 0, size)
        for name, size in program.axes
    )
    return Station(program, Core(program.core), axes)  # type: ignore[arg-type]


def number_of(station: Station, model: Mapping[Any, int]) -> int:
    """The number of the core that :func:`any_station` is with these values of its symbols."""
    number = 0
    for _, index, size in station.axes:
        number = number * size + (index if isinstance(index, int) else model.get(index.parts[0][0], 0))
    return number


def are_independent(jaxpr: Any) -> bool:
    """True where no core of a kernel over a mesh of cores has to do with another but through memory of the device."""
    for eqn in jaxpr.eqns:
        form = ho.normal_form(eqn)
        if isinstance(form, ho.Kernel):
            if is_meshed(form.form) and not _is_independent(form.form):
                return False
        elif form is not None and not all(are_independent(b.jaxpr) for b in bodies_of(form)):
            return False
    return True


def _is_independent(form: Any) -> bool:
    if len(form.programs) != 1:
        return False
    own = all(t.space not in _SHARED or t.semaphore for t in form.scratch)
    return own and not _speaks(form.programs[0].body.jaxpr)


def _speaks(jaxpr: Any) -> bool:
    for eqn in jaxpr.eqns:
        form = ho.normal_form(eqn)
        if isinstance(form, ho.Scoped | ho.RunState) and _shares(form):
            return True
        if form is not None:
            if any(_speaks(b.jaxpr) for b in bodies_of(form)):
                return True
        elif signatures.is_to_others(eqn) or (
            eqn.outvars
            and jaxprs.is_ref(eqn.outvars[0].aval)
            and ref_type(eqn.outvars[0].aval).space in _SHARED
        ):
            return True
    return False


def _shares(form: Any) -> bool:
    types = form.allocations if isinstance(form, ho.Scoped) else form.types
    along = form.collective_axes if isinstance(form, ho.Scoped) else ()
    return bool(along) or any(t.space in _SHARED and t.semaphore is None for t in types)


def most_cores(jaxpr: Any) -> int:
    """On how many cores of a device the widest kernel of a program runs."""
    most = 1
    for eqn in jaxpr.eqns:
        form = ho.normal_form(eqn)
        if isinstance(form, ho.Kernel):
            most = max(most, sum(math.prod(n for _, n in p.axes) for p in form.form.programs))
        elif form is not None:
            most = max([most, *(most_cores(b.jaxpr) for b in bodies_of(form))])
    return most


def owner(type_: RefType, place: Place, shared_along: Sequence[Any] = ()) -> Core | Group | None:
    """Whose memory a Ref of this type is, seen from a place; None where the whole device shares it.

    ``shared_along``: core axes along which the cores get one Ref between them.
    """
    core = place.core
    if core is None or type_.space in _OF_THE_DEVICE:
        return None
    if type_.space is MemorySpace.VMEM_SHARED:
        return sparse_core(core.index[0])
    shared = {str(name) for name in shared_along} & set(place.core_axes)
    if shared:
        kept = [(n, i) for n, i, _ in place.axes if n in place.core_axes and n not in shared]
        return Group(tuple(n for n, _ in kept), tuple(i for _, i in kept))
    if type_.core is None or type_.core == core.kind:
        return core
    return Core(type_.core, _nearest(type_.core, core))


def is_first(station: Station, shared: Any, everybody: Sequence[Station]) -> bool:
    """True for the first of the cores that share some memory (``shared``: its owner)."""
    return next((s for s in everybody if _belongs(s, shared)), everybody[0]) == station


def _belongs(station: Station, shared: Any) -> bool:
    if shared is None:
        return True
    if isinstance(shared, Core):
        return station.core == shared
    if shared.axes == ("SparseCore",):
        return station.core.kind != TENSOR_CORE and station.core.index[:1] == shared.index
    return all((n, i) in {(a, k) for a, k, _ in station.axes} for n, i in zip(shared.axes, shared.index))


def _nearest(kind: str, core: Core) -> tuple[int, ...]:
    """The core of another kind that belongs to this one: the subcores of one SparseCore belong together."""
    if TENSOR_CORE in (kind, core.kind):
        return (0,)
    return core.index[:1] if kind == SCALAR_SUBCORE else (*core.index[:1], 0)


def addressed(
    type_: RefType,
    place: Place,
    programs: Sequence[Any],
    named: dict[str, Any],
    read: Callable[[Any, int], int],
) -> Core | Group | None:
    """Whose memory a Ref of this type is on the core that ``named`` means: indices by the name of a core axis.

    Axes that are not named stay the sender's. ``read(index, size)`` gives the value of an index.
    """
    if owner(type_, place) is None or not named:
        return owner(type_, place)
    own = {name: index for name, index, _ in place.axes if name in place.core_axes}
    kind = type_.core or place.core.kind
    if type_.space is MemorySpace.VMEM_SHARED:
        axis = place.core_axes[0]
        size = next(size for name, _, size in place.axes if name == axis)
        return sparse_core(read(named[axis], size)) if axis in named else owner(type_, place)
    axes = next((p.axes for p in programs if p.core == kind), None)
    if axes is None:  # cores that run no program of this kernel
        return Core(kind, tuple(read(i, 1 << 30) for name, i in named.items() if name not in own))
    index = [read(named[n], size) if n in named else own.get(n, 0) for n, size in axes]
    return Core(kind, tuple(index))
