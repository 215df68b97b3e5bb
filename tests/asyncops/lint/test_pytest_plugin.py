"""``pytest --asyncops`` in a test suite of its own."""

from __future__ import annotations

import importlib.metadata

import jax
import pytest

pytest_plugins = ["pytester"]

SUITE = """\
import jax.numpy as jnp
import pytest
from tests.asyncops.lint.kernels import calm, call, racy

ONES = jnp.ones((8, 128))

def test_racy():
    call(racy)(ONES)

def test_calm():
    call(calm)(ONES)

def test_nothing():
    pass

@pytest.fixture
def prepared():
    return call(racy, (8, 128))(ONES)

def test_fixture(prepared):
    assert prepared[0, 0] == 2.0
"""
CONFTEST = """\
import asyncops
from tests.asyncops.lint.kernels import check_by_name

asyncops.check = check_by_name
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, request: pytest.FixtureRequest) -> pytest.Pytester:
    """The suite, run with the repository importable."""
    pytester.syspathinsert(request.config.rootpath)
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(SUITE)
    return pytester


def run_suite(suite: pytest.Pytester, *options: str, apart: bool = False) -> pytest.RunResult:
    """Runs the suite, in a process of its own if it is to be kept ``apart``: that starts JAX once more."""
    installed = {e.name for e in importlib.metadata.entry_points(group="pytest11")}
    plugin = () if "asyncops" in installed else ("-p", "asyncops.lint.pytest_plugin")
    if apart:
        return suite.runpytest_subprocess(*plugin, *options)
    jax.clear_caches()  # what has been traced before is not traced again
    return suite.runpytest_inprocess(*plugin, *options)


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_findings_fail_the_test_that_traced_the_kernel(
    suite: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    result = run_suite(suite, "--asyncops", *workers, apart=bool(workers))
    result.assert_outcomes(passed=2, failed=1, errors=1)
    result.stdout.fnmatch_lines_random(
        [
            "*error?AO201? read-before-arrival: the kernel is racy",
            "*= asyncops: findings in kernels =*",
            "*test_racy: *kernels.py:*: AO201 error: the kernel is racy",
            "*test_fixture: *kernels.py:*: AO201 error: the kernel is racy",
        ]
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_findings_may_only_warn(suite: pytest.Pytester) -> None:
    result = run_suite(suite, "--asyncops=warn")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["*test_racy: *: AO201 error: the kernel is racy"])


def test_off_it_does_nothing(suite: pytest.Pytester) -> None:
    suite.makeconftest(
        "import sys\ndef pytest_configure():\n    assert not {'jax', 'rich'} & set(sys.modules)\n"
    )
    result = run_suite(suite, apart=True)
    result.assert_outcomes(passed=4)
    result.stdout.no_fnmatch_line("*AO201*")


def test_the_configuration_of_the_project_applies(suite: pytest.Pytester) -> None:
    suite.makepyprojecttoml('[tool.asyncops]\nignore = ["AO201"]\n')
    run_suite(suite, "--asyncops").assert_outcomes(passed=4)


def test_a_test_that_fails_by_itself_keeps_its_reason(suite: pytest.Pytester) -> None:
    suite.makepyfile(SUITE.replace("call(racy)(ONES)", "call(racy)(ONES); assert 1 == 2"))
    result = run_suite(suite, "--asyncops", "-k", "racy")
    result.stdout.fnmatch_lines(["*assert 1 == 2*", "*error?AO201?*"])


def test_a_path_behind_the_option_is_told_from_what_it_takes(suite: pytest.Pytester) -> None:
    result = suite.runpytest_subprocess("--asyncops", "test_kernels.py")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines("*say --asyncops=fail test_kernels.py, or the path first")
