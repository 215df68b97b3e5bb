"""The law of discharge: running with Refs equals running discharged, wherever JAX can run both."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

import stateful
from stateful.errors import (
    InvalidArgumentError,
    SemaphoreTypeError,
    UnmodelledError,
    UnsatisfiedWaitError,
)

SIZE = 8


def examples(share):
    """So many examples of the profile's: compiling makes these ones slow."""
    return settings(max_examples=max(1, int(share * settings.default.max_examples)))


def assert_same(mine, theirs):
    for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


# -- programs on Refs ----------------------------------------------------------------------------------------

# A program is a nested list of statements over the Refs x and y; ``i`` is the counter of the loop around it.
REFS = st.sampled_from(["x", "y"])
PLACES = st.sampled_from(["whole", "element", "slice", "strided", "counter"])


def statements(depth):
    simple = st.one_of(
        st.tuples(st.just("store"), REFS, PLACES, st.integers(-2, 2)),
        st.tuples(st.just("copy"), REFS, REFS, PLACES),
        st.tuples(st.just("accumulate"), REFS, PLACES),
        st.tuples(st.just("swap"), REFS, PLACES),
    )
    if depth == 0:
        return simple
    block = st.lists(statements(depth - 1), min_size=1, max_size=3)
    return st.one_of(
        simple,
        st.tuples(st.just("scan"), st.integers(0, 3), block),
        st.tuples(st.just("while"), st.integers(0, 3), block),
        st.tuples(st.just("cond"), REFS, block, block),
        st.tuples(st.just("jit"), block),
        st.tuples(st.just("remat"), block),
        st.tuples(st.just("local"), block),
    )


PROGRAMS = st.lists(statements(2), min_size=1, max_size=5)


def place(kind, i):
    return {
        "whole": slice(None),
        "element": 3,
        "slice": pl.ds(2, 4),
        "strided": pl.ds(1, 3, 2),
        "counter": jnp.asarray(i) % SIZE,
    }[kind]


def carry_out(block, refs, i):
    for statement in block:
        RULES[statement[0]](refs, i, *statement[1:])


def store(refs, i, name, kind, value):
    refs[name][place(kind, i)] = jnp.full_like(refs[name][place(kind, i)], value)


def copy(refs, i, target, source, kind):
    refs[target][place(kind, i)] = refs[source][place(kind, i)]


def accumulate(refs, i, name, kind):
    jax.ref.addupdate(refs[name], place(kind, i), refs["x"][place(kind, i)] + 1)


def swap(refs, i, name, kind):
    old = jax.ref.swap(refs[name], place(kind, i), refs[name][place(kind, i)] * 2 + 1)
    refs["y"][place(kind, i)] += old


def scan(refs, i, length, block):
    def body(j, total):
        carry_out(block, refs, j)
        return total + refs["x"][j]

    refs["y"][0] += lax.fori_loop(0, length, body, 0.0)


def while_(refs, i, limit, block):
    def body(j):
        carry_out(block, refs, j)
        return j + 1

    lax.while_loop(lambda j: (j < limit) & (refs["x"][0] < 1e3), body, 0)


def cond(refs, i, name, yes, no):
    lax.cond(
        refs[name][1] > 0,
        lambda: carry_out(yes, refs, i),
        lambda: carry_out(no, refs, i),
    )


def jit(refs, i, block):
    jax.jit(lambda: carry_out(block, refs, i))()


def remat(refs, i, block):
    # A value computed under remat between two effects; JAX allows no writes inside.
    carry_out(block, refs, i)
    refs["y"][1] = jax.checkpoint(lambda v: jnp.sin(v) * v)(refs["x"][2])


def local(refs, i, block):
    """The block on a Ref of its own in the place of x."""
    fresh = jax.new_ref(refs["x"][...] + 1)
    carry_out(block, {**refs, "x": fresh}, i)
    refs["y"][2] = jax.freeze(fresh)[3]


