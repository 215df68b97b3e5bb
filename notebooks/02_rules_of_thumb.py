# %% [markdown]
# # 2. Rules of thumb, and why they are not enough
#
# The [first notebook](01_the_problem.ipynb) ended with programs that the TPU compiler turned into something else. There
# are rules of thumb against that: order by barriers, thread the source, unroll loops by two. In this notebook each is
# tried on the real compiler and counted. You will see what each achieves, a program that keeps all of them and is still
# wrong, what pins it down, and what remains. The last section writes the same programs without any of the rules.

# %%
import showing

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import AbstractMesh, AxisType, PartitionSpec as P

import asyncops

# %% [markdown]
# The two kernels of the first notebook: `start` gives its operand back in place, so that the future is (two semaphores,
# source, destination), and `done` takes both arrays, waits twice, and gives the destination back in place. One thing is
# new, `pinned`, and it is off until it is wanted.

# %%
TOPOLOGY, DEVICES = "v5e:2x2", 4
RING = AbstractMesh((DEVICES,), ("x",), axis_types=(AxisType.Auto,))
X = jax.ShapeDtypeStruct((DEVICES * 1024, 1024), jnp.float32)
ANYWHERE, SEMAPHORE = pl.BlockSpec(memory_space=pl.ANY), pl.BlockSpec(memory_space=pltpu.SEMAPHORE)
DMA = pltpu.SemaphoreType.DMA(())
EFFECTS = pltpu.CompilerParams(has_side_effects=True)


def like(x, pinned):
    return pltpu.HBM(x.shape, x.dtype) if pinned else jax.ShapeDtypeStruct(x.shape, x.dtype)


def start(x, pinned=False):
    def kernel(_, send_sem, receive_sem, x_ref, y_ref):
        right = lax.rem(lax.axis_index("x") + 1, lax.axis_size("x"))
        pltpu.make_async_remote_copy(x_ref, y_ref, send_sem, receive_sem, device_id={"x": right}).start()

    return pl.pallas_call(
        kernel,
        out_shape=(DMA, DMA, like(x, pinned), like(x, pinned)),
        in_specs=[ANYWHERE],
        out_specs=(SEMAPHORE, SEMAPHORE, ANYWHERE, ANYWHERE),
        input_output_aliases={0: 2},
        compiler_params=EFFECTS,
        name="start",
    )(x)


def done(future, pinned=False):
    def kernel(x_ref, y_ref, send_sem, receive_sem, _):
        pltpu.make_async_copy(x_ref, x_ref, send_sem).wait()
        pltpu.make_async_copy(y_ref, y_ref, receive_sem).wait()

    send_sem, receive_sem, x, y = future
    return pl.pallas_call(
        kernel,
        out_shape=like(y, pinned),
        in_specs=[ANYWHERE, ANYWHERE, SEMAPHORE, SEMAPHORE],
        out_specs=ANYWHERE,
        input_output_aliases={1: 0},
        compiler_params=EFFECTS,
        name="done",
    )(x, y, send_sem, receive_sem)


COMPILED = {}


def compiled(fn):
    """`fn` of one shard, compiled for the ring; once."""
    if fn not in COMPILED:
        mapped = jax.shard_map(fn, mesh=RING, in_specs=P("x"), out_specs=P("x"), check_vma=False)
        COMPILED[fn] = asyncops.compile_for(TOPOLOGY, mapped, X)
    return COMPILED[fn]


def report(fn):
    return asyncops.check_compiled(compiled(fn))


def codes(fn):
    return sorted({d.code for d in report(fn).diagnostics if d.severity != "info"})


def compare(caption, *functions):
    rows = [[fn.__name__, *showing.count(compiled(fn)).values()] for fn in functions]
    return showing.table(
        ["program", "copies", "in loops", "in flight", "overlapped", "findings"], rows, caption
    )


