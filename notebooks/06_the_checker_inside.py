# %% [markdown]
# # 6. The checker inside
#
# How can one look at a kernel for some milliseconds and say something about all of its runs? You take the checker apart:
# the events that a kernel is reduced to, the order that holds between them in every run, and what a wait really
# guarantees. You compare that order with an exhaustive search, see why a loop of a million steps costs as much as one
# of two thousand, and extend the checker by a primitive and a rule of your own.

# %%
import showing

import time

import jax
import jax.extend
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import asyncops
import stateful
from asyncops.checker.analysis import Analysis, Finding
from asyncops.checker.events import Access, Half, Mark, Point
from asyncops.checker.order import must_happen_before
from asyncops.checker.replay import find_overlap
from asyncops.checker.session import record_run
from asyncops.explorer import exact_order, explore, format_schedule, parse_program, random_program
from asyncops.explorer.notation import format_event

# %% [markdown]
# ## From a kernel to events
#
# Two copies into two slots, *one* semaphore, and a wait before each use. Is this right?

# %%
ANYWHERE = pl.BlockSpec(memory_space=pl.ANY)
TILE = jax.ShapeDtypeStruct((8, 128), jnp.float32)
TWO_TILES = jax.ShapeDtypeStruct((2, 8, 128), jnp.float32)


def adds_two(x_hbm, o_ref, buf, sem):
    copies = [pltpu.make_async_copy(x_hbm.at[i], buf.at[i], sem) for i in range(2)]
    for copy in copies:
        copy.start()
    copies[0].wait()
    o_ref[...] = buf[0]
    copies[1].wait()
    o_ref[...] += buf[1]


def program(kernel, slots, *semaphores):
    return pl.pallas_call(
        kernel,
        out_shape=TILE,
        in_specs=[ANYWHERE],
        scratch_shapes=[pltpu.VMEM((slots, 8, 128), jnp.float32), *semaphores],
    )


ONE_SEMAPHORE = program(adds_two, 2, pltpu.SemaphoreType.DMA(()))

# %% [markdown]
# JAX turns the function into a *jaxpr*. The checker executes it, but only its **scalar skeleton**: loop counters,
# indices, conditions. What happens to memory and semaphores is written down, and arithmetic on arrays is skipped. What is
# left of the kernel is a list of events for each core:

# %%
recorded = record_run(ONE_SEMAPHORE, TWO_TILES)
(core,) = recorded.cores
for event in core.events:
    if isinstance(event, Mark):
        print(f"{'':10} {event.kind}")
    else:
        print(f"{event.site.location!s:10} {format_event(event)}")

# %% [markdown]
# Five kinds of event are enough for everything in these notebooks: a core **reads** or **writes** memory, **starts** a copy,
# **signals** or **waits** on a semaphore. (The marks say when memory comes into being and goes.) A copy is an agent of its
# own. It has two moments of which others can know: it has read all of its source (`read-done`), and has written all of its
# destination (`write-done`).
#
# ## What must happen before what
#
# Here is the same thing by hand, with amounts that one can count: each copy counts four.

# %%
SHARED = parse_program("""
core 0
  start a -> x recv s:4
  start b -> y recv s:4
  wait s 4
  read x
  wait s 4
  read y
""")
SEPARATE = parse_program("""
core 0
  start a -> x recv s:4
  start b -> y recv t:4
  wait s 4
  read x
  wait t 4
  read y
""")


def order_of(program):
    """For each copy and each wait: must the copy have arrived when the wait returns?"""
    order = must_happen_before(program)
    rows = []
    for number, copy in ((0, "a -> x"), (1, "b -> y")):
        arrived = Point(0, number, Half.WRITE_DONE)  # of the copy that event `number` of core 0 starts
        rows.append([copy, *(order.before(arrived, Point(0, wait)) for wait in (2, 4))])
    return rows


shared, separate = order_of(SHARED), order_of(SEPARATE)
assert shared == [["a -> x", False, True], ["b -> y", False, True]]
assert separate == [["a -> x", True, True], ["b -> y", False, True]]
showing.table(
    ["semaphores", "copy", "arrived before the first wait returns", "before the second"],
    [["one", *row] for row in shared] + [["two", *row] for row in separate],
    "With one semaphore the first wait orders neither copy. The second orders both.",
)

# %% [markdown]
# Why does the first wait order nothing, not even the copy for which it was written? A semaphore is a counter, and a copy's
# bytes count **as they move**. The wait wants four. Suppose that copy `a` never finishes: how much can be on the counter?
# All four of `b`, and of `a` all but the last one:

# %%
amount_a = amount_b = 4
needed = 4
available_without_a = (amount_a - 1) + amount_b
assert available_without_a >= needed  # the wait may return, and `a` has not arrived

needed_by_both_waits = 4 + 4
assert available_without_a < needed_by_both_waits  # the second cannot: there `a` has arrived for certain

