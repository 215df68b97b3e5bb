"""The devices of a program: who runs it, on which mesh axes, and whom a remote operation means.

Every device runs the whole program. Inside ``shard_map`` it sees its shards and knows its place on the mesh; device
numbers are positions in the mesh, row-major, which is what JAX's logical device ids are.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from asyncops.checker import contracts, scalars
from asyncops.checker.cores import addressed
from asyncops.checker.events import Site
from asyncops.checker.memory import Buffer
from asyncops.checker.meshes import MeshInterpreter
from asyncops.checker.recording import Problem
from asyncops.checker.skeleton import ArrayValue, Outcome, Place, State, Unmodelled
from stateful import terms
from stateful._jax import names
from stateful.errors import InvalidArgumentError
from stateful.types import MemorySpace, RefType, ref_type


def device_axes(mesh: dict[str, int], device: int) -> tuple[tuple[str, int, int], ...]:
    """(name, index, size) per mesh axis for a device number."""
    sizes = list(mesh.values())
    index = np.unravel_index(device, sizes) if sizes else ()
    return tuple((name, int(i), size) for (name, size), i in zip(mesh.items(), index))


@dataclasses.dataclass(frozen=True)
class Target:
    """The device that a remote operation means, and how to tell whose memory it means there."""

    device: int
    owner: Callable[[Buffer], Any]


class Topology:
    """Resolves ``device_id`` and core arguments to devices and cores."""

    def __init__(self, policy: Any):
        self.policy = policy
        self.machine: Any = None

    def target(self, state: State, device: Any, site: Site, core: Any = None) -> Target:
        """What a remote operation of this state means: ``device`` and ``core`` as the kernel wrote them."""
        place: Place = state.place
        mesh_axes = [a for a in place.axes if a[0] not in place.core_axes]
        number, named = place.device, {}
        if device is not None:
            number, named = self._device(state, device, mesh_axes, site)
        if core is not None:
            if len(place.core_axes) != 1:
                raise Unmodelled(
                    "a signal to a core by its number, outside a mesh of cores with one axis", site.location
                )
            named = {place.core_axes[0]: core}

        def read(term: Any, count: int) -> int:
            return self._value(state, term, count, site, "core index", f"the {count} cores of its axis")

        def owned(buffer: Buffer) -> Any:
            if buffer.core is None:
                return None
            programs = state.call.form.programs if state.call is not None else ()
            return addressed(buffer.type, place, programs, named, read)

        return Target(number, owned)

    def _device(
        self, state: State, device: Any, mesh_axes: list[tuple[str, int, int]], site: Site
    ) -> tuple[int, dict[str, Any]]:
        """The number of the device, and the indices along axes of cores."""
        if device.kind == "logical" and not isinstance(device.value, tuple | dict):
            count = math.prod(size for _, _, size in mesh_axes) if mesh_axes else 1
            return self._value(state, device.value, count, site), {}
        coordinates = {name: index for name, index, _ in mesh_axes}
        given = device.value
        if not isinstance(given, dict):
            given = dict(zip(coordinates, given if isinstance(given, tuple) else (given,)))
        named: dict[str, Any] = {}
        for name, term in given.items():
            if not self._place(state, name, term, coordinates, mesh_axes, site):
                named[name[0] if isinstance(name, tuple) else name] = term
        number = 0
        for name, _, size in mesh_axes:
            number = number * size + coordinates[name]
        return number, named

    def _place(
        self, state: State, name: Any, term: Any, coordinates: dict[str, int], axes: Any, site: Site
    ) -> bool:
        """Puts a coordinate in its place; False where the axis is none of the mesh."""
        joined = name if isinstance(name, tuple) else (name,)
        sizes = [size for axis in joined for n, _, size in axes if n == axis]
        if len(sizes) != len(joined):
            return False
        flat = self._value(state, term, math.prod(sizes), site)
        for axis, index in zip(joined, np.unravel_index(flat, sizes)):
            coordinates[axis] = int(index)
        return True

    def _value(
        self, state: State, term: Any, count: int, site: Site, what: str = "device id", of: str = ""
    ) -> int:
        value = self.policy.concretise(state, term, 0, count - 1)
        if not 0 <= value < count:
            asked = value
            self.machine.problem(state, Problem(
                "AO305", f"{what} {asked} is outside {of or f'the mesh of {count} devices'}", site,
                "wrap the neighbour's index with lax.rem(index + size, size)",
                test=lambda model: not 0 <= asked < count,
            ))  # fmt: skip
            value %= count
        return value


class ProgramInterpreter(MeshInterpreter):
    """Runs a whole program as one device."""

    values_known = False
    requires: Any = None
    structure: Any = None  # the tree of the checked function's arguments

    def arguments(self, closed: Any, given: list[Any], state: State) -> list[Any]:
        """What the program's arguments are: arrays by their shape; declared integers by value."""
        labels = names.variable_names(closed.jaxpr)[len(closed.jaxpr.constvars) :]
        result = []
        for i, variable in enumerate(closed.inputs):
            name = labels[i] if i < len(labels) and labels[i] else f"argument{i}"
            known = scalars.concrete(given[i]) if self.values_known and i < len(given) else None
            result.append(self._argument(variable.aval, name, i, known, state))
        self._promise(result, labels, state)
        return result

    def _promise(self, values: list[Any], labels: list[str], state: State) -> None:
        """The caller's contract holds from the start."""
        if self.requires is None:
            return
        leaves = [
            contracts.Argument(labels[i] if i < len(labels) else f"argument {i}", v, integers_of(v))
            for i, v in enumerate(values)
        ]
        for promise in contracts.promises_of(self.requires, jax.tree.unflatten(self.structure, leaves)):
            if promise.buffer is not None and promise.bounds is not None:
                promise.buffer.bounds = promise.bounds
            if promise.buffer is not None and promise.is_increasing:
                promise.buffer.is_increasing = True
            narrowed = state.path.assume(promise.predicate)
            if narrowed is None:
                raise InvalidArgumentError("requires: no argument values satisfy all promises")
            state.path = narrowed

    def _argument(self, aval: Any, name: str, i: int, known: Any, state: State) -> Any:
        if scalars.is_small_integer(aval) and not aval.shape:
            return known if known is not None else scalars.fresh(name, aval.dtype)
        return self._array(aval, name, ("argument", i), known, state, name)

    def _array(
        self, aval: Any, name: str, path: Any, known: Any, state: State, source: str | None
    ) -> ArrayValue:
        type_ = ref_type(aval)
        if type_.space is MemorySpace.DEFAULT:
            type_ = RefType(type_.shape, type_.dtype, MemorySpace.HBM, type_.semaphore)
        buffer = self.memory.buffer(name, type_, state.place.device, None, path, "operand")
        buffer.source = source
        if known is not None:
            state.cells.initialise(buffer, known)
        return ArrayValue(buffer, known)

    def evaluate(self, eqn: Any, args: tuple[Any, ...], state: State) -> Any:
        """A pure equation; one-element integer arrays are read as scalars."""
        known = tuple(self._element(a, state) if isinstance(a, ArrayValue) else a for a in args)
        return super().evaluate(eqn, known, state)

    def _element(self, array: ArrayValue, state: State) -> Any:
        buffer = array.buffer
        if array.data is None and math.prod(buffer.type.shape) == 1 and scalars_in(buffer.type):
            return state.cells.load(buffer.whole())
        return array.data

    def run_shard_map(
        self, form: Any, value: Any, state: State, eqn: Any, location: Any, stack: Any
    ) -> list[Outcome]:
        """The body as this device sees it."""
        count = math.prod(form.mesh.values())
        if state.place.device >= count:
            return [((None,) * len(eqn.outvars), state)]
        outer = state.place
        state.place = dataclasses.replace(outer, axes=device_axes(form.mesh, outer.device))
        operands = [
            self._shard(value(a), v.aval, spec, i, form, eqn, state)
            for i, (a, v, spec) in enumerate(zip(form.operands, form.jaxpr.inputs, form.in_specs))
        ]
        results = []
        for outs, path in self.run(form.jaxpr, operands, state):
            path.place = outer
            results.append((outs, path))
        return results

    def _shard(self, given: Any, aval: Any, spec: Any, i: int, form: Any, eqn: Any, state: State) -> Any:
        if not isinstance(given, ArrayValue):
            return given if given is not None or not aval.shape else None
        if all(entry is None for entry in spec):
            return given
        data = _shard_data(given.data, spec, form.mesh, state.place)
        path = ("shard", id(eqn), i)
        source = given.buffer.source
        name = given.buffer.name
        if source is not None and data is None:
            source = f"{source}@device{state.place.device}"
        shard = self._array(
            aval, name, path, scalars.concrete(data) if data is not None else None, state, source
        )
        shard.buffer.promised_like(given.buffer)
        return shard

    def unmodelled(self, what: str, location: Any) -> Unmodelled:
        """The exception for something without a model."""
        return Unmodelled(what, location)


def integers_of(value: Any) -> Buffer | None:
    """The buffer of an integer array; None for anything else."""
    return value.buffer if isinstance(value, ArrayValue) and scalars_in(value.buffer.type) else None


def scalars_in(type_: RefType) -> bool:
    """True for integer and boolean arrays."""
    return type_.semaphore is None and (type_.dtype.startswith(("int", "uint")) or type_.dtype == "bool")


def _shard_data(data: Any, spec: Any, mesh: dict[str, int], place: Place) -> Any:
    if data is None or not hasattr(data, "shape"):
        return None
    for dim, entry in enumerate(spec):
        axes = () if entry is None else entry if isinstance(entry, tuple) else (entry,)
        if not axes:
            continue
        index = 0
        for axis in axes:
            position, size = place.axis(axis)
            index = index * size + position
        parts = math.prod(mesh[a] for a in axes)
        size = data.shape[dim] // parts
        data = np.take(data, range(index * size, (index + 1) * size), axis=dim)
    return data


__all__ = ["ProgramInterpreter", "Topology", "device_axes", "terms"]