# %% [markdown]
# ## Rule one: order by barriers
#
# `optimization_barrier` gives back its arguments, and XLA moves nothing across it. Tie the source to the future after
# the start, so that the work comes after it; tie the result to the future before the done, so that the done comes after
# the work.


# %%
def unordered(x):
    x = jnp.sin(x)
    future = start(x)
    z = x @ x
    y = done(future)
    return y, z


def half_ordered(x):
    x = jnp.sin(x)
    future, x = lax.optimization_barrier((start(x), x))
    z = x @ x
    y = done(future)
    return y, z


def ordered(x):
    x = jnp.sin(x)
    future, x = lax.optimization_barrier((start(x), x))
    z = x @ x
    z, future = lax.optimization_barrier((z, future))
    y = done(future)
    return y, z


assert [codes(f) for f in (unordered, half_ordered, ordered)] == [["AO505"], ["AO505", "AO506"], ["AO506"]]
compare("One barrier does not do it, two do: something is overlapped.", unordered, half_ordered, ordered)

# %%
showing.figure(report(ordered).schedule, "With two barriers the matmul runs while our copy is in flight.")

# %% [markdown]
# ## Rule two: read through the future
#
# The finding that is left, AO506, is a copy of the whole source before the start: `start` works in place, so XLA must
# save the old value for the matmul. The cure is to use what `start` gives back instead of `x`. It has the same
# numbers; but you must know that, and take the future apart.


# %%
def threaded(x):
    x = jnp.sin(x)
    send_sem, receive_sem, x, y = lax.optimization_barrier(start(x))
    z = x @ x
    z, x, y = lax.optimization_barrier((z, x, y))
    return done((send_sem, receive_sem, x, y)), z


assert codes(threaded) == []
assert showing.count(compiled(threaded))["overlapped"] > 0
compare("Ordered, then ordered and threaded.", ordered, threaded)

# %% [markdown]
# What copies remain? The schedule report lists each with its reason. XLA copies what is an argument or a result of the
# whole program when a kernel works in place on it; that is its rule, and outside of what is in flight.

# %%
copies = report(threaded).schedule.copies
assert {copy.reason for copy in copies} <= {"argument", "result"}
showing.table(
    ["copy", "bytes", "how often", "reason"],
    [[c.instruction, f"{c.nbytes:,}", c.times, c.reason] for c in copies],
    "The copies that the compiler made for the threaded program.",
)

# %% [markdown]
# ## Rule three: unroll by two
#
# In a loop, source and destination share one buffer of the carry (the colouring in the first notebook). Two iterations
# at a time have room for both: what the first sends from A to B, the second sends from B to A.


# %%
def rolled(x):
    return lax.fori_loop(0, 8, lambda i, x: done(start(x)), x)


def unrolled(x):
    return lax.fori_loop(0, 8, lambda i, x: done(start(x)), x, unroll=2)


def staggered(x):
    return done(lax.fori_loop(0, 6, lambda i, future: start(done(future)), start(x)))


def staggered_unrolled(x):
    return done(lax.fori_loop(0, 6, lambda i, future: start(done(future)), start(x), unroll=2))


assert codes(rolled) == ["AO506"]
assert codes(staggered) == ["AO504"]
assert codes(unrolled) == codes(staggered_unrolled) == []
compare("Loops, and the same unrolled by two.", rolled, unrolled, staggered, staggered_unrolled)

# %% [markdown]
# No copy is left in the loops. Is that it? Look again at the last one: its verdict is clean, and yet there is a note.

# %%
showing.findings(report(staggered_unrolled))

# %% [markdown]
# ## Where unrolling fails, first: the memory is open
#
# Nothing in these programs says in which memory the two arrays lie; "in this program it does not" is luck. Here is one
# without luck. It copies within the chip, a prefetch say, with a pair of kernels built like the other.


