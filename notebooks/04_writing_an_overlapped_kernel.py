# %% [markdown]
# # 4. Writing an overlapped kernel
#
# You start with a kernel that copies, computes and copies back, one after the other, and make it overlap in three
# steps: two buffers, N buffers with write-back, and a loop from a library that does it for you. After each step you see
# a picture of what overlaps with what. Then you make the four mistakes that everyone makes, and watch the checker find
# each, with a run in which it goes wrong.

# %%
import showing

import jax
import jax.numpy as jnp
import numpy as np
from IPython.display import display
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import AbstractMesh, AxisType, PartitionSpec as P

import asyncops
from asyncops import kernels

# %% [markdown]
# ## The task
#
# An array lies in HBM, the large memory of the chip. Arithmetic works on VMEM, the small fast one. So: fetch a block,
# compute, write the block back, for each of six blocks. The computation is a stand-in; a real one takes about as long as
# the copies, which is when overlap pays.

# %%
BLOCKS, BLOCK = 6, (8, 128)
X = jnp.sin(jnp.arange(BLOCKS * 8 * 128.0)).reshape(BLOCKS, *BLOCK)

ANYWHERE = pl.BlockSpec(memory_space=pl.ANY)  # the kernel is given Refs to where the arrays lie: HBM
DMA = pltpu.SemaphoreType.DMA


def compute(x):
    return x * 2.0 + 1.0


def buffers(n):
    return pltpu.VMEM((n, *BLOCK), jnp.float32)


def program(kernel, *scratch, interpret=False):
    """The function of one array that runs `kernel`."""
    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct(X.shape, X.dtype),
        in_specs=[ANYWHERE],
        out_specs=ANYWHERE,
        scratch_shapes=scratch,
        interpret=interpret,
    )


# %% [markdown]
# ## Step 1: one after the other


# %%
def one_after_the_other(x_hbm, y_hbm, x_buf, y_buf, sems):
    def body(i, _):
        fetch = pltpu.make_async_copy(x_hbm.at[i], x_buf.at[0], sems.at[0])
        fetch.start()
        fetch.wait()
        y_buf[0] = compute(x_buf[0])
        store = pltpu.make_async_copy(y_buf.at[0], y_hbm.at[i], sems.at[1])
        store.start()
        store.wait()

    lax.fori_loop(0, BLOCKS, body, None)


STEP_1 = one_after_the_other, buffers(1), buffers(1), DMA((2,))
one = asyncops.draw_timeline(program(*STEP_1), X)
showing.figure(
    one.to_svg(columns=10),
    "Step 1. While a copy is in flight the core does nothing but wait; while it computes, nothing flies.",
)

# %% [markdown]
# How to read it: time goes to the right, without a unit. The upper row is the core; a bar below it is a copy, drawn until
# a wait for it returns. What stands above a bar may happen while the copy is in flight. Nothing was run: the picture is
# made from the traced program.
#
# We want one number for each step: in how many of the six blocks does the core compute while a copy is in flight?


# %%
def overlapped(timeline):
    """How many of the computations (each ends with a write to `y_buf`) happen while some copy is in flight."""
    (core,) = timeline.tracks.cores
    writes = [deed.column for deed in core.deeds if deed.kind == "write"]
    assert len(writes) == BLOCKS
    return sum(any(f.begin < at < f.end for f in core.flights) for at in writes)


def at_once(timeline):
    """The most copies in flight at one moment."""
    (core,) = timeline.tracks.cores
    begins = [f.begin for f in core.flights]
    return max(sum(f.begin <= at < f.end for f in core.flights) for at in begins)


assert overlapped(one) == 0
assert at_once(one) == 1

# %% [markdown]
# ## Step 2: two buffers
#
# Start the fetch of block `i + 1` before you wait for block `i`. It needs a second buffer, because the first is about to
# be read, and a second semaphore. Block `i` lies in slot `i % 2`. The first fetch is started before the loop, and the
# last iteration has nothing to fetch.


