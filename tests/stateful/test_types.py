"""Views and regions against sets of element indices, and the bytes that copies count."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateful import terms
from stateful._jax import transforms as jt
from stateful.types import MemorySpace, RefType, Region, View, progressions_meet, tiled_bytes

SHAPES = ((4, 6), (12,), (2, 3, 4), (2, 8, 4), (1, 6, 2), (3, 1, 4))


def whole(
    shape: tuple[int, ...], root: str = "x", dtype: str = "float32", space: Any = MemorySpace.VMEM
) -> View:
    return View.whole(root, RefType(shape, dtype, space))


def at(view: View, *indices: Any, read: Any = lambda x: x) -> View:
    """``view.at[indices]``: an int, a (start, size, stride) triple or a term for each dimension."""
    shape = tuple(n if isinstance(n, int) else 1 for n in view.shape)
    made = tuple(jt.Slice(*i) if isinstance(i, tuple) else i for i in indices)
    return view.transformed((jt.NDIndexer(made, shape, (), validate=False),), read)


def reshaped(view: View, shape: tuple[int, ...]) -> View:
    """``view.reshape(shape)``."""
    return view.transformed((jt.ReshapeTransform(shape),), lambda x: x)


def transposed(view: View, order: tuple[int, ...]) -> View:
    """``view.transpose(order)``."""
    return view.transformed((jt.TransposeTransform(order),), lambda x: x)


def bitcast(view: View, dtype: str) -> View:
    """``view.bitcast(dtype)``."""
    return view.transformed((jt.BitcastTransform(np.dtype(dtype)),), lambda x: x)


def elements(view: View) -> set[int]:
    """Flat indices of the elements of a view's region."""
    found = {0}
    for (start, size, step), extent in zip(view.ranges, view.system):
        assert isinstance(start, int)
        assert isinstance(size, int)
        found = {x * extent + start + k * step for x in found for k in range(size)}
    return found


# -- random nestings of transforms ------------------------------------------------------------------------------------


