"""What `asyncops` offers, on arrays and on Refs, is clean in the eyes of the verifier on every TPU generation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P

import asyncops

pytestmark = pytest.mark.tpu_compile

DEVICES = 4
MESH = AbstractMesh((DEVICES,), ("x",), axis_types=(AxisType.Auto,))
ROWS, COLUMNS = 64, 128
X = jax.ShapeDtypeStruct((DEVICES * ROWS, COLUMNS), jnp.float32)
RING = [(i, (i + 1) % DEVICES) for i in range(DEVICES)]
SOME = [(0, 1), (1, 2)]

VALUES = (
    (asyncops.async_copy_start, asyncops.async_copy_done),
    (lambda x: asyncops.ppermute_start(x, "x", RING), asyncops.ppermute_done),
    (lambda x: asyncops.ppermute_start(x, "x", SOME), asyncops.ppermute_done),
    (lambda x: asyncops.all_gather_start(x, "x"), asyncops.all_gather_done),
    (lambda x: asyncops.psum_scatter_start(x, "x", tiled=True), asyncops.psum_scatter_done),
    (lambda x: asyncops.all_to_all_start(x, "x", 0, 0, tiled=True), asyncops.all_to_all_done),
    (lambda x: asyncops.psum_start(x, "x"), asyncops.psum_done),
)
# Start, done, and the shape of the Ref that receives, given that of the one that is sent.
REFS = (
    (asyncops.async_copy_start_ref, asyncops.async_copy_done_ref, lambda s: s),
    (lambda x, y: asyncops.ppermute_start_ref(x, y, "x", RING), asyncops.ppermute_done_ref, lambda s: s),
    (lambda x, y: asyncops.ppermute_start_ref(x, y, "x", SOME), asyncops.ppermute_done_ref, lambda s: s),
    (
        lambda x, y: asyncops.all_gather_start_ref(x, y, "x"),
        asyncops.all_gather_done_ref,
        lambda s: (DEVICES, *s),
    ),
    (lambda x, y: asyncops.psum_start_ref(x, y, "x"), asyncops.psum_done_ref, lambda s: s),
)


def carried(x):
    """The future of each operation goes around a loop; work beside it, and a leftover iteration."""
    results = []
    for start, done in VALUES:

        def body(i, carry, start=start, done=done):
            future, total = carry
            y = done(future)
            return start(total * 0.5 + y.sum()), total + 1.0

        future, total = asyncops.fori_loop(0, 5, body, (start(x * 2.0), x))
        results += [done(future).sum(), total.sum()]
    return sum(results)


@asyncops.program_order
def branched(x):
    """The future of each operation goes through a conditional that finishes it, passes it on, or starts it anew."""
    results = []
    for start, done in VALUES:
        future = start(x * 2.0)
        z = jnp.sin(x)
        anew = lambda f, start=start, done=done: start(x + done(f).sum())  # noqa: E731
        future = lax.cond(z.sum() > 0, lambda f: f, anew, future)
        results.append(lax.cond(x.sum() > 0, done, lambda f, done=done: done(f) * 2, future).sum())
    return sum(results)


def refs_carried(x):
    """The future of each operation on Refs goes around a loop and into a conditional; what is sent is computed."""
    results = []
    for start, done, received in REFS:
        sent, arrives = jax.new_ref(x * 2.0), jax.new_ref(jnp.zeros(received(x.shape), x.dtype))

        def body(i, future, start=start, done=done, sent=sent, arrives=arrives):
            done(future, sent, arrives)
            sent[...] = sent[...] * 0.5 + arrives[...].sum()
            return start(sent, arrives)

        future = asyncops.fori_loop(0, 5, body, start(sent, arrives))

        @asyncops.program_order
        def finish(future, done=done, sent=sent, arrives=arrives):
            lax.cond(x.sum() > 0, lambda: done(future, sent, arrives), lambda: done(future, sent, arrives))

        finish(future)
        results.append(arrives[...].sum())
    return sum(results)


# Each compilation takes seconds, so that not every program goes to every chip.
RUNS = [
    (carried, "v5e:2x2"),
    (carried, "tpu7x:2x2x1"),
    (branched, "v5p:2x2x1"),
    (branched, "v6e:2x2"),
    (refs_carried, "v5e:2x2"),
    (refs_carried, "v6e:2x2"),
]


@pytest.mark.parametrize(("fn", "topology"), RUNS, ids=lambda x: getattr(x, "__name__", None))
def test_clean(fn, topology):
    mapped = jax.shard_map(fn, mesh=MESH, in_specs=P("x"), out_specs=P(), check_vma=False)
    report = asyncops.check_compiled(asyncops.compile_for(topology, mapped, X))
    assert report.verdict == "clean", str(report)
    assert not report.assumptions
    pairs = [pair for pair in report.schedule.pairs if pair.by == "Pallas"]
    assert len(pairs) >= len(VALUES if fn is not refs_carried else REFS)
    assert not [copy for copy in report.schedule.copies if copy.reason == "in flight"]