RULES = {
    "store": store, "copy": copy, "accumulate": accumulate, "swap": swap, "scan": scan, "while": while_,
    "cond": cond, "jit": jit, "remat": remat, "local": local,
}  # fmt: skip


@given(PROGRAMS, st.integers(-3, 3))
@examples(0.4)
def test_programs_on_refs(program, start):
    def fn(x):
        refs = {"x": jax.new_ref(x), "y": jax.new_ref(x * 2)}
        carry_out(program, refs, 1)
        return refs["x"][...], refs["y"][...]

    x = jnp.arange(SIZE, dtype=jnp.float32) + start
    assert_same(jax.jit(stateful.discharge(fn))(x), jax.jit(fn)(x))


@given(PROGRAMS)
@examples(0.1)
def test_programs_where_both_names_are_one_ref(program):
    def fn(x):
        ref = jax.new_ref(x)
        carry_out(program, {"x": ref, "y": ref}, 0)
        return jax.freeze(ref)

    x = jnp.arange(SIZE, dtype=jnp.float32)
    assert_same(stateful.discharge(fn)(x), jax.jit(fn)(x))


def test_no_ref_is_left_in_a_discharged_program():
    def fn(x):
        ref = jax.new_ref(x)
        ref[0] += 1
        return jax.freeze(ref)

    jaxpr = jax.make_jaxpr(stateful.discharge(fn))(jnp.zeros(4))
    assert not jaxpr.effects
    assert not any("ref" in e.primitive.name for e in jaxpr.jaxpr.eqns)


def test_refs_among_the_arguments():
    def fn(x_ref, k, y_ref):
        x_ref[k] = y_ref[0]
        return x_ref[1]

    result, (x, y) = stateful.discharge(fn, refs=[0, 2])(jnp.zeros(3), 1, jnp.ones(3))
    assert (result, x.tolist(), y.tolist()) == (1, [0, 1, 0], [1, 1, 1])


def test_run_state_over_a_tree():
    def fn(x):
        def body(refs):
            first, second = refs
            second[...] = first[...] + 1
            first[0] = second[1]

        return stateful.run_state(body)((x, x))

    assert_same(stateful.discharge(fn)(jnp.arange(4.0)), jax.jit(fn)(jnp.arange(4.0)))


def test_derivatives_go_through():
    def fn(x):
        ref = jax.new_ref(x)
        lax.fori_loop(0, 3, lambda i, _: ref.__setitem__(i, jnp.sin(ref[i])), None)
        return ref[...].sum()

    x = jnp.arange(4.0)
    expected = np.where(np.arange(4) < 3, np.cos(x), 1)
    np.testing.assert_allclose(jax.grad(stateful.discharge(fn))(x), expected, rtol=1e-6)


def test_vmap_goes_through():
    def fn(x):
        ref = jax.new_ref(x)
        ref[1] = ref[0]
        return jax.freeze(ref)

    x = jnp.arange(6.0).reshape(3, 2)
    np.testing.assert_array_equal(jax.vmap(stateful.discharge(fn))(x)[:, 1], x[:, 0])


def test_shard_map_cuts_the_memory_up():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("x",))

    def on_shard(x):
        ref = jax.new_ref(x)
        ref[0] += lax.axis_index("x") + 1.0
        return jax.freeze(ref)

    fn = jax.shard_map(on_shard, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False)
    result = stateful.discharge(fn)(jnp.zeros(4))
    np.testing.assert_array_equal(result, [1, 0, 2, 0])


# -- kernels -------------------------------------------------------------------------------------------------

ANY = pl.BlockSpec(memory_space=pl.ANY)
ROWS = jax.ShapeDtypeStruct((4, 8, 128), jnp.float32)


def interpreted(make, *args):
    """The results in JAX's TPU interpret mode; the call is made inside, where it is told so."""
    jax.clear_caches()
    with pltpu.force_tpu_interpret_mode():
        results = jax.jit(make())(*args)
    jax.clear_caches()
    return results


