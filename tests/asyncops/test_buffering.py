"""Loops that carry futures: right for every number of iterations, and without copies for every kind of loop."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

import asyncops
from asyncops import program_order
from stateful.errors import InFlightMovedError
from tests.asyncops import note_programs as note
from tests.asyncops.conftest import mesh, sharded

start, done = note.start, note.done
X = jnp.asarray(np.random.default_rng(2).normal(size=(8, 3)), jnp.float32)


def start_back(x):
    return asyncops.ppermute_start(x, "x", [(j, i) for i, j in note.ring()])


# -- loops of n iterations; each tests something else about what is carried ---------------------------


def ring(loop, n, x):
    return done(loop(n, lambda i, fut: start(done(fut)), start(x)))


def started_and_finished(loop, n, x):
    def body(i, carry):
        x, total = carry
        fut = start(x)
        total = total + jnp.sin(x)
        return done(fut), total

    x, total = loop(n, body, (x, jnp.zeros_like(x)))
    return x + total


def sends_what_it_computes(loop, n, x):
    def body(i, carry):
        total, fut = carry
        y = done(fut)
        fut = start(jnp.sin(y))
        return total + y, fut

    total, fut = loop(n, body, (x, start(x)))
    return total + done(fut)


def carries_what_it_sends(loop, n, x):
    def body(i, carry):
        x, total, fut = carry
        total = total + x * x
        x = done(fut)
        return x, total, start(x)

    x, total, fut = loop(n, body, (x, jnp.zeros_like(x), start(x)))
    return x + total + done(fut)


def two_directions(loop, n, x):
    def body(i, carry):
        total, forth, back = carry
        a, b = done(forth), done(back)
        return total + a * b, start(a), start_back(b)

    total, forth, back = loop(n, body, (x, start(x), start_back(x)))
    return total + done(forth) - done(back)


def always_the_same(loop, n, x):
    def body(i, carry):
        total, fut = carry
        y = done(fut)
        return total + y * x, start(x)

    total, fut = loop(n, body, (x, start(x)))
    return total + done(fut)


def work_behind(loop, n, x):
    """The future that leaves the loop is finished only after more work, and after another loop."""
    fut = loop(n, lambda i, fut: start(done(fut)), start(x))
    z = jnp.sin(x)
    fut = loop(3, lambda i, fut: start(done(fut)), fut)
    return done(fut) * z


BODIES = [
    ring,
    started_and_finished,
    sends_what_it_computes,
    carries_what_it_sends,
    two_directions,
    always_the_same,
    work_behind,
]

# -- kinds of loops -----------------------------------------------------------------------------------


def fori(n, body, init):
    return lax.fori_loop(0, n, body, init)


def scanned(n, body, init):
    return lax.scan(lambda c, i: (body(i, c), None), init, jnp.arange(n))[0]


def decided_by_data(n, body, init):
    """A loop whose next condition depends on what arrives (though not for the numbers that do)."""

    def step(carry):
        i, c = carry
        c = body(i, c)
        arrays = [leaf for leaf in jax.tree.leaves(c) if jnp.issubdtype(leaf.dtype, jnp.floating)]
        seen = sum((jnp.sum(a) for a in arrays), jnp.float32(0))
        return i + jnp.where(lax.psum(seen, "x") > -1e9, 1, 1000), c

    return lax.while_loop(lambda c: c[0] < n, step, (jnp.int32(0), init))[1]


def names(fn):
    return fn.__name__


def results(kind, known, check_vma):
    """A function of ``n``: all bodies with loops of ``n`` iterations, plainly and in order, and their derivatives in
    one direction. ``known``: the number, where it is one when the program is compiled."""

    def run(x, n):
        count = n if known is None else known
        plain = [lambda x, b=b: b(kind, count, x) for b in BODIES]
        wrapped = [plain, [program_order(f) for f in plain]]
        return [[jax.jvp(f, (x,), (x * x,)) for f in fs] for fs in wrapped]

    specs = {"in_specs": (P("x"), P()), "out_specs": P("x"), "check_vma": check_vma}
    compiled = jax.jit(jax.shard_map(run, mesh=mesh(4), **specs))
    return lambda n: compiled(X, jnp.int32(n))


@pytest.mark.parametrize(
    ("kind", "known", "check_vma"),
    [
        (fori, None, False),
        (decided_by_data, None, True),
        (scanned, 5, True),
        pytest.param(scanned, 1, False, marks=pytest.mark.slow),
        pytest.param(scanned, 0, False, marks=pytest.mark.slow),
        pytest.param(scanned, 4, True, marks=pytest.mark.slow),
        pytest.param(fori, None, True, marks=pytest.mark.slow),
        pytest.param(decided_by_data, None, False, marks=pytest.mark.slow),
    ],
    ids=lambda p: getattr(p, "__name__", str(p)),
)
def test_right_for_every_number_of_iterations(kind, known, check_vma):
    run = results(kind, known, check_vma)
    for n in [0, 1, 2, 4, 5] if known is None else [known]:
        plain, ordered = run(n)
        for body, a, b in zip(BODIES, plain, ordered, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=f"{names(body)}, {n} iterations")


def test_gradients_through_scans():
    def gradient(body, wrap):
        fn = wrap(lambda x: body(scanned, 3, x))
        return jax.grad(lambda x: jnp.sum(jnp.cos(fn(x))))

    wraps = [lambda f: f, program_order]
    both = sharded(lambda x: [[gradient(b, wrap)(x) for b in BODIES] for wrap in wraps], 4)(X)
    for body, a, b in zip(BODIES, *both, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=names(body))


def stacked(x):
    """One loop starts, another finishes."""

    def begin(c, _):
        return c + 1, (start(c), c)

    c, (futures, sent) = lax.scan(begin, x, None, length=5)
    z = jnp.sin(c)

    def end(total, x):
        fut, sent = x
        y = done(fut)
        return total + y * sent, y

    total, ys = lax.scan(end, c, (futures, sent), reverse=True)
    return total + ys.sum(0) * z


def test_stacks_of_futures():
    def gradient(f):
        return jax.grad(lambda x: jnp.sum(jnp.sin(f(x))))

    chosen = [stacked, program_order(stacked), gradient(stacked), gradient(program_order(stacked))]
    plain, ordered, plain_gradient, ordered_gradient = sharded(lambda x: [f(x) for f in chosen], 4)(X)
    np.testing.assert_allclose(plain, ordered, rtol=1e-4)
    np.testing.assert_allclose(plain_gradient, ordered_gradient, rtol=1e-4, atol=1e-4)


def test_our_loops_are_drop_in():
    def program(x):
        a = done(asyncops.fori_loop(0, 6, lambda i, fut: start(done(fut)), start(x)))
        fut, ys = asyncops.scan(lambda fut, w: (start(done(fut)), w * 2), start(x), jnp.arange(5.0))
        b = done(fut) + ys[-1]

        def step(c):
            return (c[0] + 1, start(done(c[1])))

        _, fut = asyncops.while_loop(lambda c: c[0] < 3, step, (0, start(x)))
        c = asyncops.fori_loop(jnp.int32(1), jnp.int32(4), lambda i, y: y + i, x)
        return a + b + done(fut) + c

    def moved(k):
        return jnp.roll(X, 2 * k, axis=0)

    want = moved(7) + moved(6) + 8 + moved(4) + X + 6
    np.testing.assert_allclose(sharded(program, 4)(X), want, rtol=1e-5, atol=1e-5)


# -- scheduled by the TPU compiler --------------------------------------------------------------------


def count(x):
    """A number of iterations that nobody knows when the program is compiled."""
    return lax.psum(jnp.sum(x), "x").astype(jnp.int32)


def with_loop(body, kind, n):
    def fn(x):
        return body(kind, n if n is not None else count(x), x)

    fn.__name__ = f"{body.__name__}-{kind.__name__}-{n}"
    return fn


ODD = [with_loop(b, scanned, 7) for b in BODIES]
UNKNOWN = [with_loop(b, fori, None) for b in (ring, started_and_finished, carries_what_it_sends, work_behind)]
DATA = [with_loop(b, decided_by_data, 7) for b in (ring, started_and_finished, sends_what_it_computes)]


def slow(*cases):
    return [pytest.param(*(c if isinstance(c, tuple) else [c]), marks=pytest.mark.slow) for c in cases]


@pytest.mark.tpu_compile
@pytest.mark.parametrize(
    "fn",
    [*ODD[3:6], *UNKNOWN[:2], DATA[1], *slow(*ODD[:3], ODD[6], *UNKNOWN[2:], DATA[0], DATA[2])],
    ids=names,
)
def test_no_copies_in_loops_and_nothing_in_flight_is_moved(fn, scheduled):
    compiled = scheduled(fn)
    assert compiled.moved_in_flight() == []
    assert compiled.copies_in_loops() == []


@pytest.mark.tpu_compile
@pytest.mark.parametrize("fn", UNKNOWN[:2], ids=names)
def test_two_iterations_at_a_time(fn, scheduled):
    compiled = scheduled(fn)
    (body,) = compiled.bodies()
    assert compiled.starts_and_dones(body) == (2, 2)


@pytest.mark.tpu_compile
def test_stacks_are_finished_where_they_are_started(scheduled):
    compiled = scheduled(stacked)
    assert compiled.moved_in_flight() == []
    begin, end = compiled.bodies()
    assert compiled.starts_and_dones(begin) == (2, 2)
    assert compiled.starts_and_dones(end) == (0, 0)


@pytest.mark.tpu_compile
def test_a_stack_without_the_decorator_is_refused_when_it_is_compiled(scheduled):
    with pytest.raises(Exception, match="a stack of the futures started at") as caught:
        scheduled(stacked, ordered=False)
    assert isinstance(caught.value.__cause__ or caught.value, InFlightMovedError)


@pytest.mark.tpu_compile
@pytest.mark.parametrize("program", [ODD[0], UNKNOWN[0]], ids=names)
def test_without_the_decorator_a_loop_that_carries_a_future_is_refused(program, scheduled):
    """It would be copied in flight: `test_note` shows what a compiler does to one written by hand."""
    message = r"the future finished at test_buffering.py:\d+ .* was carried by a loop.*asyncops.program_order"
    with pytest.raises(Exception, match=message) as caught:
        scheduled(program, ordered=False)
    assert isinstance(caught.value.__cause__ or caught.value, InFlightMovedError)


@pytest.mark.tpu_compile
def test_a_future_may_leave_our_loop_and_be_finished_outside(scheduled):
    def program(x):
        fut = asyncops.fori_loop(0, 6, lambda i, fut: start(done(fut)), start(x))
        return done(fut)

    for fn in (program, gradient(program)):
        compiled = scheduled(fn, (128, 128), ordered=False)
        assert compiled.moved_in_flight() == []
        assert compiled.copies_in_loops() == []


# -- queues of futures --------------------------------------------------------------------------------


def queue(depth, sends):
    """A loop that keeps several operations in flight: each iteration finishes the oldest and starts another."""

    def body(loop, n, x):
        def step(i, carry):
            total, futures = carry
            y = done(futures[0])
            return total + jnp.sin(y), (*futures[1:], start(sends(y, x)))

        total, futures = loop(n, step, (x, tuple(start(x * k) for k in range(1, depth + 1))))
        return total + sum(done(fut) * k for k, fut in enumerate(futures, 1))

    body.__name__ = f"queue of {depth} {sends.__name__}"
    return body


def what_arrived(y, x):
    return y


def what_it_computes(y, x):
    return y * x


QUEUES = [queue(depth, sends) for depth in (2, 3) for sends in (what_arrived, what_it_computes)]


@pytest.mark.parametrize("kind", [fori, scanned, decided_by_data], ids=names)
def test_queues_of_futures(kind):
    numbers = [0, 1, 3, 5, 6] if kind is fori else [4]
    bodies = QUEUES if kind is fori else QUEUES[:2]

    def run(x, n):
        n = n if kind is fori else numbers[0]
        plain = [lambda x, b=b: b(kind, n, x) for b in bodies]
        return [[f(x) for f in plain], [program_order(f)(x) for f in plain]]

    mapped = jax.shard_map(run, mesh=mesh(4), in_specs=(P("x"), P()), out_specs=P("x"), check_vma=False)
    compiled = jax.jit(mapped)
    for n in numbers:
        for a, b in zip(*compiled(X, jnp.int32(n)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=f"{n} iterations")


@pytest.mark.tpu_compile
@pytest.mark.parametrize(
    ("body", "kind", "n"),
    [
        (QUEUES[0], scanned, 9),
        *slow(
            (QUEUES[1], fori, None),
            (QUEUES[1], scanned, 9),
            (QUEUES[0], fori, None),
            (QUEUES[2], scanned, 13),
        ),
    ],
    ids=lambda p: getattr(p, "__name__", str(p)),
)
def test_queues_are_neither_copied_nor_moved(body, kind, n, scheduled):
    compiled = scheduled(with_loop(body, kind, n), (128, 128))
    assert compiled.moved_in_flight() == []
    assert compiled.copies_in_loops() == []


# -- where the compiler has memory to move things to --------------------------------------------------


def stacks_what_arrives(x):
    """The gradient of a loop keeps what it received for the way back."""

    def step(carry, k):
        x, fut = carry
        y = done(fut)
        return (x + jnp.sin(y) * k, start(y + x)), y

    (x, fut), ys = lax.scan(step, (x, start(x)), jnp.arange(1.0, 6.0))
    return x + done(fut) + ys[1]


def gradient_of_sums(x):
    """What is sent back is a broadcast, which a compiler would rather make twice than keep."""

    def step(carry, k):
        total, fut = carry
        return (total + asyncops.psum_done(fut), asyncops.psum_start(jnp.sin(x * k), "x")), None

    carry = (jnp.zeros_like(x), asyncops.psum_start(x, "x"))
    (total, fut), _ = lax.scan(step, carry, jnp.arange(1.0, 6.0))
    return total + asyncops.psum_done(fut)


def gradient(fn):
    def of(x):
        return jax.grad(lambda x: jnp.sum(jnp.sin(fn(x))))(x)

    of.__name__ = f"gradient of {fn.__name__}"
    return of


SMALL = [stacks_what_arrives, gradient(stacks_what_arrives), gradient(gradient_of_sums)]


@pytest.mark.tpu_compile
@pytest.mark.parametrize("fn", SMALL, ids=names)
def test_what_is_sent_is_not_moved_to_vmem(fn, scheduled):
    compiled = scheduled(fn, (128, 128))
    assert compiled.moved_in_flight() == []
    assert compiled.copies_in_loops() == []
    report = asyncops.check_compiled(compiled.text)
    assert [d for d in report.diagnostics if d.severity == "error"] == []


def in_branches(x):
    def yes():
        fut = start(jnp.cos(x))
        z = jnp.sin(x)
        y = done(fut)
        fut = start(y)
        return y, done(fut) * z, x

    a, b, c = lax.cond(lax.psum(x.sum(), "x") > 0, yes, lambda: (x, x + 1, x * 2))
    return a * b + c


def refs_in_branches(x):
    x_ref, y_ref = jax.new_ref(x * 2), jax.new_ref(jnp.zeros_like(x))

    def yes():
        fut = note.start_ref(x_ref, y_ref)
        z = jnp.sin(x_ref[...])
        note.done_ref(fut)
        x_ref[...] = z

    lax.cond(lax.psum(x.sum(), "x") > 0, yes, lambda: None)
    return y_ref[...] * x_ref[...]


@pytest.mark.tpu_compile
@pytest.mark.parametrize("fn", [in_branches, refs_in_branches], ids=names)
def test_what_was_sent_may_leave_a_branch(fn, scheduled):
    """The compiler would abort where a conditional gives what may not be moved."""
    assert scheduled(fn, (128, 128)).moved_in_flight() == []