@st.composite
def slices(draw: st.DrawFn, extent: int) -> tuple[int, int, int]:
    """(start, size, stride) inside an axis."""
    start = draw(st.integers(0, extent - 1))
    stride = draw(st.sampled_from([1, 1, 1, 2, 3]))
    size = draw(st.integers(1, (extent - start - 1) // stride + 1))
    return draw(st.sampled_from([(0, extent, 1), (start, size, stride)]))


def factorisations(n: int, most: int = 3) -> list[tuple[int, ...]]:
    """Shapes of n elements with at most ``most`` axes."""
    if most == 1:
        return [(n,)]
    longer = [(k, *rest) for k in range(1, n + 1) if n % k == 0 for rest in factorisations(n // k, most - 1)]
    return [(n,), *longer]


@st.composite
def nestings(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[View, np.ndarray]:
    """A view under up to four transforms, and numpy's array of the flat indices it selects, in order."""
    view, array = whole(shape), np.arange(math.prod(shape)).reshape(shape)
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["index", "index", "transpose", "reshape"]))
        if kind == "index" and array.ndim:
            view, array = draw(indexings(view, array))
        elif kind == "transpose" and array.ndim > 1:
            order = tuple(draw(st.permutations(range(array.ndim))))
            view, array = transposed(view, order), array.transpose(order)
        elif kind == "reshape":
            new = draw(st.sampled_from(factorisations(array.size)))
            view, array = reshaped(view, new), array.reshape(new)
    return view, array


@st.composite
def indexings(draw: st.DrawFn, view: View, array: np.ndarray) -> tuple[View, np.ndarray]:
    """One more ``at[...]`` on both."""
    indices: list[Any] = []
    selected: list[Any] = []
    for extent in array.shape:
        if draw(st.booleans()) and draw(st.booleans()):
            indices.append(draw(st.integers(0, extent - 1)))
            selected.append(indices[-1])
        else:
            start, size, stride = draw(slices(extent))
            indices.append((start, size, stride))
            selected.append(slice(start, start + (size - 1) * stride + 1, stride))
    return at(view, *indices), array[tuple(selected)]


@st.composite
def two_nestings(draw: st.DrawFn) -> tuple[tuple[View, np.ndarray], tuple[View, np.ndarray]]:
    shape = draw(st.sampled_from(SHAPES))
    return draw(nestings(shape)), draw(nestings(shape))


@settings(max_examples=150)
@given(st.sampled_from(SHAPES).flatmap(nestings))
def test_a_view_covers_what_numpy_selects(nested: tuple[View, np.ndarray]) -> None:
    view, array = nested
    assert view.shape == array.shape
    covered = set(array.ravel().tolist())
    assert covered == elements(view) if view.exact else covered <= elements(view)
    assert view.region.out_of_bounds() is False


@settings(max_examples=150)
@given(two_nestings())
def test_overlap_is_that_of_the_index_sets(
    two: tuple[tuple[View, np.ndarray], tuple[View, np.ndarray]],
) -> None:
    (a, x), (b, y) = two
    meets = bool(np.intersect1d(x, y).size)
    answer = a.region.overlaps(b.region)
    assert answer is b.region.overlaps(a.region)
    assert answer is meets or (answer is None and not (a.exact and b.exact))


@settings(max_examples=150)
@given(two_nestings())
def test_containment_is_that_of_the_index_sets(
    two: tuple[tuple[View, np.ndarray], tuple[View, np.ndarray]],
) -> None:
    (a, x), (b, y) = two
    inside = bool(np.isin(y, x).all())
    answer = a.region.contains(b.region)
    assert answer is inside or (answer is None and not (a.exact and b.exact))


@settings(max_examples=80)
@given(st.tuples(*[st.tuples(st.integers(-5, 20), st.integers(0, 6), st.integers(1, 7))] * 2))
def test_progressions_meet_where_they_share_a_number(
    two: tuple[tuple[int, int, int], tuple[int, int, int]],
) -> None:
    first, second = ({start + step * k for k in range(size)} for start, size, step in two)
    assert progressions_meet(*two) is bool(first & second)


# -- known views ------------------------------------------------------------------------------------------------------


def test_other_memories_never_overlap() -> None:
    a, b = whole((8,), "x").region, whole((8,), "y").region
    assert a.overlaps(b) is False
    assert a.contains(b) is False


def test_shapes_after_transforms() -> None:
    view = at(whole((4, 8, 128)), 2, (0, 4, 2), (0, 128, 1))
    assert view.shape == (4, 128)
    assert transposed(view, (1, 0)).shape == (128, 4)
    assert reshaped(at(whole((4, 8, 128)), (1, 2, 1), (0, 8, 1), (0, 128, 1)), (16, 128)).shape == (16, 128)
    assert str(view) == "x[2, 0:8:2]"


def test_merging_whole_axes_stays_exact() -> None:
    stack = whole((4, 8, 128))
    rows = at(reshaped(stack, (32, 128)), (8, 8, 1), (0, 128, 1))
    for k in range(4):
        slab = at(stack, k, (0, 8, 1), (0, 128, 1))
        assert rows.exact
        assert rows.region.overlaps(slab.region) is (k == 1)
        assert rows.region.contains(slab.region) is (k == 1)


def test_a_bitcast_counts_the_second_minor_axis_anew() -> None:
    words = whole((8, 128))
    halves = bitcast(words, "int16")
    assert (halves.shape, halves.dtype) == ((16, 128), "int16")
    assert bitcast(halves, "float32").shape == (8, 128)
    upper = at(halves, (8, 8, 1), (0, 128, 1))
    for row in range(8):
        word = at(words, (row, 1, 1), (0, 128, 1)).region
        assert upper.region.overlaps(word) is (row >= 4)
        assert upper.region.contains(word) is (row >= 4)
    assert bitcast(words, "int32").region == words.region


def test_a_bitcast_that_splits_elements_is_a_superset() -> None:
    odd = at(whole((8, 128), dtype="int16"), (1, 4, 1), (0, 128, 1))
    cast = bitcast(odd, "float32")
    assert not cast.exact
    assert cast.region.overlaps(odd.region) is not False


# -- unknown starts ---------------------------------------------------------------------------------------------------

ROW = terms.symbol("i", 0, 3)
COLUMN = terms.symbol("j", 0, 3)
ATOM_ROW, ATOM_COLUMN = (s.parts[0][0] for s in (ROW, COLUMN) if isinstance(s, terms.Linear))


def slab(start: Any, size: int = 1) -> Region:
    return at(whole((8, 128)), ("start", size, 1), (0, 128, 1), read=lambda _: start).region


def test_equal_unknown_starts_are_the_same_region() -> None:
    assert slab(ROW).overlaps(slab(ROW)) is True
    assert slab(ROW).contains(slab(ROW)) is True


def test_a_known_distance_between_unknown_starts_decides() -> None:
    assert slab(ROW).overlaps(slab(terms.add(ROW, 1))) is False
    assert slab(ROW, 2).overlaps(slab(terms.add(ROW, 1))) is True
    assert slab(ROW, 3).contains(slab(terms.add(ROW, 1), 2)) is True
    assert slab(ROW, 2).contains(slab(terms.add(ROW, 1), 2)) is False


@settings(max_examples=100)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(-2, 2), st.integers(1, 2))
def test_the_overlap_predicate_says_for_which_values(n: int, m: int, shift: int, factor: int) -> None:
    a, b = slab(ROW, n), slab(terms.add(terms.scale(COLUMN, factor), shift), m)
    predicate = a.overlap(b)
    for i in range(4):
        for j in range(4):
            start = j * factor + shift
            meets = bool(set(range(i, i + n)) & set(range(start, start + m)))
            values = {ATOM_ROW: i, ATOM_COLUMN: j}
            assert terms.evaluate(predicate, values) is meets
            assert a.substituted(values).overlaps(b.substituted(values)) is meets
            assert a.contains(b) in (None, False) or set(range(start, start + m)) <= set(range(i, i + n))


def test_unknown_starts_may_be_out_of_bounds() -> None:
    n = terms.symbol("n", 0, 9)
    outside = slab(n, 2).out_of_bounds()
    assert isinstance(n, terms.Linear)
    atom = n.parts[0][0]
    for value in range(10):
        assert terms.evaluate(outside, {atom: value}) is (value + 2 > 8)
    assert slab(ROW, 4).out_of_bounds() is False
    assert slab(terms.add(ROW, 8)).out_of_bounds() is True


def test_an_unread_start_may_be_anywhere() -> None:
    somewhere = slab(None)
    assert not somewhere.exact
    assert somewhere.overlaps(slab(3)) is None
    assert somewhere.contains(slab(3)) is None
    assert somewhere.overlaps(whole((8, 128), "y").region) is False


# -- bytes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "dtype", "space", "expected"),
    [
        ((8, 64), "float32", MemorySpace.VMEM, 4096),
        ((8, 200), "float32", MemorySpace.VMEM, 8192),
        ((8, 128), "float32", MemorySpace.VMEM, 4096),
        ((2, 8, 128), "float32", MemorySpace.VMEM, 8192),
        ((16, 128), "bfloat16", MemorySpace.VMEM, 4096),
        ((8, 64), "float32", MemorySpace.SMEM, 2048),
        ((5,), "int32", MemorySpace.SMEM, 20),
        ((), "int32", MemorySpace.SMEM, 4),
    ],
)
def test_a_copy_counts_the_bytes_of_the_tiled_layout(
    shape: Any, dtype: str, space: Any, expected: int
) -> None:
    assert tiled_bytes(shape, shape, dtype, space) == expected
    assert whole(shape, dtype=dtype, space=space).nbytes == expected


def test_parts_of_a_tiled_memory_add_up() -> None:
    x = whole((16, 256))
    halves = [at(x, (8 * k, 8, 1), (0, 256, 1)).nbytes for k in range(2)]
    assert sum(n for n in halves if isinstance(n, int)) == x.nbytes == 16 * 256 * 4


def test_bytes_of_an_unknown_number_of_rows() -> None:
    n = terms.symbol("n", 1, 8)
    view = at(whole((8, 128)), (0, "n", 1), (0, 128, 1), read=lambda _: n)
    assert view.shape == (n, 128)
    assert view.nbytes == terms.scale(n, 512)
