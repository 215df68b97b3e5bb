"""Random Pallas kernels: the checker, through tracing, against exploration of what they do; and their values.

The flags of a kernel are only compared with 0, so a run for each choice of them is all there is, and the checker, which
is not told the flags, must be right about all of them.
"""

from __future__ import annotations

import itertools
from collections import Counter

import jax
import numpy as np
import pytest
from hypothesis import assume, given, note, settings
from jax.experimental.pallas import tpu as pltpu

import asyncops
import stateful
from asyncops.explorer.judging import judge
from asyncops.explorer.unrolling import unroll
from tests.asyncops.generated_kernels import (
    FLAGS,
    Copy,
    Index,
    Kernel,
    Loop,
    Read,
    Start,
    Wait,
    arguments,
    kernels,
)
from tests.asyncops.generated_rings import Ring, rings

# Tracing and checking a kernel takes some tens of milliseconds, running it in interpret mode a second.
EXAMPLES_PER_DEFAULT = 3


def judgements(kernel: Kernel) -> Counter[str]:
    """What exploration says for every choice of the flags."""
    flags, blocks = arguments()
    jaxpr = jax.make_jaxpr(kernel.program())(flags, blocks)
    found: Counter[str] = Counter()
    for choice in itertools.product((0, 1), repeat=FLAGS):
        unrolled = unroll(jaxpr, (np.array(choice, np.int32), blocks))
        found["wrong" if unrolled.faults else judge(unrolled.program, walks=8)] += 1
    return found


@pytest.mark.slow
@settings(max_examples=settings().max_examples * EXAMPLES_PER_DEFAULT)
@given(kernels())
def test_the_checker_agrees_with_exploration(kernel: Kernel) -> None:
    found = judgements(kernel)
    report = asyncops.check(kernel.program(), *arguments())
    note(f"{kernel}\n{found}\n{report}")
    if found["wrong"]:
        assert report.verdict != "clean"
    elif not found["undecided"]:
        assert not [d for d in report.diagnostics if d.confirmed and d.severity != "info"]


@given(rings())
def test_the_checker_agrees_with_exploration_on_rings(ring: Ring) -> None:
    argument = ring.argument()
    unrolled = unroll(jax.make_jaxpr(ring.program())(argument), [argument])
    found = "wrong" if unrolled.faults else judge(unrolled.program, walks=8)
    report = asyncops.check(ring.program(), argument)
    note(f"{ring}\n{found}\n{report}")
    if found == "wrong":
        assert report.verdict != "clean"
    elif found == "right":
        assert not [d for d in report.diagnostics if d.confirmed and d.severity != "info"]


@settings(max_examples=max(3, settings().max_examples // 6))
@given(kernels())
def test_a_clean_kernel_gives_the_values_of_the_discharged_program(kernel: Kernel) -> None:
    assume(asyncops.check(kernel.program(), *arguments()).ok)
    note(str(kernel))
    expected = jax.jit(stateful.discharge(kernel.program()))(*arguments())
    for mode in ("eager", "on_wait"):
        interpret = pltpu.InterpretParams(dma_execution_mode=mode)
        results = jax.jit(kernel.program(interpret))(*arguments())
        for result, value in zip(results, expected, strict=True):
            np.testing.assert_allclose(result, value)


LOAD = Copy("load", Index(0, True), Index(1, True), Index(0, True))
ROTATING = Kernel((Loop(4, (Start(LOAD), Wait(LOAD), Read(LOAD.target))),), 2)
LATE = Kernel((Loop(4, (Start(LOAD), Read(LOAD.target), Wait(LOAD))),), 2)


@pytest.mark.parametrize(("kernel", "verdict"), [(ROTATING, "right"), (LATE, "wrong")])
def test_the_comparison_can_tell(kernel: Kernel, verdict: str) -> None:
    assert set(judgements(kernel)) == {verdict}
    assert asyncops.check(kernel.program(), *arguments()).ok == (verdict == "right")
