"""Small kernels over meshes of cores, each wrong in one place, and right where that place is edited."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import tpu_sc as plsc

Program = tuple[Callable[..., Any], tuple[Any, ...]]

ROWS = jax.ShapeDtypeStruct((2, 8, 128), jnp.float32)
DMA, COUNTER = pltpu.SemaphoreType.DMA(()), pltpu.SemaphoreType.REGULAR(())
_RENAMED = "out_type" in inspect.signature(pl.kernel).parameters  # 0.10 says out_shape, scratch_shapes


def tensor_cores(count: int = 2, axis: str = "core") -> Any:
    """A mesh of TensorCores."""
    mesh = getattr(pltpu, "TensorCoreMesh", None)
    if mesh is not None:
        return mesh(axis_name=axis, num_cores=count)
    return pltpu.create_tensorcore_mesh(axis, num_cores=count)  # 0.10


def subcores(count: int = 4) -> Any:
    """A mesh of the vector subcores of one SparseCore."""
    return plsc.VectorSubcoreMesh(
        core_axis_name="core", subcore_axis_name="subcore", num_cores=1, num_subcores=count
    )


def kernel(body: Any, out: Any, mesh: Any, scratch: Sequence[Any] = ()) -> Callable[..., Any]:
    """``pl.kernel``; a list of bodies with a list of meshes runs all of them."""
    names = ("out_type", "scratch_types") if _RENAMED else ("out_shape", "scratch_shapes")
    return pl.kernel(body, mesh=mesh, **dict(zip(names, (out, list(scratch)), strict=True)))


# -- TensorCores ---------------------------------------------------------------------------------------------


def halves_of_a_state(wrong: bool) -> Program:
    def program(x):
        def work(refs):
            x_ref, y_ref = refs

            @pl.core_map(tensor_cores())
            def _():
                core = lax.axis_index("core")
                pltpu.sync_copy(x_ref.at[core], y_ref.at[0 if wrong else core])

        return pl.run_state(work)((x, jnp.zeros_like(x)))[1]

    return program, (ROWS,)


def halves_of_a_ref(wrong: bool) -> Program:
    def program(x):
        x_ref, y_ref = jax.new_ref(x), jax.new_ref(jnp.zeros_like(x))

        @pl.core_map(tensor_cores())
        def _():
            core = lax.axis_index("core")
            pltpu.sync_copy(x_ref.at[core], y_ref.at[0 if wrong else core])

        return y_ref[...]

    return program, (ROWS,)


def hands_over(wrong: bool) -> Program:
    """The second core reads what the first has written, told by a signal."""

    def program(x):
        def body(x_ref, o_ref, buffer, done, sem):
            core = lax.axis_index("core")

            @pl.when(core == 0)
            def _():
                copy = pltpu.make_async_copy(x_ref.at[0], o_ref.at[0], sem)
                copy.start()
                if not wrong:
                    copy.wait()
                pl.semaphore_signal(done, 1, device_id={"core": 1})
                if wrong:
                    copy.wait()

            @pl.when(core == 1)
            def _():
                pl.semaphore_wait(done, 1)
                pltpu.sync_copy(o_ref.at[0], buffer)

        return kernel(body, ROWS, tensor_cores(), [pltpu.VMEM((8, 128), jnp.float32), COUNTER, DMA])(x)

    return program, (ROWS,)


def signals_a_core_by_number(wrong: bool) -> Program:
    def program(x):
        def body(x_ref, o_ref, ready):
            core = lax.axis_index("core")
            pl.semaphore_signal(ready, 1, core_index=core if wrong else 1 - core)
            pl.semaphore_wait(ready, 2 if wrong else 1)

        return kernel(body, ROWS, tensor_cores(), [COUNTER])(x)

    return program, (ROWS,)


def meets_at_a_barrier(wrong: bool) -> Program:
    def program(x):
        def body(x_ref, o_ref, buffer, sem):
            core = lax.axis_index("core")
            pltpu.sync_copy(x_ref.at[core], o_ref.at[core])
            if not wrong:
                pltpu.core_barrier(sem, core_axis_name="core")
            pltpu.sync_copy(o_ref.at[1 - core], buffer)

        return kernel(body, ROWS, tensor_cores(), [pltpu.VMEM((8, 128), jnp.float32), COUNTER])(x)

    return program, (ROWS,)


def sends_to_the_same_core_elsewhere(wrong: bool) -> Program:
    """On a ring of devices with two cores each, into the VMEM of the neighbour's core of the same number."""

    def program(x):
        def body(x_ref, o_ref, buffer, send, receive):
            core, me = lax.axis_index("core"), lax.axis_index("x")
            target: Any = {"x": lax.rem(me + 1, 3), "core": 0 if wrong else core}
            copy = pltpu.make_async_remote_copy(x_ref.at[core], buffer, send, receive, device_id=target)
            copy.start()
            copy.wait()
            pltpu.sync_copy(buffer, o_ref.at[core])

        scratch = [pltpu.VMEM((8, 128), jnp.float32), DMA, DMA]
        return kernel(body, ROWS, tensor_cores(), scratch)(x)

    mesh = jax.sharding.Mesh(np.array(jax.devices()[:3]), ("x",))
    spec = jax.sharding.PartitionSpec("x")
    mapped = jax.shard_map(program, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    return mapped, (jax.ShapeDtypeStruct((6, 8, 128), jnp.float32),)


def shares_an_allocation(wrong: bool) -> Program:
    """Both cores use one scoped HBM buffer, one after the other where a signal says so."""

    def program(x):
        def work(refs):
            x_ref, y_ref = refs

            @pl.core_map(tensor_cores())
            def _():
                def use(shared):
                    pltpu.sync_copy(x_ref.at[0], shared)
                    pltpu.sync_copy(shared, y_ref.at[lax.axis_index("core")])

                def in_turns(sem):
                    if not wrong:
                        pl.when(lax.axis_index("core") == 1)(lambda: pl.semaphore_wait(sem, 1))
                    pl.run_scoped(use, pltpu.HBM((8, 128), jnp.float32))
                    if not wrong:

                        @pl.when(lax.axis_index("core") == 0)
                        def _():
                            pl.semaphore_signal(sem, 1, core_index=1)

                pl.run_scoped(in_turns, COUNTER)

        return pl.run_state(work)((x, jnp.zeros_like(x)))[1]

    return program, (ROWS,)


def two_in_a_row(wrong: bool) -> Program:
    """Steps of a parallel dimension, which two cores share: each has an output block of its own, or all have one."""

    def body(x_ref, o_ref):
        o_ref[...] = x_ref[...] * 2

    fn = pl.pallas_call(
        body, grid=(2,), in_specs=[pl.BlockSpec((1, 8, 128), lambda i: (i, 0, 0))],
        out_specs=pl.BlockSpec((1, 8, 128), lambda i: (0 if wrong else i, 0, 0)), out_shape=ROWS,
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
    )  # fmt: skip
    return fn, (ROWS,)


def sends_as_listed(wrong: bool) -> Program:
    """Four devices; a list says who sends to whom. Two copies to one device race; so the values decide."""
    pairs = [[0, 1], [1, 2], [2, 1 if wrong else 3], [3, 0]]

    def body(pairs_ref, x_ref, o_ref, send, receive):
        me, count = lax.axis_index("x"), jnp.int32(0)
        for k in range(len(pairs)):
            source, target = pairs_ref[k, 0], pairs_ref[k, 1]

            @pl.when(source == me)
            def _(target=target):
                copy = pltpu.make_async_remote_copy(x_ref, o_ref, send, receive, device_id=(target,))
                copy.start()
                copy.wait_send()

            count += jnp.where(target == me, 1, 0)

        @pl.loop(0, count)
        def _(_):
            pltpu.make_async_remote_copy(x_ref, o_ref, send, receive, device_id=(me,)).wait_recv()

    whole = pl.BlockSpec(memory_space=pl.ANY)
    fn = pl.pallas_call(
        body, in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), whole], out_specs=whole,
        out_shape=jax.ShapeDtypeStruct((8, 128), jnp.float32), scratch_shapes=[DMA, DMA],
    )  # fmt: skip
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]), ("x",))
    everywhere, split = jax.sharding.PartitionSpec(), jax.sharding.PartitionSpec("x")
    mapped = jax.shard_map(fn, mesh=mesh, in_specs=(everywhere, split), out_specs=split, check_vma=False)
    return mapped, (np.array(pairs, np.int32), jax.ShapeDtypeStruct((32, 128), jnp.float32))


