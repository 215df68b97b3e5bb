"""Every program of JAX's design note: right on CPU devices, and as it should be in the TPU compiler's schedule."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

import asyncops
from stateful.errors import InFlightAccessError
from tests.asyncops import note_programs as note
from tests.asyncops.conftest import sharded

PROGRAMS = list(note.RESULTS)
LOOPS = [p for p in PROGRAMS if "loop" in p.__name__ or "ring" in p.__name__ or "stagg" in p.__name__]


def shards(devices):
    return jnp.asarray(np.random.default_rng(0).normal(size=(devices * 2, 4)), jnp.float32)


def expected(program, x, devices):
    rows = x.shape[0] // devices
    return note.RESULTS[program](lambda k: jnp.roll(x, k * rows, axis=0))


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
def test_the_result_is_right(devices):
    """One compilation for all programs in order, and (once) for all without."""
    x = shards(devices)
    for wrap in [asyncops.program_order, *([lambda p: p] if devices == 3 else [])]:
        results = sharded(lambda x, wrap=wrap: [wrap(p)(x) for p in PROGRAMS], devices)(x)
        for program, result in zip(PROGRAMS, results, strict=True):
            want = expected(program, x, devices)
            np.testing.assert_allclose(result, want, rtol=1e-5, atol=1e-6, err_msg=program.__name__)


@pytest.mark.parametrize("devices", [2, 4])
def test_the_fused_kernel_is_right(devices):
    x = jnp.arange(devices * 16 * 128.0).reshape(devices * 16, 128)
    fused = sharded(lambda x: note.fused(x, pltpu.InterpretParams()), devices)
    np.testing.assert_allclose(fused(x), jnp.roll(x, 16, axis=0) * (x + 1))


def test_the_ring_with_refs_is_jnp_roll():
    x = shards(4)
    np.testing.assert_array_equal(sharded(note.refs_ring, 4)(x), jnp.roll(x, 8 * 2, axis=0))


def test_writing_what_is_being_sent_is_refused():
    """The note's own example of an order that Refs would give; it changes the source under way."""

    @asyncops.program_order
    def program(x):
        x_ref, y_ref = jax.new_ref(x), jax.new_ref(jnp.zeros_like(x))
        fut = note.start_ref(x_ref, y_ref)
        x_ref[...] += 1
        note.done_ref(fut)
        return y_ref[...]

    with pytest.raises(InFlightAccessError, match=r"test_note.py:\d+ .* writes a Ref that .* is sending"):
        sharded(program, 4)(shards(4))


# -- scheduled by the TPU compiler --------------------------------------------------------------------

tpu = pytest.mark.tpu_compile


@tpu
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_nothing_in_flight_is_moved_and_no_loop_copies(program, scheduled):
    compiled = scheduled(program)
    assert compiled.moved_in_flight() == []
    assert compiled.copies_in_loops() == []


@tpu
@pytest.mark.parametrize(
    ("program", "gaps"),
    [(note.overlapped, 1), (note.two_in_a_row, 2), (note.refs_overlapped, 1)],
    ids=lambda p: getattr(p, "__name__", None),
)
def test_work_stays_between_start_and_done(program, gaps, scheduled):
    spans = scheduled(program).between()
    assert len(spans) == gaps
    assert all(spans)


@tpu
@pytest.mark.parametrize(
    "program", [note.odd_loop, note.accumulating, note.refs_slots], ids=lambda p: p.__name__
)
def test_work_stays_between_start_and_done_in_loops(program, scheduled):
    compiled = scheduled(program)
    (body,) = compiled.bodies()
    spans = compiled.between(body)
    assert len(spans) == (1 if program is note.refs_slots else 2)
    assert all(spans)


@tpu
@pytest.mark.parametrize(
    ("program", "steps"),
    [
        (note.loop, 2),
        (note.odd_loop, 2),
        (note.staggered, 2),
        (note.accumulating, 2),
        (note.refs_ring, 2),
        (note.refs_staggered, 2),
        (note.refs_slots, 1),
    ],
    ids=lambda p: getattr(p, "__name__", None),
)
def test_one_start_and_one_done_for_each_step_of_an_iteration(program, steps, scheduled):
    compiled = scheduled(program)
    (body,) = compiled.bodies()
    assert compiled.starts_and_dones(body) == (steps, steps)


# How many starts and dones stand in the loop of a program, if it has one.
STEPS = dict.fromkeys([note.loop, note.odd_loop, note.staggered, note.accumulating], 2)
STEPS |= {note.refs_ring: 2, note.refs_staggered: 2, note.refs_slots: 1}
OTHERS = ["v5p:2x2x1", "v6e:2x2", "tpu7x:2x2x1"]
SHORT = [(note.accumulating, "v6e:2x2"), (note.refs_ring, "tpu7x:2x2x1")]


@tpu
@pytest.mark.parametrize(
    ("program", "topology"),
    [
        *SHORT,
        *(
            pytest.param(p, t, marks=pytest.mark.slow)
            for p in PROGRAMS
            for t in OTHERS
            if (p, t) not in SHORT
        ),
    ],
    ids=lambda p: getattr(p, "__name__", p),
)
def test_on_other_chips_too(program, topology, scheduled):
    """The same counts, and nothing for the verifier of compiled programs to find."""
    compiled = scheduled(program, topology=topology)
    counts = [compiled.starts_and_dones(body) for body in compiled.bodies()]
    assert counts == ([(STEPS[program],) * 2] if program in STEPS else [])
    assert compiled.copies_in_loops() == []
    assert compiled.moved_in_flight() == []
    assert asyncops.check_compiled(compiled.text).verdict == "clean"


@tpu
def test_the_ring_with_refs_needs_no_decorator(scheduled):
    compiled = scheduled(note.refs_ring, ordered=False)
    (body,) = compiled.bodies()
    assert compiled.starts_and_dones(body) == (2, 2)
    assert compiled.copies_in_loops() == []
    assert compiled.moved_in_flight() == []


@tpu
def test_the_fused_kernel_compiles(scheduled):
    assert scheduled(note.fused, ordered=False).kernels("permute_and_add") == 1


# -- the tests of these tests: what one writes by hand fails them -------------------------------------


@tpu
def test_by_hand_there_is_no_overlap(scheduled):
    compiled = scheduled(note.by_hand_overlapped, ordered=False)
    assert compiled.between() == [[]]


@tpu
def test_by_hand_a_loop_copies(scheduled):
    assert scheduled(note.by_hand_loop, ordered=False).copies_in_loops()


@tpu
def test_by_hand_a_future_in_a_loop_is_moved_in_flight(scheduled):
    assert scheduled(note.by_hand_staggered, ordered=False).copies_in_loops()
