"""Compiling ahead of time: meshes find their place, and what cannot be compiled says why."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import asyncops
from asyncops.compiled import compiling, topology
from stateful.errors import CompilerError, InvalidArgumentError

pytestmark = pytest.mark.tpu_compile

X = jax.ShapeDtypeStruct((64, 128), jnp.float32)
ANY = pl.BlockSpec(memory_space=pl.ANY)


def mesh_of(*sizes: int) -> Mesh:
    devices = np.array(jax.devices("cpu")[: np.prod(sizes)]).reshape(sizes)
    return Mesh(devices, ("x", "y")[: len(sizes)])


def rotated(mesh: Mesh):
    size = mesh.shape["x"]
    shift = [(i, (i + 1) % size) for i in range(size)]
    return jax.shard_map(lambda x: lax.ppermute(x, "x", shift), mesh=mesh, in_specs=P("x"), out_specs=P("x"))


def partitions(compiled: jax.stages.Compiled) -> int:
    found = re.search(r"num_partitions=(\d+)", compiled.as_text() or "")
    return int(found[1]) if found else 1


def test_one_device():
    compiled = asyncops.compile_for("v5e:2x2", lambda x: x @ x.T, X)
    assert isinstance(compiled, jax.stages.Compiled)
    assert partitions(compiled) == 1
    assert "is_scheduled=true" in compiled.as_text()


@pytest.mark.parametrize("where", ["function", "jit", "argument", "nested"])
def test_a_mesh_of_other_devices_is_mapped(where):
    mesh = mesh_of(4)
    sharded = NamedSharding(mesh, P("x"))
    fn, argument = rotated(mesh), X
    if where == "jit":
        fn = jax.jit(fn, in_shardings=sharded, out_shardings=NamedSharding(mesh, P()))
    if where == "argument":
        argument = jax.device_put(np.zeros(X.shape, X.dtype), sharded)
    if where == "nested":
        inner = rotated(mesh)
        fn = lambda x: lax.with_sharding_constraint(jax.jit(inner)(x * 2), sharded)  # noqa: E731
    assert partitions(asyncops.compile_for("v5e:2x2", fn, argument)) == 4


def test_a_mesh_of_two_dimensions_and_a_smaller_one():
    assert partitions(asyncops.compile_for("v5e:2x2", rotated(mesh_of(2, 2)), X)) == 4
    assert partitions(asyncops.compile_for("v5e:2x2", rotated(mesh_of(2)), X)) == 2


ABSTRACT = AbstractMesh((4,), ("x",), axis_types=(AxisType.Auto,))


@pytest.mark.parametrize("mesh", [mesh_of(4), ABSTRACT], ids=["devices", "abstract"])
def test_refs_on_a_mesh_of_other_devices(mesh):
    def fn(x):
        x_ref, y_ref = jax.new_ref(x), jax.new_ref(jnp.zeros_like(x))
        future = asyncops.ppermute_start_ref(x_ref, y_ref, "x", [(i, (i + 1) % 4) for i in range(4)])
        z = jnp.sin(x_ref[...])
        asyncops.ppermute_done_ref(future)
        return y_ref[...] * z

    mapped = jax.shard_map(fn, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False)
    compiled = asyncops.compile_for("v5e:2x2", mapped, X)
    assert partitions(compiled) == 4
    assert "permute_done_ref" in compiled.as_text()


def test_what_jax_loses_is_lost():
    """Kernels that close over Refs have no effect to JAX, which drops a loop of them: so must what is compiled here."""
    y = np.ones(X.shape, np.float32)

    def fn(x, turns):
        x_ref, y_ref = jax.new_ref(x), jax.new_ref(jnp.asarray(y))

        def kernel():
            pltpu.sync_copy(y_ref, x_ref)

        copy = pl.pallas_call(
            kernel, out_shape=(), compiler_params=pltpu.CompilerParams(has_side_effects=True)
        )

        def body(*_):
            copy()

        lax.fori_loop(0, turns, body, None) if turns else copy()
        return x_ref[...]

    found = {
        n: asyncops.compile_for("v5e:2x2", jax.jit(fn, static_argnums=1), X, n).as_text() for n in (0, 4)
    }
    assert "tpu_custom_call" in found[0]
    assert "tpu_custom_call" not in found[4]


def test_a_mesh_in_the_context_with_explicit_axes():
    mesh = Mesh(np.array(jax.devices("cpu")[:4]), ("x",), axis_types=(AxisType.Explicit,))
    with jax.set_mesh(mesh):
        argument = jax.ShapeDtypeStruct(X.shape, X.dtype, sharding=NamedSharding(mesh, P("x")))
        assert partitions(asyncops.compile_for("v5e:2x2", lambda x: jnp.sin(x) * 2, argument)) == 4


def test_static_and_donated_and_keyword_arguments():
    fn = jax.jit(lambda x, n, *, y: x * n + y, static_argnums=1, donate_argnums=0)
    assert "input_output_alias" in asyncops.compile_for("v5e:2x2", fn, X, 3, y=X).as_text()


def test_constants_and_no_arguments():
    constant = jnp.arange(128.0)
    assert asyncops.compile_for("v5e:2x2", lambda: jnp.ones((8, 128)) * constant).as_text()


@pytest.mark.parametrize("name", ["v4:2x2x1", "v5e:2x4", "v5p:2x2x1", "v6e:2x2", "tpu7x:2x2x1"])
def test_topologies(name):
    assert partitions(asyncops.compile_for(name, rotated(mesh_of(4)), X)) == 4


def test_a_kernel_may_ask_for_its_chip():
    lanes = []

    def fn(x):
        lanes.append(pltpu.get_tpu_info().generation)
        return x + 1

    asyncops.compile_for("v6e:2x2", fn, X)
    assert lanes == [6]


def test_what_the_compiler_was_given_is_kept():
    compiled = asyncops.compile_for("v5e:2x2", lambda x: x + 1, X)
    assert "ENTRY" in (compiling.origin_of(compiled) or "")
    assert compiling.origin_of(jax.jit(lambda x: x).lower(X).compile()) is None


def test_a_mesh_that_does_not_fit():
    with pytest.raises(InvalidArgumentError) as error:
        asyncops.compile_for("v5e:2x2", rotated(mesh_of(8)), X)
    assert str(error.value) == (
        "the mesh (x=8) has 8 devices, topology 'v5e:2x2' has 4: name a larger topology, or make the mesh smaller"
    )


@pytest.mark.parametrize("name", ["v99:2x2", "v5e:3x2", "v5e"])
def test_a_topology_that_does_not_exist(name):
    with pytest.raises(InvalidArgumentError, match="is not one the compiler knows, as v4:2x2x1, v5e:2x2"):
        asyncops.compile_for(name, lambda x: x, X)


def test_a_topology_that_is_no_name():
    with pytest.raises(InvalidArgumentError, match="topology is a name such as 'v5e:2x2', got 4"):
        asyncops.compile_for(4, lambda x: x, X)  # type: ignore[arg-type]


def test_without_libtpu(monkeypatch):
    monkeypatch.setattr(topology.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CompilerError, match=r"pip install 'asyncops\[tpu\]', or pip install libtpu"):
        asyncops.compile_for("v5e:2x2", lambda x: x, X)


def test_what_the_user_set_in_the_environment_stays(monkeypatch):
    monkeypatch.setenv("TPU_ACCELERATOR_TYPE", "v6e-8")
    topology.prepare_environment()
    assert topology.os.environ["TPU_ACCELERATOR_TYPE"] == "v6e-8"


def test_a_kernel_that_mosaic_refuses_names_reason_and_line():
    def misaligned(x_ref, o_ref, sem):
        part = (pl.ds(0, 3), pl.ds(0, 77))
        pltpu.make_async_copy(x_ref.at[part], o_ref.at[part], sem).start()

    shape = jax.ShapeDtypeStruct((24, 200), jnp.float32)
    call = pl.pallas_call(
        misaligned, out_shape=shape, in_specs=[ANY], out_specs=ANY, scratch_shapes=[pltpu.SemaphoreType.DMA]
    )
    with pytest.raises(CompilerError) as error:
        asyncops.compile_for("v5e:2x2", lambda x: call(x), shape)
    message = str(error.value)
    assert "does not compile for v5e:2x2: The contiguous inner slice in the DMA transfer must be" in message
    assert re.search(r"\(at .*test_compile_for\.py:\d+\)$", message)
    assert "MLIR" not in message
    assert len(message) < 400


def test_a_kernel_that_needs_too_much_memory():
    def kernel(x_ref, o_ref, scratch):
        scratch[0:8] = x_ref[0:8]
        o_ref[0:8] = scratch[0:8]

    call = pl.pallas_call(kernel, out_shape=X, scratch_shapes=[pltpu.VMEM((1 << 22, 128), jnp.float32)])
    with pytest.raises(CompilerError, match="make blocks or scratch smaller"):
        asyncops.compile_for("v5e:2x2", lambda x: call(x), X)


def test_a_primitive_that_pallas_cannot_lower():
    def kernel(x_ref, o_ref):
        o_ref[...] = jnp.sort(x_ref[...], axis=0)

    with pytest.raises(CompilerError) as error:
        asyncops.compile_for("v5e:2x2", lambda x: pl.pallas_call(kernel, out_shape=X)(x), X)
    assert "Unimplemented primitive" in str(error.value)
    assert "file an issue" not in str(error.value)


def test_a_semaphore_as_result_would_end_the_process():
    def kernel(x_ref, o_ref, sem):
        pltpu.make_async_copy(x_ref, o_ref, sem).start()

    shape = (X, pltpu.SemaphoreType.DMA(()))
    specs = (ANY, pl.BlockSpec(memory_space=pltpu.SEMAPHORE))
    call = pl.pallas_call(kernel, out_shape=shape, in_specs=[ANY], out_specs=specs)
    with pytest.raises(CompilerError, match="returns a semaphore"):
        asyncops.compile_for("v5e:2x2", lambda x: call(x), X)


def test_errors_of_the_function_itself_are_not_hidden():
    with pytest.raises(ZeroDivisionError):
        asyncops.compile_for("v5e:2x2", lambda x: x * (1 / 0), X)
