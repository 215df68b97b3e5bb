"""What only looks wrong: in gradients, unrolled loops, loops whose end depends on what arrives, slots of one Ref."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P

import asyncops
from asyncops.compiled.checking import CompiledReport
from tests.asyncops import note_programs as note

pytestmark = pytest.mark.tpu_compile

MESH = AbstractMesh((4,), ("x",), axis_types=(AxisType.Auto,))
X = jax.ShapeDtypeStruct((4 * 64, 128), jnp.float32)


def compiled(fn: Callable[[Any], Any], topology: str = "v5e:2x2") -> jax.stages.Compiled:
    mapped = jax.shard_map(fn, mesh=MESH, in_specs=P("x"), out_specs=P("x"), check_vma=False)
    return asyncops.compile_for(topology, mapped, X)


def checked(fn: Callable[[Any], Any], topology: str = "v5e:2x2") -> CompiledReport:
    return asyncops.check_compiled(compiled(fn, topology))


def gradient(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return jax.grad(lambda x: jnp.sum(jnp.sin(fn(x))))


def work_between(x):
    fut = note.start(x * 3.0)
    z = jnp.dot(x, x.T) @ x
    y = note.done(fut)
    return jnp.sin(y * z)


def unrolled(x):
    """The last iteration has the lines of the others, and no copy to overlap."""
    total = x
    for i in range(4):
        fut = note.start(x) if i < 3 else None
        total = total + jnp.sin(x)
        x = note.done(fut) if fut is not None else x
    return total


def until_it_is_enough(x):
    """What arrives decides whether another iteration follows, and what is sent is computed."""

    def body(carry):
        fut, total = carry
        y = note.done(fut)
        return note.start(y * 2.0), total + jnp.sin(y)

    fut, total = lax.while_loop(lambda carry: carry[1].sum() < 1e6, body, (note.start(x), x))
    return note.done(fut) + total


def of_our_own_loop(x):
    """Its last future leaves a conditional, which copies one of two arrays into the one that it returns."""

    def body(carry):
        fut, total = carry
        y = note.done(fut)
        return note.start(y * 2.0), total + jnp.sin(y)

    fut, total = asyncops.while_loop(lambda carry: carry[1].sum() < 1e6, body, (note.start(x), x))
    return note.done(fut) + total


def refs_branched(x):
    a, b = jax.new_ref(x * 2.0), jax.new_ref(jnp.zeros_like(x))
    fut = note.start_ref(a, b)
    z = jnp.sin(x)
    lax.cond(x.sum() > 0, lambda: note.done_ref(fut, a, b), lambda: note.done_ref(fut, a, b))
    return b[...] + z


PROGRAMS = {
    "gradient": gradient(asyncops.program_order(work_between)),
    "gradient_of_a_loop": gradient(asyncops.program_order(note.odd_loop)),
    "gradient_of_a_carried_future": gradient(asyncops.program_order(note.accumulating)),
    "gradient_of_an_unrolled_loop": gradient(asyncops.program_order(unrolled)),
    "unrolled": asyncops.program_order(unrolled),
    "until_it_is_enough": asyncops.program_order(until_it_is_enough),
    "of_our_own_loop": of_our_own_loop,
    "slots": asyncops.program_order(note.refs_slots),
    "refs_branched": asyncops.program_order(refs_branched),
}
OTHERS = {
    "slots": "v6e:2x2",
    "gradient": "v6e:2x2",
    "unrolled": "v5p:2x2x1",
    "until_it_is_enough": "tpu7x:2x2x1",
}
RUNS = [(name, "v5e:2x2") for name in PROGRAMS] + list(OTHERS.items())


@pytest.mark.parametrize(("name", "topology"), RUNS)
def test_clean(name, topology):
    report = checked(PROGRAMS[name], topology)
    assert report.verdict == "clean", str(report)
    assert not report.diagnostics, str(report)


def test_reading_the_slot_that_is_being_received_is_found():
    """The same program, but the work reads the other slot of the same array: what arrives, before it is there."""
    text = compiled(PROGRAMS["slots"]).as_text()
    assert text is not None
    assert asyncops.check_compiled(text).ok
    name, counter = re.findall(r"dynamic-slice\(%(param[\w.]*), %(param[\w.]*),", text)[0]
    other = text.replace(f"dynamic-slice(%{name}, %{counter},", f"dynamic-slice(%{name}, %other,")
    declared = re.search(rf"\n( *%{re.escape(counter)} = )(s32\[\]\S*) parameter", text)
    assert declared is not None
    flipped = f"\n  %one.f = s32[] constant(1)\n  %other = s32[] subtract(%one.f, %{counter})\n  %{name} ="
    other = other.replace(f"\n  %{name} =", flipped, 1)
    assert [d.code for d in asyncops.check_compiled(other).diagnostics] == ["AO504"]


def unrolled_and_hoisted(x):
    """Nothing orders it: what does not depend on what arrives runs before or after."""
    total = x
    for _ in range(3):
        fut = note.start(x)
        total = jnp.sin(total)
        x = note.done(fut)
    return x, total


@pytest.mark.parametrize(
    ("fn", "line"),
    [(gradient(note.overlapped), "z = x + 1"), (unrolled_and_hoisted, "total = jnp.sin(total)")],
    ids=["gradient", "unrolled"],
)
def test_without_an_order_it_is_found_on_its_line(fn, line):
    found = [d for d in checked(fn).diagnostics if d.severity != "info"]
    assert {d.code for d in found} - {"AO506"} == {"AO505"}
    (place,) = {d.location for d in found if d.code == "AO505"}
    assert place is not None
    with open(place.file) as source:
        assert source.read().splitlines()[place.line - 1].strip() == line
