"""The cache: a second run checks nothing, and nothing in it is ever stale."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import asyncops
from asyncops.checker.events import Box, Copy, Core, Location, Program, Start, Wait
from asyncops.checker.pictures.timelines import timeline_of_program
from asyncops.checker.report import Diagnostic, KernelSummary
from asyncops.lint import program_keys
from asyncops.lint.cache import Cache
from asyncops.lint.codec import from_plain, to_plain
from asyncops.lint.program_keys import target_key
from asyncops.lint.results import Outcome, Step, Story
from asyncops.lint.targets import LintTarget
from stateful._jax.identity import program_text
from tests.asyncops.lint.conftest import Run, Write
from tests.asyncops.lint.kernels import X, call, calm, check_by_name, racy

KERNELS = """\
import jax
import jax.numpy as jnp
from asyncops import lint_target
from my_helper import SCALE
from tests.asyncops.lint.kernels import call, racy

def scaled(x_ref, o_ref):
    o_ref[...] = x_ref[...] * SCALE

lint_target(jax.ShapeDtypeStruct((8, 128), jnp.float32))(call(scaled))
lint_target(jax.ShapeDtypeStruct((8, 128), jnp.float32))(call(racy))
"""


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch, played_checker: None) -> list[Any]:
    """The functions that were really checked."""
    checked: list[Any] = []

    def check(fn: Any, *args: Any, **options: Any) -> Any:
        checked.append(fn)
        return check_by_name(fn, *args)

    monkeypatch.setattr(asyncops, "check", check)
    return checked


@pytest.fixture
def kernels(write: Write) -> Path:
    """Two targets; one uses a number of a helper module."""
    write("my_helper.py", "SCALE = 2.0\n")
    return write("kernels.py", KERNELS)


def findings(run: Run, file: Path, *options: object) -> list[Any]:
    return json.loads(run("lint", file, "--format", "json", *options).stdout)["findings"]


def test_a_second_run_checks_nothing_and_says_the_same(run: Run, kernels: Path, checks: list[Any]) -> None:
    first = findings(run, kernels)
    assert len(checks) == 2
    assert [f["code"] for f in first] == ["AO201"]
    assert findings(run, kernels) == first
    assert len(checks) == 2


def test_an_edit_in_a_helper_module_is_seen(run: Run, kernels: Path, checks: list[Any], write: Write) -> None:
    findings(run, kernels)
    write("my_helper.py", "SCALE = 3.0\n")
    findings(run, kernels)
    assert len(checks) == 3


def test_moved_lines_are_seen(run: Run, kernels: Path, checks: list[Any]) -> None:
    findings(run, kernels)
    kernels.write_text(kernels.read_text().replace("def scaled", "\ndef scaled"))
    findings(run, kernels)
    assert len(checks) == 3


def test_it_can_be_switched_off_and_put_elsewhere(run: Run, kernels: Path, checks: list[Any]) -> None:
    findings(run, kernels, "--no-cache")
    assert not Path(".asyncops_cache").exists()
    findings(run, kernels, "--cache-dir", "elsewhere")
    assert len(list(Path("elsewhere").glob("*.json"))) == 2
    assert Path("elsewhere/.gitignore").read_text() == "*\n"


@pytest.mark.parametrize("damage", ["", "{}", '{"target": 3}', "[" * 100_000, '{"kernels": [{"x": 1}]}'])
def test_a_damaged_entry_is_none(run: Run, kernels: Path, checks: list[Any], damage: str) -> None:
    before = findings(run, kernels)
    for entry in Path(".asyncops_cache").glob("*.json"):
        entry.write_text(damage)
    assert findings(run, kernels) == before
    assert len(checks) == 4


def test_entries_that_nobody_uses_are_dropped(run: Run, kernels: Path, checks: list[Any]) -> None:
    findings(run, kernels)
    old, new = Path(".asyncops_cache").glob("*.json")
    os.utime(old, (0, 0))
    run("lint", kernels, "--select", "AO2")
    assert new.exists()
    os.utime(old, (0, 0))
    kernels.write_text("from asyncops import lint_target\n")
    run("lint", kernels)
    assert not old.exists()


def test_failures_are_not_kept(run: Run, targets: Write) -> None:
    file = targets("kernels.py", "@lint_target()\ndef broken():\n    raise TypeError\n")
    assert run("lint", file).exit_code == 2
    assert not list(Path().glob(".asyncops_cache/*.json"))


ONE_COPY = Program((Core(0, (Start(Copy(None, Box("m"), None, "s", 0, 4)), Wait("s", 4))),))


def test_outcomes_survive_json() -> None:
    place = Location("a.py", 3, "f", 1, 2)
    below = Diagnostic("AO302", "r", "error", "m", None, witness=Story(()))
    tracks = timeline_of_program(ONE_COPY).tracks
    story = Story((Step("one", place), Step("two")), tracks)
    d = Diagnostic("AO201", "r", "error", "m", place, (("l", place),), (below,), story, True, "h", "k")
    outcome = Outcome(
        "t", place, "findings", (d,), ("u",), ("a",), (KernelSummary("k", 1, 2, 0.5),), None, 1.5
    )
    assert from_plain(json.loads(json.dumps(to_plain(outcome)))) == outcome


def test_an_unwritable_folder_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    Cache(tmp_path / "file" / "cache").put("key", Outcome("t", None))


def key(fn: Callable[..., Any], *args: Any, **options: Any) -> str | None:
    return target_key(LintTarget(fn, args, "t", "f", 1, options))


def test_keys_tell_programs_arguments_and_options_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = jax.ShapeDtypeStruct((16, 128), jnp.float32)
    keys = [
        key(call(calm), X),
        key(call(racy), X),
        key(call(calm, (16, 128)), shape),
        key(call(calm), X, calls=2),
        key(call(calm), jnp.ones(X.shape), values=True),
        key(call(calm), jnp.zeros(X.shape), values=True),
        key(lambda x: call(calm)(x) + np.float32(1), X),
        key(lambda x: call(calm)(x) + np.arange(128, dtype=np.float32), X),
        key(lambda x: call(calm)(x) + np.ones(128, np.float32), X),
    ]
    assert None not in keys
    assert len(set(keys)) == len(keys)
    monkeypatch.setattr(program_keys, "_versions", lambda: ("another JAX",))
    assert key(call(calm), X) not in keys


def test_keys_are_the_same_for_the_same_program() -> None:
    assert key(call(calm), X) == key(call(calm), X)
    assert key(call(calm), jnp.ones(X.shape)) == key(call(calm), X)


def test_a_contract_written_in_python_is_not_cached() -> None:
    assert key(call(calm), X, requires=len) is None


def test_a_program_with_a_python_function_inside_is_not_cached() -> None:
    def fn(x: Any) -> Any:
        return jax.pure_callback(np.sin, X, x)

    assert key(fn, X) is None


def test_index_maps_belong_to_the_text() -> None:
    from jax.experimental import pallas as pl

    def mapped(column: int) -> Any:
        spec = pl.BlockSpec((8, 128), lambda i: (i, column))
        wide = jax.ShapeDtypeStruct((8, 256), jnp.float32)
        fn = pl.pallas_call(calm, out_shape=X, grid=(1,), in_specs=[spec], interpret=True)
        return "".join(program_text(jax.make_jaxpr(fn)(wide)))

    assert mapped(0) != mapped(1)
