"""``asyncops.config``: checking without a block around it."""

from __future__ import annotations

import subprocess
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import asyncops
from asyncops.lint.flags import Config
from asyncops.lint.watching import FindingsWarning
from stateful.errors import InvalidArgumentError
from tests.asyncops.lint.kernels import X, call, calm, check_by_name, racy

ONES = jnp.ones(X.shape, X.dtype)


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch, played_checker: None) -> Iterator[Config]:
    """Settings of this test alone; warnings are exceptions."""
    monkeypatch.setattr(asyncops, "check", check_by_name)
    jax.clear_caches()
    made = Config()
    yield made
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made.update("check_kernels", "off")


def test_nothing_is_watched_unless_asked_for() -> None:
    assert asyncops.config.check_kernels == "off"


def test_a_finding_is_warned_of_when_the_next_program_is_traced(config: Config) -> None:
    config.update("check_kernels", "warn")
    assert config.check_kernels == "warn"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(racy)(ONES)
    with pytest.warns(FindingsWarning, match="the kernel is racy"):
        call(calm)(ONES)


def test_a_loop_is_checked_as_a_whole(config: Config) -> None:
    seen: list[Any] = []
    config.update("check_kernels", "warn")
    original = asyncops.check
    asyncops.check = lambda fn, *args, **options: seen.append(fn) or original(fn, *args)  # type: ignore[assignment]
    jax.lax.fori_loop(0, 3, lambda _, y: call(calm)(y), ONES)
    config.update("check_kernels", "off")
    assert len(seen) == 1


def test_what_is_left_is_checked_on_switching_off(config: Config) -> None:
    config.update("check_kernels", "warn")
    call(racy)(ONES)
    with pytest.warns(FindingsWarning):
        config.update("check_kernels", "off")


def test_a_notebook_is_told_after_the_cell(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    hooks: dict[str, Any] = {}
    events = types.SimpleNamespace(register=hooks.__setitem__, unregister=lambda name, hook: hooks.pop(name))
    shell = types.SimpleNamespace(get_ipython=lambda: types.SimpleNamespace(events=events))
    monkeypatch.setitem(sys.modules, "IPython", shell)
    config.update("check_kernels", "warn")
    call(racy)(ONES)
    with pytest.warns(FindingsWarning):
        hooks["post_run_cell"]("the cell's result")
    config.update("check_kernels", "off")
    assert not hooks


def test_a_program_that_ends_is_checked() -> None:
    program = (
        "import asyncops, jax.numpy as jnp\n"
        "from tests.asyncops.lint.kernels import call, racy, check_by_name\n"
        "asyncops.check = check_by_name\n"
        "asyncops.config.update('check_kernels', 'warn')\n"
        "call(racy)(jnp.ones((8, 128)))\n"
        "print('done')\n"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "done\n"
    assert "FindingsWarning" in done.stderr
    assert "the kernel is racy" in done.stderr


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("check_kernel", "warn", "'check_kernel' is no setting; there is check_kernels"),
        ("check_kernels", "raise", "check_kernels is 'off' or 'warn', not 'raise'"),
    ],
)
def test_other_settings_are_refused(config: Config, name: str, value: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        config.update(name, value)
