"""A linter whose checker is played by the targets: a target returns the report that its check gives."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import asyncops
from asyncops.lint import rulebook
from asyncops.lint.cli import cli

Write = Callable[[str, str], Path]
Run = Callable[..., Result]

PRELUDE = """\
from pathlib import Path
from asyncops import lint_target
from asyncops.checker.events import Location
from asyncops.checker.report import Diagnostic, KernelSummary, Report


def at(text, column=None, end=None):
    lines = Path(__file__).read_text().splitlines()
    number = next(n for n, line in enumerate(lines, 1) if text in line)
    return Location(__file__, number, "kernel", column, end)


def finding(code, text, severity="error", **more):
    return Diagnostic(code, "some-rule", severity, f"{text} is wrong", at(text), confirmed=True, **more)


"""

RACE = """\
def kernel(first, second, buf):
    first.start()
    second.start()
    out = buf[0]  # a comment
    first.wait()


@lint_target(name="racy")
def target():
    follows = Diagnostic("AO302", "shared-semaphore", "error", "sem serves two copies", at("second.start"))
    race = Diagnostic(
        "AO201",
        "read-before-arrival",
        "error",
        "buf[0] is read while the copy into it may still be writing",
        at("out ="),
        related=(
            ("the copy was started here", at("first.start")),
            ("it should have been waited for before", at("first.wait")),
        ),
        secondary=(follows,),
        witness="1. the copy into buf[0] starts\\n2. the core reads buf[0]\\n3. the copy writes buf[0]",
        confirmed=True,
        help="wait for the copy before the read",
        kernel="kernel",
    )
    return Report((race,), ("the mesh is a ring",), (), (KernelSummary("kernel", 9, 1, 0.25),))
"""


RULE_FILE = '''"""The {name} of a test.

What it does
------------
It plays {name}.

Cure
----
Play something else.
"""

CODE = "{code}"
NAME = "{name}"
SEVERITY = "{severity}"
'''
PLAYED_RULES = (
    ("AO201", "read-before-arrival", "error"),
    ("AO202", "source-overwritten", "error"),
    ("AO302", "shared-semaphore", "error"),
    ("AO401", "missing-entry-barrier", "error"),
    ("AO505", "not-overlapped", "warning"),
)


def played_by_target(fn: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """What ``asyncops.check`` is replaced with."""
    return fn(*args)


@pytest.fixture(autouse=True)
def played_checker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Replaces the checker, works in an empty folder, and forgets the modules that a test loads."""
    monkeypatch.setattr(asyncops, "check", played_by_target, raising=False)
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)
    yield
    sys.path[:] = path
    forget_modules(tmp_path)


def forget_modules(folder: Path) -> None:
    """Drops the modules of ``folder``, as if a new process had started."""
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(folder)):
            del sys.modules[name]


@pytest.fixture(autouse=True)
def played_rules(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Replaces the checker's rules by a few that do not change; the linter's own stay."""
    folder = tmp_path_factory.mktemp("rules")
    for code, name, severity in PLAYED_RULES:
        (folder / f"{name.replace('-', '_')}.py").write_text(
            RULE_FILE.format(code=code, name=name, severity=severity)
        )
    monkeypatch.setattr(rulebook, "FOLDERS", (folder, rulebook.FOLDERS[-1]))
    rulebook.rule_pages.cache_clear()
    yield
    rulebook.rule_pages.cache_clear()


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a file below the working folder."""

    def write(name: str, text: str) -> Path:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
        return file

    return write


@pytest.fixture
def targets(write: Write) -> Write:
    """Writes a file of targets; the helpers ``at`` and ``finding`` are there."""
    return lambda name, text: write(name, PRELUDE + textwrap.dedent(text))


@pytest.fixture
def race(targets: Write) -> Path:
    """``kernels.py`` with one target, whose report holds one race."""
    return targets("kernels.py", RACE)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs the command line in this process, with the user's modules loaded anew."""

    def run(*args: object) -> Result:
        forget_modules(tmp_path)
        return CliRunner().invoke(cli, list(map(str, args)), prog_name="asyncops")

    return run
