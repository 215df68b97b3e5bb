"""``asyncops run``: the user's program runs as under Python, and its kernels are checked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from tests.asyncops.lint.conftest import Run, Write

# The stand-in for the checker is installed by the program itself, before it traces.
PROGRAM = """\
import sys
import jax.numpy as jnp
import asyncops
from tests.asyncops.lint.kernels import calm, call, check_by_name, racy

asyncops.check = check_by_name
if __name__ == "__main__":
    print("arguments", sys.argv[1:])
    kernel = racy if "racy" in sys.argv else calm
    print(call(kernel)(jnp.ones((8, 128)))[0, 0])
    if "fail" in sys.argv:
        raise ValueError("the program's own mistake")
    if "exit" in sys.argv:
        sys.exit(7)
"""


@pytest.fixture(autouse=True)
def program(write: Write) -> Path:
    """The program as a script and as a module; what JAX has traced before is traced again."""
    jax.clear_caches()
    return write("program.py", PROGRAM)


def asyncops(*arguments: str) -> subprocess.CompletedProcess[str]:
    path = str(Path(__file__).parents[3])
    code = f"import sys; sys.path.append({path!r}); from asyncops.lint.cli import main; main()"
    command = [sys.executable, "-c", code, "run", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_the_program_runs_and_the_report_follows_on_stderr() -> None:
    done = asyncops("program.py", "racy", "--strict", "-x")
    assert done.stdout == "arguments ['racy', '--strict', '-x']\n2.0\n"
    assert "error[AO201] read-before-arrival: the kernel is racy" in done.stderr
    assert done.returncode == 1


def test_a_clean_module(run: Run) -> None:
    done = run("run", "--format", "concise", "-m", "program", "a b")
    assert done.stdout == "arguments ['a b']\n2.0\n"
    assert done.stderr == "no findings in 1 target, 1 kernel\n"
    assert done.exit_code == 0


def test_a_program_that_fails_shows_its_own_traceback(run: Run) -> None:
    done = run("run", "program.py", "fail")
    assert "runpy" not in done.stderr
    assert "asyncops/lint" not in done.stderr
    assert done.stderr.startswith('Traceback (most recent call last):\n  File "')
    assert "program.py ended with ValueError: the program's own mistake" in done.stderr
    assert done.exit_code == 2


def test_findings_are_shown_though_the_program_fails(run: Run) -> None:
    done = run("run", "--output-file", "out.json", "--format", "json", "program.py", "racy", "exit")
    document = json.loads(Path("out.json").read_text())
    assert [f["code"] for f in document["findings"]] == ["AO201"]
    assert document["targets"][-1]["failure"]["message"] == "ended with exit status 7"
    assert done.exit_code == 2


def test_a_missing_script(run: Run) -> None:
    result = run("run", "missing.py")
    assert result.exit_code == 2
    assert "missing.py: no such script" in result.output