# %%
def two_buffers(x_hbm, y_hbm, x_buf, y_buf, fetch_sems, store_sem):
    def fetch(i):
        slot = lax.rem(i, 2)
        return pltpu.make_async_copy(x_hbm.at[i], x_buf.at[slot], fetch_sems.at[slot])

    fetch(0).start()

    def body(i, _):
        pl.when(i + 1 < BLOCKS)(lambda: fetch(i + 1).start())
        fetch(i).wait()
        y_buf[0] = compute(x_buf[lax.rem(i, 2)])
        store = pltpu.make_async_copy(y_buf.at[0], y_hbm.at[i], store_sem)
        store.start()
        store.wait()

    lax.fori_loop(0, BLOCKS, body, None)


STEP_2 = two_buffers, buffers(2), buffers(1), DMA((2,)), DMA(())
two = asyncops.draw_timeline(program(*STEP_2), X)
showing.figure(
    two.to_svg(columns=10),
    "Step 2. The fetch of the next block is in flight while this one is computed and stored.",
)

# %% [markdown]
# `fetch(i).wait()` makes a *new* descriptor, equal to the one that was started an iteration ago. That is how it is done
# in Pallas: a wait only takes the number of bytes off the semaphore, so any equal descriptor is as good.

# %%
assert overlapped(two) == BLOCKS - 1  # all but the last block, for which nothing is left to fetch
assert at_once(two) == 2

# %% [markdown]
# ## Step 3: N slots, and write-back
#
# The store is still waited for at once. Let it fly, too: wait for the store of block `i` only when its buffer is needed
# again, `SLOTS` blocks later, and for the last ones after the loop. And while we are at it: any number of slots, fetching
# as far ahead as they allow.

# %%
SLOTS = 3


def many_slots(x_hbm, y_hbm, x_buf, y_buf, fetch_sems, store_sems):
    def fetch(i):
        slot = lax.rem(i, SLOTS)
        return pltpu.make_async_copy(x_hbm.at[i], x_buf.at[slot], fetch_sems.at[slot])

    def store(i):
        slot = lax.rem(i, SLOTS)
        return pltpu.make_async_copy(y_buf.at[slot], y_hbm.at[i], store_sems.at[slot])

    for i in range(SLOTS - 1):
        fetch(i).start()

    def body(i, _):
        pl.when(i + SLOTS - 1 < BLOCKS)(lambda: fetch(i + SLOTS - 1).start())
        fetch(i).wait()
        pl.when(i >= SLOTS)(lambda: store(i - SLOTS).wait())
        slot = lax.rem(i, SLOTS)
        y_buf[slot] = compute(x_buf[slot])
        store(i).start()

    lax.fori_loop(0, BLOCKS, body, None)
    for i in range(BLOCKS - SLOTS, BLOCKS):
        store(i).wait()


STEP_3 = many_slots, buffers(SLOTS), buffers(SLOTS), DMA((SLOTS,)), DMA((SLOTS,))
three = asyncops.draw_timeline(program(*STEP_3), X)
showing.figure(
    three.to_svg(columns=12),
    "Step 3. Fetches and stores in flight all the time; no computation without a copy.",
)

# %%
assert overlapped(three) == BLOCKS
assert at_once(three) > at_once(two)

# %% [markdown]
# ## Step 4: the same, from a library
#
# Five conditions had to be right in step 3: the slot of each copy, the first fetches, the last ones, the first stores, the
# last ones. `asyncops.kernels.multi_buffered_loop` has them right once. You say where a block lies and what to do with it.


# %%
def from_the_library(x_hbm, y_hbm):
    def body(i, x, y):
        y[...] = compute(x[...])

    kernels.multi_buffered_loop(
        BLOCKS, body, reads=[lambda i: x_hbm.at[i]], writes=[lambda i: y_hbm.at[i]], slots=SLOTS
    )


