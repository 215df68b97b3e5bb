"""Ref types, memory spaces, views of Refs and the regions they cover.

A :class:`View` is a Ref seen through JAX's transforms (``ref.at[...]``, ``reshape``, ``transpose``, ``bitcast``). Its
:class:`Region` says which elements of the underlying memory it covers, per dimension as ``(start, size, step)`` over
terms. Overlap and containment are exact where the values are known; otherwise the answer is None, with the predicate
under which they overlap (:meth:`Region.overlap`).

A reshape changes the coordinate system in which dimensions are counted; regions in different systems are brought to a
common one where one refines the other, else compared as sets of flat element indices.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
import math
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from stateful import terms
from stateful._jax import transforms as jt
from stateful.terms import Predicate, Term

Range = tuple[Term, Term, int]
Read = Callable[[Any], "Term | None"]


class MemorySpace(enum.Enum):
    """Where a Ref lives. The value is the name that JAX prints.

    The first group is the TPU's (JAX doc `pallas/tpu/details`), the second Mosaic GPU's.
    """

    ANY = "any"
    HBM = "hbm"
    VMEM = "vmem"
    VMEM_SHARED = "vmem_shared"
    SMEM = "smem"
    CMEM = "cmem"
    SEMAPHORE = "semaphore_mem"
    HOST = "host"
    DEFAULT = "default"
    ACCUMULATOR = "acc"
    OTHER = "other"

    GMEM = "gmem"
    GPU_SMEM = "gpu_smem"
    TMEM = "tmem"
    REGS = "regs"


class SemaphoreKind(enum.Enum):
    """The types of TPU semaphores: what may signal and wait on them is in ``stateful.semaphores``."""

    DMA = "dma"
    REGULAR = "regular"
    BARRIER = "barrier"


_SEMAPHORE_NAMES = {
    "dma_sem": SemaphoreKind.DMA,
    "semaphore": SemaphoreKind.REGULAR,
    "barrier_semaphore": SemaphoreKind.BARRIER,
}


def memory_space(space: Any) -> MemorySpace:
    """Our name for a memory space of JAX's (an enumeration member, a core-bound space, or None for an array)."""
    if space is None:
        return MemorySpace.DEFAULT
    if isinstance(space, jt.CoreMemorySpace):
        space = space.memory_space
    name = str(getattr(space, "value", space)).lower()
    if "mosaic_gpu" in type(space).__module__ and name == "smem":
        return MemorySpace.GPU_SMEM
    if name.startswith("acc"):
        return MemorySpace.ACCUMULATOR
    if name in ("index",):
        return MemorySpace.SMEM
    return MemorySpace(name) if name in MemorySpace._value2member_map_ else MemorySpace.OTHER


@dataclass(frozen=True, slots=True)
class RefType:
    """Shape, dtype name, memory space, and the kind of semaphore where it holds semaphores.

    ``core`` is the kind of core (as in :attr:`stateful.kernel_forms.Program.core`) whose memory it is, where the
    program says so; None for memory of whichever core runs.
    """

    shape: tuple[int, ...]
    dtype: str
    space: MemorySpace
    semaphore: SemaphoreKind | None = None
    core: str | None = None

    def __str__(self) -> str:
        what = f"{self.semaphore.value} semaphore" if self.semaphore else self.dtype
        return f"{what}[{','.join(map(str, self.shape))}] in {self.space.value.upper()}"


def ref_type(aval: Any) -> RefType:
    """The type of a Ref or array from its abstract value in a jaxpr."""
    inner = getattr(aval, "inner_aval", aval)
    shape = tuple(d if isinstance(d, int) else -1 for d in getattr(inner, "shape", ()))
    dtype = getattr(inner, "dtype", None)
    name = str(getattr(dtype, "name", dtype))
    semaphore = _SEMAPHORE_NAMES.get(name)
    given = getattr(aval, "memory_space", None)
    space = memory_space(given)
    if semaphore is not None and space is MemorySpace.DEFAULT:
        space = MemorySpace.SEMAPHORE
    return RefType(shape, name, space, semaphore, jt.core_of(given))