# -- SparseCores ---------------------------------------------------------------------------------------------

VECTORS = jax.ShapeDtypeStruct((64, 128), jnp.float32)
INDICES = jax.ShapeDtypeStruct((64,), jnp.int32)


def gathers(wrong: bool) -> Program:
    def program(x, indices):
        def body(x_ref, i_ref, o_ref, idx, rows, sem):
            at = lax.axis_index("subcore") * 16
            pltpu.sync_copy(i_ref.at[pl.ds(at, 16)], idx)
            copy = pltpu.make_async_copy(x_ref.at[idx], rows, sem)
            copy.start()
            if wrong:
                pltpu.sync_copy(i_ref.at[pl.ds(0, 16)], idx)
            copy.wait()
            pltpu.sync_copy(rows, o_ref.at[pl.ds(at, 16)])

        scratch = [pltpu.VMEM((16,), jnp.int32), pltpu.VMEM((16, 128), jnp.float32), DMA]
        return kernel(body, VECTORS, subcores(), scratch)(x, indices)

    return program, (VECTORS, INDICES)


def parts_of_many_blocks(wrong: bool, blocks: int = 64) -> Program:
    """Each subcore copies its blocks, one too many if wrong."""
    array = jax.ShapeDtypeStruct((4 * blocks * 8, 128), jnp.float32)

    def program(x):
        def body(x_ref, o_ref, rows):
            first = lax.axis_index("subcore") * blocks

            @pl.loop(0, blocks + wrong)
            def _(i):
                at = jnp.minimum(first + i, 4 * blocks - 1) * 8
                pltpu.sync_copy(x_ref.at[pl.ds(at, 8)], rows)
                pltpu.sync_copy(rows, o_ref.at[pl.ds(at, 8)])

        return kernel(body, array, subcores(), [pltpu.VMEM((8, 128), jnp.float32)])(x)

    return program, (array,)


