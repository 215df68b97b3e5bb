"""Kernels over meshes of cores: several threads on a device, with memory of their own and memory they share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import kernels_cores as kernels

from asyncops.checker.session import check

CHIP = "v6e"  # one with SparseCores


@pytest.mark.parametrize("build", [*kernels.ON_TENSOR_CORES, *kernels.ON_SPARSE_CORES])
def test_the_right_kernel_is_clean(build: Any) -> None:
    fn, args = build(False)
    report = check(fn, *args, target=CHIP)
    assert report.verdict == "clean", str(report)


@pytest.mark.parametrize(
    ("build", "codes"), [*kernels.ON_TENSOR_CORES.items(), *kernels.ON_SPARSE_CORES.items()]
)
def test_the_wrong_kernel_is_found(build: Any, codes: set[str]) -> None:
    fn, args = build(True)
    report = check(fn, *args, target=CHIP)
    assert report.verdict == "findings", str(report)
    assert {d.code for d in report.diagnostics} <= codes, str(report)
    assert all(d.confirmed and d.location for d in report.diagnostics), str(report)


@pytest.mark.parametrize(
    ("build", "code"), [(kernels.two_in_a_row, "AO207"), (kernels.sends_as_listed, "AO402")]
)
def test_the_verdicts_of_a_dynamic_detector(build: Any, code: str) -> None:
    """The kinds of kernels that JAX tests its own race detector with: with a race, and without."""
    right, wrong = (check(*_flat(build(is_wrong)), values=True) for is_wrong in (False, True))
    assert right.verdict == "clean", str(right)
    assert wrong.verdict == "findings", str(wrong)
    assert code in {d.code for top in wrong.diagnostics for d in (top, *top.secondary)}, str(wrong)


def test_many_blocks_cost_what_few_cost() -> None:
    few, many = (check(*_flat(kernels.parts_of_many_blocks(False, n)), target=CHIP) for n in (64, 1 << 14))
    assert few.ok
    assert many.ok
    assert few.kernels[0].events == many.kernels[0].events


def test_a_loop_in_parallel_is_taken_at_its_word() -> None:
    report = check(*_flat(kernels.loops_in_parallel(False)), target=CHIP)
    assert any("parallel_loop" in a for a in report.assumptions)


def _flat(program: kernels.Program) -> tuple[Any, ...]:
    fn, args = program
    return fn, *args
