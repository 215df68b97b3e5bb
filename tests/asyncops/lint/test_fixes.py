"""``--fix``: what it cures is clean afterwards; where more than one cure is right, or none, nothing is touched."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import asyncops
from asyncops.checker import session
from asyncops.lint.fixes.text import Edit, SourceFile
from stateful.errors import LintUsageError
from tests.asyncops.lint.conftest import Run, Write

PRELUDE = """\
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from asyncops import lint_target

SHAPE = jax.ShapeDtypeStruct((8, 128), jnp.float32)

def checked(kernel):
    lint_target(SHAPE)(pl.pallas_call(
        kernel, out_shape=SHAPE, in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        scratch_shapes=[pltpu.VMEM((8, 128), jnp.float32), pltpu.SemaphoreType.DMA((2,))],
    ))
    return kernel

"""
MISSING = """\
@checked
def kernel(x_hbm, o_ref, buf, sems):
    pltpu.make_async_copy(x_hbm, buf, sems.at[0]).start()   # load
    o_ref[...] = buf[...]*2.0
"""
LATE = """\
@checked
def kernel(x_hbm, o_ref, buf, sems):
    copy = pltpu.make_async_copy(
        x_hbm, buf, sems.at[0])
    copy.start()
    o_ref[...] = buf[...] * 2.0
    copy.wait()  # too late
"""
IN_A_LOOP = """\
@checked
def kernel(x_hbm, o_ref, buf, sems):
    def load(i):
        rows = pl.ds(4 * i, 4)
        return pltpu.make_async_copy(x_hbm.at[rows], buf.at[rows], sems.at[i])

    load(0).start()
    for i in range(2):
        if i == 0:
            load(1).start()
        o_ref[4 * i : 4 * i + 4] = buf[4 * i : 4 * i + 4] * 2.0
        load(i).wait()
"""
OTHER = """\
@checked
def kernel(x_hbm, o_ref, buf, sems):
    pltpu.make_async_copy(x_hbm, buf, sems.at[0]).start()
    pltpu.make_async_copy(x_hbm, buf, sems.at[  1 ]).wait()
    o_ref[...] = buf[...] * 2.0
"""
TWO_PLACES = """\
@checked
def kernel(x_hbm, o_ref, buf, sems):
    pltpu.make_async_copy(x_hbm, buf, sems.at[0]).start()
    o_ref[...] = jnp.zeros((8, 128))
"""
ON_ONE_LINE = """\
@checked
def kernel(x_hbm, o_ref, buf, sems):
    pltpu.make_async_copy(x_hbm, buf, sems.at[0]).start(); o_ref[...] = buf[...] * 2.0
"""
ON_ONE_PATH = """\
@checked
def kernel(x_hbm, o_ref, buf, sems):
    copy = pltpu.make_async_copy(x_hbm, buf, sems.at[0])
    copy.start()
    @pl.when(o_ref[0, 0] > 0)
    def _():
        copy.wait()
    o_ref[...] = jnp.zeros((8, 128))
"""
UNMARKED = """\
ANY = pl.BlockSpec(memory_space=pl.ANY)
SEM = pl.BlockSpec(memory_space=pltpu.SEMAPHORE)
BIG = jax.ShapeDtypeStruct((512, 1024), jnp.float32)
RESULT = pltpu.HBM((512, 1024), jnp.float32)

def start(x):
    def begins(_, source, target, sem):
        pltpu.make_async_copy(source, target, sem).start()
    return pl.pallas_call(
        begins,
        out_shape=(RESULT, RESULT, pltpu.SemaphoreType.DMA(())),
        in_specs=[ANY],
        out_specs=(ANY, ANY, SEM),
        input_output_aliases={0: 0},
    )(x)

def done(source, target, sem):
    def ends(source, target, sem, _):
        pltpu.make_async_copy(source, target, sem).wait()
    return pl.pallas_call(
        ends, out_shape=RESULT, in_specs=[ANY, ANY, SEM], out_specs=ANY, input_output_aliases={1: 0},
    )(source, target, sem)

@lint_target(BIG)
def both(x):
    return done(*start(x))
