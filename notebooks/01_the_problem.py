# %% [markdown]
# # 1. The problem
#
# A TPU can move data while it computes, if the program starts the movement early, does something else, and waits
# late. XLA arranges that for its own collectives. In this notebook you write such a pair of operations yourself, as
# two Pallas kernels, give it to the real TPU compiler, and read what comes back: the overlap is gone, an array is
# copied that nobody asked to copy, and another is freed while it is still being read. No TPU is needed: the compiler
# runs on this machine, and `asyncops.check_compiled` reads its output for you.

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
# ## A few words about the machine
#
# * **HBM** is the large memory of the chip, **VMEM** a small fast one beside the arithmetic.
# * A **DMA** is a copy that an engine beside the core carries out: within a chip, or into the memory of a neighbour.
#   The core starts it and goes on.
# * A **semaphore** counts what such an engine has moved. Waiting for a DMA is waiting for a count.
# * A **kernel** (here: one `pallas_call`) is what runs on the core; XLA puts kernels and its own operations into a
#   **schedule**, one order for all of them, and gives each array a place in memory.
#
# All programs below run on four chips in a ring. Each sends its shard to the right.

# %%
TOPOLOGY, DEVICES = "v5e:2x2", 4
RING = AbstractMesh((DEVICES,), ("x",), axis_types=(AxisType.Auto,))
X = jax.ShapeDtypeStruct((DEVICES * 1024, 1024), jnp.float32)


def compile_on_ring(fn):
    """`fn` of one shard, on all four chips, through the TPU compiler."""
    mapped = jax.shard_map(fn, mesh=RING, in_specs=P("x"), out_specs=P("x"), check_vma=False)
    return asyncops.compile_for(TOPOLOGY, mapped, X)


def right():
    return {"x": lax.rem(lax.axis_index("x") + 1, lax.axis_size("x"))}


# %% [markdown]
# ## What XLA does by itself
#
# `jax.lax.ppermute` is *one* operation in your program. XLA splits it into a start and a done, and moves work that does
# not need the result between them.


# %%
def jax_does_it(x):
    y = lax.ppermute(x, "x", [(i, (i + 1) % DEVICES) for i in range(DEVICES)])
    z = x @ x
    return y, z


compiled = compile_on_ring(jax_does_it)
showing.hlo(compiled)

# %% [markdown]
# Lines are in the order in which the chip executes them. Blue starts a copy, green waits for it, violet is work. The
# same as a picture, with the compiler's own estimates as lengths:

# %%
schedule = asyncops.check_compiled(compiled).schedule
(pair,) = schedule.pairs
assert [item.what for item in pair.overlapped] == ["computation"]
showing.figure(
    schedule,
    "XLA's own ppermute: the copy to the neighbour (above) is in flight while the matmul (below) runs.",
)

# %% [markdown]
# ## Your own ppermute
#
# Now suppose that you have a reason to write the communication yourself: another route, another layout, a fused
# conversion. As one Pallas kernel it is short. It names the neighbour, starts a remote copy with two semaphores (one
# counts what has left here, one what has arrived here), and waits for both.


# %%
def permute_kernel(x_ref, y_ref, send_sem, receive_sem):
    copy = pltpu.make_async_remote_copy(x_ref, y_ref, send_sem, receive_sem, device_id=right())
    copy.start()
    copy.wait()


ANYWHERE = pl.BlockSpec(memory_space=pl.ANY)  # the kernel is given Refs to where the arrays lie


def permute(x):
    return pl.pallas_call(
        permute_kernel,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        in_specs=[ANYWHERE],
        out_specs=ANYWHERE,
        scratch_shapes=[pltpu.SemaphoreType.DMA] * 2,
        compiler_params=pltpu.CompilerParams(has_side_effects=True),
        name="permute",
    )(x)


blocking = compile_on_ring(lambda x: (permute(x), x @ x))
assert not asyncops.check_compiled(blocking).schedule.pairs  # nothing is in flight between two operations
showing.hlo(blocking)

# %% [markdown]
# It is correct, and nothing overlaps: the kernel comes back when the copy is over, so the matmul runs before it or after
# it. One cure is to put the work *into* the kernel, between `start` and `wait`. Here it is with a local copy, small
# enough to draw a run of it:


# %%
def copy_and_add(x_hbm, z_ref, y_ref, sem):
    copy = pltpu.make_async_copy(x_hbm, y_ref, sem)
    copy.start()
    z_ref[...] = z_ref[...] * 2.0  # meanwhile
    copy.wait()
    z_ref[...] = z_ref[...] + y_ref[...]


def fused(x):
    return pl.pallas_call(
        copy_and_add,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        in_specs=[ANYWHERE],
        scratch_shapes=[pltpu.VMEM(x.shape, x.dtype), pltpu.SemaphoreType.DMA],
    )(x)


SMALL = jax.ShapeDtypeStruct((8, 128), jnp.float32)
showing.figure(
    asyncops.draw_timeline(fused, SMALL),
    "Inside one kernel: the doubling happens while the copy is in flight.",
)