STEP_4 = (from_the_library,)
four = asyncops.draw_timeline(program(*STEP_4), X)
assert (overlapped(four), at_once(four)) == (overlapped(three), at_once(three))
showing.figure(four.to_svg(columns=12), "Step 4. The library's loop: the same copies as in step 3.")

# %% [markdown]
# ## Are they right?
#
# Two questions. Do they compute the right thing? JAX can interpret TPU kernels on a CPU, so we compare numbers. And does
# the result depend on luck, on how fast the copies happen to be? Numbers cannot tell; `asyncops.check` does.

# %%
STEPS = {"1": STEP_1, "2": STEP_2, "3": STEP_3, "4": STEP_4}
rows = []
for name, (kernel, *scratch) in STEPS.items():
    result = program(kernel, *scratch, interpret=pltpu.InterpretParams())(X)
    np.testing.assert_allclose(result, compute(X), rtol=1e-6)
    report = asyncops.check(program(kernel, *scratch), X)
    assert report.verdict == "clean"
    timeline = asyncops.draw_timeline(program(kernel, *scratch), X)
    overlap = f"{overlapped(timeline)} of {BLOCKS}"
    rows.append([name, kernel.__name__, overlap, at_once(timeline), report.verdict])
showing.table(
    ["step", "kernel", "blocks computed during a copy", "most copies at once", "verdict"],
    rows,
    "The four kernels: the same numbers, more and more overlap, and no schedule in which they go wrong.",
)

# %% [markdown]
# The number of blocks need not be known. Here is step 2 once more, with a count that is read from memory when the kernel
# runs. The loop is not unrolled: one verdict stands for all counts that the arguments allow.


# %%
def as_many_as_asked_for(count, x_hbm, y_hbm, x_buf, y_buf, fetch_sems, store_sem):
    def fetch(i):
        slot = lax.rem(i, 2)
        return pltpu.make_async_copy(x_hbm.at[i], x_buf.at[slot], fetch_sems.at[slot])

    pl.when(count[0] > 0)(lambda: fetch(0).start())

    def body(i, _):
        pl.when(i + 1 < count[0])(lambda: fetch(i + 1).start())
        fetch(i).wait()
        y_buf[0] = compute(x_buf[lax.rem(i, 2)])
        store = pltpu.make_async_copy(y_buf.at[0], y_hbm.at[i], store_sem)
        store.start()
        store.wait()

    lax.fori_loop(0, count[0], body, None)


def first_blocks(kernel, *scratch):
    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct(X.shape, X.dtype),
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), ANYWHERE],
        out_specs=ANYWHERE,
        scratch_shapes=scratch,
    )


COUNT = jax.ShapeDtypeStruct((1,), jnp.int32)  # a shape: the value is not known
report = asyncops.check(first_blocks(as_many_as_asked_for, *STEP_2[1:]), COUNT, X)
assert report.verdict == "clean"
print(report)

# %% [markdown]
# "Assumed" is what the verdict rests on: no caller asks for more blocks than there are. With `values=True` the arguments
# are what you pass, and nothing is left to assume. That is also how to ask about one count at a time:


# %%
def library_loop(count, x_hbm, y_hbm):
    def body(i, x, y):
        y[...] = compute(x[...])

    kernels.multi_buffered_loop(
        count[0], body, reads=[lambda i: x_hbm.at[i]], writes=[lambda i: y_hbm.at[i]], slots=SLOTS
    )


for count in range(BLOCKS + 1):
    report = asyncops.check(first_blocks(library_loop), np.array([count], np.int32), X, values=True)
    assert report.verdict == "clean"
    assert not report.assumptions

# Or about every count at once, as above.
assert asyncops.check(first_blocks(library_loop), COUNT, X).verdict == "clean"

# %% [markdown]
# And the TPU compiler takes all of them:

# %%
for kernel, *scratch in STEPS.values():
    assert "tpu_custom_call" in asyncops.compile_for("v5e:2x2", program(kernel, *scratch), X).as_text()

