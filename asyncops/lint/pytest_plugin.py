"""``pytest --asyncops``: checks the kernels that each test traces; off, it adds an option, nothing else."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from asyncops.lint.pytest_watch import KernelWatch


def _what_to_do(value: str) -> str:
    if value in ("fail", "warn"):
        return value
    raise argparse.ArgumentTypeError(
        f"{value!r} is neither fail nor warn; where a path follows, say --asyncops=fail {value}, or the path first"
    )


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds ``--asyncops`` and ``--asyncops=warn``."""
    parser.getgroup("asyncops").addoption(
        "--asyncops",
        nargs="?",
        const="fail",
        type=_what_to_do,
        metavar="fail|warn",
        help="check every Pallas kernel that a test traces; findings fail the test, with =warn they do not",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Starts the plugin proper when asked for; it imports JAX."""
    action = config.getoption("--asyncops")
    if action:
        config.pluginmanager.register(_watch(action, config), "asyncops-watch")


def _watch(action: str, config: pytest.Config) -> KernelWatch:
    from asyncops.lint.pytest_watch import KernelWatch

    return KernelWatch(action, config)