# %% [markdown]
# That is overlap by hand. It works, but every computation that you want to hide a copy behind must be rewritten as part
# of that kernel: a matmul, an attention, a whole layer. What one would rather write is
#
# ```python
# future = permute_start(x)
# z = anything_that_jax_can_do(x)
# y = permute_done(future)
# ```
#
# ## What must a future carry?
#
# The copy outlives the kernel that starts it. Whoever waits for it needs
#
# 1. the two **semaphores**, which the first kernel must therefore *return*;
# 2. the **destination**, which the first kernel returns although nothing has arrived in it, and which the second kernel
#    takes over (`input_output_aliases`: the result is the operand's memory), so that whoever reads the result has
#    waited.
#
# Let us write just that: the obvious version.

# %%
SEMAPHORE = pl.BlockSpec(memory_space=pltpu.SEMAPHORE)
DMA = pltpu.SemaphoreType.DMA(())


def naive_start(x):
    def kernel(x_ref, send_sem, receive_sem, y_ref):
        pltpu.make_async_remote_copy(x_ref, y_ref, send_sem, receive_sem, device_id=right()).start()

    return pl.pallas_call(
        kernel,
        out_shape=(DMA, DMA, jax.ShapeDtypeStruct(x.shape, x.dtype)),
        in_specs=[ANYWHERE],
        out_specs=(SEMAPHORE, SEMAPHORE, ANYWHERE),
        compiler_params=pltpu.CompilerParams(has_side_effects=True),
        name="permute_start",
    )(x)


def naive_done(future):
    def kernel(y_ref, send_sem, receive_sem, _):
        pltpu.make_async_copy(y_ref, y_ref, send_sem).wait()
        pltpu.make_async_copy(y_ref, y_ref, receive_sem).wait()

    send_sem, receive_sem, y = future
    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct(y.shape, y.dtype),
        in_specs=[ANYWHERE, SEMAPHORE, SEMAPHORE],
        out_specs=ANYWHERE,
        input_output_aliases={0: 0},
        compiler_params=pltpu.CompilerParams(has_side_effects=True),
        name="permute_done",
    )(y, send_sem, receive_sem)


# %% [markdown]
# ## The compiler's answer, part one: no overlap


# %%
def naive(x):
    x = jnp.sin(x)
    future = naive_start(x)
    z = x @ x
    y = naive_done(future)
    return y, z


compiled = compile_on_ring(naive)
showing.hlo(compiled)

# %%
report = asyncops.check_compiled(compiled)
assert [d.code for d in report.diagnostics if d.code == "AO505"] == ["AO505"]
showing.findings(report)

# %% [markdown]
# The matmul is not between the blue line and the green one. It need not be: XLA schedules by data dependence, the matmul
# needs `x` and not the future, and the order of your Python lines is not part of the program that it is given.

# %%
showing.figure(report.schedule, "The naive pair: a copy in flight, and nothing that runs meanwhile.")

# %% [markdown]
# ## Part two: the source does not live
#
# XLA frees an array after its last use. Look at the naive pair again: once the start has been given `x`, nothing else
# holds on to it. If the matmul did not want it too, its last use would be the *start*, while the copy reads it until
# the *done*.


# %%
def forgotten(x):
    future = naive_start(jnp.sin(x))  # the only use of sin(x)
    return naive_done(future)


report = asyncops.check_compiled(compile_on_ring(forgotten))
assert [d.code for d in report.diagnostics] == ["AO503"]
showing.findings(report)

# %% [markdown]
# Nothing went wrong *here*, perhaps: no other array wanted that memory in time. The next one shows what happens when one
# does. `x.at[0].set(0.0)` makes a new array out of one that, as far as XLA can see, nobody needs any more. So it is
# done in place, in the memory from which the copy is still being read.


# %%
def rewritten(x):
    x = jnp.sin(x)
    send_sem, receive_sem, y = naive_start(x)
    x = x.at[0].set(0.0)
    x, y = lax.optimization_barrier((x, y))  # the update comes before the done
    return naive_done((send_sem, receive_sem, y)), x


compiled = compile_on_ring(rewritten)
report = asyncops.check_compiled(compiled)
assert report.diagnostics[0].code == "AO504"
showing.findings(report)

# %%
showing.hlo(compiled)

# %% [markdown]
# ## Part three: copies that nobody asked for
#
# The cure for the lifetime is to let the future carry the source as well: the first kernel gives `x` back in the same
# memory, and the second takes it as an operand that it does not touch. Then XLA sees a use at the done. Let us also say
# that the addition comes after the start, with `optimization_barrier`: it returns its arguments, and XLA moves nothing
# across it.


# %%
def start(x):
    def kernel(_, send_sem, receive_sem, x_ref, y_ref):
        pltpu.make_async_remote_copy(x_ref, y_ref, send_sem, receive_sem, device_id=right()).start()

    same = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(
        kernel,
        out_shape=(DMA, DMA, same, same),
        in_specs=[ANYWHERE],
        out_specs=(SEMAPHORE, SEMAPHORE, ANYWHERE, ANYWHERE),
        input_output_aliases={0: 2},
        compiler_params=pltpu.CompilerParams(has_side_effects=True),
        name="start",
    )(x)


