# %% [markdown]
# # 5. Many devices
#
# On several devices a kernel can be wrong in ways that one device does not know: a neighbour may be ahead of you, behind
# you, or not there yet. You write a ring all-gather, meet all three, and see each as a schedule. Then you leave the
# kernel and overlap a reduce-scatter with a matmul in plain JAX, on eight CPU devices, and differentiate through it.

# %%
import showing

import jax
import jax.numpy as jnp
import numpy as np
from IPython.display import display
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import AbstractMesh, AxisType, Mesh, PartitionSpec as P

import asyncops
from stateful.errors import FutureError

# %% [markdown]
# ## A ring all-gather
#
# Four devices stand in a ring, each with a block. In the end all of them shall have all blocks. So everybody passes on
# what it got last, to the right, three times. A remote copy writes into the memory *of the other device*, to the Ref of
# the same name; its `recv_sem` counts there.

# %%
N, BLOCK = 4, (8, 128)
ONE_BLOCK = jax.ShapeDtypeStruct((N * 8, 128), jnp.float32)
DMA = pltpu.SemaphoreType.DMA
COUNTER = pltpu.SemaphoreType.REGULAR
VMEM = pl.BlockSpec(memory_space=pltpu.VMEM)


def neighbours(n=N):
    me = lax.axis_index("x")
    return lax.rem(me + n - 1, n), lax.rem(me + 1, n)


def on_ring(kernel, *scratch, blocks=1, n=N, interpret=False, **params):
    """The function of an array of `n` blocks, one a device, that runs `kernel` on each; it returns `blocks` a device."""
    call = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((blocks * 8, 128), jnp.float32),
        in_specs=[VMEM],
        out_specs=VMEM,
        scratch_shapes=scratch,
        compiler_params=pltpu.CompilerParams(**params),
        interpret=pltpu.InterpretParams() if interpret else False,
    )
    mesh = AbstractMesh((n,), ("x",), axis_types=(AxisType.Auto,))
    if interpret:
        mesh = Mesh(np.array(jax.devices()[:n]), "x")
    return jax.shard_map(call, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False)


def all_gather(x_ref, o_ref, send_sems, recv_sems):
    me, (_, right) = lax.axis_index("x"), neighbours()

    def place(k):
        return o_ref.at[pl.ds(lax.rem(k + N, N) * 8, 8)]

    place(me)[...] = x_ref[...]
    for step in range(N - 1):
        block = place(me - step)  # what came last; in the first step one's own
        copy = pltpu.make_async_remote_copy(
            block, block, send_sems.at[step], recv_sems.at[step], device_id={"x": right}
        )
        copy.start()
        copy.wait()


GATHER = all_gather, DMA((N - 1,)), DMA((N - 1,))
assert asyncops.check(on_ring(*GATHER, blocks=N), ONE_BLOCK).verdict == "clean"
showing.figure(
    asyncops.draw_timeline(on_ring(*GATHER, blocks=N), ONE_BLOCK).to_svg(columns=10, cores=2),
    "Two of the four devices. A wait ends when the device's own block has left and its neighbour's has arrived.",
)

# %% [markdown]
# The checker follows all four devices at once. A CPU can run it, too (JAX interprets TPU kernels), and it gathers:

# %%
X = jnp.sin(jnp.arange(N * 8 * 128.0)).reshape(N * 8, 128)
gathered = jax.jit(on_ring(*GATHER, blocks=N, interpret=True))(X)
assert gathered.shape == (N * N * 8, 128)
for device in range(N):
    np.testing.assert_array_equal(gathered[device * N * 8 : (device + 1) * N * 8], X)

# %% [markdown]
# Why is it right? Each block has a place of its own on every device, and each step semaphores of its own. However far a
# neighbour is ahead, it writes where nobody is reading. That costs memory: N blocks, and 2 (N - 1) semaphores.
#
# ## The neighbour that runs ahead
#
# To *add* the blocks, two buffers are enough: send from one, receive into the other, add, change roles. It looks safe:
# `copy.wait()` waits until your block has left and your neighbour's has arrived.

# %%
RING_SUM = pltpu.VMEM((2, *BLOCK), jnp.float32), DMA((N - 1,)), DMA((N - 1,)), COUNTER(())