"""


@pytest.fixture(autouse=True)
def real_checker(monkeypatch: pytest.MonkeyPatch, played_checker: None) -> None:
    monkeypatch.setattr(asyncops, "check", session.check)


def fixed(write: Write, run: Run, text: str) -> str:
    """The text after ``--fix``, less what stands before it."""
    file = write("kernels.py", PRELUDE + text)
    run("lint", "kernels.py", "--fix", "--no-cache", "--isolated")
    return file.read_text().removeprefix(PRELUDE)


CURED = {
    "a missing wait": (
        MISSING,
        "# load\n",
        "# load\n    pltpu.make_async_copy(x_hbm, buf, sems.at[0]).wait()\n",
    ),
    "a wait that comes too late": (
        LATE,
        "    o_ref[...] = buf[...] * 2.0\n    copy.wait()  # too late\n",
        "    copy.wait()  # too late\n    o_ref[...] = buf[...] * 2.0\n",
    ),
    "a wait of a loop that comes too late": (
        IN_A_LOOP,
        "        o_ref[4 * i : 4 * i + 4] = buf[4 * i : 4 * i + 4] * 2.0\n        load(i).wait()\n",
        "        load(i).wait()\n        o_ref[4 * i : 4 * i + 4] = buf[4 * i : 4 * i + 4] * 2.0\n",
    ),
    "a wait on the other semaphore": (OTHER, "sems.at[  1 ]", "sems.at[0]"),
    "a kernel that is not marked": (
        UNMARKED,
        "        input_output_aliases={0: 0},\n",
        "        input_output_aliases={0: 0},\n"
        "        compiler_params=pltpu.CompilerParams(has_side_effects=True),\n",
    ),
}


@pytest.mark.parametrize("name", CURED)
def test_a_certain_cure_is_made_and_nothing_else_is_changed(write: Write, run: Run, name: str) -> None:
    text, before, after = CURED[name]
    assert text.count(before) == 1
    assert fixed(write, run, text) == text.replace(before, after)
    assert run("lint", "kernels.py", "--no-cache", "--isolated").exit_code == 0


@pytest.mark.parametrize("text", [TWO_PLACES, ON_ONE_LINE, ON_ONE_PATH])
def test_where_no_cure_is_certain_nothing_is_touched(write: Write, run: Run, text: str) -> None:
    file = write("kernels.py", PRELUDE + text)
    stamp = file.stat().st_mtime_ns
    result = run("lint", "kernels.py", "--fix", "--no-cache", "--isolated")
    assert (file.read_text(), file.stat().st_mtime_ns) == (PRELUDE + text, stamp)
    assert "no finding has a cure that is certain" in result.output
    assert result.exit_code == 1


def test_a_diff_is_shown_and_nothing_is_written(write: Write, run: Run) -> None:
    file = write("kernels.py", PRELUDE + MISSING)
    result = run("lint", "kernels.py", "--diff", "--no-cache", "--isolated")
    assert file.read_text() == PRELUDE + MISSING
    assert result.stdout.startswith("--- a/kernels.py\n+++ b/kernels.py\n@@ ")
    assert "\n+    pltpu.make_async_copy(x_hbm, buf, sems.at[0]).wait()\n" in result.stdout
    assert "note: can be fixed with --fix: kernels.py:19: AO201 adds a wait" in result.stdout
    assert result.exit_code == 1


def test_what_is_left_is_what_is_reported(write: Write, run: Run) -> None:
    write("kernels.py", PRELUDE + MISSING + TWO_PLACES)
    result = run("lint", "kernels.py", "--fix", "--no-cache", "--isolated")
    assert "fixed: kernels.py:19: AO201 adds a wait" in result.stdout
    assert "1 error in 2 targets" in result.stdout


def test_formats_for_programs_keep_their_stdout(write: Write, run: Run) -> None:
    write("kernels.py", PRELUDE + MISSING)
    result = run("lint", "kernels.py", "--diff", "--no-cache", "--isolated", "--format", "json")
    assert result.stdout.startswith("{")
    assert result.stderr.startswith("--- a/kernels.py")


def test_a_kernel_in_a_helper_module_is_cured_there(write: Write, run: Run) -> None:
    helper = write("my_kernels.py", PRELUDE + MISSING.replace("@checked\n", ""))
    write("targets.py", "from my_kernels import checked, kernel\nchecked(kernel)  # not lint_target itself\n")
    result = run("lint", "targets.py", "--fix", "--no-cache", "--isolated")
    assert ".wait()\n    o_ref" in helper.read_text()
    assert result.exit_code == 0


def test_suppressed_findings_are_left_alone(write: Write, run: Run) -> None:
    text = MISSING.replace("*2.0", "*2.0  # asyncops: ignore[AO201] known")
    assert fixed(write, run, text) == text


def test_line_ends_encoding_mode_and_links_are_kept(tmp_path: Path) -> None:
    real = tmp_path / "real.py"
    real.write_bytes("# -*- coding: latin-1 -*-\r\nx = 'é'\r\ny = 1".encode("latin-1"))
    real.chmod(0o751)
    link = tmp_path / "link.py"
    link.symlink_to(real)
    source = SourceFile.read(str(link))
    assert source is not None
    end = len(source.text)
    changed = source.edited([Edit(end, end, f"{source.newline}z = 2")])
    assert changed is not None
    changed.write()
    assert real.read_bytes() == "# -*- coding: latin-1 -*-\r\nx = 'é'\r\ny = 1\r\nz = 2".encode("latin-1")
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o751
    assert [f.name for f in tmp_path.iterdir()] in (["real.py", "link.py"], ["link.py", "real.py"])


def test_what_cannot_be_parsed_back_is_refused(write: Write) -> None:
    file = write("a.py", "x = 1\n")
    source = SourceFile.read(str(file))
    assert source is not None
    assert source.edited([Edit(0, 1, "x +")]) is None
    assert SourceFile.read(str(write("b.py", "x = \n"))) is None
    assert SourceFile.read(os.fspath(file.parent / "missing.py")) is None


def test_a_file_that_was_changed_meanwhile_is_not_written(write: Write) -> None:
    file = write("a.py", "x = 1\n")
    source = SourceFile.read(str(file))
    assert source is not None
    changed = source.edited([Edit(4, 5, "2")])
    assert changed is not None
    file.write_text("x = 3\n")
    with pytest.raises(LintUsageError, match="was changed while it was being fixed"):
        changed.write()
    assert file.read_text() == "x = 3\n"
