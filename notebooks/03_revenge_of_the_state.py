# %% [markdown]
# # 3. Revenge of the state
#
# All trouble of the first two notebooks came from one translation: an operation on *memory* was written as a function of
# *values*. Aliases, threaded sources, barriers and unrolled loops are attempts to talk about memory in a language that
# has none. JAX also has a language that does: Refs. In this notebook you write the same programs on Refs, see their
# effects printed beside them, watch JAX lose those effects in a loop, and see what keeps them. At the end a ring of ten
# lines runs on eight devices, its compiled loop has no copy in it, and the checker objects to a program that looks fine.

# %%
import showing

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import AbstractMesh, AxisType, Mesh, PartitionSpec as P

import asyncops
import stateful
from stateful.errors import StatefulError

# %% [markdown]
# ## A Ref is a place
#
# `jax.new_ref(x)` makes a place that holds `x`. `ref[...]` reads it, `ref[...] = y` writes it. In the traced program
# these are operations in their own right, in the order in which you wrote them.


# %%
def double_three_times(x):
    ref = jax.new_ref(x)

    def body(i, _):
        ref[...] = ref[...] * 2.0

    lax.fori_loop(0, 3, body, None)
    return ref[...]


SMALL = jax.ShapeDtypeStruct((8, 128), jnp.float32)
print(jax.make_jaxpr(double_three_times)(SMALL))

# %% [markdown]
# `<-` reads a Ref, and `h, c[...] <- c[...], g` swaps a new value in. What each line does to which memory, and only that,
# is what `stateful` infers:

# %%
print(stateful.effect_jaxpr(double_three_times)(SMALL))

# %% [markdown]
# ## An asynchronous copy on Refs
#
# Two kernels again, one that starts a copy and one that waits. They are given Refs, by closing over them. Nothing is
# returned but the semaphore: both places exist anyway, before, during and after. There is nothing to alias.

# %%
SEMAPHORE, DMA = pl.BlockSpec(memory_space=pltpu.SEMAPHORE), pltpu.SemaphoreType.DMA(())
EFFECTS = pltpu.CompilerParams(has_side_effects=True)


def start(x_ref, y_ref):
    def kernel(sem):
        pltpu.make_async_copy(x_ref, y_ref, sem).start()

    return pl.pallas_call(kernel, out_shape=DMA, out_specs=SEMAPHORE, compiler_params=EFFECTS, name="start")()


def done(x_ref, y_ref, sem):
    def kernel(sem):
        pltpu.make_async_copy(x_ref, y_ref, sem).wait()

    pl.pallas_call(kernel, out_shape=(), in_specs=[SEMAPHORE], compiler_params=EFFECTS, name="done")(sem)


def once(x):
    x_ref, y_ref = jax.new_ref(x), jax.new_ref(jnp.zeros_like(x))
    sem = start(x_ref, y_ref)
    done(x_ref, y_ref, sem)
    return y_ref[...]


print(stateful.effect_jaxpr(once)(SMALL))

# %% [markdown]
# Read it from top to bottom: two places are made; a kernel starts a DMA that reads one and writes the other and will
# count 4096 bytes; a kernel waits for them; then the second place is read. `infer_effects` sorts the same by memory:

# %%
effects = stateful.infer_effects(once)(SMALL)
assert not effects.unmodelled
print(effects)

# %% [markdown]
# ## JAX loses it in a loop
#
# Eight copies, there and back, in four iterations. `stateful` sees all of them:


# %%
def there_and_back(x):
    x_ref, y_ref = jax.new_ref(x), jax.new_ref(jnp.zeros_like(x))

    def body(i, _):
        done(x_ref, y_ref, start(x_ref, y_ref))
        done(y_ref, x_ref, start(y_ref, x_ref))

    lax.fori_loop(0, 4, body, None)
    return x_ref[...]


print(stateful.effect_jaxpr(there_and_back)(SMALL))

# %% [markdown]
# And JAX? Each equation of a jaxpr has a set of effects, by which `scan`, `jit` and the rest decide what may be dropped.
# Here they are, for every equation in the loop's body that touches a Ref:


# %%
def jax_effects(fn, *args):
    """(operation, effects that JAX knows of) for each equation in loop bodies that is given a Ref."""
    found = []

    def walk(jaxpr, in_loop):
        for eqn in jaxpr.eqns:
            refs = [v for v in eqn.invars if "Ref" in type(v.aval).__name__]
            inner = [getattr(v, "jaxpr", v) for v in eqn.params.values()]
            inner = [j for j in inner if hasattr(j, "eqns") and eqn.primitive.name != "pallas_call"]
            if refs and in_loop and not inner:
                known = ", ".join(sorted(type(e).__name__ for e in eqn.effects)) or "none"
                found.append((str(eqn.params.get("name") or eqn.primitive.name), known))
            for j in inner:
                walk(j, in_loop or eqn.primitive.name in ("scan", "while"))

    walk(jax.make_jaxpr(fn)(*args).jaxpr, False)
    return found


