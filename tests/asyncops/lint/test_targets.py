"""Registering targets."""

from __future__ import annotations

import pytest

import asyncops
from asyncops.lint.discovery import Source, load_targets
from asyncops.lint.targets import targets_of
from stateful.errors import InvalidArgumentError
from tests.asyncops.lint.conftest import PRELUDE, Write


def test_the_function_comes_back_unchanged() -> None:
    def fn() -> None: ...

    assert asyncops.lint_target(1, 2)(fn) is fn


def test_decorators_stack_and_keep_their_options(targets: Write) -> None:
    file = targets(
        "kernels.py",
        """\
        @lint_target(1, calls=2, target="v5e")
        @lint_target(2, values=True, requires=len, name="other")
        def fn(x): ...
        """,
    )
    first, second = load_targets(Source(str(file)))
    line = PRELUDE.count("\n") + 1
    assert (first.name, first.args, first.line) == ("fn", (1,), line)
    assert (second.name, second.args, second.line) == ("other", (2,), line + 1)
    assert first.options == {"values": False, "calls": 2, "target": "v5e", "requires": None}
    assert second.options == {"values": True, "calls": 1, "target": None, "requires": len}


def test_a_helper_registers_for_the_module_that_calls_it(targets: Write) -> None:
    targets("my_helper.py", "def register(fn):\n    return lint_target()(fn)\n")
    file = targets("kernels.py", "from my_helper import register\n\nregister(lambda: 1)\n")
    (target,) = load_targets(Source(str(file)))
    assert target.line == PRELUDE.count("\n") + 3
    assert not targets_of(str(file.parent / "my_helper.py"))


def test_callables_without_a_name(targets: Write) -> None:
    file = targets("kernels.py", "import functools\nlint_target()(functools.partial(len, []))\n")
    (target,) = load_targets(Source(str(file)))
    assert target.name == "partial"


def test_wrong_use_is_refused_at_once() -> None:
    with pytest.raises(InvalidArgumentError, match="calls must be 1 or more, not 0"):
        asyncops.lint_target(calls=0)
    with pytest.raises(InvalidArgumentError, match="expected a function to check, not int"):
        asyncops.lint_target()(3)  # pyright: ignore[reportArgumentType]