# %%
def copy_start(x, pinned=False):
    def kernel(_, x_ref, y_ref, sem):
        pltpu.make_async_copy(x_ref, y_ref, sem).start()

    return pl.pallas_call(
        kernel,
        out_shape=(like(x, pinned), like(x, pinned), DMA),
        in_specs=[ANYWHERE],
        out_specs=(ANYWHERE, ANYWHERE, SEMAPHORE),
        input_output_aliases={0: 0},
        compiler_params=EFFECTS,
        name="copy_start",
    )(x)


def copy_done(future, pinned=False):
    def kernel(x_ref, y_ref, sem, _):
        pltpu.make_async_copy(y_ref, y_ref, sem).wait()

    x, y, sem = future
    return pl.pallas_call(
        kernel,
        out_shape=like(y, pinned),
        in_specs=[ANYWHERE, ANYWHERE, SEMAPHORE],
        out_specs=ANYWHERE,
        input_output_aliases={1: 0},
        compiler_params=EFFECTS,
        name="copy_done",
    )(x, y, sem)


def copying(x):
    def body(i, future):
        return copy_start(copy_done(future))

    return copy_done(lax.fori_loop(0, 6, body, copy_start(x * 2.0), unroll=2))


assert codes(copying) == ["AO504"]
showing.findings(report(copying))

# %%
showing.hlo(compiled(copying))

# %% [markdown]
# Before the loop the compiler put both arrays into VMEM; the result is wanted in HBM; and after the loop it moves the
# destination there, one instruction *before* the kernel that waits. That kernel waits for the right count, and returns
# the moved copy, into which the engine never wrote. Nothing was out of order, the source was threaded, the loop
# was unrolled by two.
#
# ### What pins a buffer
#
# Say where the results of both kernels lie: `pltpu.HBM(shape, dtype)` as their result types (that is what `pinned` has
# been waiting for). The memory is then part of the kernels, and the compiler leaves the arrays there.


# %%
def copying_pinned(x):
    def body(i, future):
        return copy_start(copy_done(future, pinned=True), pinned=True)

    future = lax.fori_loop(0, 6, body, copy_start(x * 2.0, pinned=True), unroll=2)
    return copy_done(future, pinned=True)


def copying_pinned_only(x):
    def body(i, future):
        return start(done(future, pinned=True), pinned=True)

    return done(lax.fori_loop(0, 6, body, start(x, pinned=True)), pinned=True)


assert codes(copying_pinned) == []
assert codes(copying_pinned_only) == ["AO504"]  # unrolling is needed as well
compare("Unrolled; unrolled and pinned; pinned alone.", copying, copying_pinned, copying_pinned_only)

# %% [markdown]
# ## Where unrolling fails, second: one user too many
#
# A ring usually adds up what comes by. Unrolled by two and pinned:


# %%
def accumulating(x):
    def body(i, carry):
        total, future = carry
        x = done(future, pinned=True)
        future = start(x, pinned=True)
        return total + future[2], future

    total, future = lax.fori_loop(0, 6, body, (x, start(x, pinned=True)), unroll=2)
    return total, done(future, pinned=True)


assert codes(accumulating) == ["AO504"]
showing.findings(report(accumulating))

# %%
showing.hlo(compiled(accumulating))

# %% [markdown]
# Both additions were fused into one, at the end of the pair of iterations. So the array that came first is still wanted
# when the second copy already runs: three buffers, and the carry has two. The cure is a barrier, in the loop, that keeps
# the addition before the start:


# %%
def accumulating_ordered(x):
    def body(i, carry):
        total, future = carry
        x = done(future, pinned=True)
        total, x = lax.optimization_barrier((total + x, x))
        return total, start(x, pinned=True)

    total, future = lax.fori_loop(0, 6, body, (x, start(x, pinned=True)), unroll=2)
    return total, done(future, pinned=True)


assert codes(accumulating_ordered) == []
counts = showing.count(compiled(accumulating_ordered))
assert counts["in loops"] == counts["overlapped"] == 0
compare("Pinned and unrolled; ordered as well.", accumulating, accumulating_ordered)

