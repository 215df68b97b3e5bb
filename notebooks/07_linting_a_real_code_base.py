# %% [markdown]
# # 7. Linting a real code base
#
# The checker as a tool for every day: you lint kernels that ship with JAX, and find something; make a test suite fail on
# a race that its numbers do not show; write SARIF for a code scanner; cure, suppress, and adopt the linter in a code base
# that has findings already. Everything happens in a temporary folder, with the commands that you would type.

# %%
import showing

import functools
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import tpu as pltpu

import asyncops

# %% [markdown]
# Two helpers: one writes a file, the other types a command and shows what it prints.

# %%
FOLDER = Path(tempfile.mkdtemp())
ROOT = Path(asyncops.__file__).parent.parent
ENVIRONMENT = os.environ | {
    "PYTHONPATH": str(ROOT),
    "NO_COLOR": "1",
    "COLUMNS": "110",
    "JAX_PLATFORMS": "cpu",
}
ENVIRONMENT.pop("XLA_FLAGS", None)


def write(name, text):
    (FOLDER / name).write_text(text.lstrip())


def type_in(command, status, shows=(), lines=40):
    """Runs `asyncops ...` or `pytest ...` in the folder; checks its exit status, and that it prints what `shows` says."""
    done = subprocess.run(
        [sys.executable, "-m", *command.split()], cwd=FOLDER, env=ENVIRONMENT, capture_output=True, text=True
    )
    output = showing.without_paths(done.stdout + done.stderr).splitlines()
    print(f"$ {command}", *output[:lines], *(["..."] if len(output) > lines else []), sep="\n")
    print(f"(exit status {done.returncode})")
    assert done.returncode == status
    assert all(text in "\n".join(output) for text in shows)


# %% [markdown]
# ## The kernels in the wheel
#
# JAX ships kernels in `jax.experimental.pallas.ops.tpu`. To lint a function is to say once with which arguments it is
# called. Only their shapes count, except where `values=True` says that integers such as lengths and page tables are part
# of the contract. Some kernels ask which chip they run on; `chip` in `pyproject.toml` answers.

# %%
write(
    "kernels_of_jax.py",
    """
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas.ops.tpu.all_gather import all_gather
from jax.experimental.pallas.ops.tpu.flash_attention import flash_attention
from jax.experimental.pallas.ops.tpu.matmul import matmul
from jax.experimental.pallas.ops.tpu.megablox.gmm import gmm
from jax.experimental.pallas.ops.tpu.paged_attention import paged_attention

from asyncops import lint_target


def shape(*sizes, dtype=jnp.bfloat16):
    return jax.ShapeDtypeStruct(sizes, dtype)


square = shape(512, 512)
lint_target(square, square, name="matmul")(partial(matmul, block_shape=(256, 256), block_k=256))

heads = shape(1, 2, 512, 128, dtype=jnp.float32)
lint_target(heads, heads, heads, name="flash_attention")(partial(flash_attention, causal=True))

groups = np.array([128, 100, 156, 128], np.int32)
lint_target(shape(512, 256), shape(4, 256, 256), groups, values=True, name="gmm")(
    partial(gmm, preferred_element_type=jnp.float32)
)

cache = shape(4, 64, 16, 128)
lengths, pages = np.array([1, 17, 64, 128], np.int32), np.arange(32, dtype=np.int32).reshape(4, 8)
lint_target(shape(4, 8, 128), cache, cache, lengths, pages, values=True, name="paged_attention")(
    partial(paged_attention, pages_per_compute_block=4)
)

mesh = jax.sharding.Mesh(np.array(jax.devices()[:8]), ("x",))
lint_target(shape(1024, 128, dtype=jnp.float32), name="all_gather")(
    partial(all_gather, mesh=mesh, axis_name="x", memory_space=pltpu.VMEM)
)
""",
)
write(
    "pyproject.toml",
    """
[tool.asyncops]
chip = "v6e"
""",
)
type_in(
    "asyncops lint kernels_of_jax.py --format concise", status=1, shows=["2 errors in 5 targets, 5 kernels"]
)

