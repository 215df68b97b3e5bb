"""Small kernels of one device, each wrong in one place, and right where that place is edited.

The line of the finding ends in ``# finds AO...``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

Program = tuple[Callable[..., Any], tuple[Any, ...]]
Build = Callable[[bool], Program]

N = 4
ROWS = jax.ShapeDtypeStruct((8, 128), jnp.float32)
STACK = jax.ShapeDtypeStruct((N, 8, 128), jnp.float32)
FLAG = jax.ShapeDtypeStruct((1,), jnp.int32)
BUFFER = pltpu.VMEM((8, 128), jnp.float32)
SLOTS = pltpu.VMEM((2, 8, 128), jnp.float32)
DMA, DMAS = pltpu.SemaphoreType.DMA(()), pltpu.SemaphoreType.DMA((2,))
COUNTER = pltpu.SemaphoreType.REGULAR(())


def call(
    kernel: Callable[..., Any], scratch: Sequence[Any], args: Sequence[Any] = (STACK,), in_space: Any = pl.ANY,
    out: Any = ROWS, out_space: Any = pltpu.VMEM, **more: Any,
) -> Program:  # fmt: skip
    """The kernel over whole arrays in the given memories; flags are scalars."""
    spaces = [pltpu.SMEM if a is FLAG else in_space for a in args]
    fn = pl.pallas_call(
        kernel, out_shape=out, in_specs=[pl.BlockSpec(memory_space=s) for s in spaces],
        out_specs=pl.BlockSpec(memory_space=out_space), scratch_shapes=list(scratch), **more,
    )  # fmt: skip
    return fn, tuple(args)


def drains_all_but_one(wrong: bool) -> Program:
    def kernel(x_hbm, o_ref, buf, sems):
        def copy(i):
            return pltpu.make_async_copy(x_hbm.at[i], buf.at[i], sems.at[i])

        for i in range(N):
            copy(i).start()  # finds AO101
        for i in range(N - 1 if wrong else N):
            copy(i).wait()
        o_ref[...] = buf[0]

    return call(kernel, [pltpu.VMEM((N, 8, 128), jnp.float32), pltpu.SemaphoreType.DMA((N,))])


def waits_again_after_the_loop(wrong: bool) -> Program:
    def kernel(x_hbm, o_ref, buf, sem):
        def body(i, _):
            copy = pltpu.make_async_copy(x_hbm.at[i], buf, sem)
            copy.start()
            copy.wait()
            o_ref[...] += buf[...]
            return _

        lax.fori_loop(0, N, body, None)
        if wrong:
            pltpu.make_async_copy(x_hbm.at[N - 1], buf, sem).wait()  # finds AO102

    return call(kernel, [BUFFER, DMA])


def waits_where_nothing_was_started(wrong: bool) -> Program:
    def kernel(flag_ref, x_hbm, o_ref, buf, sem):
        copy = pltpu.make_async_copy(x_hbm.at[0], buf, sem)

        @pl.when(flag_ref[0] > 0)
        def _():
            copy.start()

        @pl.when(flag_ref[0] > (-1 if wrong else 0))
        def _():
            copy.wait()  # finds AO103

        o_ref[...] = jnp.zeros_like(o_ref)

    return call(kernel, [BUFFER, DMA], (FLAG, STACK))


def waits_for_two_slabs_of_three(wrong: bool) -> Program:
    def kernel(x_hbm, o_ref, buf, sem):
        pltpu.make_async_copy(x_hbm.at[pl.ds(0, 3)], buf, sem).start()
        size = 2 if wrong else 3
        pltpu.make_async_copy(x_hbm.at[pl.ds(0, size)], buf.at[pl.ds(0, size)], sem).wait()  # finds AO104
        o_ref[...] = jnp.zeros_like(o_ref)

    return call(kernel, [pltpu.VMEM((3, 8, 128), jnp.float32), DMA])


def takes_the_other_semaphore(wrong: bool) -> Program:
    def kernel(x_hbm, o_hbm, buf, load, store):
        pltpu.make_async_copy(x_hbm.at[0], buf, load).start()
        pltpu.make_async_copy(x_hbm.at[0], buf, load).wait()
        pltpu.make_async_copy(buf, o_hbm, store).start()
        pltpu.make_async_copy(buf, o_hbm, load if wrong else store).wait()  # finds AO105

    return call(kernel, [BUFFER, DMA, DMA], out_space=pl.ANY)


def sends_on_what_has_not_come(wrong: bool) -> Program:
    def kernel(x_hbm, o_hbm, buf, load, store):
        first = pltpu.make_async_copy(x_hbm.at[0], buf, load)
        second = pltpu.make_async_copy(buf, o_hbm, store)
        first.start()
        if not wrong:
            first.wait()
        second.start()  # finds AO201
        if wrong:
            first.wait()
        second.wait()

    return call(kernel, [BUFFER, DMA, DMA], out_space=pl.ANY)


def writes_back_from_one_slot_too_few(wrong: bool) -> Program:
    def kernel(x_ref, o_hbm, buf, sems):
        def copy(i):
            return pltpu.make_async_copy(buf.at[i % 2], o_hbm.at[i], sems.at[i % 2])

        for i in range(N):
            if i >= 2 and not wrong:
                copy(i - 2).wait()
            buf[i % 2] = x_ref[i] * 2.0  # finds AO202
            if i >= 2 and wrong:
                copy(i - 2).wait()
            copy(i).start()
        copy(N - 2).wait()
        copy(N - 1).wait()

    return call(kernel, [SLOTS, DMAS], in_space=pltpu.VMEM, out=STACK, out_space=pl.ANY)


def clears_the_slot_that_is_being_filled(wrong: bool) -> Program:
    def kernel(x_hbm, o_ref, buf, sems):
        def copy(i):
            return pltpu.make_async_copy(x_hbm.at[i], buf.at[lax.rem(i, 2)], sems.at[lax.rem(i, 2)])

        def body(i, _):
            @pl.when(i + 1 < N)
            def _prefetch():
                copy(i + 1).start()

            copy(i).wait()
            o_ref[...] += buf[lax.rem(i, 2)]
            buf[lax.rem(i + 1 if wrong else i, 2)] = jnp.zeros((8, 128))  # finds AO203
            return _

        copy(0).start()
        lax.fori_loop(0, N, body, None)

    return call(kernel, [SLOTS, DMAS])


def lands_one_row_too_early(wrong: bool) -> Program:
    def kernel(x_hbm, o_ref, buf, sems):
        first = pltpu.make_async_copy(x_hbm.at[0], buf.at[pl.ds(0, 8)], sems.at[0])
        second = pltpu.make_async_copy(x_hbm.at[1], buf.at[pl.ds(7 if wrong else 8, 8)], sems.at[1])
        first.start()
        second.start()  # finds AO204
        first.wait()
        second.wait()
        o_ref[...] = buf[pl.ds(0, 8)]

    return call(kernel, [pltpu.VMEM((16, 128), jnp.float32), DMAS])


def semaphore_ends_before_its_copy(wrong: bool) -> Program:
    def kernel(x_hbm, o_ref, buf):
        def scope(sem):
            copy = pltpu.make_async_copy(x_hbm.at[0], buf, sem)
            copy.start()  # finds AO205
            if not wrong:
                copy.wait()

        pl.run_scoped(scope, DMA)
        o_ref[...] = jnp.zeros_like(o_ref)

    return call(kernel, [BUFFER])


def _windows(
    kernel: Any, in_map: Any, out_map: Any, steps: int = N, scratch: Sequence[Any] = (), **more: Any
) -> Program:
    fn = pl.pallas_call(
        kernel, grid=(steps,), out_shape=STACK, in_specs=[pl.BlockSpec((1, 8, 128), in_map)],
        out_specs=pl.BlockSpec((1, 8, 128), out_map), scratch_shapes=list(scratch), **more,
    )  # fmt: skip
    return fn, (STACK,)


def reads_a_block_that_the_last_step_wrote(wrong: bool) -> Program:
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] * 2.0

    def out_map(i):  # finds AO206
        return (i + 1 if wrong else i), 0, 0

    return _windows(kernel, lambda i: (i, 0, 0), out_map, N - 1, input_output_aliases={0: 0})


def accumulates_over_parallel_steps(wrong: bool) -> Program:
    def kernel(x_ref, o_ref, acc):
        @pl.when(pl.program_id(0) == 0)
        def _():
            acc[...] = jnp.zeros_like(acc)

        acc[...] += x_ref[0]  # finds AO207
        o_ref[0] = acc[...]

    semantics = ("parallel" if wrong else "arbitrary",)
    parameters = pltpu.CompilerParams(dimension_semantics=semantics)
    return _windows(kernel, lambda i: (i, 0, 0), lambda i: (i, 0, 0), N, [BUFFER], compiler_params=parameters)


def comes_back_to_a_block(wrong: bool) -> Program:
    def kernel(x_ref, o_ref):
        is_first = pl.program_id(0) < 2 if wrong else lax.rem(pl.program_id(0), 2) == 0

        @pl.when(is_first)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)

        @pl.when(jnp.logical_not(is_first))
        def _():
            o_ref[...] += x_ref[...]

    def out_map(i):  # finds AO208
        return (lax.rem(i, 2) if wrong else i // 2), 0, 0

    return _windows(kernel, lambda i: (i, 0, 0), out_map)


def scales_its_input_in_place(wrong: bool) -> Program:
    def kernel(x_ref, o_ref):
        x_ref[...] = x_ref[...] * 2.0  # finds AO209
        o_ref[...] = x_ref[...]

    return _windows(kernel, lambda i: (0 if wrong else i, 0, 0), lambda i: (i, 0, 0))


def signals_once_more_than_it_waits(wrong: bool) -> Program:
    def kernel(x_ref, o_ref, sem):
        def body(i, _):
            pl.semaphore_signal(sem, 1)  # finds AO301

            @pl.when(i > (0 if wrong else -1))
            def _take():
                pl.semaphore_wait(sem, 1)

            return _

        lax.fori_loop(0, N, body, None)
        o_ref[...] = x_ref[...]

    return call(kernel, [COUNTER], (ROWS,), pltpu.VMEM)


def either_copy_may_satisfy_the_wait(wrong: bool) -> Program:
    def kernel(x_hbm, o_ref, buf, sems):
        for i in range(2):
            pltpu.make_async_copy(x_hbm.at[i], buf.at[i], sems.at[0 if wrong else i]).start()
        for i in range(2):
            pltpu.make_async_copy(x_hbm.at[i], buf.at[i], sems.at[0 if wrong else i]).wait()  # finds AO302
            o_ref[...] += buf[i]

    return call(kernel, [SLOTS, DMAS])


def waits_before_it_signals(wrong: bool) -> Program:
    def kernel(x_ref, o_ref, sem):
        if not wrong:
            pl.semaphore_signal(sem, 1)
        pl.semaphore_wait(sem, 1)  # finds AO303
        if wrong:
            pl.semaphore_signal(sem, 1)
        o_ref[...] = x_ref[...]

    return call(kernel, [COUNTER], (ROWS,), pltpu.VMEM)


def copies_to_a_counter(wrong: bool) -> Program:
    def kernel(x_hbm, o_hbm, sem):
        pltpu.make_async_copy(x_hbm.at[0], o_hbm, sem).start()  # finds AO304
        if wrong:
            pl.semaphore_wait(sem, 4096)  # JAX refuses a copy's wait() on this one
        else:
            pltpu.make_async_copy(x_hbm.at[0], o_hbm, sem).wait()

    return call(kernel, [COUNTER if wrong else DMA], out_space=pl.ANY)


def has_one_slot_too_few(wrong: bool) -> Program:
    def kernel(x_hbm, o_ref, buf, sems):
        def body(i, _):
            copy = pltpu.make_async_copy(x_hbm.at[i], buf, sems.at[lax.rem(i, 3 if wrong else 2)])
            copy.start()  # finds AO305
            copy.wait()
            o_ref[...] += buf[...]
            return _

        lax.fori_loop(0, N, body, None)

    return call(kernel, [BUFFER, DMAS])


CASES: dict[str, tuple[Build, ...]] = {
    "AO101": (drains_all_but_one,),
    "AO102": (waits_again_after_the_loop,),
    "AO103": (waits_where_nothing_was_started,),
    "AO104": (waits_for_two_slabs_of_three,),
    "AO105": (takes_the_other_semaphore,),
    "AO201": (sends_on_what_has_not_come,),
    "AO202": (writes_back_from_one_slot_too_few,),
    "AO203": (clears_the_slot_that_is_being_filled,),
    "AO204": (lands_one_row_too_early,),
    "AO205": (semaphore_ends_before_its_copy,),
    "AO206": (reads_a_block_that_the_last_step_wrote,),
    "AO207": (accumulates_over_parallel_steps,),
    "AO208": (comes_back_to_a_block,),
    "AO209": (scales_its_input_in_place,),
    "AO301": (signals_once_more_than_it_waits,),
    "AO302": (either_copy_may_satisfy_the_wait,),
    "AO303": (waits_before_it_signals,),
    "AO304": (copies_to_a_counter,),
    "AO305": (has_one_slot_too_few,),
}