def item_bits(dtype: str) -> int:
    """Bits per element; 32 for dtypes that numpy does not know and whose name ends in no number."""
    digits = "".join(c if c.isdigit() else " " for c in dtype.split("_")[0]).split()
    if dtype == "bool":
        return 8
    return int(digits[0]) if digits else 32


# -- regions ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Region:
    """Elements of one memory: ``ranges[d] = (start, size, step)`` in the coordinate ``system`` of that memory.

    ``exact`` is False where the region is a superset (an index was not known, or a reshape had no strided form).
    """

    root: Hashable
    system: tuple[int, ...]
    ranges: tuple[Range, ...]
    exact: bool = True

    def overlaps(self, other: Region) -> bool | None:
        """True, False, or None where it depends on symbols or a superset."""
        answer = self.overlap(other)
        if answer is True and not (self.exact and other.exact and _is_comparable(self, other)):
            return None
        return answer if isinstance(answer, bool) else None

    def overlap(self, other: Region) -> Predicate:
        """The predicate over the symbols under which the two regions share an element.

        For supersets it is the predicate under which the supersets do.
        """
        if self.root != other.root:
            return False
        a, b = self, other
        if a.system != b.system:
            aligned = _aligned(a, b)
            if aligned is None:
                return _flat_overlap(a, b)
            a, b = aligned
        return terms.logical_and(*(_range_overlap(r, s) for r, s in zip(a.ranges, b.ranges)))

    def contains(self, other: Region) -> bool | None:
        """True when every element of ``other`` is in this region; None where that is not decided."""
        if self.root != other.root:
            return False
        a, b = self, other
        if a.system != b.system:
            aligned = _aligned(a, b)
            if aligned is None:
                return _flat_contains(a, b)
            a, b = aligned
        answers = [_range_contains(r, s) for r, s in zip(a.ranges, b.ranges)]
        if False in answers:
            return False if b.exact else None
        return True if self.exact and None not in answers else None

    @property
    def is_known(self) -> bool:
        """True when all starts and sizes are known integers."""
        return all(type(s) is int and type(n) is int for s, n, _ in self.ranges)

    def substituted(self, values: Any) -> Region:
        """The region with symbols replaced."""
        if self.is_known:
            return self
        ranges = tuple(
            (terms.substitute(s, values), terms.substitute(n, values), d) for s, n, d in self.ranges
        )
        return Region(self.root, self.system, ranges, self.exact)

    def out_of_bounds(self) -> Predicate:
        """The predicate under which some element lies outside the memory."""
        parts: list[Predicate] = []
        for (start, size, step), extent in zip(self.ranges, self.system):
            if type(start) is int and type(size) is int:
                if size > 0 and (start < 0 or start + (size - 1) * step >= extent):
                    return True
                continue
            last = terms.add(start, terms.scale(terms.sub(size, 1), step))
            outside = terms.logical_or(terms.lt(start, 0), terms.le(extent, last))
            parts.append(terms.logical_and(terms.lt(0, size), outside))
        return terms.logical_or(*parts)

    def __str__(self) -> str:
        inside = [_range_text(r, extent) for r, extent in zip(self.ranges, self.system)]
        while inside and inside[-1] == ":":
            inside.pop()
        return f"{self.root}[{', '.join(inside)}]" if inside else f"{self.root}[...]"


def _range_text(r: Range, extent: int) -> str:
    start, size, step = r
    if start == 0 and size == extent and step == 1:
        return ":"
    if size == 1:
        return str(start)
    if step != 1:
        return f"{start}:{terms.add(start, terms.scale(size, step))}:{step}"
    return f"{start}:{terms.add(start, size)}"