def ring_sum(room_given):
    def kernel(x_ref, o_ref, buf, send_sems, recv_sems, room):
        left, right = neighbours()

        def give_room(when, step):
            if room_given == when and step < N - 2:
                pl.semaphore_signal(room, 1, device_id={"x": left})

        buf[0] = x_ref[...]
        o_ref[...] = x_ref[...]
        for step in range(N - 1):
            slot, other = step % 2, (step + 1) % 2
            if room_given != "never" and step > 0:
                pl.semaphore_wait(room, 1)
            copy = pltpu.make_async_remote_copy(
                buf.at[slot], buf.at[other], send_sems.at[step], recv_sems.at[step], device_id={"x": right}
            )
            copy.start()
            give_room("before the wait", step)
            copy.wait()
            give_room("after the wait", step)
            o_ref[...] += buf[other]

    return on_ring(kernel, *RING_SUM)


def show(report, code, caption, columns=10, cores=2):
    """The only finding of `report`: what is said, a picture of its evidence, and the same in words."""
    (finding,) = [d for d in report.diagnostics if d.severity != "info"]
    assert finding.code == code, finding
    assert finding.confirmed
    assert finding.witness.replay().reproduced
    display(
        showing.findings(report),
        showing.figure(finding.witness.timeline().to_svg(columns=columns, cores=cores), caption),
    )
    print(finding.witness)


show(
    asyncops.check(ring_sum("never"), ONE_BLOCK),
    "AO402",
    "The left neighbour is a step ahead: its second block lands in the buffer that this device is still about to fill and send.",
)

# %% [markdown]
# `wait` says what has arrived at *you*. It says nothing about how far your right neighbour has got with what you sent it
# before. The cure is a second kind of message, against the direction of the data: "my buffer is free, send". Here it is a
# plain counting semaphore; whoever wants to send waits for room.

# %%
assert asyncops.check(ring_sum("after the wait"), ONE_BLOCK).verdict == "clean"

# %% [markdown]
# Where the room is given matters. The left neighbour will write into the slot that this device sends from, so it must not
# be told before the wait:

# %%
early = asyncops.check(ring_sum("before the wait"), ONE_BLOCK)
assert early.verdict == "findings"
showing.findings(early)

# %% [markdown]
# ## The neighbour that is not there yet
#
# Before any of that, a device must know that its neighbour has *entered* the kernel: until then, the memory of the
# neighbour's buffers belongs to whatever runs there. In the kernels above the compiler took care: a kernel that
# communicates and has no barrier of its own gets one at its entry. A kernel that asks for the barrier semaphore
# (`pltpu.get_barrier_semaphore`) has to use it. Here is one that does so too late:


# %%
def meet(n=N):
    """Tells both neighbours that this device is here, and waits for two such messages."""
    barrier = pltpu.get_barrier_semaphore()
    for neighbour in neighbours(n):
        pl.semaphore_signal(barrier, 1, device_id={"x": neighbour})
    pl.semaphore_wait(barrier, 2)


def shift(meets, n=N, parts_with=None):
    def kernel(x_ref, o_ref, send_sem, recv_sem, parting):
        if meets == "before":
            meet(n)
        copy = pltpu.make_async_remote_copy(
            x_ref, o_ref, send_sem, recv_sem, device_id={"x": neighbours(n)[1]}
        )
        copy.start()
        copy.wait()
        if meets == "after":
            meet(n)
        if parts_with:
            for neighbour in neighbours(n):
                pl.semaphore_signal(parting, 1, device_id={"x": neighbour})
            pl.semaphore_wait(parting, 2)

    return on_ring(kernel, DMA(()), DMA(()), COUNTER(()), n=n, collective_id=0)


assert asyncops.check(shift("before"), ONE_BLOCK).verdict == "clean"
show(
    asyncops.check(shift("after"), ONE_BLOCK),
    "AO401",
    "A block arrives at a device that has not entered the kernel.",
)

# %% [markdown]
# ## Once more: re-entry
#
# A training step calls the kernel again and again, and the barrier semaphore is the same one in each call. Look at `meet`:
# it waits for two messages, and does not care from whom. In the second call, one fast neighbour can send both. Take
# five devices.

# %%
FIVE = jax.ShapeDtypeStruct((5 * 8, 128), jnp.float32)
once = asyncops.check(shift("before", n=5), FIVE)
assert once.verdict == "clean"
showing.findings(once)

# %% [markdown]
# One call is right, and the checker adds a note (notes never change the verdict). `calls=2` asks about a program that runs
# twice:

# %%
show(
    asyncops.check(shift("before", n=5), FIVE, calls=2),
    "AO404",
    "Device 4 meets its neighbours in the first call, is done, and sends device 0 a message in the second call: with two "
    "messages from device 4, device 0 passes the barrier, and device 1 is not there.",
    columns=14,
    cores=5,
)

# %% [markdown]
# How many devices does it take? The checker can be asked:

# %%
verdicts = {
    n: asyncops.check(shift("before", n=n), jax.ShapeDtypeStruct((n * 8, 128), jnp.float32), calls=2).verdict
    for n in (2, 3, 4, 5, 6)
}
assert [n for n, verdict in verdicts.items() if verdict == "findings"] == [5, 6]
verdicts

# %% [markdown]
# The cure is to part as one has met: nobody leaves before its neighbours are done. Then nobody can be a call ahead.

# %%
assert asyncops.check(shift("before", n=5, parts_with=True), FIVE, calls=2).verdict == "clean"


# %% [markdown]
# # The same without writing kernels
#
# Most overlap between devices needs no kernel: `asyncops` has the collectives of JAX in two halves. Take the layer that is
# cut over eight devices along the dimension that a matmul sums over: each device has a slice of `x` and `w`, the product
# of the slices is a summand of the result, and each device shall keep an eighth of the rows of the sum. In one line of
# JAX:


# %%
ROWS, INNER, COLUMNS = 2048, 1024, 1024  # of the whole arrays; `INNER` is cut over the devices


def fused(x, w):
    return lax.psum_scatter(x @ w, "x", tiled=True)


# %% [markdown]
# Everything waits for the whole matmul, and then for the whole sum. The classic cure is to compute the product in eight
# blocks of rows, and to send partial sums round the ring: while a sum travels, the next block is computed, and is added
# when the sum has arrived. With a start and a done:


# %%
def ring(n):
    return [(i, (i + 1) % n) for i in range(n)]


@asyncops.program_order
def overlapped(x, w):
    n, me = lax.axis_size("x"), lax.axis_index("x")

    def block(k):
        """Of the rows that device `k` shall have, this device's summand."""
        rows = x.shape[0] // n
        return lax.dynamic_slice_in_dim(x, lax.rem(k + 2 * n, n) * rows, rows) @ w

    def step(i, total):
        fut = asyncops.ppermute_start(total, "x", ring(n))
        mine = block(me - 2 - i)  # while the sum travels
        return asyncops.ppermute_done(fut) + mine

    return lax.fori_loop(0, n - 1, step, block(me - 1))


def sharded(fn, mesh):
    specs = {"in_specs": (P(None, "x"), P("x", None)), "out_specs": P("x")}
    return jax.shard_map(fn, mesh=mesh, check_vma=False, **specs)


MESH = Mesh(jax.devices(), "x")
rng = np.random.default_rng(0)
x, w = (jnp.asarray(rng.normal(size=size), jnp.float32) for size in ((256, 128), (128, 64)))
y = jax.jit(sharded(overlapped, MESH))(x, w)
np.testing.assert_allclose(y, jax.jit(sharded(fused, MESH))(x, w), rtol=1e-4, atol=1e-4)
np.testing.assert_allclose(y, x @ w, rtol=1e-4, atol=1e-4)
print(y.shape, "on", len(MESH.devices), MESH.devices[0].platform, "devices")

# %% [markdown]
# On a CPU nothing travels and nothing overlaps, so the result is all that you can see there. Whether the matmul is
# *between* start and done on a TPU is a question to the TPU compiler. It runs here; we compile for four chips.

# %%
CHIPS = AbstractMesh((4,), ("x",), axis_types=(AxisType.Auto,))
ARGUMENTS = (
    jax.ShapeDtypeStruct((ROWS, INNER), jnp.float32),
    jax.ShapeDtypeStruct((INNER, COLUMNS), jnp.float32),
)
compiled = asyncops.compile_for("v5e:2x2", sharded(overlapped, CHIPS), *ARGUMENTS)
report = asyncops.check_compiled(compiled)
assert report.verdict == "clean", report
assert all(pair.overlapped for pair in report.schedule.pairs)
showing.figure(report.schedule, "The loop that XLA made: what is computed while a partial sum travels.")

