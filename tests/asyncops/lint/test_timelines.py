"""Pictures and traces of real findings: in the HTML report, from the cache, and as files for Perfetto."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import asyncops
from asyncops.checker import session
from tests.asyncops.lint.conftest import Run, Write

KERNELS = """\
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from asyncops import lint_target

def early(x_hbm, o_ref, buf, sem):
    copy = pltpu.make_async_copy(x_hbm, buf, sem)
    copy.start()
    o_ref[...] = buf[...] * 2.0
    copy.wait()

def in_time(x_hbm, o_ref, buf, sem):
    copy = pltpu.make_async_copy(x_hbm, buf, sem)
    copy.start()
    copy.wait()
    o_ref[...] = buf[...] * 2.0

SHAPE = jax.ShapeDtypeStruct((8, 128), jnp.float32)
for kernel in (early, in_time):
    lint_target(SHAPE, name=kernel.__name__)(pl.pallas_call(
        kernel, out_shape=SHAPE, in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        scratch_shapes=[pltpu.VMEM((8, 128), jnp.float32), pltpu.SemaphoreType.DMA(())],
    ))
"""


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch, played_checker: None, write: Write) -> Path:
    """A wrong kernel and a right one; the checker is the real one."""
    monkeypatch.setattr(asyncops, "check", session.check)
    return write("kernels.py", KERNELS)


def test_the_report_draws_the_finding_and_a_run_of_each_target(run: Run) -> None:
    page = run("lint", "kernels.py", "--format", "html").stdout
    assert page.count("<svg ") == 3
    assert page.count("<details open>") == 1
    assert run("lint", "kernels.py", "--format", "html").stdout == page  # from the cache


def test_traces_are_written_for_findings_and_targets(run: Run) -> None:
    result = run("lint", "kernels.py", "--trace-dir", "traces", "--format", "json")
    files = sorted(file.name for file in Path("traces").iterdir())
    assert files == [
        "01-AO201-kernels.py-10-18.json",
        "02-run-kernels.py-early.json",
        "03-run-kernels.py-in_time.json",
    ]
    for file in Path("traces").iterdir():
        trace = json.loads(file.read_text())
        assert {"X", "M"} <= {event["ph"] for event in trace["traceEvents"]}
    assert json.loads(result.stdout)["notes"] == [
        "traces: 3 traces written; open them in https://ui.perfetto.dev"
    ]


def test_every_step_of_a_witness_that_names_a_line_has_it(run: Run) -> None:
    (finding,) = json.loads(run("lint", "kernels.py", "--format", "json").stdout)["findings"]
    steps = [(step["text"], step["location"] and step["location"]["line"]) for step in finding["witness"]]
    assert [line for text, line in steps if "kernels.py:" in text] == [9, 10]


def test_the_code_flow_leads_from_line_to_line(run: Run) -> None:
    (result,) = json.loads(run("lint", "kernels.py", "--format", "sarif").stdout)["runs"][0]["results"]
    steps = [step["location"] for step in result["codeFlows"][0]["threadFlows"][0]["locations"]]
    regions = [step["physicalLocation"]["region"] for step in steps if "physicalLocation" in step]
    assert [(r["startLine"], r["startColumn"], r["endColumn"]) for r in regions] == [(9, 5, 17), (10, 18, 26)]
    assert result["locations"][0]["physicalLocation"]["region"] == regions[-1]
