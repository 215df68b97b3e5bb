"""Buffers and what is known of the integers in them.

A :class:`Buffer` is one piece of memory of one device (and core, for memory that each core has of its own). Its
``path`` says how the program came by it ("call 0, scratch 2"), and is the same on every device of an SPMD program: a
remote copy or signal reaches the buffer with the same path on another device (:meth:`Memory.counterpart`).

:class:`Cells` follow integer scalars that a kernel keeps in memory (slot ids, counters, prefetched lengths): a scalar
loaded from memory is the symbol of (buffer, index, version), so that loading it twice gives the same symbol.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from asyncops.checker import scalars
from stateful import terms
from stateful.memories import Namer
from stateful.types import MemorySpace, RefType, Region, View

Path = tuple[Hashable, ...]


class Buffer:
    """One piece of memory. Compared by identity; :class:`Memory` makes one per (device, core, path)."""

    __slots__ = (
        "bounds",
        "core",
        "device",
        "is_increasing",
        "name",
        "parent",
        "path",
        "role",
        "source",
        "type",
    )

    def __init__(self, name: str, type_: RefType, device: int, core: Any, path: Path, role: str):
        self.name, self.type, self.device, self.core, self.path, self.role = (
            name,
            type_,
            device,
            core,
            path,
            role,
        )
        self.source: Any = None  # a program argument's name, for symbols; None for memory made by the program
        self.parent: Buffer | None = None
        self.bounds: tuple[int | None, int | None] = (None, None)  # of every element, as the caller promises
        self.is_increasing = False

    def promised_like(self, other: Buffer) -> None:
        """The elements are those of another buffer: what is promised of them holds here."""
        self.bounds, self.is_increasing = other.bounds, other.is_increasing

    def __repr__(self) -> str:
        return self.name

    @property
    def is_semaphore(self) -> bool:
        """True for semaphores and arrays of them."""
        return self.type.semaphore is not None

    def whole(self) -> View:
        """The buffer as an untransformed view."""
        return View.whole(self, self.type)


class Memory:
    """All buffers of a run, by device, core and path."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[int, Any, Path], Buffer] = {}
        self.volatile: set[Path] = set()  # what other cores change while a core runs
        self.namer = Namer()
        self.ref_names: dict[int, str] = {}  # by the equation that makes the Ref
        self.ref_of: dict[Buffer, int] = {}  # the equation that made a Ref of it first

    def buffer(self, name: str, type_: RefType, device: int, core: Any, path: Path, role: str) -> Buffer:
        """The buffer with that path on that device, made where it is new."""
        key = (device, core, path)
        found = self._buffers.get(key)
        if found is None:
            found = self._buffers[key] = Buffer(name, type_, device, core, path, role)
        return found

    def counterpart(self, buffer: Buffer, device: int, core: Any) -> Buffer:
        """The buffer that ``buffer`` is on another device or core."""
        core = None if buffer.core is None else core
        found = self.buffer(buffer.name, buffer.type, device, core, buffer.path, buffer.role)
        if found.parent is None and buffer.parent is not None:
            found.parent = self.counterpart(buffer.parent, device, core)
        return found


@dataclass(slots=True)
class _Content:
    """What is known of one buffer: values at index tuples, and the initial array while it is not overwritten."""

    version: terms.Term
    values: dict[tuple[Any, ...], Any]
    initial: np.ndarray | None

    def copy(self) -> _Content:
        return _Content(self.version, dict(self.values), self.initial)