def assert_law(make, *args):
    assert_same(jax.jit(stateful.discharge(make()))(*args), interpreted(make, *args))


def rows():
    return jnp.arange(4 * 8 * 128, dtype=jnp.float32).reshape(4, 8, 128)


MOVES = st.lists(
    st.tuples(
        st.sampled_from(["in", "out", "within", "add", "loop"]),
        st.integers(0, 3),
        st.integers(0, 1),
        st.booleans(),
    ),
    min_size=1,
    max_size=5,
)


def moving_kernel(moves):
    """Copies between the array and two buffers, waited for by the descriptor or by one made anew."""

    def kernel(x_hbm, o_hbm, buf, sems):
        def move(kind, row, slot):
            pair = {
                "in": (x_hbm.at[row], buf.at[slot]),
                "out": (buf.at[slot], o_hbm.at[row]),
                "within": (buf.at[slot, pl.ds(0, 8)], buf.at[1 - slot, pl.ds(0, 8)]),
            }[kind]
            return pltpu.make_async_copy(*pair, sems.at[slot])

        buf[...] = jnp.zeros_like(buf)
        pltpu.sync_copy(x_hbm, o_hbm)
        for kind, row, slot, is_remade in moves:
            if kind == "add":
                buf[slot] += row
            elif kind == "loop":

                @pl.loop(0, row)
                def _(r, slot=slot):
                    copy = move("in", r, slot)
                    copy.start()
                    copy.wait()
                    back = move("out", r, slot)
                    back.start()
                    back.wait()
            else:
                copy = move(kind, row, slot)
                copy.start()
                (move(kind, row, slot) if is_remade else copy).wait()

    return kernel


@given(MOVES)
@examples(0.15)
def test_kernels_that_copy(moves):
    def make():
        return pl.pallas_call(
            moving_kernel(moves),
            in_specs=[ANY],
            out_specs=ANY,
            out_shape=ROWS,
            scratch_shapes=[pltpu.VMEM((2, 8, 128), jnp.float32), pltpu.SemaphoreType.DMA((2,))],
        )

    assert_law(make, rows())


@pytest.mark.parametrize("accumulates", [False, True])
def test_grids_blocks_and_scratch(accumulates):
    def kernel(x_ref, o_ref, acc):
        i, j = pl.program_id(0), pl.program_id(1)

        @pl.when(j == 0)
        def _():
            acc[...] = jnp.zeros_like(acc)

        acc[...] += x_ref[...] * (i + 1)
        o_ref[...] = acc[...] if accumulates else x_ref[...] + pl.num_programs(1)

    def make():
        return pl.pallas_call(
            kernel,
            grid=(2, 3),
            in_specs=[pl.BlockSpec((8, 128), lambda i, j: (i, j))],
            out_specs=pl.BlockSpec((8, 128), (lambda i, j: (i, 0)) if accumulates else (lambda i, j: (i, j))),
            out_shape=jax.ShapeDtypeStruct((16, 128 if accumulates else 384), jnp.float32),
            scratch_shapes=[pltpu.VMEM((8, 128), jnp.float32)],
        )

    assert_law(make, jnp.arange(16 * 384, dtype=jnp.float32).reshape(16, 384))


def test_blocks_that_do_not_divide_the_array():
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] * 2

    spec = pl.BlockSpec((8, 128), lambda i: (i, 0))

    def make():
        return pl.pallas_call(
            kernel,
            grid=(2,),
            in_specs=[spec],
            out_specs=spec,
            out_shape=jax.ShapeDtypeStruct((12, 128), jnp.float32),
        )

    assert_law(make, jnp.arange(12 * 128, dtype=jnp.float32).reshape(12, 128))