rows = jax_effects(there_and_back, SMALL)
assert {known for _, known in rows} == {"none"}
showing.table(
    ["in the loop", "effects that JAX knows of"], rows, "Kernels that close over Refs, as JAX sees them."
)

# %% [markdown]
# None. The kernels' bodies read and write the Refs, but the equations that call them do not say so, and
# `has_side_effects=True` speaks to XLA, which comes later. So `scan` holds a loop whose results nobody needs and which
# does nothing, and drops it. Here is what the TPU compiler gets to see of eight copies:

# %%
compiled = asyncops.compile_for("v5e:2x2", there_and_back, SMALL)
assert "tpu_custom_call" not in compiled.as_text()
showing.hlo(compiled)

# %% [markdown]
# The argument, copied to the result. The checker sees it before anything is compiled:

# %%
report = asyncops.check(there_and_back, SMALL)
assert {d.code for d in report.diagnostics} == {"AO507"}
showing.findings(report)

# %% [markdown]
# ## What keeps them
#
# An operation whose *equation* has the effects. `asyncops`' operations on Refs are primitives of their own: they say that
# the first Ref is read and the second written. Below is the ring, ten lines with the definition of the neighbours:
# eight permutes in four iterations, two Refs that change roles.

# %%
DEVICES = 8
RIGHT = [(i, (i + 1) % DEVICES) for i in range(DEVICES)]


def send(x_ref, y_ref):
    asyncops.ppermute_done_ref(asyncops.ppermute_start_ref(x_ref, y_ref, "x", RIGHT))