# %% [markdown]
# The same as text: blue starts a copy, green waits for it, violet is work. (`in_hbm` moves nothing; it tells XLA where
# the array in flight must lie.) XLA's loop body holds two steps, because `program_order` gives the two partial sums, the
# one that leaves and the one that comes, a buffer each.

# %%
showing.hlo(compiled)


# %% [markdown]
# In each step the matmul (a `fusion`) stands between the start and the done. Without `program_order`, or without two
# halves, it does not:


# %%
def undecorated(x, w):
    return overlapped.__wrapped__(x, w)


counts = {
    "lax.psum_scatter": asyncops.compile_for("v5e:2x2", sharded(fused, CHIPS), *ARGUMENTS),
    "ring": asyncops.compile_for("v5e:2x2", sharded(undecorated, CHIPS), *ARGUMENTS),
    "ring under program_order": compiled,
}
showing.table(
    ["program", *showing.count(compiled)],
    [[name, *showing.count(c).values()] for name, c in counts.items()],
    "What the TPU compiler made of each.",
)

# %%
assert showing.count(counts["ring"])["overlapped"] == 0
assert showing.count(counts["lax.psum_scatter"])["overlapped"] == 0
assert showing.count(compiled)["overlapped"] >= 3  # a matmul for each of the three journeys
assert showing.count(compiled)["copies"] == 0

# %% [markdown]
# The checker of kernels reads this program as well, with eight devices at once. It sees the starts and dones, and that
# every future is used exactly once.

# %%
EIGHT = AbstractMesh((8,), ("x",), axis_types=(AxisType.Auto,))
assert asyncops.check(sharded(overlapped, EIGHT), x, w).verdict == "clean"

# %% [markdown]
# ## Differentiating through futures
#
# A future is a pytree that holds what is in flight, and start and done have derivatives. What was sent to the right comes
# back from the right, so the derivative of a done is a start, in the opposite direction.


# %%
def loss(layer):
    def of(x, w):
        return jnp.sum(jnp.sin(sharded(layer, MESH)(x, w)))

    return jax.jit(jax.grad(of, argnums=(0, 1)))


for ours, theirs in zip(loss(overlapped)(x, w), loss(fused)(x, w), strict=True):
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)

# %% [markdown]
# `program_order` holds for the way back, too: there, each cotangent travels while another block's two matmuls run.


# %%
def backwards(x, w):
    return jax.grad(lambda x, w: jnp.sum(jnp.sin(overlapped(x, w))), argnums=(0, 1))(x, w)


def sharded_twice(fn, mesh):
    specs = P(None, "x"), P("x", None)
    return jax.shard_map(fn, mesh=mesh, check_vma=False, in_specs=specs, out_specs=specs)


SMALLER = jax.ShapeDtypeStruct((512, 256), jnp.float32), jax.ShapeDtypeStruct((256, 256), jnp.float32)
compiled = asyncops.compile_for("v5e:2x2", sharded_twice(backwards, CHIPS), *SMALLER)
schedule = asyncops.check_compiled(compiled).schedule
journeys = [pair for pair in schedule.pairs if pair.by == "Pallas"]  # XLA adds prefetches of its own
assert len(journeys) > 4
assert all(pair.overlapped for pair in journeys)
showing.figure(
    schedule, "The derivative, compiled: sums travel on the way there, cotangents on the way back."
)

# %% [markdown]
# And a future that is used twice is an error when the function is traced, with both lines (so is one that is dropped):


# %%
@asyncops.program_order
def uses_it_twice(x):
    fut = asyncops.ppermute_start(x, "x", ring(8))
    y = asyncops.ppermute_done(fut)
    return y + asyncops.ppermute_done(fut)


try:
    asyncops.check(jax.shard_map(uses_it_twice, mesh=EIGHT, in_specs=P("x"), out_specs=P("x")), jnp.zeros(8))
    raise AssertionError("nobody noticed")
except FutureError as error:
    print(type(error).__name__, "-", error)

# %% [markdown]
# ## What you have seen
#
# Between devices, "it has arrived here" is all that a wait tells you. Whether the neighbour has entered, has finished with
# a buffer, or is a call ahead must be told by messages of their own: an entry barrier, room, a parting. The checker
# tries all devices against each other and shows you the run in which one of these is missing. And where no kernel is
# needed, the two halves of a collective under `program_order` give the overlap in a dozen lines, derivatives included.
# The [next notebook](06_the_checker_inside.ipynb) opens the checker.