def test_scalar_prefetch_squeezed_blocks_and_aliases():
    def kernel(table_ref, x_ref, y_hbm, o_hbm, sem):
        i = pl.program_id(0)
        copy = pltpu.make_async_copy(x_ref, o_hbm.at[table_ref[i]], sem)
        copy.start()
        copy.wait()

    def make():
        spec = pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(2,),
            in_specs=[pl.BlockSpec((pl.squeezed, 8, 128), lambda i, table: (table[i] - 1, 0, 0)), ANY],
            out_specs=ANY,
            scratch_shapes=[pltpu.SemaphoreType.DMA],
        )
        return pl.pallas_call(kernel, grid_spec=spec, out_shape=ROWS, input_output_aliases={2: 0})

    assert_law(make, jnp.array([3, 1], jnp.int32), rows(), rows() + 1)


def test_vmapped_kernels():
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] + pl.program_id(0)

    def make():
        spec = pl.BlockSpec((8, 128), lambda i: (i, 0))
        return jax.vmap(
            pl.pallas_call(
                kernel,
                grid=(2,),
                in_specs=[spec],
                out_specs=spec,
                out_shape=jax.ShapeDtypeStruct((16, 128), jnp.float32),
            )
        )

    assert_law(make, jnp.zeros((3, 16, 128)))


def test_scoped_memory_and_semaphores_by_hand():
    def kernel(x_ref, o_ref):
        def body(acc, sem, ready):
            copy = pltpu.make_async_copy(x_ref, acc, sem)
            copy.start()
            pl.semaphore_signal(ready, 2)
            pl.semaphore_wait(ready, 1)
            copy.wait()
            pl.semaphore_wait(ready, 1)
            o_ref[...] = acc[...] + 1

        dma, regular = pltpu.SemaphoreType.DMA, pltpu.SemaphoreType.REGULAR
        pl.run_scoped(body, pltpu.VMEM((8, 128), jnp.float32), dma, regular)

    def make():
        return pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct((8, 128), jnp.float32))

    assert_law(make, rows()[0])


def test_the_count_of_a_semaphore():
    def kernel(o_ref, ready):
        pl.semaphore_signal(ready, 3)
        pl.delay(10)
        pl.semaphore_wait(ready, 1)
        o_ref[0] = pl.semaphore_read(ready)

    smem = pl.BlockSpec(memory_space=pltpu.SMEM)
    call = pl.pallas_call(
        kernel,
        out_specs=smem,
        out_shape=jax.ShapeDtypeStruct((1,), jnp.int32),
        scratch_shapes=[pltpu.SemaphoreType.REGULAR],
    )
    assert stateful.discharge(call)().tolist() == [2]


def test_a_pipeline_inside_a_kernel(pipelines_kept):
    def kernel(x_hbm, o_hbm):
        def body(x_ref, o_ref):
            o_ref[...] = x_ref[...] + pl.program_id(0)

        spec = pl.BlockSpec((pl.squeezed, 8, 128), lambda i: (i, 0, 0))
        pltpu.emit_pipeline(body, grid=(4,), in_specs=[spec], out_specs=[spec])(x_hbm, o_hbm)

    call = pl.pallas_call(kernel, in_specs=[ANY], out_specs=ANY, out_shape=ROWS)
    expected = rows() + jnp.arange(4.0)[:, None, None]
    assert_same(stateful.discharge(call)(rows()), expected)


def test_kernels_that_close_over_refs_in_a_loop():
    """JAX drops these kernels; the discharged program runs them."""

    def fn(x):
        x_ref, y_ref = jax.new_ref(x), jax.new_ref(jnp.zeros_like(x))

        def kernel():
            pltpu.sync_copy(x_ref, y_ref)
            x_ref[...] = y_ref[...] + 1

        def body(i, _):
            pl.pallas_call(kernel, out_shape=())()

        lax.fori_loop(0, 3, body, None)
        return x_ref[...], y_ref[...]

    x, y = stateful.discharge(fn)(jnp.zeros((8, 128)))
    assert (float(x.min()), float(y.max())) == (3, 2)


