"""Each future exactly once, on every path: refused at trace time, naming the lines; what is right is let through."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import asyncops
from stateful.errors import (
    FindingsError,
    FutureDroppedError,
    FutureMismatchError,
    FutureReusedError,
    InFlightAccessError,
)
from tests.asyncops import note_programs as note
from tests.asyncops.conftest import sharded

pytestmark = pytest.mark.filterwarnings("ignore::stateful.errors.UnfinishedFutureWarning")

X = jnp.arange(16.0).reshape(8, 2)
start, done, start_ref, done_ref = note.start, note.done, note.start_ref, note.done_ref


def refs(x):
    return jax.new_ref(x), jax.new_ref(jnp.zeros_like(x))


def dropped(x):
    start(x)
    return x


def dropped_in_a_branch(x):
    return lax.cond(x.sum() > 0, lambda f: done(f), lambda f: x, start(x))


def dropped_in_a_loop(x):
    return lax.fori_loop(0, 3, lambda i, fut: start(x), start(x)) and x


def dropped_by_a_function(x):
    return jax.jit(lambda fut: x)(start(x))


def dropped_leaf(x):
    return jax.tree.leaves(start(x))[0]


def consumed_in_every_iteration(x):
    fut = start(x)
    return lax.fori_loop(0, 3, lambda i, y: done(fut), x)


def consumed_by_two_functions(x):
    fut = start(x)
    finish = jax.jit(done)
    return finish(fut) + finish(fut)


def consumed_before_a_branch_too(x):
    fut = start(x)
    y = jax.jit(done)(fut)
    return lax.cond(x.sum() > 0, lambda f: done(f), lambda f: -done(f), fut) + y


def consumed_by_the_condition(x):
    def cond(fut):
        return done(fut).sum() > 0

    return done(lax.while_loop(cond, lambda fut: start(done(fut)), start(x)))


def mixed(x):
    a, b = start(x), start(x + 1)
    tree, a, b = jax.tree.structure(a), jax.tree.leaves(a), jax.tree.leaves(b)
    return done(jax.tree.unflatten(tree, [a[0], b[1], a[2]])) + done(
        jax.tree.unflatten(tree, [b[0], a[1], b[2]])
    )


@pytest.mark.parametrize(
    ("program", "error", "message"),
    [
        (dropped, FutureDroppedError, r"started at note_programs.py:\d+ \(start\) reaches no done"),
        (
            dropped_in_a_branch,
            FutureDroppedError,
            r"the body <lambda> at .*test_linearity.py:\d+ takes it and neither",
        ),
        (dropped_in_a_loop, FutureDroppedError, r"takes it and neither finishes nor returns it"),
        (dropped_by_a_function, FutureDroppedError, r"takes it and neither finishes nor returns it"),
        (dropped_leaf, FutureDroppedError, r"reaches no done"),
        (
            consumed_in_every_iteration,
            FutureReusedError,
            r"the loop at test_linearity.py:\d+ .* closes over a future",
        ),
        (
            consumed_by_two_functions,
            FutureReusedError,
            r"consumed twice: at test_linearity.py:\d+ .*, and at test_lin",
        ),
        (consumed_before_a_branch_too, FutureReusedError, r"consumed twice"),
        (
            consumed_by_the_condition,
            FutureReusedError,
            r"the loop's condition consumes a future at note_programs|cond",
        ),
        (
            mixed,
            FutureMismatchError,
            r"parts of different futures: started at note_programs.py:\d+ .*pass whole",
        ),
    ],
    ids=lambda p: getattr(p, "__name__", ""),
)
def test_refused(program, error, message):
    with pytest.raises(error, match=message):
        sharded(asyncops.program_order(program), 4)(X)


def test_refused_in_our_loops_without_the_decorator():
    with pytest.raises(FutureDroppedError, match="takes it and neither finishes nor returns it"):
        sharded(lambda x: asyncops.fori_loop(0, 3, lambda i, fut: start(x), start(x)) and x, 4)(X)


# Where nothing refuses it, the checker finds it.
CODES = [
    (dropped, "AO501"),
    (dropped_in_a_branch, "AO501"),
    (dropped_in_a_loop, "AO501"),
    (dropped_by_a_function, "AO501"),
    (consumed_in_every_iteration, "AO502"),
    (consumed_by_two_functions, "AO502"),
    (consumed_by_the_condition, "AO502"),
    (mixed, "AO105"),
]


@pytest.mark.parametrize(("program", "code"), CODES, ids=lambda p: getattr(p, "__name__", p))
def test_found_by_the_checker(program, code):
    report = asyncops.check(sharded(program, 4), X)
    assert report.verdict == "findings"
    found = {d.code: d for d in report.diagnostics}
    assert code in found
    assert found[code].location is not None


def test_found_while_a_program_is_traced():
    with pytest.raises(FindingsError, match=r"AO502.*consumed twice"):
        with asyncops.checking():
            jax.make_jaxpr(sharded(consumed_by_two_functions, 4))(X)
    with asyncops.checking():
        jax.make_jaxpr(sharded(note.overlapped, 4))(X)


@pytest.mark.parametrize("program", note.RESULTS, ids=lambda p: p.__name__)
def test_the_programs_of_the_note_are_clean(program):
    assert asyncops.check(sharded(asyncops.program_order(program), 4), X).verdict == "clean"
    codes = [d.code for d in asyncops.check(sharded(program, 4), X).diagnostics]
    # Without an order around it, a loop that carries a future is not safe on a TPU.
    assert codes == (["AO508"] if program in (note.staggered, note.accumulating) else [])


def test_without_either_a_dropped_start_still_runs():
    """Its effect keeps it: never silent removal."""
    text = sharded(dropped, 4).lower(X).as_text()
    assert "collective_permute" in text


# -- Refs ---------------------------------------------------------------------------------------------


def read_what_is_written(x):
    x_ref, y_ref = refs(x)
    fut = start_ref(x_ref, y_ref)
    early = y_ref[...]
    done_ref(fut)
    return early


def write_what_is_sent_in_a_loop(x):
    x_ref, y_ref = refs(x)
    fut = start_ref(x_ref, y_ref)

    def body(i, _):
        x_ref[...] += 1

    lax.fori_loop(0, 2, body, None)
    done_ref(fut)
    return y_ref[...]


def send_what_is_written(x):
    x_ref, y_ref = refs(x)
    z_ref = jax.new_ref(jnp.zeros_like(x))
    a = start_ref(x_ref, y_ref)
    b = start_ref(y_ref, z_ref)
    done_ref(a)
    done_ref(b)
    return z_ref[...]


def add_to_what_is_written_in_a_branch(x):
    x_ref, y_ref = refs(x)
    fut = start_ref(x_ref, y_ref)

    def add():
        jax.ref.addupdate(y_ref, ..., jnp.ones_like(x))

    lax.cond(x.sum() > 0, add, lambda: None)
    done_ref(fut)
    return y_ref[...]


@pytest.mark.parametrize(
    ("program", "message", "code"),
    [
        (
            read_what_is_written,
            r"reads a Ref that the operation started at note_programs.py:\d+ .* is writing",
            "AO201",
        ),
        (write_what_is_sent_in_a_loop, r"writes a Ref that .* is sending; move it behind the done", "AO202"),
        (send_what_is_written, r"starts to send a Ref that .* is writing", "AO201"),
        (add_to_what_is_written_in_a_branch, r"adds to a Ref that .* is writing", "AO203"),
    ],
    ids=lambda p: getattr(p, "__name__", ""),
)
def test_refs_in_use_are_left_alone(program, message, code):
    with pytest.raises(InFlightAccessError, match=message):
        sharded(asyncops.program_order(program), 4)(X)
    (found,) = asyncops.check(sharded(program, 4), X).diagnostics
    assert found.code == code


# -- what is right ------------------------------------------------------------------------------------


def either_branch(x):
    return lax.cond(x.sum() > 0, lambda f: done(f), lambda f: -done(f), start(x))


def through_functions(x):
    return jax.jit(done)(jax.jit(lambda fut: fut)(jax.jit(start)(x)))


def started_in_branches(x):
    return done(lax.cond(x.sum() > 0, lambda: start(x), lambda: start(-x)))


def after_the_done(x):
    x_ref, y_ref = refs(x)
    done_ref(start_ref(x_ref, y_ref))
    x_ref[...] += y_ref[...]
    return x_ref[...]


def finished_in_a_branch(x):
    x_ref, y_ref = refs(x)
    fut = start_ref(x_ref, y_ref)
    lax.cond(x.sum() > 0, lambda f: done_ref(f, x_ref, y_ref), lambda f: done_ref(f, x_ref, y_ref), fut)
    x_ref[...] += y_ref[...]
    return x_ref[...]


def carried_untouched(x):
    """JAX takes what a loop carries unchanged out of its carry."""
    y, fut = lax.fori_loop(0, 3, lambda i, c: (jnp.sin(c[0]), c[1]), (x, start(x)))
    return done(fut) * y


@pytest.mark.parametrize(
    "program",
    [
        either_branch,
        carried_untouched,
        through_functions,
        started_in_branches,
        after_the_done,
        finished_in_a_branch,
        *note.RESULTS,
    ],
    ids=lambda p: p.__name__,
)
def test_let_through(program):
    jax.eval_shape(sharded(asyncops.program_order(program), 4), X)