# %% [markdown]
# That is the whole rule. For an event `e` and a wait `w`: take the most that can be counted while `e` has not happened; if that
# is less than what `w` and the waits before it take off, then `e` comes before `w` in **every** run. Each order so found
# may force more, so it is repeated until nothing is added.
#
# ## Do not believe it: try everything
#
# The checker has a second opinion in the house. The *explorer* knows nothing of that rule. It tries all schedules of a
# small program, one step after the other:

# %%
exploration = explore(SHARED)
assert exploration.complete
assert explore(SEPARATE).verdict == "clean"
(race,) = exploration.races
print(f"{exploration.states} states, {len(exploration.races)} race, after this schedule:\n")
print(format_schedule(SHARED, race.schedule))
print(
    "next:", format_event(SHARED.cores[0].events[race.second.index]), "- and the first copy is still writing"
)

# %% [markdown]
# One program proves little. Here are random ones: several cores, copies, signals and waits, some of them hanging. For
# every two moments of each, the rule and the exhaustive search are asked the same question.

# %%
programs = pairs = agreed = too_much = 0
for seed in range(40):
    random = random_program(seed)
    truth = exact_order(random, limit=4000)
    if truth is None:
        continue  # too many schedules to try them all
    ours = must_happen_before(random)
    programs += 1
    points = [p for p in truth.points if truth.can_happen(p)]
    for a in points:
        for b in points:
            if a != b:
                pairs += 1
                agreed += ours.before(a, b) == truth.before(a, b)
                too_much += ours.before(a, b) and not truth.before(a, b)

assert programs > 30
assert too_much == 0
assert agreed > 0.95 * pairs
print(f"{programs} programs, {pairs:,} pairs; {agreed / pairs:.1%} agreed, {too_much} ordered without reason")

# %% [markdown]
# In none of them does the rule order too much, which would hide what can go wrong. It sometimes orders too little, where only a
# deeper argument helps. So a race that it suspects is not reported as a fact. It is handed to a search for a **schedule** in
# which both sides really meet, and that schedule is the evidence that you see.

# %%
(suspect,) = must_happen_before(SHARED).races()
schedule = find_overlap(SHARED, suspect)
assert schedule.replay().reproduced
report = asyncops.check(ONE_SEMAPHORE, TWO_TILES)
(finding,) = report.diagnostics
assert finding.code == "AO201"
assert finding.witness.replay().reproduced
showing.figure(finding.witness, "The kernel from above: the wait returns on the bytes of the second copy.")

# %% [markdown]
# ## Loops, without running them
#
# A double-buffered loop of a million steps starts a million copies. Must one write down millions of events to check it?


# %%
def double_buffered(n, last=lambda i, n: i + 1 < n):
    def kernel(x_hbm, o_ref, buf, sems):
        def fetch(i):
            slot = lax.rem(i, 2)
            return pltpu.make_async_copy(x_hbm.at[i], buf.at[slot], sems.at[slot])

        o_ref[...] = jnp.zeros_like(o_ref)
        fetch(0).start()

        def body(i, _):
            pl.when(last(i, n))(lambda: fetch(i + 1).start())
            fetch(i).wait()
            o_ref[...] += buf[lax.rem(i, 2)]

        lax.fori_loop(0, n, body, None)

    return program(kernel, 2, pltpu.SemaphoreType.DMA((2,))), jax.ShapeDtypeStruct((n, 8, 128), jnp.float32)


def cost(n, repeats=3):
    """Events that were looked at, and the seconds that it took at best."""
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        report = asyncops.check(*double_buffered(n))
        seconds.append(time.perf_counter() - begin)
    assert report.verdict == "clean"
    assert not report.assumptions
    return sum(kernel.events for kernel in report.kernels), min(seconds)


costs = {n: cost(n) for n in (8, 2048, 1_000_000)}
assert costs[2048][0] == costs[1_000_000][0] < 100
assert max(s for _, s in costs.values()) < 20 * min(s for _, s in costs.values())
showing.table(
    ["steps", "events looked at", "seconds"],
    [[f"{n:,}", events, f"{seconds:.3f}"] for n, (events, seconds) in costs.items()],
    "The cost of a check does not depend on the number of steps.",
)

# %% [markdown]
# At the head of the loop the checker looks at what matters from there on: which copies are in flight, with which slots and
# semaphores, the counts, and the scalars that steer. It gives this state a canonical form, in which `i` is not "512" but
# "even, and not near the end". After a few steps the state has been seen before. Everything that follows has been, too, so it
# jumps to where a condition on `i` changes its mind: the last step. Which it does visit:

# %%
unguarded = asyncops.check(*double_buffered(1_000_000, last=lambda i, n: i < n))
assert [d.code for d in unguarded.diagnostics] == ["AO305"]
assert "999999" in unguarded.diagnostics[0].message
showing.findings(unguarded)

# %% [markdown]
# If the number of steps is unknown, "how far is the end?" is one more condition that may come out either way, and the verdict
# holds for every number. ([Notebook 4](04_writing_an_overlapped_kernel.ipynb) has one.)
#
# ## Extend it: a primitive of your own
#
# The checker knows what the operations of Pallas do to Refs. Suppose that you have added one to JAX: a *primitive*, say, an
# instruction that sums up a tile. The checker meets something that takes a Ref, and does not guess:

# %%
tile_sum_p = jax.extend.core.Primitive("tile_sum")
tile_sum_p.def_abstract_eval(lambda tile: jax.core.ShapedArray((), jnp.float32))


def sums(waits_first):
    def kernel(x_hbm, o_ref, buf, sem):
        copy = pltpu.make_async_copy(x_hbm.at[0], buf.at[0], sem)
        copy.start()
        if waits_first:
            copy.wait()
        o_ref[...] = jnp.full_like(o_ref, tile_sum_p.bind(buf))
        if not waits_first:
            copy.wait()

    return program(kernel, 1, pltpu.SemaphoreType.DMA(()))


report = asyncops.check(sums(waits_first=True), TWO_TILES)
assert report.verdict == "unknown"
print(report)

# %% [markdown]
# "Unknown" is an answer: not clean, and the line is named. Now say what the primitive does. `value` gives the memory (a
# *view*) that an operand stands for, and the effects are those of the kernel language: reads, writes, signals and waits.


# %%
def effects_of_tile_sum(eqn, value):
    (tile,) = eqn.invars
    return [stateful.Read(value(tile))]


stateful.register_effects(tile_sum_p, effects_of_tile_sum)

assert asyncops.check(sums(waits_first=True), TWO_TILES).verdict == "clean"
report = asyncops.check(sums(waits_first=False), TWO_TILES)
assert [d.code for d in report.diagnostics] == ["AO201"]
showing.findings(report)

# %% [markdown]
# ## Extend it: a rule of your own
#
# A rule of `asyncops` is a module in `asyncops/checker/rules`, with its page as docstring, and four names:

# %%
from asyncops.checker import rules

assert all(
    hasattr(rule, name) for rule in rules.ALL for name in ("CODE", "NAME", "SEVERITY", "find", "__doc__")
)
print(len(rules.ALL), "rules about kernels, for example", rules.ALL[0].CODE, rules.ALL[0].NAME)
print(rules.ALL[0].__doc__)

# %% [markdown]
# `find(analysis)` gets one run as an `Analysis`: the events, their order, races, balances of semaphores. Let us write a rule
# about speed: *a copy is waited for although nothing has been done since its start*. In a module it would look the same,
# without the `class`:


# %%
class NothingMeanwhile:
    """A copy is started and waited for, and the core does nothing in between."""

    CODE = "MY101"
    NAME = "nothing-meanwhile"
    SEVERITY = "warning"

    @staticmethod
    def find(analysis):
        for start, copy in analysis.starts:
            arrived = Point(start.core, start.index, Half.WRITE_DONE)
            waits = [w for w in analysis.order.completion_waits(arrived) if w.core == start.core]
            if waits and not works(analysis, start, waits[0]):
                yield Finding(
                    NothingMeanwhile.CODE,
                    f"the copy {copy.name} is waited for, and nothing was done since it was started",
                    analysis.event(start).site,
                    "start it earlier, or wait for it later",
                    (("it is waited for here", analysis.event(waits[0]).site.location),),
                )


def works(analysis, start, wait):
    """Whether the core touches memory between two of its events."""
    between = analysis.program.cores[start.core].events[start.index : wait.index]
    return any(isinstance(event, Access) for event in between)


# %% [markdown]
# The linter runs the rules that come with it; it has no registry for those of others. But the parts are there to be used:
# record a run, analyse it, and make a report of what the rule finds.


# %%
def apply(rule, fn, *args):
    """The report of one rule about one run of a function, each line once."""
    analysis = Analysis(record_run(fn, *args), traces=(), devices=1)
    found = {}
    for finding in rule.find(analysis):
        found.setdefault(finding.site.location, finding)
    return asyncops.Report(
        tuple(
            asyncops.Diagnostic(
                f.code, rule.NAME, rule.SEVERITY, f.message, f.site.location, f.related, help=f.help
            )
            for f in found.values()
        )
    )


def blocking(x_hbm, o_ref, buf, sem):
    o_ref[...] = jnp.zeros_like(o_ref)
    for i in range(2):
        copy = pltpu.make_async_copy(x_hbm.at[i], buf.at[0], sem)
        copy.start()
        copy.wait()
        o_ref[...] += buf[0]


report = apply(NothingMeanwhile, program(blocking, 1, pltpu.SemaphoreType.DMA(())), TWO_TILES)
assert [d.code for d in report.diagnostics] == ["MY101"]
showing.findings(report)

# %% [markdown]
# Of the double-buffered loop the rule complains as well, about the very first fetch: nothing can be done before it. One
# would write that into the rule's page under "known limits", or teach the rule to ask for more than one.

# %%
fn, x = double_buffered(6)
report = apply(NothingMeanwhile, fn, x)
showing.findings(report)

# %% [markdown]
# ## What you have seen
#
# A kernel becomes events; a counting argument orders them; a race that the order allows is shown by a schedule, or is not
# reported as a fact; loops are followed until they repeat; and what has no model is called unknown, with its line, until you
# give it one. The [last notebook](07_linting_a_real_code_base.ipynb) turns all this on code that somebody else wrote.