# -- what cannot be discharged -------------------------------------------------------------------------------


def waiting_kernel(x_hbm, o_ref, sem, *, starts):
    copy = pltpu.make_async_copy(x_hbm.at[0], o_ref, sem)
    if starts:
        copy.start()
    copy.wait()
    if starts:
        copy.wait()


def waiting_call(starts):
    return pl.pallas_call(
        functools.partial(waiting_kernel, starts=starts),
        in_specs=[ANY],
        out_shape=jax.ShapeDtypeStruct((8, 128), jnp.float32),
        scratch_shapes=[pltpu.SemaphoreType.DMA],
    )


@pytest.mark.parametrize(("starts", "line"), [(False, 4), (True, 6)])
def test_a_wait_that_nothing_satisfies_is_an_error_with_its_line(starts, line):
    expected = f"test_discharging.py:{waiting_kernel.__code__.co_firstlineno + line}"
    with pytest.raises(UnsatisfiedWaitError, match=expected):
        stateful.discharge(waiting_call(starts))(rows())


def test_also_when_compiled():
    with pytest.raises(Exception, match="can never return"):
        jax.block_until_ready(jax.jit(stateful.discharge(waiting_call(True)))(rows()))
        jax.effects_barrier()


def test_a_wait_in_a_branch_not_taken_is_no_error():
    def fn(x, flag):
        def kernel(flag_ref, x_hbm, o_ref, sem):
            o_ref[...] = jnp.zeros_like(o_ref)

            @pl.when(flag_ref[0] > 0)
            def _():
                pltpu.make_async_copy(x_hbm.at[0], o_ref, sem).wait()

        return pl.pallas_call(
            kernel,
            in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), ANY],
            out_shape=jax.ShapeDtypeStruct((8, 128), jnp.float32),
            scratch_shapes=[pltpu.SemaphoreType.DMA],
        )(flag, x)

    assert float(stateful.discharge(fn)(rows(), jnp.array([0])).max()) == 0
    with pytest.raises(UnsatisfiedWaitError):
        stateful.discharge(fn)(rows(), jnp.array([1]))


def test_a_copy_on_a_regular_semaphore_is_a_type_error():
    def kernel(x_hbm, o_ref, sem):
        pltpu.make_async_copy(x_hbm.at[0], o_ref, sem).start()

    call = pl.pallas_call(
        kernel,
        in_specs=[ANY],
        out_shape=jax.ShapeDtypeStruct((8, 128), jnp.float32),
        scratch_shapes=[pltpu.SemaphoreType.REGULAR],
    )
    with pytest.raises(SemaphoreTypeError, match=r"SemaphoreType\.DMA"):
        stateful.discharge(call)(rows())


def test_a_remote_copy_has_no_pure_counterpart():
    def kernel(x_hbm, o_hbm, send, recv):
        pltpu.make_async_remote_copy(x_hbm, o_hbm, send, recv, (1,)).start()

    dma = pltpu.SemaphoreType.DMA
    call = pl.pallas_call(kernel, in_specs=[ANY], out_specs=ANY, out_shape=ROWS, scratch_shapes=[dma, dma])
    with pytest.raises(UnmodelledError, match=r"`dma_start` to another device .*test_discharging\.py"):
        stateful.discharge(call)(rows())


def test_a_closed_over_ref_is_refused_with_the_cure():
    outside = jax.new_ref(jnp.zeros(2))
    with pytest.raises(InvalidArgumentError, match="`refs`"):
        stateful.discharge(lambda x: outside[...] + x)(1.0)


def test_refs_must_name_arguments():
    with pytest.raises(InvalidArgumentError, match=r"argument 3"):
        stateful.discharge(lambda x_ref: x_ref[0], refs=[3])(jnp.zeros(2))
