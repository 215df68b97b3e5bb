"""``--compile``: each target is compiled for TPUs as well, and what is found there stands beside the rest."""

from __future__ import annotations

import json

import pytest

import asyncops
from asyncops.checker import session
from asyncops.checker.events import Location
from asyncops.checker.report import Diagnostic, Report
from tests.asyncops.lint.conftest import Run, Write

KERNELS = """\
import jax
import jax.numpy as jnp
from asyncops import lint_target

@lint_target(jax.ShapeDtypeStruct((8, 128), jnp.float32))
def kernel(x):
    return x + 1.0

@lint_target(jax.ShapeDtypeStruct((8, 128), jnp.float32))
def too_big(x):
    return x + 1.0
"""


@pytest.fixture
def played_compiler(monkeypatch: pytest.MonkeyPatch, played_checker: None) -> list[str]:
    """What was compiled for what. Compiled programs have one finding, but for v6e one does not compile."""
    asked: list[str] = []

    def compile_for(topology, fn, *args):
        asked.append(f"{fn.__name__} {topology} {args[0].shape}")
        if fn.__name__ == "too_big" and topology == "v6e:2x2":
            raise RuntimeError("does not fit")
        return fn

    def check_compiled(fn):
        place = Location(fn.__code__.co_filename, fn.__code__.co_firstlineno + 2, "kernel")
        return Report((Diagnostic("AO505", "not-overlapped", "warning", "nothing runs meanwhile", place),))

    monkeypatch.setattr(asyncops, "check", lambda *args, **options: Report())
    monkeypatch.setattr(asyncops, "compile_for", compile_for)
    monkeypatch.setattr(asyncops, "check_compiled", check_compiled)
    return asked


def test_every_target_is_compiled_for_every_topology(
    write: Write, run: Run, played_compiler: list[str]
) -> None:
    write("kernels.py", KERNELS)
    result = run("lint", "kernels.py", "--compile", "v5e:2x2,v6e:2x2", "--format", "json", "--no-cache")
    document = json.loads(result.stdout)
    assert played_compiler == [
        f"{n} {t} (8, 128)" for n in ("kernel", "too_big") for t in ("v5e:2x2", "v6e:2x2")
    ]
    verdicts = {target["name"].partition(":")[2]: target["verdict"] for target in document["targets"]}
    assert verdicts == {
        "kernel": "clean", "kernel [v5e:2x2]": "findings", "kernel [v6e:2x2]": "findings",
        "too_big": "clean", "too_big [v5e:2x2]": "findings", "too_big [v6e:2x2]": "failed",
    }  # fmt: skip
    assert [f["targets"] for f in document["findings"]] == [
        ["kernels.py:kernel [v5e:2x2]", "kernels.py:kernel [v6e:2x2]"],
        ["kernels.py:too_big [v5e:2x2]"],
    ]
    assert result.exit_code == 2


def test_the_configuration_may_ask_for_it(write: Write, run: Run, played_compiler: list[str]) -> None:
    write("kernels.py", KERNELS)
    write("pyproject.toml", '[tool.asyncops]\ncompile = ["v5e:2x2"]\n')
    run("lint", "kernels.py", "--no-cache")
    assert played_compiler == ["kernel v5e:2x2 (8, 128)", "too_big v5e:2x2 (8, 128)"]


def test_each_topology_has_its_own_entry_in_the_cache(
    write: Write, run: Run, played_compiler: list[str]
) -> None:
    write("kernels.py", KERNELS)
    for topology in ("v5e:2x2", "v5e:2x2", "v5p:2x2x1"):
        run("lint", "kernels.py", "--compile", topology)
    assert len(played_compiler) == 4


@pytest.mark.tpu_compile
def test_with_the_compiler_itself(write: Write, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncops, "check", session.check)
    write("kernels.py", KERNELS)
    document = json.loads(run("lint", "kernels.py:kernel", "--compile", "v5e:2x2", "--format", "json").stdout)
    assert [target["verdict"] for target in document["targets"]] == ["clean", "clean"]


OVERLAPPED = """\
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import PartitionSpec as P
import asyncops

def ring(x):
    future = asyncops.ppermute_start(x, "x", [(i, (i + 1) % 4) for i in range(4)])
    z = x + 1.0
    return asyncops.ppermute_done(future) + z

mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]), ("x",))
asyncops.lint_target(jax.ShapeDtypeStruct((4096, 1024), jnp.float32), name="ring")(
    jax.shard_map(asyncops.program_order(ring), mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False)
)
"""


@pytest.mark.tpu_compile
def test_the_report_shows_the_schedule(write: Write, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncops, "check", session.check)
    write("kernels.py", OVERLAPPED)
    page = run("lint", "kernels.py", "--compile", "v5e:2x2", "--format", "html").stdout
    assert "kernels.py:ring [v5e:2x2]: clean. Its schedule" in page
    assert page.count("<svg ") == 1


@pytest.mark.tpu_compile
def test_a_topology_that_does_not_exist_is_named(
    write: Write, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asyncops, "check", session.check)
    write("kernels.py", KERNELS)
    result = run("lint", "kernels.py:kernel", "--compile", "v99:1x1")
    assert "kernels.py:kernel [v99:1x1] could not be checked" in result.output
    assert result.exit_code == 2