def interleaved_blocks(wrong: bool) -> Program:
    """Every fourth block is a subcore's; of twice the length if wrong."""
    array = jax.ShapeDtypeStruct((4 * 64 * 8, 128), jnp.float32)
    size = 16 if wrong else 8

    def program(x):
        def body(x_ref, o_ref, rows):
            @pl.loop(0, 63)
            def _(i):
                at = pl.ds((i * 4 + lax.axis_index("subcore")) * 8, size)
                pltpu.sync_copy(x_ref.at[at], rows)
                pltpu.sync_copy(rows, o_ref.at[at])

        return kernel(body, array, subcores(), [pltpu.VMEM((size, 128), jnp.float32)])(x)

    return program, (array,)


def as_many_as_it_says(wrong: bool) -> Program:
    """Each subcore copies a number of blocks that it reads from memory."""

    def program(x, counts):
        def body(x_ref, n_ref, o_ref, n, rows):
            me = lax.axis_index("subcore")
            pltpu.sync_copy(n_ref.at[pl.ds(me * 16, 16)], n)

            @pl.loop(0, jnp.minimum(n[...][0], 2))
            def _(i):
                pltpu.sync_copy(x_ref.at[pl.ds(me * 16 + i * 8, 8)], rows)
                pltpu.sync_copy(rows, o_ref.at[pl.ds((0 if wrong else me) * 16 + i * 8, 8)])

        scratch = [pltpu.VMEM((16,), jnp.int32), pltpu.VMEM((8, 128), jnp.float32)]
        return kernel(body, VECTORS, subcores(), scratch)(x, counts)

    return program, (VECTORS, INDICES)


def sums_in_shared_memory(wrong: bool) -> Program:
    def program(x):
        def body(x_ref, o_ref, mine, theirs, shared):
            me = lax.axis_index("subcore")
            pltpu.sync_copy(x_ref.at[me], mine)
            pltpu.sync_copy(mine, shared.at[me])
            if not wrong:
                plsc.subcore_barrier()
            pltpu.sync_copy(shared.at[(me + 1) % 4], theirs)
            pltpu.sync_copy(theirs, o_ref.at[me])

        row = pltpu.VMEM((128,), jnp.float32)
        scratch = [row, row, pltpu.VMEM_SHARED((4, 128), jnp.float32)]
        return kernel(body, jax.ShapeDtypeStruct((4, 128), jnp.float32), subcores(), scratch)(x)

    return program, (jax.ShapeDtypeStruct((4, 128), jnp.float32),)


def leaves_one_out(wrong: bool) -> Program:
    """A barrier that every subcore comes to, or all but one."""

    def program(x):
        def body(x_ref, o_ref):
            me = lax.axis_index("subcore")
            pl.when(me != (3 if wrong else 4))(plsc.subcore_barrier)

        return kernel(body, VECTORS, subcores())(x)

    return program, (VECTORS,)


def counts_on_another_subcore(wrong: bool) -> Program:
    """A counter is cleared, then added to by a neighbour."""

    def program(x):
        def body(x_ref, o_ref, count):
            me = lax.axis_index("subcore")
            count[0] = jnp.int32(0)
            if not wrong:
                plsc.subcore_barrier()
            plsc.fetch_and_add(count.at[0], 1, subcore_id=lax.rem(me + 1, 4))

        return kernel(body, VECTORS, subcores(), [pltpu.SMEM((1,), jnp.int32)])(x)

    return program, (VECTORS,)