def _range_overlap(a: Range, b: Range) -> Predicate:
    (s1, n1, d1), (s2, n2, d2) = a, b
    if a == b and type(n1) is int:
        return n1 > 0
    if type(s1) is int and type(s2) is int and type(n1) is int and type(n2) is int:
        return progressions_meet((s1, n1, d1), (s2, n2, d2))
    gap = terms.sub(s1, s2)
    if type(gap) is int and type(n1) is int and type(n2) is int:
        return progressions_meet((gap, n1, d1), (0, n2, d2))
    last1 = terms.add(gap, terms.scale(terms.sub(n1, 1), d1))
    last2 = terms.scale(terms.sub(n2, 1), d2)
    parts = [terms.lt(0, n1), terms.lt(0, n2), terms.le(0, last1), terms.le(gap, last2)]
    common = math.gcd(d1, d2)
    if common > 1:
        parts.append(terms.eq(terms.mod(gap, common), 0))
    return terms.logical_and(*parts)


def _range_contains(a: Range, b: Range) -> bool | None:
    (s1, n1, d1), (s2, n2, d2) = a, b
    if a == b:
        return True
    gap = terms.sub(s2, s1)
    if type(gap) is not int or type(n1) is not int or type(n2) is not int:
        inside = terms.logical_and(
            terms.le(0, gap), terms.le(terms.add(gap, terms.scale(n2, d2)), terms.scale(n1, d1))
        )
        return inside if isinstance(inside, bool) and d1 == 1 else None
    if n2 <= 0:
        return True
    last = gap + (n2 - 1) * d2
    on_grid = gap % d1 == 0 and (n2 == 1 or d2 % d1 == 0)
    return on_grid and gap >= 0 and last <= (n1 - 1) * d1