def done(future):
    def kernel(x_ref, y_ref, send_sem, receive_sem, _):
        pltpu.make_async_copy(x_ref, x_ref, send_sem).wait()
        pltpu.make_async_copy(y_ref, y_ref, receive_sem).wait()

    send_sem, receive_sem, x, y = future
    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct(y.shape, y.dtype),
        in_specs=[ANYWHERE, ANYWHERE, SEMAPHORE, SEMAPHORE],
        out_specs=ANYWHERE,
        input_output_aliases={1: 0},
        compiler_params=pltpu.CompilerParams(has_side_effects=True),
        name="done",
    )(x, y, send_sem, receive_sem)


def beside(x):
    x = jnp.sin(x)
    future, x = lax.optimization_barrier((start(x), x))  # what uses x from here on comes after the start
    z = x + 1.0
    y = done(future)
    return y, z


compiled = compile_on_ring(beside)
report = asyncops.check_compiled(compiled)
assert "AO506" in [d.code for d in report.diagnostics]
showing.findings(report)

# %%
showing.hlo(compiled)

# %% [markdown]
# "Gives its operand back in place" means to XLA: *may have changed it*. `x + 1.0` wants the old value, so XLA saves it
# first: a copy of the whole array, before the start. (You know that the kernel changed nothing. There is no way to
# tell.)
#
# ### Colouring the buffers
#
# You can predict such copies with a pencil. Give each value a colour; where an operation works in place, operand and
# result get the *same* one. Two different values of one colour that are wanted at the same time need a copy.
# `showing.colouring` does that on the traced program. For the one above, which has no loop:

# %%
ONE_SHARD = jax.ShapeDtypeStruct((1024, 1024), jnp.float32)


def on_one_axis(fn):
    return jax.shard_map(fn, mesh=RING, in_specs=P("x"), out_specs=P("x"), check_vma=False)


showing.colouring(on_one_axis(beside), X)

# %% [markdown]
# `start` puts a new value into the buffer of its operand, and the addition still wants the old one: one copy.
#
# ### In a loop
#
# A loop's carry is one more in-place rule: what an iteration returns lies where it found its argument. Eight permutes,
# one after the other:


# %%
def rolled(x):
    return lax.fori_loop(0, 8, lambda i, x: done(start(x)), x)


showing.colouring(on_one_axis(rolled), X)

# %% [markdown]
# Source and destination of one copy are wanted at once, and have one colour. So in each iteration something must be
# copied, and the compiler does:

# %%
compiled = compile_on_ring(rolled)
report = asyncops.check_compiled(compiled)
assert [(d.code, d.severity) for d in report.diagnostics] == [("AO506", "warning")]
showing.hlo(compiled)

# %%
showing.findings(report)

# %% [markdown]
# That costs time; the result is right. The next loop is *wrong*. It is the one that you want for overlap, because it
# carries the future: each iteration finishes the copy that the one before started, and starts the next.


# %%
def staggered(x):
    return done(lax.fori_loop(0, 6, lambda i, future: start(done(future)), start(x)))


showing.colouring(on_one_axis(staggered), X)

# %% [markdown]
# Again one colour for both; but now the copies are needed *between* the start and the done. XLA copies both arrays while
# the engine is writing one of them, and hands the second kernel the copies. What arrives afterwards arrives in memory
# that nobody looks at.

# %%
compiled = compile_on_ring(staggered)
report = asyncops.check_compiled(compiled)
(finding,) = [d for d in report.diagnostics if d.severity == "error"]
assert finding.code == "AO504"
assert "copies its source" in finding.message
assert "copies its destination" in finding.message
showing.findings(report)

# %%
showing.hlo(compiled)

# %% [markdown]
# The steps of the schedule that show it, as the checker tells them:

# %%
print(finding.witness)

# %% [markdown]
# ## Where we are

# %%
PROGRAMS = {
    "naive pair": naive,
    "source forgotten": forgotten,
    "source rewritten": rewritten,
    "source read beside the future": beside,
    "loop": rolled,
    "staggered loop": staggered,
}
counts = {name: showing.count(compile_on_ring(fn)) for name, fn in PROGRAMS.items()}
assert all(c["findings"] for c in counts.values())
assert counts["staggered loop"]["in flight"] == 2
showing.table(
    ["program", *next(iter(counts.values()))],
    [[name, *c.values()] for name, c in counts.items()],
    "What the TPU compiler made of each program: array copies that it added (in all, in loops, of arrays in flight), "
    "operations that run while a copy of ours is in flight, and findings.",
)

# %% [markdown]
# Six programs that say what you mean, and not one does it. None of this shows on a CPU, and on a TPU the wrong ones may
# give right numbers for a long time. The [next notebook](02_rules_of_thumb.ipynb) tries the rules of thumb that people
# use against this, and counts what they achieve.
