"""Scoped memory ends while a copy still uses it."""

from __future__ import annotations

from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from asyncops.bench.cases import (
    BUFFER,
    DMA,
    HBM,
    ROWS,
    SMEM,
    VMEM,
    Draft,
    Program,
    ints,
    pair,
    stack,
    zeros,
)

KIND = "scope-escape"


@pair("AO205", "AO101")
def stores_from_memory_that_ends(draft: Draft) -> Program:
    def kernel(x_ref, o_hbm, sem):
        def staged(tmp):
            tmp[...] = x_ref[...] * 2.0
            store = pltpu.make_async_copy(tmp, o_hbm, sem)
            store.start()  # BUG
            if not draft.wrong:
                store.wait()

        pl.run_scoped(staged, BUFFER)
        if draft.wrong:
            pltpu.make_async_copy(o_hbm, o_hbm, sem).wait()

    return draft.call(kernel, [ROWS], [DMA], ins=[VMEM], outs=HBM)


@pair("AO205", "AO101", "AO301")
def leaves_a_scoped_semaphore_behind(draft: Draft) -> Program:
    def kernel(x_ref, o_hbm):
        def with_semaphore(sem):
            store = pltpu.make_async_copy(x_ref, o_hbm, sem)
            store.start()  # BUG
            if not draft.wrong:
                store.wait()

        pl.run_scoped(with_semaphore, DMA)

    return draft.call(kernel, [ROWS], ins=[VMEM], outs=HBM)


@pair("AO205", "AO101")
def prefetches_into_a_scope_of_a_loop(draft: Draft) -> Program:
    """Each trip has a scope of its own; the copy of the next block goes into this trip's."""

    def kernel(x_hbm, o_ref, sem):
        zeros(o_ref)

        def body(i, _):
            def scope(tmp):
                copy = pltpu.make_async_copy(x_hbm.at[i], tmp, sem)
                copy.start()  # BUG
                if not draft.wrong:
                    copy.wait()
                    o_ref[...] += tmp[...]

            pl.run_scoped(scope, BUFFER)
            if draft.wrong:
                pltpu.make_async_copy(x_hbm.at[i], o_ref, sem).wait()

        lax.fori_loop(0, 4, body, None)

    return draft.call(kernel, [stack(4)], [DMA])


@pair("AO205", "AO101")
def waits_on_one_path_out_of_the_scope(draft: Draft) -> Program:
    def kernel(flag, x_ref, o_hbm, sem):
        def scope(tmp):
            tmp[...] = x_ref[...]
            store = pltpu.make_async_copy(tmp, o_hbm, sem)
            store.start()  # BUG
            if draft.wrong:
                pl.when(flag[0] == 0)(store.wait)
            else:
                store.wait()

        pl.run_scoped(scope, BUFFER)
        if draft.wrong:
            pl.when(flag[0] != 0)(lambda: pltpu.make_async_copy(o_hbm, o_hbm, sem).wait())

    return draft.call(kernel, [ints(0), ROWS], [DMA], ins=[SMEM, VMEM], outs=HBM)
