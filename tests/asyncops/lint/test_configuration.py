"""``[tool.asyncops]``: what it does, and that mistakes in it are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from asyncops.lint.configuration import find_configuration, read_configuration
from stateful.errors import LintUsageError
from tests.asyncops.lint.conftest import Run, Write

TWO = """\
@lint_target()
def two():
    return Report((finding("AO201", "def two"), finding("AO505", "def two", "warning")))
"""


@pytest.fixture
def configure(write: Write) -> Write:
    """Writes ``pyproject.toml`` with the given table."""
    return lambda name, text: write(name, "[tool.asyncops]\n" + text)


def codes(run: Run, *arguments: object) -> list[str]:
    lines = run("lint", *arguments, "--format", "concise").stdout.splitlines()
    return [line.split()[1] for line in lines if ": AO" in line]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("", ["AO201", "AO505"]),
        ('select = ["AO2"]', ["AO201"]),
        ('select = ["not-overlapped"]', ["AO505"]),
        ('ignore = ["AO201"]', ["AO505"]),
        ('per-file-ignores = { "sub/*.py" = ["ALL"] }', []),
        ('per-file-ignores = { "kernels.py" = ["AO5"] }', ["AO201"]),
        ('per-file-ignores = { "other/*" = ["ALL"] }', ["AO201", "AO505"]),
    ],
)
def test_selection(run: Run, targets: Write, configure: Write, text: str, left: list[str]) -> None:
    configure("pyproject.toml", text)
    assert codes(run, targets("sub/kernels.py", TWO)) == left


def test_the_command_line_wins(run: Run, targets: Write, configure: Write) -> None:
    configure("pyproject.toml", 'select = ["AO201"]\nignore = ["AO201"]')
    file = targets("kernels.py", TWO)
    assert codes(run, file) == []
    assert codes(run, file, "--ignore", "AO505") == ["AO201"]
    assert codes(run, file, "--select", "AO505") == ["AO505"]
    assert codes(run, file, "--isolated") == ["AO201", "AO505"]


def test_severities(run: Run, targets: Write, configure: Write) -> None:
    configure("pyproject.toml", '[tool.asyncops.severity]\nAO2 = "warning"\nAO201 = "info"\nAO505 = "info"')
    result = run("lint", targets("kernels.py", TWO), "--format", "concise")
    assert "AO201 info" in result.stdout
    assert result.exit_code == 0


def test_strict_and_targets(run: Run, targets: Write, configure: Write) -> None:
    targets("sub/kernels.py", "@lint_target()\ndef odd():\n    return Report(unknowns=('sort',))\n")
    configure("pyproject.toml", 'strict = true\ntargets = ["sub"]')
    assert run("lint").exit_code == 3


def test_the_nearest_file_that_has_the_table(configure: Write, write: Write, tmp_path: Path) -> None:
    configure("pyproject.toml", 'select = ["AO201"]')
    write("sub/pyproject.toml", "[tool.other]\n")
    assert find_configuration(tmp_path / "sub").root == tmp_path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("selct = []", "selct is not a key (did you mean 'select'?); known: baseline, chip,"),
        ('select = "AO201"', "select must be a list of strings, such as"),
        ('select = ["AO999"]', "select names 'AO999': no rule matches"),
        ('ignore = ["read-before-arival"]', "did you mean read-before-arrival?"),
        ('severity = { AO201 = "fatal" }', "severity.AO201 must be one of error, warning, info, not 'fatal'"),
        ("severity = 3", "severity must be a table"),
        ("strict = 1", "strict must be true or false, not 1"),
        ('per-file-ignores = { "*" = "AO201" }', "per-file-ignores.* must be a list of strings"),
        ("select = [", "Invalid value"),
        ("chip = 5", 'chip must be a chip such as "v5e", not 5'),
        ("mesh = { x = 0 }", "mesh must be axes and sizes such as { x = 4 }"),
        ('examples = { "no.py:f" = [] }', 'must name a file and a function in it such as "a.py:f"; no file'),
        ('examples = { "pyproject.toml:f" = ["8,128"] }', "'8,128' must be a dtype and a shape such as"),
        (
            'examples = { "pyproject.toml:f" = { shape = [] } }',
            'must be a list of arguments, or a table of "args"',
        ),
    ],
)
def test_mistakes_are_refused(configure: Write, text: str, message: str) -> None:
    file = configure("pyproject.toml", text)
    with pytest.raises(LintUsageError) as error:
        read_configuration(file)
    assert message in str(error.value)
    assert str(file) in str(error.value)


def test_a_mistake_exits_with_usage(run: Run, race: Path, configure: Write) -> None:
    configure("pyproject.toml", "nonsense = 1")
    result = run("lint", race)
    assert result.exit_code == 2
    assert "nonsense is not a key" in result.output
