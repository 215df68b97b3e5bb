"""Effects of whole functions, through everything that surrounds a kernel."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jax.experimental.pallas import tpu as pltpu
from jax.extend.core import Primitive
from jax.sharding import PartitionSpec as P

import stateful
from stateful import effects as fx

X = jax.ShapeDtypeStruct((16, 128), jnp.float32)
SEMAPHORE = pl.BlockSpec(memory_space=pltpu.SEMAPHORE)


def texts(inferred, name):
    return [str(e) for e in inferred.on(name)]


# -- the design note's closing program, as it is written today -----------------------------------------------


def to_the_right(x_ref, y_ref, send, recv):
    right = lax.rem(lax.axis_index("x") + 1, lax.axis_size("x"))
    return pltpu.make_async_remote_copy(x_ref, y_ref, send, recv, device_id=(right,))


def ppermute_start_ref(x_ref, y_ref):
    def start(send, recv):
        to_the_right(x_ref, y_ref, send, recv).start()

    dma = pltpu.SemaphoreType.DMA(())
    return pl.pallas_call(start, out_shape=(dma, dma), out_specs=(SEMAPHORE, SEMAPHORE), name="start")()


def ppermute_done_ref(future, x_ref, y_ref):
    def done(send, recv):
        to_the_right(x_ref, y_ref, send, recv).wait()

    pl.pallas_call(done, out_shape=(), in_specs=(SEMAPHORE, SEMAPHORE), name="done")(*future)


def closing_program(x):
    x_ref = stateful.make_ref(x)
    y_ref = stateful.make_ref(jnp.zeros_like(x))

    def body(i, _):
        future = ppermute_start_ref(x_ref, y_ref)
        ppermute_done_ref(future, x_ref, y_ref)
        future = ppermute_start_ref(y_ref, x_ref)
        ppermute_done_ref(future, y_ref, x_ref)

    lax.fori_loop(0, 4, body, None)
    return x_ref[...]


def on_a_ring(fn):
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]), ("x",))
    return jax.shard_map(fn, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False)


def test_the_notes_closing_program_shows_what_it_does_to_both_refs():
    inferred = stateful.infer_effects(on_a_ring(closing_program))(X)
    assert not inferred.unmodelled
    for name in ("x_ref", "y_ref"):
        kinds = {type(e) for e in inferred.on(name)}
        assert {fx.Allocate, fx.Write, fx.DmaRead, fx.DmaWrite} <= kinds
    assert fx.Read in {type(e) for e in inferred.on("x_ref")}
    remote = [e for e in inferred.effects if isinstance(e, fx.DmaWrite)]
    assert {str(e.view) for e in remote} == {"x_ref[...]", "y_ref[...]"}
    assert all(e.device is not None for e in remote)


def test_its_text_names_refs_semaphores_and_lines():
    text = str(stateful.infer_effects(on_a_ring(closing_program))(X))
    for part in ("dma read x_ref[...]", "dma write y_ref[...] on device", "wait send", "test_inference.py:"):
        assert part in text


def test_waits_are_on_the_semaphores_that_the_starts_signal():
    inferred = stateful.infer_effects(on_a_ring(closing_program))(X)
    signalled = {e.view.root for e in inferred.effects if isinstance(e, fx.Signal)}
    waited = {e.view.root for e in inferred.effects if isinstance(e, fx.Wait)}
    assert len(signalled) == 4
    assert waited == signalled


# -- Refs outside kernels ------------------------------------------------------------------------------------


def test_arguments_and_closed_over_refs_have_names():
    outside = jax.new_ref(jnp.zeros(4))

    def fn(x_ref, k):
        x_ref[k] = outside[0]

    inferred = stateful.infer_effects(fn)(jax.new_ref(jnp.zeros(4)), 1)
    assert texts(inferred, "x_ref") == ["write x_ref[k]"]
    assert texts(inferred, "ref") == ["read ref[0]"]
    assert [m.kind for m in inferred.memories] == ["closed over", "argument"]


def test_a_counter_is_a_symbol_with_its_range():
    def fn(x_ref):
        lax.fori_loop(2, 6, lambda i, _: x_ref.__setitem__(i + 1, 0.0), None)

    inferred = stateful.infer_effects(fn)(jax.new_ref(jnp.zeros(8)))
    (write,) = inferred.on("x_ref")
    assert str(write) == "write x_ref[i + 1]"
    whole, below = inferred.memories[0], write.view.region
    assert whole.type.shape == (8,)
    before = stateful.View.whole(whole, whole.type).region
    assert before.contains(below) is not False
    assert below.out_of_bounds() is False


def test_both_branches_count_unless_the_index_is_known():
    def fn(x_ref, flag):
        lax.cond(flag, lambda: x_ref.__setitem__(0, 1.0), lambda: x_ref.__setitem__(1, 1.0))

    inferred = stateful.infer_effects(fn)(jax.new_ref(jnp.zeros(8)), True)
    assert sorted(texts(inferred, "x_ref")) == ["write x_ref[0]", "write x_ref[1]"]


def test_effects_come_through_calls_loops_and_derivatives():
    @jax.custom_jvp
    def with_jvp(x):
        return x * 2

    with_jvp.defjvps(lambda t, out, x: t * 2)

    @jax.jit
    def step(x_ref):
        x_ref[1] = with_jvp(x_ref[0])

    def fn(x_ref):
        lax.while_loop(lambda i: i < 3, lambda i: (step(x_ref), i + 1)[1], 0)

    inferred = stateful.infer_effects(fn)(jax.new_ref(jnp.zeros(8)))
    assert texts(inferred, "x_ref") == ["read x_ref[0]", "write x_ref[1]"]


def test_run_state_makes_memory():
    def fn(x):
        def body(acc_ref):
            acc_ref[0] = acc_ref[1] + 1

        return stateful.run_state(body)(x)

    inferred = stateful.infer_effects(fn)(jnp.zeros(8))
    assert texts(inferred, "acc_ref") == ["read acc_ref[1]", "write acc_ref[0]"]


# -- inside kernels ------------------------------------------------------------------------------------------


def test_grid_indices_and_scratch():
    def kernel(x_hbm, o_ref, buf, sem):
        i = pl.program_id(0)
        copy = pltpu.make_async_copy(x_hbm.at[pl.ds(i * 8, 8)], buf, sem)
        copy.start()
        copy.wait()
        o_ref[...] = buf[...]

    call = pl.pallas_call(
        kernel,
        grid=(2,),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec((8, 128), lambda i: (i, 0)),
        out_shape=X,
        scratch_shapes=[pltpu.VMEM((8, 128), jnp.float32), pltpu.SemaphoreType.DMA],
    )
    inferred = stateful.infer_effects(call)(X)
    assert texts(inferred, "x_hbm") == ["dma read x_hbm[8*pid0:8*pid0 + 8]"]
    assert texts(inferred, "buf") == ["dma write buf[...]", "read buf[...]"]
    assert texts(inferred, "sem") == ["signal sem[...] 4096", "wait sem[...] 4096"]


def test_aliased_whole_arrays_are_one_memory():
    def kernel(x_hbm, o_hbm):
        o_hbm[0] = x_hbm[1]

    whole = pl.BlockSpec(memory_space=pl.ANY)
    call = pl.pallas_call(kernel, in_specs=[whole], out_specs=whole, out_shape=X, input_output_aliases={0: 0})
    inferred = stateful.infer_effects(call)(X)
    assert texts(inferred, "x_hbm") == ["read x_hbm[1]", "write x_hbm[0]"]


def test_scoped_memory_begins_and_ends():
    def kernel(x_ref, o_ref):
        def body(acc):
            acc[...] = x_ref[...]
            o_ref[...] = acc[...]

        pl.run_scoped(body, pltpu.VMEM((16, 128), jnp.float32))

    inferred = stateful.infer_effects(pl.pallas_call(kernel, out_shape=X))(X)
    assert [type(e) for e in inferred.on("acc")] == [fx.Allocate, fx.Write, fx.Read, fx.Free]


def test_a_kernel_in_a_loop_on_refs_it_closes_over():
    def fn(x):
        x_ref, y_ref = jax.new_ref(x), jax.new_ref(x)

        def kernel():
            pltpu.sync_copy(x_ref, y_ref)

        def body(i, _):
            pl.pallas_call(kernel, out_shape=())()

        lax.fori_loop(0, 3, body, None)
        return y_ref[...]

    inferred = stateful.infer_effects(fn)(X)
    assert "dma read x_ref[...]" in texts(inferred, "x_ref")
    assert texts(inferred, "y_ref")[-2:] == ["dma write y_ref[...]", "read y_ref[...]"]


def test_an_emitted_pipeline_reads_and_writes_its_arrays(pipelines_kept):
    def kernel(x_hbm, o_hbm):
        def body(x_ref, y_ref):
            y_ref[...] = x_ref[...] + 1

        spec = pl.BlockSpec((8, 128), lambda i: (i, 0))
        pltpu.emit_pipeline(body, grid=(2,), in_specs=[spec], out_specs=[spec])(x_hbm, o_hbm)

    whole = pl.BlockSpec(memory_space=pl.ANY)
    inferred = stateful.infer_effects(pl.pallas_call(kernel, in_specs=[whole], out_specs=whole, out_shape=X))(
        X
    )
    assert [type(e) for e in inferred.on("x_hbm")] == [fx.DmaRead]
    assert [type(e) for e in inferred.on("o_hbm")] == [fx.DmaWrite]
    assert texts(inferred, "x_ref") == ["dma write x_ref[...]", "read x_ref[...]"]


def test_what_has_no_model_is_named():
    def fn(x_ref):
        return lax.cond(x_ref[0] > 0, lambda: 1, lambda: 2)

    assert not stateful.infer_effects(fn)(jax.new_ref(jnp.zeros(2))).unmodelled
    unknown = Primitive("unheard_of")
    unknown.def_abstract_eval(lambda ref: jax.core.ShapedArray((), jnp.float32))
    inferred = stateful.infer_effects(lambda r: unknown.bind(r))(jax.new_ref(jnp.zeros(2)))
    (step,) = inferred.unmodelled
    assert "unheard_of" in step.unmodelled
    assert "not modelled" in str(inferred)


def test_a_mosaic_gpu_kernel_says_what_it_does_not_know():
    def kernel(x_ref, o_ref):
        def body(smem, barrier):
            plgpu.copy_gmem_to_smem(x_ref, smem, barrier)
            plgpu.barrier_wait(barrier)
            o_ref[...] = smem[...] + 1

        pl.run_scoped(body, plgpu.SMEM((128,), jnp.float32), plgpu.Barrier())

    whole = pl.BlockSpec(memory_space=plgpu.GMEM)
    call = pl.pallas_call(
        kernel,
        in_specs=[whole],
        out_specs=whole,
        out_shape=jax.ShapeDtypeStruct((128,), jnp.float32),
        compiler_params=plgpu.CompilerParams(),
    )
    inferred = stateful.infer_effects(call)(jnp.zeros(128))
    assert [s.primitive for s in inferred.unmodelled] == ["copy_gmem_to_smem", "barrier_wait"]
    assert all("Mosaic GPU" in s.unmodelled for s in inferred.unmodelled)
    assert texts(inferred, "o_ref") == ["write o_ref[...]"]


def test_a_pure_function_has_none():
    assert str(stateful.infer_effects(jnp.sin)(1.0)).endswith(": none")
