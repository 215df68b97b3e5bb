"""Every higher-order primitive has one normal form whose operands bind its bodies' inputs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

from stateful import higher_order as ho
from stateful._jax import jaxprs
from stateful.types import MemorySpace, SemaphoreKind

X = jnp.zeros((16, 128), jnp.float32)


def forms(fn, *args):
    """The normal forms of the higher-order equations at the top."""
    body = jaxprs.open_jaxpr(jax.make_jaxpr(fn)(*args))
    return [f for f in map(ho.normal_form, body.jaxpr.eqns) if f is not None]


def only(fn, *args):
    (form,) = forms(fn, *args)
    return form


@jax.custom_jvp
def with_jvp(x):
    return x * 2


with_jvp.defjvps(lambda t, out, x: t * 2)


@jax.custom_vjp
def with_vjp(x):
    return x * 2


with_vjp.defvjp(lambda x: (x * 2, None), lambda _, g: (g * 2,))


@jax.custom_batching.custom_vmap
def with_vmap(x):
    return x * 2


with_vmap.def_vmap(lambda size, batched, x: (x * 2, batched[0]))


@pytest.mark.parametrize(
    ("fn", "kind"),
    [
        (jax.jit(lambda x: x + 1), "jit"),
        (jax.checkpoint(lambda x: jnp.sin(x)), "remat"),
        (with_jvp, "custom_jvp_call"),
        (with_vjp, "custom_vjp_call"),
        (with_vmap, "custom_vmap_call"),
    ],
)
def test_calls(fn, kind):
    form = only(lambda x: fn(x), X)
    assert isinstance(form, ho.Call)
    assert form.kind == kind
    assert len(form.jaxpr.inputs) == len(form.operands)


def test_scan_splits_constants_carry_and_slices():
    def fn(x, scale):
        return lax.scan(lambda c, row: (c + row * scale, row), jnp.zeros(128), x, reverse=True)

    form = only(fn, X, 2.0)
    assert isinstance(form, ho.Scan)
    assert (len(form.consts), len(form.carry), len(form.xs)) == (1, 1, 1)
    assert (form.length, form.reverse) == (16, True)
    assert len(form.jaxpr.inputs) == 3


def test_while_splits_both_constants():
    def fn(x, limit, step):
        return lax.while_loop(lambda c: c < limit, lambda c: c + step, x)

    form = only(fn, 0, 10, 3)
    assert isinstance(form, ho.While)
    assert len(form.cond.inputs) == len(form.cond_consts) + len(form.carry) == 2
    assert len(form.body.inputs) == len(form.body_consts) + len(form.carry) == 2


def test_branches_share_operands():
    form = only(lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, jnp.tan], x), 1, X)
    assert isinstance(form, ho.Branch)
    assert len(form.branches) == 3
    assert all(len(b.inputs) == len(form.operands) for b in form.branches)


def test_shard_map_names_its_mesh():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("a", "b"))
    fn = jax.shard_map(lambda x: x, mesh=mesh, in_specs=P("a"), out_specs=P("a"))
    form = only(fn, X)
    assert isinstance(form, ho.ShardMap)
    assert list(form.mesh.items()) == [("a", 2), ("b", 2)]
    assert form.manual_axes == {"a", "b"}


def test_run_state_has_a_ref_for_each_operand():
    form = only(lambda x: pl.run_state(lambda ref: ref.__setitem__(0, x[1]))(x), X)
    assert isinstance(form, ho.RunState)
    assert len(form.jaxpr.inputs) == len(form.types) == len(form.is_initialized)


def copy_kernel(x_ref, o_ref, sem):
    pltpu.make_async_copy(x_ref, o_ref, sem).start()


def test_run_scoped_splits_outer_and_fresh():
    def kernel(x_ref, o_ref):
        pl.run_scoped(lambda sem: copy_kernel(x_ref, o_ref, sem), pltpu.SemaphoreType.DMA)

    kernel_form = only(pl.pallas_call(kernel, out_shape=X), X)
    (eqn,) = kernel_form.form.jaxpr.jaxpr.eqns
    form = ho.normal_form(eqn)
    assert isinstance(form, ho.Scoped)
    assert [t.semaphore for t in form.allocations] == [SemaphoreKind.DMA]
    assert len(form.outer) == len(form.operands) == 2
    assert len(form.inner) == 1


def test_a_kernel_over_a_grid():
    def kernel(table_ref, x_ref, y_ref, o_ref, acc, sem):
        o_ref[...] = x_ref[0]

    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=(2, 3),
        in_specs=[
            pl.BlockSpec((8, 128), lambda i, j, t: (i, 0), pipeline_mode=pl.Buffered(3)),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec((pl.squeezed, 128), lambda i, j, t: (i, 0)),
        scratch_shapes=[pltpu.VMEM((8, 128), jnp.float32), pltpu.SemaphoreType.DMA((2,))],
    )

    call = pl.pallas_call(
        kernel,
        grid_spec=spec,
        out_shape=X,
        input_output_aliases={1: 0},
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary"), collective_id=7, has_side_effects=True
        ),
        name="named",
    )
    form = only(call, jnp.zeros(4, jnp.int32), X, X)
    k = form.form
    assert (k.name, k.grid, k.scalar_prefetch, k.constants) == ("named", (2, 3), 1, 0)
    assert k.dimension_semantics == ("parallel", "arbitrary")
    assert (k.collective_id, k.has_side_effects, k.backend) == (7, True, "tpu")
    assert k.aliases == {0: 0}
    first, second, out = k.windows
    assert (first.block_shape, first.pipelined, first.buffer_count) == ((8, 128), True, 3)
    assert (second.space, second.pipelined) == (MemorySpace.ANY, False)
    assert (out.block_shape, out.space, out.buffer_count) == ((None, 128), MemorySpace.VMEM, 2)
    assert [t.semaphore for t in k.scratch] == [None, SemaphoreKind.DMA]
    roles = k.split_inputs(k.programs[0])
    assert {role: len(v) for role, v in roles.items()} == {
        "constants": 0, "scalars": 1, "inputs": 2, "outputs": 1, "scratch": 2,
    }  # fmt: skip


def test_a_dynamic_grid_bound_is_an_operand():
    def fn(n, x):
        def kernel(x_ref, o_ref):
            o_ref[...] = x_ref[...]

        spec = pl.BlockSpec((8, 128), lambda i: (0, 0))
        return pl.pallas_call(kernel, grid=(n,), in_specs=[spec], out_specs=spec, out_shape=x)(x)

    form = only(fn, 3, X)
    assert form.form.grid == (None,)
    assert form.grid == form.bounds
    assert len(form.inputs) == 1


def test_closed_over_refs_are_constants_and_bind_the_first_inputs():
    def fn(x):
        ref = jax.new_ref(x)

        def kernel(o_ref):
            o_ref[...] = ref[...]

        return pl.pallas_call(kernel, out_shape=x)()

    form = only(fn, X)
    assert form.form.constants == 1
    (outer,), (inner,) = form.constants, form.form.split_inputs(form.form.programs[0])["constants"]
    assert jaxprs.is_ref(outer.aval)
    assert jaxprs.is_ref(inner.aval)


def test_vmap_adds_a_grid_dimension_that_program_id_does_not_count():
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] + pl.program_id(0)

    spec = pl.BlockSpec((8, 128), lambda i: (i, 0))
    call = pl.pallas_call(kernel, grid=(2,), in_specs=[spec], out_specs=spec, out_shape=X)
    k = only(jax.vmap(call), jnp.zeros((3, 16, 128))).form
    assert k.grid == (3, 2)
    assert [k.grid[d] for d in k.program_axes] == [2]


def test_a_kernel_over_cores_has_its_axes():
    mesh = pltpu.create_tensorcore_mesh("core", num_cores=2)

    def fn(x):
        ref = jax.new_ref(x)

        @pl.core_map(mesh)
        def _():
            ref[lax.axis_index("core")] = jnp.zeros(128)

        return ref[...]

    k = only(fn, X).form
    (program,) = k.programs
    assert (program.core, program.mesh_axes) == ("tc", {"core": 2})


def test_emit_pipeline_kept_as_one_equation(pipelines_kept):
    def kernel(x_hbm, o_hbm):
        def body(x_ref, o_ref):
            o_ref[...] = x_ref[...] + 1

        spec = pl.BlockSpec((8, 128), lambda i: (i, 0))
        pltpu.emit_pipeline(body, grid=(2,), in_specs=[spec], out_specs=[spec])(x_hbm, o_hbm)

    whole = pl.BlockSpec(memory_space=pl.ANY)
    k = only(pl.pallas_call(kernel, in_specs=[whole], out_specs=whole, out_shape=X), X).form
    (form,) = [f for f in map(ho.normal_form, k.jaxpr.jaxpr.eqns) if f is not None]
    assert isinstance(form, ho.Pipeline)
    assert form.grid == (2,)
    assert len(form.refs) == 2
    assert form.form.n_inputs == 1
    assert [w.block_shape for w in form.form.windows] == [(8, 128), (8, 128)]


def test_first_order_equations_have_no_form():
    assert forms(lambda x: x + 1, X) == []