class Cells:
    """The integers known to be in memory, per buffer."""

    __slots__ = ("contents",)

    def __init__(self, contents: dict[Buffer, _Content] | None = None):
        self.contents = contents if contents is not None else {}

    def fork(self) -> Cells:
        """An independent copy."""
        return Cells({b: c.copy() for b, c in self.contents.items()})

    def initialise(self, buffer: Buffer, value: Any) -> None:
        """Says what the buffer holds: a known array, or a scalar term in a one-element buffer."""
        if isinstance(value, np.ndarray):
            self.contents[buffer] = _Content(0, {}, value)
        elif scalars.is_scalar(value):
            self.contents[buffer] = _Content(0, {(0,) * len(buffer.type.shape): value}, None)

    def renew(self, buffer: Buffer, version: terms.Term) -> None:
        """The buffer holds unknown values that it never held before."""
        if holds_integers(buffer):
            self.contents[buffer] = _Content(version, {}, None)

    def version(self, buffer: Buffer) -> terms.Term:
        """How often the whole buffer may have changed."""
        content = self.contents.get(buffer)
        return content.version if content else 0

    def initial(self, buffer: Buffer) -> np.ndarray | None:
        """The known array that the buffer still holds unchanged, or None."""
        content = self.contents.get(buffer)
        return content.initial if content and not content.values else None

    def load(self, view: View, name: str | None = None) -> Any:
        """The value of a one-element view of an integer or boolean buffer: known, or its symbol."""
        buffer: Buffer = view.root  # type: ignore[assignment]
        content = self.contents.get(buffer)
        if content is None:
            content = self.contents[buffer] = _Content(0, {}, None)
        region = view.region
        key = tuple(start for start, _, _ in region.ranges)
        plain = region.system == buffer.type.shape and region.exact
        if plain and key in content.values:
            return content.values[key]
        if plain and content.initial is not None:
            known = _known_element(content.initial, key)
            if known is not None:
                return known
        return self._symbol(buffer, content, key, name)

    def _symbol(self, buffer: Buffer, content: _Content, key: Any, name: str | None) -> Any:
        text = name or buffer.source or _unique_name(buffer)
        if content.initial is not None and content.initial.size and content.initial.dtype != np.bool_:
            low, high = int(content.initial.min()), int(content.initial.max())
            return terms.element(text, key, content.version, low, high)
        return scalars.fresh(text, np.dtype(buffer.type.dtype), key, content.version, buffer.bounds)

    def order(self, view: View) -> terms.Predicate:
        """What an increasing array says of a loaded element and its neighbours."""
        buffer: Buffer = view.root  # type: ignore[assignment]
        if not buffer.is_increasing or self.version(buffer) != 0 or len(view.ranges) != 1:
            return True
        ((start, _, _),) = view.ranges
        name, (low, high) = buffer.source or _unique_name(buffer), buffer.bounds
        near = [terms.element(name, (terms.add(start, d),), 0, low, high) for d in (-1, 0, 1)]
        before = terms.le(near[0], near[1]) if start != 0 else True
        after = terms.le(near[1], near[2]) if start != buffer.type.shape[0] - 1 else True
        return terms.logical_and(before, after)

    def store(self, view: View, value: Any) -> None:
        """A store of ``value`` (a scalar, or None for anything else)."""
        buffer: Buffer = view.root  # type: ignore[assignment]
        if not holds_integers(buffer):
            return
        content = self.contents.get(buffer)
        if content is None:
            content = self.contents[buffer] = _Content(0, {}, None)
        region = view.region
        one = all(size == 1 for _, size, _ in region.ranges)
        if not one or not region.exact or region.system != buffer.type.shape:
            self._forget(content, value, region)
            return
        key = tuple(start for start, _, _ in region.ranges)
        if not all(type(s) is int for s in key):
            content.version = terms.add(content.version, 1)
            content.values = {k: v for k, v in content.values.items() if _distinct(k, key)}
            content.initial = None
        elif content.initial is not None and type(value) is int and all(type(s) is int for s in key):
            content.initial = content.initial.copy()
            content.initial[tuple(map(int, key))] = value  # type: ignore[arg-type]
            content.values.pop(key, None)
            return
        else:
            content.values = {k: v for k, v in content.values.items() if k == key or _distinct(k, key)}
        if scalars.is_scalar(value):
            content.values[key] = value
        else:
            content.version = terms.add(content.version, 1)
            content.values.pop(key, None)

    def _forget(self, content: _Content, value: Any, region: Region) -> None:
        content.version = terms.add(content.version, 1)
        content.values = {}
        whole = all(r == (0, n, 1) for r, n in zip(region.ranges, region.system))
        if isinstance(value, np.ndarray) and whole and value.size == int(np.prod(region.system)):
            content.initial = value.reshape(region.system)
        elif whole and type(value) is int and region.exact:
            content.initial = np.full(region.system, value)
        else:
            content.initial = None

    def disturb(self, buffer: Buffer) -> None:
        """Something else may have written the buffer."""
        if not holds_integers(buffer):
            return
        content = self.contents.setdefault(buffer, _Content(0, {}, None))
        content.version = terms.add(content.version, 1)
        content.values, content.initial = {}, None


def holds_integers(buffer: Buffer) -> bool:
    """True where following the contents can matter: integers and booleans, no semaphores."""
    dtype = buffer.type.dtype
    return buffer.type.semaphore is None and (dtype.startswith(("int", "uint")) or dtype == "bool")


def _known_element(array: np.ndarray, key: tuple[Any, ...]) -> Any:
    if len(key) != array.ndim or not all(type(k) is int for k in key):
        return None
    if any(not 0 <= k < n for k, n in zip(key, array.shape)):
        return None
    return scalars.concrete(array[key])


def _distinct(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    return any(terms.ne(x, y) is True for x, y in zip(a, b))


def _unique_name(buffer: Buffer) -> str:
    place = "" if buffer.device == 0 else f"@device{buffer.device}"
    core = "" if buffer.core is None else f"@{buffer.core}"
    return f"{buffer.name}{place}{core}"


PER_CORE_SPACES = {MemorySpace.VMEM, MemorySpace.SMEM, MemorySpace.SEMAPHORE, MemorySpace.CMEM}
"""Memory that each core has of its own (JAX doc `pallas/tpu/details`)."""