# %% [markdown]
# It is right now, and it overlaps nothing: each addition is over before the next copy starts. (The last section of this
# notebook has a version that overlaps them.)
#
# ## Where there is nothing to unroll
#
# A conditional is no loop. All its branches must leave a future in the same place, so one that only passes it on copies
# it; pinned or not:


# %%
def conditional(x):
    future = start(jnp.sin(x), pinned=True)
    future = lax.cond(
        x[0, 0] > 0, lambda f: f, lambda f: start(done(f, pinned=True), pinned=True), tuple(future)
    )
    return done(future, pinned=True)


assert codes(conditional) == ["AO504"]
showing.findings(report(conditional))

# %% [markdown]
# Count the rules: two barriers for each pair, the source taken out of the future and put back, every loop unrolled, both
# kernels pinned, barriers in the loops, no future through a conditional. Miss one, and the result is slow or wrong,
# without a message.

# %% [markdown]
# ## Without rules
#
# `asyncops` has these operations with all of that inside. A future is one value; you do not take it apart. Under
# `asyncops.program_order`, what you write between a start and its done stays between them, also in loops and
# conditionals, and loops get their second buffer by themselves. Here are all programs of this notebook again, written
# as one would say them:

# %%
RIGHT = [(i, (i + 1) % DEVICES) for i in range(DEVICES)]


def go(x):
    return asyncops.ppermute_start(x, "x", RIGHT)


wait = asyncops.ppermute_done


@asyncops.program_order
def work_between(x):
    x = jnp.sin(x)
    future = go(x)
    z = x @ x
    y = wait(future)
    return y, z


@asyncops.program_order
def loop(x):
    return lax.fori_loop(0, 8, lambda i, x: wait(go(x)), x)


@asyncops.program_order
def carried(x):
    return wait(lax.fori_loop(0, 7, lambda i, future: go(wait(future)), go(x)))


@asyncops.program_order
def added_up(x):
    def body(i, carry):
        total, future = carry
        y = wait(future)
        future = go(y)
        return total + y, future

    total, future = lax.fori_loop(0, 6, body, (x, go(x)))
    return total, wait(future)


@asyncops.program_order
def branched(x):
    future = go(jnp.sin(x))
    return wait(lax.cond(x[0, 0] > 0, lambda f: f, lambda f: go(wait(f)), future))


OURS = [work_between, loop, carried, added_up, branched]
assert all(report(f).verdict == "clean" for f in OURS)
assert all(
    showing.count(compiled(f))["in flight"] == showing.count(compiled(f))["in loops"] == 0 for f in OURS
)
assert showing.count(compiled(added_up))["overlapped"] > 0
compare("The same programs with asyncops' operations.", *OURS)

# %% [markdown]
# And since these operations also run where there is no TPU, you can see that they are right. On eight CPU devices, what
# `added_up` computes is a sum of rolled arrays:

# %%
import numpy as np
from jax.sharding import Mesh

RIGHT = [(i, (i + 1) % 8) for i in range(8)]
cpus = Mesh(np.array(jax.devices()[:8]), ("x",))
numbers = jnp.arange(8.0 * 4).reshape(8, 4)
on_cpus = jax.jit(
    jax.shard_map(added_up, mesh=cpus, in_specs=P("x"), out_specs=(P("x"), P("x")), check_vma=False)
)
total, last = on_cpus(numbers)
np.testing.assert_allclose(total, sum(jnp.roll(numbers, k, axis=0) for k in range(7)))
np.testing.assert_allclose(last, jnp.roll(numbers, 7, axis=0))
print("added_up on 8 devices: right")

# %% [markdown]
# The last programs are values in, values out. The [next notebook](03_revenge_of_the_state.ipynb) asks why the trouble
# arose at all, and answers it with state: on Refs there is nothing to alias, to thread or to copy.