# %% [markdown]
# # Four mistakes
#
# None of the following need show in a test: the machine is free to be kind. For each you see what the checker says, and its
# evidence: a **schedule**, that is, an order of events that the machine may choose and in which it goes wrong. `replay()` runs
# that schedule again, event by event, on a strict machine.


# %%
def show(report, code, caption):
    """The only finding of `report`: what is said, a picture of its evidence, and the same in words."""
    (finding,) = [d for d in report.diagnostics if d.severity != "info"]
    assert finding.code == code, finding
    assert finding.confirmed
    assert finding.witness.replay().reproduced
    display(showing.findings(report), showing.figure(finding.witness.timeline().to_svg(columns=10), caption))
    print(finding.witness)


# %% [markdown]
# ## Slot parity
#
# You have two slots, so you fetch two ahead, as soon as block `i` has arrived. But `i % 2` and `(i + 2) % 2` are the same
# slot: the new block goes where block `i` lies, and that one has arrived but has not been read.


# %%
def slot_parity(ahead):
    def kernel(x_hbm, y_hbm, x_buf, y_buf, fetch_sems, store_sem):
        def fetch(i):
            slot = lax.rem(i, 2)
            return pltpu.make_async_copy(x_hbm.at[i], x_buf.at[slot], fetch_sems.at[slot])

        for i in range(ahead):
            fetch(i).start()

        def body(i, _):
            fetch(i).wait()
            pl.when(i + ahead < BLOCKS)(lambda: fetch(i + ahead).start())
            y_buf[0] = compute(x_buf[lax.rem(i, 2)])
            store = pltpu.make_async_copy(y_buf.at[0], y_hbm.at[i], store_sem)
            store.start()
            store.wait()

        lax.fori_loop(0, BLOCKS, body, None)

    return program(kernel, buffers(2), buffers(1), DMA((2,)), DMA(()))


assert asyncops.check(slot_parity(ahead=1), X).verdict == "clean"

show(
    asyncops.check(slot_parity(ahead=2), X),
    "AO201",
    "Slot parity: the copy of a later block begins to fill the slot from which this block is about to be read.",
)

# %% [markdown]
# ## The last iteration
#
# The loop fetches one ahead, and in the last iteration there is nothing ahead. Forget it, and the kernel reads beyond the
# end of the array.


# %%
def last_iteration(following, is_wanted=lambda i: True):
    def kernel(x_hbm, y_hbm, x_buf, y_buf, fetch_sems, store_sem):
        def fetch(i, block):
            slot = lax.rem(i, 2)
            return pltpu.make_async_copy(x_hbm.at[block], x_buf.at[slot], fetch_sems.at[slot])

        fetch(0, 0).start()

        def body(i, _):
            pl.when(is_wanted(i))(lambda: fetch(i + 1, following(i)).start())
            fetch(i, i).wait()
            y_buf[0] = compute(x_buf[lax.rem(i, 2)])
            store = pltpu.make_async_copy(y_buf.at[0], y_hbm.at[i], store_sem)
            store.start()
            store.wait()

        lax.fori_loop(0, BLOCKS, body, None)

    return program(kernel, buffers(2), buffers(1), DMA((2,)), DMA(()))


report = asyncops.check(last_iteration(lambda i: i + 1), X)
assert [d.code for d in report.diagnostics] == ["AO305"]
showing.findings(report)

# %% [markdown]
# The quick fix is to clamp the index: fetch the last block once more. Now every address is valid, all results are right,
# and a copy is still in flight when the kernel ends. Its buffer then belongs to somebody else.

# %%
show(
    asyncops.check(last_iteration(lambda i: lax.min(i + 1, BLOCKS - 1)), X),
    "AO101",
    "The clamped fetch of the last iteration: nobody waits for it, and the kernel leaves.",
)

# %% [markdown]
# The cure is the condition of step 2:

