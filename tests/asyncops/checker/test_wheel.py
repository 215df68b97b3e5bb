"""The kernels of ``jax.experimental.pallas.ops.tpu``, with values that keep their contracts.

They ask which chip they run on, and JAX knows none here.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

from asyncops.checker.session import check
from stateful._jax import chips

OPS = "jax.experimental.pallas.ops.tpu."
Program = tuple[Callable[..., Any], tuple[Any, ...]]


@pytest.fixture(autouse=True, scope="module")
def _chip() -> Iterator[None]:
    with chips.pretend("v6e"):
        yield


def module(name: str) -> Any:
    """A module of the kernels, which ``import`` may hide behind a function of the same name."""
    return importlib.import_module(OPS + name)


def shape(*sizes: int, dtype: Any = jnp.bfloat16) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, dtype)


def integers(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def pages(rows: int, columns: int) -> np.ndarray:
    """A page table: every page is in range and belongs to one sequence."""
    return np.random.default_rng(0).permutation(rows * columns).astype(np.int32).reshape(rows, columns)


# -- programs -----------------------------------------------------------------------------------------------


def paged_attention(lengths: np.ndarray, **options: Any) -> Program:
    fn = functools.partial(module("paged_attention").paged_attention, pages_per_compute_block=4, **options)
    cache = shape(4, 64, 16, 128)
    return fn, (shape(4, 8, 128), cache, cache, lengths, pages(4, 8))


def paged_attention_quantized() -> Program:
    quantized = module("paged_attention.quantization_utils").QuantizedTensor
    cache = quantized(
        weight=shape(4, 64, 16, 128, dtype=jnp.int8), scales=shape(4, 64, 16, 1, dtype=jnp.float32)
    )
    fn = functools.partial(module("paged_attention").paged_attention, pages_per_compute_block=4)
    return fn, (shape(4, 8, 128), cache, cache, integers(1, 17, 64, 128), pages(4, 8))


def ragged_paged_attention(
    kv_lengths: np.ndarray, cu_q_lens: np.ndarray, count: int, **options: Any
) -> Program:
    kernel = module("ragged_paged_attention").ragged_paged_attention
    fn = functools.partial(kernel, num_kv_pages_per_block=4, num_queries_per_block=16, **options)
    return fn, (
        shape(128, 8, 128),
        shape(64, 16, 8, 128),
        kv_lengths,
        pages(8, 8),
        cu_q_lens,
        integers(count),
    )


def flash_attention(is_gradient: bool) -> Program:
    kernel = functools.partial(module("flash_attention").flash_attention, causal=True)
    fn = jax.grad(lambda q, k, v: kernel(q, k, v).sum(), argnums=(0, 1, 2)) if is_gradient else kernel
    return fn, (shape(1, 2, 512, 128, dtype=jnp.float32),) * 3


def splash_attention(is_gradient: bool) -> Program:
    masks = module("splash_attention.splash_attention_mask")
    mask = masks.MultiHeadMask([masks.CausalMask((512, 512))] * 2)
    kernel = module("splash_attention.splash_attention_kernel").make_splash_mha(
        mask, head_shards=1, q_seq_shards=1
    )

    def fn(q: Any, k: Any, v: Any) -> Any:
        return kernel(q, k, v)

    gradient = jax.grad(lambda q, k, v: kernel(q, k, v).sum(), argnums=(0, 1, 2))
    return gradient if is_gradient else fn, (shape(2, 512, 128, dtype=jnp.float32),) * 3


def grouped_matmul(groups: np.ndarray, is_transposed: bool) -> Program:
    gmm = module("megablox.gmm")
    kernel = gmm.tgmm if is_transposed else gmm.gmm
    fn = functools.partial(kernel, preferred_element_type=jnp.float32, tiling=(128, 128, 128))
    left = shape(256, 512) if is_transposed else shape(512, 256)
    right = shape(512, 256) if is_transposed else shape(len(groups), 256, 256)
    return fn, (left, right, groups)


def matmul() -> Program:
    fn = functools.partial(module("matmul").matmul, block_shape=(256, 256), block_k=256)
    return fn, (shape(512, 512, dtype=jnp.float32),) * 2


def random_bits(name: str, function: str) -> Program:
    draw = getattr(module(f"random.{name}"), function)
    return (lambda key: draw(key, 32, (256, 256))), (shape(2, dtype=jnp.uint32),)


LENGTHS = integers(1, 17, 64, 128)
MIXED = integers(1, 16, 17, 128, 64, 100, 33, 128), integers(0, 1, 9, 20, 36, 52, 100, 120, 128), 8
DECODING = integers(5, 1, 128, 16, 17, 2, 99, 64), integers(0, 1, 2, 3, 4, 5, 6, 7, 8), 8
PROGRAMS: dict[str, Callable[[], Program]] = {
    "paged_attention": lambda: paged_attention(LENGTHS),
    "paged_attention_full": lambda: paged_attention(integers(128, 128, 128, 128)),
    "paged_attention_inline": lambda: paged_attention(LENGTHS, inline_seq_dim=True),
    "paged_attention_not_inline": lambda: paged_attention(LENGTHS, inline_seq_dim=False),
    "paged_attention_quantized": paged_attention_quantized,
    "ragged_paged_attention": lambda: ragged_paged_attention(*MIXED),
    "ragged_paged_attention_decoding": lambda: ragged_paged_attention(*DECODING),
    "ragged_paged_attention_window": lambda: ragged_paged_attention(*MIXED, sliding_window=64, soft_cap=30.0),
    "flash_attention": lambda: flash_attention(False),
    "flash_attention_gradient": lambda: flash_attention(True),
    "splash_attention": lambda: splash_attention(False),
    "splash_attention_gradient": lambda: splash_attention(True),
    "gmm": lambda: grouped_matmul(integers(128, 100, 156, 128), False),
    "gmm_empty_group": lambda: grouped_matmul(integers(0, 512, 0, 0), False),
    "tgmm": lambda: grouped_matmul(integers(128, 100, 156, 128), True),
    "matmul": matmul,
    "threefry": lambda: random_bits("threefry", "plthreefry_random_bits"),
    "philox": lambda: random_bits("philox", "philox_random_bits"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_kernel_of_the_wheel_is_clean_within_its_contract(name: str) -> None:
    fn, args = PROGRAMS[name]()
    report = check(fn, *args, values=True)
    assert not report.diagnostics, str(report)
    assert not report.unknowns, str(report)
    assert report.kernels


@pytest.mark.parametrize("axis", ["x", "y"])
def test_all_gather_shares_one_receive_semaphore_between_its_steps(axis: str) -> None:
    devices = np.array(jax.devices()[:8])
    mesh = jax.sharding.Mesh(
        devices if axis == "x" else devices.reshape(2, 4), ("x",) if axis == "x" else ("x", "y")
    )
    kernel = module("all_gather").all_gather
    fn = functools.partial(kernel, mesh=mesh, axis_name=axis, memory_space=pltpu.VMEM)
    report = check(fn, shape(1024, 128, dtype=jnp.float32))
    assert not report.unknowns
    assert {d.code for d in report.diagnostics} == {"AO201"}
    assert all(d.location and d.location.file.endswith("all_gather.py") for d in report.diagnostics)