def progressions_meet(a: tuple[int, int, int], b: tuple[int, int, int]) -> bool:
    """True when ``{start + step * k, 0 <= k < size}`` of both share a number (Chinese remainder theorem)."""
    (s1, n1, d1), (s2, n2, d2) = a, b
    if n1 <= 0 or n2 <= 0:
        return False
    low, high = max(s1, s2), min(s1 + (n1 - 1) * d1, s2 + (n2 - 1) * d2)
    if low > high:
        return False
    if d1 == 1 and d2 == 1:
        return True
    g = math.gcd(d1, d2)
    if (s2 - s1) % g:
        return False
    m = d2 // g
    k = (s2 - s1) // g * pow(d1 // g, -1, m) % m if m > 1 else 0
    lcm = d1 * m
    first = s1 + d1 * k
    first += -(-(low - first) // lcm) * lcm
    return first <= high


# -- regions in different coordinate systems ------------------------------------------------------------------------


def _aligned(a: Region, b: Region) -> tuple[Region, Region] | None:
    """Both regions in one system where that is possible without losing exactness, else None."""
    for first, second, swapped in ((a, b, False), (b, a, True)):
        moved = _refined(first, second.system)
        if moved is not None:
            return (second, moved) if swapped else (moved, second)
    return None


def _refined(region: Region, system: tuple[int, ...]) -> Region | None:
    """The region in a finer system (each of its dimensions a product of consecutive new ones), or None."""
    if len(system) == len(region.system):
        return _rescaled(region, system)
    ranges: list[Range] = []
    i = 0
    for extent, r in zip(region.system, region.ranges):
        group: list[int] = []
        while (
            i < len(system)
            and math.prod(group) * system[i] <= extent
            and (math.prod(group) < extent or system[i] == 1)
        ):
            group.append(system[i])
            i += 1
        if math.prod(group) != extent:
            return None
        split = _split_range(r, extent, group)
        if split is None:
            return None
        ranges += split
    return Region(region.root, system, tuple(ranges), region.exact) if i == len(system) else None


def _rescaled(region: Region, system: tuple[int, ...]) -> Region | None:
    """The same rank, some dimensions finer by a whole factor (a bitcast of the second-minor dimension)."""
    ranges: list[Range] = []
    for old, new, (start, size, step) in zip(region.system, system, region.ranges):
        if new % old:
            return None
        f = new // old
        if f > 1 and step != 1:
            return None
        ranges.append((terms.scale(start, f), terms.scale(size, f), step))
    return Region(region.root, system, tuple(ranges), region.exact)


def _split_range(r: Range, extent: int, group: list[int]) -> list[Range] | None:
    """One range over ``extent`` as ranges over the factors of it in ``group``, outermost first; None if not a box."""
    start, size, step = r
    if len(group) == 1:
        return [r]
    if start == 0 and size == extent and step == 1:
        return [(0, g, 1) for g in group]
    if step != 1:
        return None
    inner = math.prod(group[1:])
    if type(size) is int and size % inner == 0 and terms.mod(start, inner) == 0:
        return [(terms.floordiv(start, inner), size // inner, 1), *((0, g, 1) for g in group[1:])]
    low = terms.mod(start, inner)
    if type(low) is int and type(size) is int and low + size <= inner:
        rest = _split_range((low, size, 1), inner, group[1:])
        return None if rest is None else [(terms.floordiv(start, inner), 1, 1), *rest]
    return None


_FLAT_LIMIT = 1 << 20


def _flat(region: Region) -> np.ndarray | None:
    """Sorted flat element indices where known and few enough, else None."""
    if not region.is_known or math.prod(max(0, int(n)) for _, n, _ in region.ranges) > _FLAT_LIMIT:  # type: ignore[arg-type]
        return None
    index = np.zeros((1,), np.int64)
    for (start, size, step), extent in zip(region.ranges, region.system):
        along = int(start) + step * np.arange(int(size))  # type: ignore[arg-type]
        index = (index[:, None] * extent + along[None, :]).ravel()
    return index


def _is_comparable(a: Region, b: Region) -> bool:
    """True where it is decided element by element whether two regions meet."""
    if a.system == b.system or _aligned(a, b) is not None:
        return True
    return math.prod(a.system) == math.prod(b.system) and _flat(a) is not None and _flat(b) is not None


def _flat_bounds(region: Region) -> tuple[Term, Term]:
    low: Term = 0
    high: Term = 0
    for (start, size, step), extent in zip(region.ranges, region.system):
        low = terms.add(terms.scale(low, extent), start)
        last = terms.add(start, terms.scale(terms.sub(size, 1), step))
        high = terms.add(terms.scale(high, extent), last)
    return low, high


def _flat_overlap(a: Region, b: Region) -> Predicate:
    leading = _leading_overlap(a, b)
    if leading is False:
        return False
    if math.prod(a.system) != math.prod(b.system):
        return leading
    x, y = _flat(a), _flat(b)
    if x is not None and y is not None:
        return bool(np.intersect1d(x, y, assume_unique=True).size)
    (alo, ahi), (blo, bhi) = _flat_bounds(a), _flat_bounds(b)
    return terms.logical_and(terms.le(alo, bhi), terms.le(blo, ahi))


def _leading_overlap(a: Region, b: Region) -> Predicate:
    """Whether the outermost dimensions meet, as far as both systems agree on them: what is inside them differs only."""
    parts: list[Predicate] = []
    for m, n, r, s in zip(a.system, b.system, a.ranges, b.ranges):
        if m != n:
            break
        parts.append(_range_overlap(r, s))
    return terms.logical_and(*parts)


def _flat_contains(a: Region, b: Region) -> bool | None:
    x, y = _flat(a), _flat(b)
    if x is None or y is None or not a.exact:
        return None
    return bool(np.isin(y, x, assume_unique=True).all())


# -- views -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class View:
    """A Ref seen through transforms.

    ``axes[i]`` is the dimension of the coordinate system that logical axis i walks, or None where the axis has no
    dimension of its own (size one, or lost in a reshape without strided form; then ``exact`` is False).
    ``loose`` are the sizes of such axes.
    """

    root: Hashable
    type: RefType
    system: tuple[int, ...]
    ranges: tuple[Range, ...]
    axes: tuple[int | None, ...]
    loose: tuple[Term, ...]
    dtype: str
    exact: bool = True

    @staticmethod
    def whole(root: Hashable, type_: RefType) -> View:
        """The untransformed Ref."""
        rank = len(type_.shape)
        ranges: tuple[Range, ...] = tuple((0, n, 1) for n in type_.shape)
        return View(root, type_, type_.shape, ranges, tuple(range(rank)), (1,) * rank, type_.dtype)

    @property
    def shape(self) -> tuple[Term, ...]:
        """Logical shape; dynamic sizes are terms."""
        return tuple(loose if d is None else self.ranges[d][1] for d, loose in zip(self.axes, self.loose))

    @property
    def region(self) -> Region:
        """The elements covered."""
        return Region(self.root, self.system, self.ranges, self.exact)

    @property
    def nbytes(self) -> Term:
        """Bytes that a DMA of this view counts: those of its tiled, padded layout."""
        return tiled_bytes(self.shape, self.type.shape, self.dtype, self.type.space)

    def __str__(self) -> str:
        return str(self.region)

    def element(self, indices: tuple[Term | None, ...]) -> View:
        """One element of an untransformed Ref; anywhere along a dimension whose index is None."""
        ranges, exact = list(self.ranges), self.exact
        for d, i in enumerate(indices):
            ranges[d], exact = _narrowed(ranges[d], i, 1, 1, exact)
        return self._with(ranges=tuple(ranges), axes=(), loose=(), exact=exact)

    def transformed(self, transforms: tuple[Any, ...], read: Read) -> View:
        """The view through JAX transform objects; ``read(atom)`` gives the term of an index, None if unknown."""
        view = self
        for t in transforms:
            view = _apply(view, t, read)
        return view

    def _with(self, **changes: Any) -> View:
        return dataclasses.replace(self, **changes)


def _apply(view: View, t: Any, read: Read) -> View:
    if isinstance(t, jt.NDIndexer):
        return _indexed(view, t, read)
    if isinstance(t, jt.ReshapeTransform):
        return _reshaped(view, tuple(t.shape))
    if isinstance(t, jt.TransposeTransform):
        order = t.permutation
        return view._with(axes=tuple(view.axes[i] for i in order), loose=tuple(view.loose[i] for i in order))
    if isinstance(t, jt.BitcastTransform):
        return _bitcast(view, str(np.dtype(t.dtype).name) if not hasattr(t.dtype, "name") else t.dtype.name)
    if jt.is_neutral(t):
        return view
    return view._with(exact=False, axes=(), loose=())


def _indexed(view: View, indexer: Any, read: Read) -> View:
    if not view.exact and len(view.axes) != len(indexer.indices):
        return view  # already a superset through a transform without a model
    ranges = list(view.ranges)
    axes: list[int | None] = []
    loose: list[Term] = []
    exact = view.exact
    gathered = len(indexer.int_indexer_shape) > 0
    gather_placed = False
    for index, dim, slack in zip(indexer.indices, view.axes, view.loose):
        if isinstance(index, jt.Slice):
            start, size = _value(index.start, read), _value(index.size, read)
            axes.append(dim)
            loose.append(slack if size is None else size)
            if dim is None:
                exact = exact and (slack == 1 or (start == 0 and size == slack))
            else:
                ranges[dim], exact = _narrowed(ranges[dim], start, size, index.stride, exact)
        elif gathered:
            exact = False
            if not gather_placed:
                axes += [None] * len(indexer.int_indexer_shape)
                loose += [n if isinstance(n, int) else 1 for n in indexer.int_indexer_shape]
                gather_placed = True
        elif dim is None:
            exact = exact and slack == 1
        else:
            ranges[dim], exact = _narrowed(ranges[dim], _value(index, read), 1, 1, exact)
    return view._with(ranges=tuple(ranges), axes=tuple(axes), loose=tuple(loose), exact=exact)


def _value(x: Any, read: Read) -> Term | None:
    return x if type(x) is int else int(x) if isinstance(x, np.integer) else read(x)


def _narrowed(
    old: Range, start: Term | None, size: Term | None, stride: int, exact: bool
) -> tuple[Range, bool]:
    first, _, step = old
    if start is None or size is None:
        return old, False
    if type(start) is int and type(first) is int:
        return (first + start * step, size, step * stride), exact
    return (terms.add(first, terms.scale(start, step)), size, step * stride), exact


def _bitcast(view: View, dtype: str) -> View:
    """JAX's bitcast of a Ref changes the second-minor axis by the ratio of the widths (the sublane packing)."""
    old, new = item_bits(view.dtype), item_bits(dtype)
    if old == new or len(view.axes) < 2:
        return view._with(dtype=dtype)
    dim = view.axes[-2]
    if dim is None:
        return view._with(dtype=dtype, exact=False)
    start, size, step = view.ranges[dim]
    up, down = old // math.gcd(old, new), new // math.gcd(old, new)
    start, size = terms.scale(start, up), terms.scale(size, up)
    extent = view.system[dim] * up
    whole = all(type(terms.mod(x, down)) is int and terms.mod(x, down) == 0 for x in (start, size, extent))
    if step != 1 or not whole:
        return view._with(dtype=dtype, exact=False)
    ranges, system = list(view.ranges), list(view.system)
    ranges[dim] = (terms.floordiv(start, down), terms.floordiv(size, down), 1)
    system[dim] = extent // down
    return view._with(dtype=dtype, ranges=tuple(ranges), system=tuple(system))


def _reshaped(view: View, shape: tuple[int, ...]) -> View:
    rank = len(view.system)
    untouched = view.axes == tuple(range(rank)) and all(
        r == (0, n, 1) for r, n in zip(view.ranges, view.system)
    )
    if untouched and view.exact:
        ranges: tuple[Range, ...] = tuple((0, n, 1) for n in shape)
        return view._with(system=shape, ranges=ranges, axes=tuple(range(len(shape))), loose=(1,) * len(shape))
    regrouped = _regrouped(view, shape)
    if regrouped is not None:
        return regrouped
    return view._with(axes=(None,) * len(shape), loose=shape, exact=False)


def _groups(old: tuple[int, ...], new: tuple[int, ...]) -> Iterator[tuple[list[int], list[int]]]:
    """Runs of old and new axes with equal products, as short as possible."""
    i = j = 0
    while i < len(old) or j < len(new):
        left, right = [], []
        a = b = 1
        while not left or not right or a != b:
            if (a <= b and i < len(old)) or j >= len(new):
                if i >= len(old):
                    break
                a *= old[i]
                left.append(i)
                i += 1
            else:
                b *= new[j]
                right.append(j)
                j += 1
            if a == b and (left or right) and (a != 1 or (left and right) or i >= len(old) or j >= len(new)):
                break
        yield left, right


def _regrouped(view: View, shape: tuple[int, ...]) -> View | None:
    """A reshape that only splits, merges, drops or inserts whole axes; None if it is not of that form."""
    old_shape = view.shape
    if not all(type(n) is int for n in old_shape) or 0 in shape:
        return None
    plan: list[tuple[int | None, list[int], list[Range], int]] = []  # (dim, extents, ranges, merged dims)
    for left, right in _groups(old_shape, shape):  # type: ignore[arg-type]
        step = _regroup_step(view, [a for a in left if old_shape[a] != 1], [shape[j] for j in right])
        if step is None:
            return None
        plan.append(step)
    return _carry_out(view, shape, plan)


def _regroup_step(
    view: View, left: list[int], sizes: list[int]
) -> tuple[int | None, list[int], list[Range], int] | None:
    dims = [view.axes[a] for a in left]
    if not dims:
        return None if math.prod(sizes) != 1 else (None, [], [], 0)
    if None in dims or any(b != a + 1 for a, b in itertools.pairwise(dims)):  # type: ignore[operator]
        return None
    first = dims[0]
    assert first is not None
    for d in dims[1:]:
        if view.ranges[d] != (0, view.system[d], 1):  # type: ignore[index]
            return None
    start, size, step = view.ranges[first]
    if step != 1 and (len(dims) > 1 or len([n for n in sizes if n != 1]) > 1):
        return None
    inner = math.prod(view.system[d] for d in dims[1:])  # type: ignore[index]
    merged: Range = (terms.scale(start, inner), terms.scale(size, inner), step)
    extent = view.system[first] * inner
    factors = [n for n in sizes if n != 1]
    if len(factors) <= 1:
        return first, [extent], [merged], len(dims)
    below = math.prod(factors[1:])
    if extent % below:
        return None
    extents = [extent // below, *factors[1:]]
    split = _split_range(merged, extent, extents)
    return None if split is None else (first, extents, split, len(dims))


def _carry_out(
    view: View, shape: tuple[int, ...], plan: list[tuple[int | None, list[int], list[Range], int]]
) -> View:
    replaced = {dim: (extents, ranges, merged) for dim, extents, ranges, merged in plan if dim is not None}
    system: list[int] = []
    ranges: list[Range] = []
    position: dict[int, int] = {}
    d = 0
    while d < len(view.system):
        if d in replaced:
            extents, new, merged = replaced[d]
            position[d] = len(system)
            system += extents
            ranges += new
            d += merged
        else:
            system.append(view.system[d])
            ranges.append(view.ranges[d])
            d += 1
    axes: list[int | None] = []
    queue = [position[dim] + k for dim, extents, _, _ in plan if dim is not None for k in range(len(extents))]
    wide = [n for n in shape if n != 1]
    queue = [q for q in queue if ranges[q][1] != 1 or len(queue) == len(wide)]
    for n in shape:
        axes.append(queue.pop(0) if n != 1 and queue else None)
    return view._with(system=tuple(system), ranges=tuple(ranges), axes=tuple(axes), loose=shape)


# -- bytes on a semaphore ---------------------------------------------------------------------------------------------

_LANES, _SUBLANES = 128, 8


def _tile_rows(rows: int, packing: int) -> int:
    """Rows of a tile for a memory of so many rows: the next power of two, within [packing, 8]."""
    return min(max(1 << max(0, rows - 1).bit_length(), packing), _SUBLANES)


def tiled_bytes(shape: tuple[Term, ...], base: tuple[int, ...], dtype: str, space: MemorySpace) -> Term:
    """Bytes that a DMA of a view of ``shape`` of a memory of shape ``base`` counts on its semaphore.

    The minor dimension is padded to 128 lanes, the second-minor to its tile where the view covers it whole. Measured
    with the TPU compiler: ``f32[8, 64]`` counts 4096, ``f32[8, 200]`` 8192. SMEM and host memory are not tiled.
    """
    bits = item_bits(dtype)
    if space in (MemorySpace.SMEM, MemorySpace.HOST) or not shape:
        padded: list[Term] = list(shape)
    else:
        padded = [*shape[:-1], _padded(shape[-1], _LANES)]
        if len(shape) >= 2 and len(base) >= 2 and type(shape[-2]) is int and shape[-2] == base[-2]:
            padded[-2] = _padded(shape[-2], _tile_rows(base[-2], max(1, 32 // bits)))
    total: Term = 1
    for n in padded:
        total = terms.mul(total, n)
    return terms.floordiv(terms.scale(total, bits), 8)


def _padded(n: Term, multiple: int) -> Term:
    if type(n) is int:
        return -(-n // multiple) * multiple
    return terms.scale(terms.floordiv(terms.add(n, multiple - 1), multiple), multiple)