def ring(x):
    x_ref, y_ref = jax.new_ref(x), jax.new_ref(jnp.zeros_like(x))

    def body(i, _):
        send(x_ref, y_ref)
        send(y_ref, x_ref)

    lax.fori_loop(0, DEVICES // 2, body, None)
    return x_ref[...]


ABSTRACT = AbstractMesh((DEVICES,), ("x",), axis_types=(AxisType.Auto,))
SHARDED = jax.ShapeDtypeStruct((DEVICES * 1024, 1024), jnp.float32)


def on_ring(fn, mesh=ABSTRACT):
    return jax.shard_map(fn, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False)


rows = jax_effects(on_ring(ring), SHARDED)
assert all("ReadEffect" in known and "WriteEffect" in known for _, known in rows)
showing.table(["in the loop", "effects that JAX knows of"], rows, "The ring's operations, as JAX sees them.")

# %% [markdown]
# The loop stays. On eight devices (of a CPU) what goes around the whole ring is back where it was; and in seven steps it
# would be `jnp.roll`, so let us check that with slots, which also allow odd numbers:


# %%
def seven(x):
    slots = asyncops.slots(x)

    def body(i, _):
        send(slots.sending(i), slots.receiving(i))

    lax.fori_loop(0, 7, body, None)
    return slots.sending(7)[...]


devices = Mesh(np.array(jax.devices()[:DEVICES]), ("x",))
numbers = jnp.arange(DEVICES * 2.0 * 3).reshape(DEVICES * 2, 3)
np.testing.assert_array_equal(jax.jit(on_ring(ring, devices))(numbers), numbers)
np.testing.assert_array_equal(jax.jit(on_ring(seven, devices))(numbers), jnp.roll(numbers, 7 * 2, axis=0))
print("eight steps: back home; seven steps: jnp.roll by seven shards")

# %% [markdown]
# And on TPUs, compiled for eight chips. There is one loop; in its body are two starts and two dones, and no copy:

# %%
compiled = asyncops.compile_for("v5e:2x4", on_ring(ring), SHARDED)
report = asyncops.check_compiled(compiled)
counts = showing.count(compiled)
assert report.verdict == "clean"
assert counts["in loops"] == counts["in flight"] == 0
assert [pair.times for pair in report.schedule.pairs if pair.by == "Pallas"] == [4, 4]
showing.hlo(compiled)

# %% [markdown]
# No barrier, no alias, no `unroll`, no pinning was written. Each is there, but in the operation, once.
#
# ## Discharge, step by step
#
# XLA has no Refs. Before compiling, each program with state is turned into one without: it is *discharged*. What happens
# is mechanical. First, assignments: the Ref becomes the value that it holds at each moment.


# %%
def assign(x):
    ref = jax.new_ref(x)
    ref[...] = ref[...] + 1.0
    ref[...] = ref[...] * 3.0
    return ref[...]


print(jax.make_jaxpr(assign)(SMALL))
print(jax.make_jaxpr(stateful.discharge(assign))(SMALL))

# %% [markdown]
# Second, control flow: what a loop may write becomes part of what it carries. Compare with the first cell of this
# notebook: the loop carried a counter, now it carries the array as well.

# %%
print(jax.make_jaxpr(stateful.discharge(double_three_times))(SMALL))

# %% [markdown]
# Third, copies and semaphores. A copy gives its destination's place the value of its source; a semaphore becomes a
# number, which a start raises and a wait lowers. A wait for more than will ever be there is an error when the discharged
# program runs. For a program without races, that is the whole truth about the result:

# %%
x = jnp.arange(8.0 * 128).reshape(8, 128)
np.testing.assert_array_equal(stateful.discharge(once)(x), x)
np.testing.assert_array_equal(stateful.discharge(there_and_back)(x), x)


def never_started(x):
    def kernel(x_ref, y_ref, sem):
        pltpu.make_async_copy(x_ref, y_ref, sem).wait()

    return pl.pallas_call(kernel, out_shape=SMALL, scratch_shapes=[pltpu.SemaphoreType.DMA])(x)


try:
    jax.block_until_ready(stateful.discharge(never_started)(x))
    raise AssertionError("a wait without a start went unnoticed")
except StatefulError as error:
    print(type(error).__name__, "-", showing.without_paths(str(error)))

# %% [markdown]
# Discharge is also where the second notebook's rules went: when an operation of `asyncops` is discharged for a TPU, the
# destination's value goes into its kernel and comes out in place, pinned, and the source goes to the done, too.
#
# ## An order is not enough
#
# On Refs, what you write is what happens, in that order. It is tempting to write:


# %%
def count_while_sending(x):
    x_ref, y_ref = jax.new_ref(x), jax.new_ref(jnp.zeros_like(x))
    future = asyncops.ppermute_start_ref(x_ref, y_ref, "x", RIGHT)
    x_ref[...] += 1.0
    asyncops.ppermute_done_ref(future)
    return y_ref[...]


report = asyncops.check(on_ring(count_while_sending), SHARDED)
assert [d.code for d in report.diagnostics] == ["AO202"]
showing.findings(report)

# %% [markdown]
# The order is right, and that is the problem: the addition happens while the engine reads `x_ref`. Some of the shard is
# sent before it is raised, some after. On values one could not even write this. `program_order` refuses it outright:

# %%
try:
    jax.make_jaxpr(on_ring(asyncops.program_order(count_while_sending)))(SHARDED)
    raise AssertionError("the write went unnoticed")
except StatefulError as error:
    print(type(error).__name__, "-", showing.without_paths(str(error)))

# %% [markdown]
# The same with the two kernels from above, where the checker has no operation of its own to recognise. It follows the
# DMA, and has a schedule in which the numbers come out wrong:


# %%
def count_while_copying(x):
    x_ref, y_ref = jax.new_ref(x), jax.new_ref(jnp.zeros_like(x))
    sem = start(x_ref, y_ref)
    x_ref[...] += 1.0
    done(x_ref, y_ref, sem)
    return y_ref[...]


report = asyncops.check(count_while_copying, SMALL)
assert [d.code for d in report.diagnostics] == ["AO202"]
showing.findings(report)

# %%
print(report.diagnostics[0].witness)

# %% [markdown]
# Raise another Ref, or raise this one after the done:


# %%
def count_elsewhere(x):
    x_ref, y_ref, z_ref = jax.new_ref(x), jax.new_ref(jnp.zeros_like(x)), jax.new_ref(x)
    future = asyncops.ppermute_start_ref(x_ref, y_ref, "x", RIGHT)
    z_ref[...] += 1.0
    asyncops.ppermute_done_ref(future)
    return y_ref[...] + z_ref[...]


assert asyncops.check(on_ring(count_elsewhere), SHARDED).verdict == "clean"
compiled = asyncops.compile_for("v5e:2x4", on_ring(asyncops.program_order(count_elsewhere)), SHARDED)
report = asyncops.check_compiled(compiled)
assert report.verdict == "clean"
assert showing.count(compiled)["overlapped"] > 0
showing.figure(report.schedule, "The addition to another Ref runs while the shard is on its way.")

# %% [markdown]
# So state gives back what values took away: places that stay where they are, and an order that means something. What it
# does not give is permission to use a place while an engine uses it. For that there is the checker. The
# [next notebook](04_writing_an_overlapped_kernel.ipynb) goes inside a kernel, where everything is a Ref, and writes one
# that overlaps.