# %%
cured = last_iteration(lambda i: i + 1, lambda i: i + 1 < BLOCKS)
assert asyncops.check(cured, X).verdict == "clean"

# %% [markdown]
# ## One semaphore for both slots
#
# A semaphore for each slot looks like luxury: copies are started in order, and waited for in order. But they are not
# *finished* in order. A wait takes 4,096 bytes off a counter and does not know whose they were.


# %%
def semaphores(n):
    def kernel(x_hbm, y_hbm, x_buf, y_buf, fetch_sems, store_sem):
        def fetch(i):
            return pltpu.make_async_copy(x_hbm.at[i], x_buf.at[lax.rem(i, 2)], fetch_sems.at[lax.rem(i, n)])

        fetch(0).start()

        def body(i, _):
            pl.when(i + 1 < BLOCKS)(lambda: fetch(i + 1).start())
            fetch(i).wait()
            y_buf[0] = compute(x_buf[lax.rem(i, 2)])
            store = pltpu.make_async_copy(y_buf.at[0], y_hbm.at[i], store_sem)
            store.start()
            store.wait()

        lax.fori_loop(0, BLOCKS, body, None)

    return program(kernel, buffers(2), buffers(1), DMA((n,)), DMA(()))


assert asyncops.check(semaphores(2), X).verdict == "clean"
shared = asyncops.check(semaphores(1), X)
show(
    shared, "AO201", "One semaphore: the wait for the first block returns because the second one has arrived."
)

# %% [markdown]
# Below the finding hangs its explanation; one defect is reported once, and what follows from it, or explains it, is
# secondary:

# %%
assert "AO302" in [d.code for d in shared.diagnostics[0].secondary]
for secondary in shared.diagnostics[0].secondary:
    print(secondary.location, secondary.code, secondary.message)

# %% [markdown]
# ## The missing `wait_send`
#
# A copy to another chip has two ends, and two semaphores. `wait_recv` says that something has arrived *here*. It says
# nothing about what you sent: that may still be on its way out when your neighbour's block has long arrived. Each of four
# devices passes two blocks to the right, through one buffer:


# %%
def passing_on(waits_for_send):
    def kernel(x_ref, y_ref, outgoing, incoming, send_sem, recv_sem):
        right = lax.rem(lax.axis_index("x") + 1, 4)
        for i in range(2):
            outgoing[...] = compute(x_ref[i])
            copy = pltpu.make_async_remote_copy(
                outgoing, incoming.at[i], send_sem, recv_sem.at[i], device_id={"x": right}
            )
            copy.start()
            copy.wait_recv()
            if waits_for_send:
                copy.wait_send()
            y_ref[i] = incoming[i]
        if not waits_for_send:
            for _ in range(2):
                copy.wait_send()  # "it is enough to do it at the end"

    two_blocks = jax.ShapeDtypeStruct((2, *BLOCK), jnp.float32)
    call = pl.pallas_call(
        kernel,
        out_shape=two_blocks,
        scratch_shapes=[pltpu.VMEM(BLOCK, jnp.float32), buffers(2), DMA(()), DMA((2,))],
    )
    mesh = AbstractMesh((4,), ("x",), axis_types=(AxisType.Auto,))
    return jax.shard_map(call, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False)


Y = jax.ShapeDtypeStruct((8, *BLOCK), jnp.float32)
assert asyncops.check(passing_on(True), Y).verdict == "clean"
show(
    asyncops.check(passing_on(False), Y),
    "AO202",
    "No wait_send: the buffer is filled with the next block while the last one is still being sent.",
)

# %% [markdown]
# ## What you have seen
#
# Overlap is a matter of three lines: start early, wait late, have a buffer for whatever is under way. The mistakes are in
# the bookkeeping around them, and each one is a schedule that your tests do not happen to run. So let the checker look at
# every kernel that you write, or leave the bookkeeping to `multi_buffered_loop`. The
# [next notebook](05_many_devices.ipynb) adds what can only go wrong on several devices.
