"""Types of values: memory spaces, padding, and texts that are no types."""

from __future__ import annotations

import pytest

from asyncops.compiled.shapes import UNKNOWN, parse_shape


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("f32[]", 4),
        ("f32[8,128]{1,0:T(8,128)}", 4096),
        ("f32[8,200]{1,0:T(8,128)}", 8192),  # padded to 256 lanes
        ("f32[3,128]{1,0:T(8,128)S(1)}", 4096),  # padded to 8 sublanes
        ("f32[200,8]{0,1:T(8,128)}", 8192),  # the first dimension is the minor one
        ("bf16[16,128]{1,0:T(8,128)(2,1)}", 4096),
        ("s4[8,128]", 512),
        ("pred[8]", 8),
        ("f8e4m3fn[16]", 16),
        ("c64[4]", 32),
        ("(f32[2], /*index=1*/(s32[], u8[3]))", 8 + 4 + 3),
        ("token[]", 0),
    ],
)
def test_bytes(text, nbytes):
    assert parse_shape(text).nbytes == nbytes


def test_memory_spaces():
    shape = parse_shape("(s32[]{:S(2)}, f32[4,4]{1,0:T(4,128)S(1)}, f32[4]{0})")
    assert [leaf.place for leaf in shape.leaves()] == ["semaphores", "VMEM", "HBM"]
    assert [leaf.is_semaphore for leaf in shape.leaves()] == [True, False, False]


def test_pinned_buffers():
    shape = parse_shape("b(f32[8,128]{1,0})")
    assert shape.pinned
    assert shape.dims == (8, 128)


@pytest.mark.parametrize(
    "text", ["", "f32", "f32[a]", "f32[8", "(f32[8]", "(f32[8]))", "[8]", "f32[-1]", "f32[8]x"]
)
def test_no_types(text):
    assert parse_shape(text) is UNKNOWN


def test_bounded_dimensions():
    assert parse_shape("s32[<=8,4]").dims == (8, 4)
