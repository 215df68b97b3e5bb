"""Functions with example arguments in the configuration: checked without a line in their files."""

from __future__ import annotations

from typing import Any

import pytest

import asyncops
from asyncops.checker import session
from asyncops.lint.discovery import find_sources, load_targets
from asyncops.lint.examples import Argument, parse_argument
from asyncops.lint.session import Options, Session
from stateful.errors import LintUsageError
from tests.asyncops.lint.conftest import Run, Write

KERNELS = """\
import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

def some_pages(count, x_hbm, o_ref, sem):
    copy = pltpu.make_async_copy(x_hbm, o_ref, sem)
    pl.when(count[0] > 0)(copy.start)
    copy.wait()

def pages(count, x):
    specs = [pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec(memory_space=pl.ANY)]
    return pl.pallas_call(
        some_pages, out_shape=x, in_specs=specs, scratch_shapes=[pltpu.SemaphoreType.DMA(())],
    )(count, x)

def shift_kernel(x_ref, o_ref, send, receive):
    right = lax.rem(lax.axis_index("x") + 1, 4)
    copy = pltpu.make_async_remote_copy(x_ref, o_ref, send, receive, device_id={"x": right})
    copy.start()
    copy.wait_send()

def shift(x):
    dma = pltpu.SemaphoreType.DMA(())
    return pl.pallas_call(shift_kernel, out_shape=x, scratch_shapes=[dma, dma])(x)
"""


@pytest.fixture(autouse=True)
def real_checker(monkeypatch: pytest.MonkeyPatch, played_checker: None) -> None:
    monkeypatch.setattr(asyncops, "check", session.check)


def lint(write: Write, run: Run, examples: str, *names: str) -> list[str]:
    write("kernels/ops.py", KERNELS)
    write("pyproject.toml", f"[tool.asyncops]\n{examples}\n")
    return run("lint", *names, "--format", "concise", "--no-cache").output.splitlines()


def test_shapes_are_enough(write: Write, run: Run) -> None:
    text = 'examples = { "kernels/ops.py:pages" = ["int32[1]", "float32[8,128]"] }'
    first, *_, last = lint(write, run, text)
    assert first.startswith("kernels/ops.py:10:5: AO")
    assert last.endswith("in 1 target, 1 kernel")


def test_values_are_relied_on(write: Write, run: Run) -> None:
    text = 'examples = { "kernels/ops.py:pages" = ["int32[1]=[3]", "float32[8,128]"] }'
    assert lint(write, run, text, "kernels") == ["no findings in 1 target, 1 kernel"]


def test_every_device_of_the_mesh_gets_the_arguments(write: Write, run: Run) -> None:
    text = 'mesh = { x = 4 }\nexamples = { "kernels/ops.py:shift" = ["float32[8,128]"] }'
    lines = lint(write, run, text, "kernels/ops.py")
    assert any("AO403" in line for line in lines), lines


def test_an_example_may_have_a_mesh_of_its_own(write: Write, run: Run) -> None:
    text = 'mesh = { x = 4 }\n[tool.asyncops.examples."kernels/ops.py:shift"]\nargs = ["float32[8,128]"]\nmesh = {}'
    assert any("unbound axis name" in line for line in lint(write, run, text))


def test_a_value_of_another_shape_is_a_failure_of_its_target(write: Write, run: Run) -> None:
    text = 'examples = { "kernels/ops.py:pages" = ["int32[2]=[1,2,3]", "float32[8,128]"] }'
    assert any("is not of shape (2,)" in line for line in lint(write, run, text))


def test_the_chip_is_for_targets_that_name_none(write: Write) -> None:
    write("kernels/ops.py", KERNELS)
    write(
        "pyproject.toml",
        '[tool.asyncops]\nchip = "v5e"\nexamples = { "kernels/ops.py:shift" = ["float32[8,128]"] }',
    )
    opened = Session.open(Options())
    (source,) = find_sources(["kernels"], opened.configuration.examples)
    assert opened.settings.wanted.chip == "v5e"
    assert [t.name for t in load_targets(source)] == ["shift"]


@pytest.mark.parametrize(
    ("text", "argument"),
    [
        ("float32[8, 128]", Argument("float32", (8, 128))),
        ("int32[]=3", Argument("int32", (), 3)),
        ("bool[2]=[true, false]", Argument("bool", (2,), [True, False])),
    ],
)
def test_arguments_are_written_as_jax_prints_them(text: str, argument: Any) -> None:
    assert parse_argument(text) == argument


@pytest.mark.parametrize("text", ["float32", "f32[8", "int32[1]=[", "int32[-1]", "3"])
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(LintUsageError, match="must be a dtype and a shape"):
        parse_argument(text)