# %% [markdown]
# Four of the five kernels are clean. In the fifth, the ring all-gather, both directions have the same finding.
#
# Is it real? Let us look at it as [notebook 6](06_the_checker_inside.ipynb) would. A device receives one block after another
# from its neighbour, all on *one* `recv_sem`. The neighbour starts the next block when the last one has left; that it has left
# does not mean that it has arrived. So two copies may be under way to this device, and a wait for the first can return on the
# bytes of the second. On a chip whose copies happen to arrive in order it never shows. JAX documents no such order, and the
# checker assumes none.

# %%
from jax.experimental.pallas.ops.tpu.all_gather import all_gather

mesh = jax.sharding.Mesh(np.array(jax.devices()[:8]), ("x",))
gather = functools.partial(all_gather, mesh=mesh, axis_name="x", memory_space=pltpu.VMEM)
report = asyncops.check(gather, jax.ShapeDtypeStruct((1024, 128), jnp.float32))
assert len(report.diagnostics) == 2  # all that was found above
finding = report.diagnostics[0]
assert finding.code == "AO201"
assert finding.confirmed
assert [d.code for d in finding.secondary] == ["AO302"]
print(finding.secondary[0].message)
showing.figure(
    finding.witness.timeline().to_svg(columns=12, cores=2),
    "The receiving device passes on a block that is still arriving: its wait has returned on the bytes of another one.",
)

# %% [markdown]
# The all-gather of [notebook 5](05_many_devices.ipynb) has a semaphore for each step, and is clean.
#
# ## Kernels of your own, and their tests
#
# Two small kernels. One forgets to wait, one waits too late. The tests run them on a CPU, in JAX's simulator of a TPU, which
# in this mode makes a copy at once when it is started:

# %%
OURS = """
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from asyncops import lint_target

TILE = jax.ShapeDtypeStruct((8, 128), jnp.float32)


def call(kernel, x, interpret=False):
    return pl.pallas_call(
        kernel,
        out_shape=TILE,
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        scratch_shapes=[pltpu.VMEM(TILE.shape, TILE.dtype), pltpu.SemaphoreType.DMA(())],
        interpret=interpret,
    )(x)


def doubles(x_hbm, o_ref, buf, sem):
    pltpu.make_async_copy(x_hbm, buf, sem).start()
    o_ref[...] = buf[...] * 2.0


def triples(x_hbm, o_ref, buf, sem):
    copy = pltpu.make_async_copy(x_hbm, buf, sem)
    copy.start()
    o_ref[...] = buf[...] * 3.0
    copy.wait()


@lint_target(TILE)
def doubled(x, **options):
    return call(doubles, x, **options)


@lint_target(TILE)
def tripled(x, **options):
    return call(triples, x, **options)
"""
write("ours.py", OURS)
write(
    "test_ours.py",
    """
import numpy as np
from jax.experimental.pallas import tpu as pltpu

from ours import doubled, tripled

X = np.ones((8, 128), np.float32)
SIMULATED = pltpu.InterpretParams(dma_execution_mode="eager")


def test_doubled():
    np.testing.assert_array_equal(doubled(X, interpret=SIMULATED), 2 * X)


def test_tripled():
    np.testing.assert_array_equal(tripled(X, interpret=SIMULATED), 3 * X)
""",
)
installed = {entry.name for entry in importlib.metadata.entry_points(group="pytest11")}
PLUGIN = (
    "" if "asyncops" in installed else " -p asyncops.lint.pytest_plugin"
)  # a checkout that is not installed
PYTEST = "pytest test_ours.py -q -p no:cacheprovider --no-header" + PLUGIN
type_in(PYTEST, status=0, shows=["2 passed"])
# %% [markdown]
# All green. The numbers are right, because the simulator's copies are fast. With `--asyncops` pytest also checks each kernel
# that a test traces, whatever it computes:

# %%
type_in(PYTEST + " --asyncops", status=1, shows=["2 failed"], lines=24)
# %% [markdown]
# ## For other programs: SARIF
#
# Code scanners, GitHub's among them, read findings as SARIF. (`--format github` annotates a pull request, `junit` suits a build
# server, `html` is a page with pictures, `json` is for scripts.)

# %%
type_in("asyncops lint ours.py --format sarif --output-file findings.sarif", status=1)
sarif = json.loads((FOLDER / "findings.sarif").read_text())
assert sarif["version"] == "2.1.0"
(run,) = sarif["runs"]
rows = []
for result in run["results"]:
    place = result["locations"][0]["physicalLocation"]
    rows.append(
        [result["ruleId"], result["level"], place["artifactLocation"]["uri"], place["region"]["startLine"]]
    )
assert ["AO201", "error", "ours.py", 23] in rows
showing.table(["rule", "level", "file", "line"], rows, "The results in the SARIF file.")

# %% [markdown]
# ## Cures
#
# Where exactly one cure is right, the linter can make it, and shows the diff. (`--diff` shows it and changes nothing.) Each
# cure is tried on the checker first: the finding must go, and no other come.

# %%
type_in("asyncops lint ours.py --fix --format concise", status=0, shows=["no findings", "+    copy.wait()"])

# %% [markdown]
# ## Suppressions
#
# Back to the wrong version, for the sake of the example. Sometimes you know better than the checker. Say so on the line, with
# the rule and the reason:

# %%
REASON = "  # asyncops: ignore[AO201] nobody reads the result of this one"
write("ours.py", OURS.replace("buf[...] * 3.0", "buf[...] * 3.0" + REASON))
type_in("asyncops lint ours.py --format concise", status=1, shows=["1 suppressed"])
# %% [markdown]
# The finding in `triples` is gone, that in `doubles` remains. Once the cause is cured, the comment suppresses nothing any
# more. That is reported, too, so that comments do not pile up:

# %%
type_in("asyncops lint ours.py --fix --format concise", status=1, shows=["AO901"], lines=2)

# %% [markdown]
# ## Baselines
#
# A code base with forty findings cannot be cured on one day, and should not get a forty-first meanwhile. Write down what
# there is; from then on only what is new counts.

# %%
write("ours.py", OURS)
type_in("asyncops lint ours.py --baseline known.json --write-baseline --format concise", status=0)
# %% [markdown]
# Somebody adds a kernel. Lines move, the known findings stay known, the new one fails:

# %%
write(
    "ours.py",
    OURS.replace(
        "def triples",
        """def quadruples(x_hbm, o_ref, buf, sem):
    pltpu.make_async_copy(x_hbm, buf, sem).start()
    o_ref[...] = jnp.zeros_like(o_ref)


lint_target(TILE, name="quadrupled")(lambda x: call(quadruples, x))


def triples""",
    ),
)
type_in(
    "asyncops lint ours.py --baseline known.json --format concise",
    status=1,
    shows=["1 error ", "2 suppressed"],
)
# %% [markdown]
# And when findings are cured, `--prune-baseline` forgets them, so that they cannot come back unseen:

# %%
known = len(json.loads((FOLDER / "known.json").read_text())["findings"])
write(
    "ours.py",
    OURS.replace(
        ".start()\n    o_ref", ".start()\n    pltpu.make_async_copy(x_hbm, buf, sem).wait()\n    o_ref", 1
    ),
)
type_in("asyncops lint ours.py --baseline known.json --prune-baseline", status=0)
assert len(json.loads((FOLDER / "known.json").read_text())["findings"]) < known

# %% [markdown]
# ## In continuous integration
#
# The exit status is all that a build needs: 0 is clean, 1 means findings, 2 a target that could not be checked, and 3, with
# `--strict`, that something has no model. You have seen 0 and 1; here is 2:

# %%
type_in("asyncops lint nothing_here.py", status=2)

# %% [markdown]
# ## What you have seen
#
# To lint kernels that somebody else wrote takes one line for each: which function, with which shapes. A test suite needs
# no line at all. What is found comes with a schedule, often with a cure, and can be passed to other tools, excused with a
# reason, or put off.