def adds_to_shared_memory(wrong: bool) -> Program:
    """All subcores add into one buffer, each in one step; or they write it."""

    def program(x):
        def body(x_ref, o_ref, mine, shared):
            me = lax.axis_index("subcore")
            pltpu.sync_copy(x_ref.at[me], mine)
            pltpu.sync_copy(mine, shared, add=not wrong)

        row = pltpu.VMEM((128,), jnp.float32)
        scratch = [row, pltpu.VMEM_SHARED((128,), jnp.float32)]
        return kernel(body, VECTORS, subcores(), scratch)(x)

    return program, (jax.ShapeDtypeStruct((4, 128), jnp.float32),)


def all_do_the_same(wrong: bool) -> Program:
    """No subcore asks which one it is: all write the same, but not where they read."""

    def program(x):
        def body(x_ref, o_ref, rows):
            source = o_ref if wrong else x_ref
            pltpu.sync_copy(source.at[pl.ds(0, 8)], rows)
            rows[0, pl.ds(0, 16)] = rows[0, pl.ds(0, 16)] + 1
            pltpu.sync_copy(rows, o_ref.at[pl.ds(0, 8)])

        return kernel(body, VECTORS, subcores(), [pltpu.VMEM((8, 128), jnp.float32)])(x)

    return program, (VECTORS,)


def a_row_for_each(wrong: bool) -> Program:
    def program(x):
        def body(x_ref, o_ref, row):
            pltpu.sync_copy(x_ref.at[lax.axis_index("subcore")], row)

        return kernel(body, VECTORS, subcores(), [pltpu.VMEM((128,), jnp.float32)])(x)

    return program, (jax.ShapeDtypeStruct((3 if wrong else 4, 128), jnp.float32),)


def two_kinds_of_cores(wrong: bool) -> Program:
    """The scalar subcore fetches into shared memory and tells the vector subcores, which read it."""

    def program(x):
        vectors = subcores()
        scalars = plsc.ScalarSubcoreMesh(axis_name="core", num_cores=1)

        def on_vectors(x_ref, o_ref, shared, row, told, sem):
            me = lax.axis_index("subcore")
            pl.semaphore_wait(told, 1)
            pltpu.sync_copy(shared.at[me], row)
            pltpu.sync_copy(row, o_ref.at[me])

        def on_scalars(x_ref, o_ref, shared, row, told, sem):
            copy = pltpu.make_async_copy(x_ref, shared, sem)
            copy.start()
            if not wrong:
                copy.wait()
            for i in range(4):
                pl.semaphore_signal(told, 1, device_id={"core": lax.axis_index("core"), "subcore": i})
            if wrong:
                copy.wait()

        scratch = [
            pltpu.VMEM_SHARED((4, 128), jnp.float32), pltpu.VMEM((128,), jnp.float32) @ vectors,
            COUNTER @ vectors, DMA @ scalars,
        ]  # fmt: skip
        out = jax.ShapeDtypeStruct((4, 128), jnp.float32)
        return kernel([on_vectors, on_scalars], out, [vectors, scalars], scratch)(x)

    return program, (jax.ShapeDtypeStruct((4, 128), jnp.float32),)


def loops_in_parallel(wrong: bool) -> Program:
    def program(x):
        def body(x_ref, o_ref, rows, sem):
            copy = pltpu.make_async_copy(x_ref.at[pl.ds(lax.axis_index("subcore") * 16, 16)], rows, sem)
            copy.start()
            if not wrong:
                copy.wait()

            @plsc.parallel_loop(0, 16)
            def _(i):
                rows[i, pl.ds(0, 16)] = rows[i, pl.ds(0, 16)] * 2

            if wrong:
                copy.wait()

        return kernel(body, VECTORS, subcores(), [pltpu.VMEM((16, 128), jnp.float32), DMA])(x)

    return program, (VECTORS,)


ON_TENSOR_CORES = {
    halves_of_a_state: {"AO204"}, halves_of_a_ref: {"AO204"}, hands_over: {"AO201"},
    signals_a_core_by_number: {"AO303", "AO103", "AO102"}, meets_at_a_barrier: {"AO201"},
    sends_to_the_same_core_elsewhere: {"AO402", "AO303", "AO103", "AO204", "AO301"},
    shares_an_allocation: {"AO202", "AO204", "AO201"},
}  # fmt: skip
ON_SPARSE_CORES = {
    gathers: {"AO202"}, parts_of_many_blocks: {"AO204"}, interleaved_blocks: {"AO204"}, as_many_as_it_says: {"AO204"},
    sums_in_shared_memory: {"AO201"}, leaves_one_out: {"AO303", "AO103"}, counts_on_another_subcore: {"AO207"},
    adds_to_shared_memory: {"AO204"}, all_do_the_same: {"AO202", "AO201"}, a_row_for_each: {"AO305"},
    two_kinds_of_cores: {"AO201"}, loops_in_parallel: {"AO201", "AO203"},
}  # fmt: skip
