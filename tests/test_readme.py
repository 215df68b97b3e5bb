"""Everything the README shows is executed: files are written, commands run, and their output compared.

A ``python`` or ``yaml`` block begins with a comment that names its file. In a ``console`` block each line
after ``$`` is run in the folder of these files; the lines below are its output, ``...`` stands for anything.
``sh`` blocks hold the two set-up commands, which CI runs from a clean checkout.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"# ([\w./-]+)\n")


def blocks(*languages: str) -> list[str]:
    """The fenced blocks of the languages, in order."""
    return [text for language, text in BLOCK.findall(README) if language in languages]


def commands() -> list[tuple[str, str]]:
    """(command, expected output) of the console blocks."""
    found: list[tuple[str, str]] = []
    for block in blocks("console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output))
    return found


def as_pattern(output: str) -> re.Pattern[str]:
    """``...`` stands for any text."""
    return re.compile(".*".join(map(re.escape, output.rstrip("\n").split("..."))), re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the README shows."""
    folder = tmp_path_factory.mktemp("readme")
    for text in blocks("python", "yaml"):
        name = FILE_NAME.match(text)
        assert name, f"the block should begin with its file name:\n{text}"
        file = folder / name[1]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The command as a shell would run it, with this interpreter's ``python`` and ``asyncops``."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    words = (
        command.replace("asyncops ", f"{sys.executable} -m asyncops ", 1)
        if command[:9] == "asyncops "
        else command
    )
    words = words.replace("python ", f"{sys.executable} ", 1) if words.startswith("python ") else words
    environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": "100"}
    return subprocess.run(
        words,
        shell=True,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(("command", "output"), commands(), ids=lambda text: text.split("\n")[0][:40])
def test_commands_print_what_is_shown(folder: Path, command: str, output: str) -> None:
    done = run(command, folder)
    assert as_pattern(output).fullmatch(done.stdout.rstrip("\n")), done.stdout + done.stderr


@pytest.mark.slow
def test_the_other_programs_do_what_is_said(folder: Path) -> None:
    assert run("python service.py", folder).stdout == "True\n"
    done = run("asyncops run --format concise train.py", folder)
    assert "AO201" in done.stderr


def test_the_configuration_is_accepted(folder: Path) -> None:
    from asyncops.lint.configuration import read_configuration

    (text,) = blocks("toml")
    file = folder / "configured" / "pyproject.toml"
    (file.parent / "kernels").mkdir(parents=True)
    (file.parent / "kernels" / "pages.py").write_text("")
    file.write_text(text)
    assert set(tomllib.loads(text)["tool"]["asyncops"]) == {
        "targets", "select", "ignore", "strict", "baseline", "per-file-ignores", "severity", "compile", "chip",
        "mesh", "examples",
    }  # fmt: skip
    assert read_configuration(file).strict


def test_the_workflow_finds_the_kernel(folder: Path) -> None:
    text = (folder / ".github/workflows/kernels.yml").read_text()
    (lint,) = re.findall(r"- run: (asyncops .*)", text)
    done = run(lint, folder)
    assert done.stdout.startswith("::error file=my_kernel.py,line=13,")
    assert done.returncode == 1


def test_the_pre_commit_hook_is_the_one_we_publish(folder: Path) -> None:
    entry = re.compile(r"entry: (.*)")
    shown = entry.findall((folder / ".pre-commit-config.yaml").read_text())
    assert shown == entry.findall((ROOT / ".pre-commit-hooks.yaml").read_text())


def test_the_pre_commit_hook_finds_the_kernel(folder: Path, tmp_path: Path) -> None:
    for name in ("my_kernel.py", ".pre-commit-config.yaml"):
        shutil.copy(folder / name, tmp_path)
    (tmp_path / "plain.py").write_text("x = 1\n")
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    script = bin_folder / "asyncops"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m asyncops "$@"\n')
    script.chmod(0o755)
    setup = "git init -q . && git add -A && "
    precommit = f"PATH={bin_folder}:$PATH {sys.executable} -m pre_commit run --all-files"
    done = run(setup + precommit, tmp_path)
    assert "AO201" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 1


@pytest.mark.parametrize("command", blocks("sh"))
def test_the_set_up_commands_exist(command: str) -> None:
    """What they do is left to CI: a test that makes an environment would run for minutes."""
    done = subprocess.run(
        [*command.split(), "--dry-run"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    wanted = {"make demo": "asyncops lint tests/eval", "make test": "python -m pytest"}[command.strip()]
    assert wanted in done.stdout


def test_what_is_promised_elsewhere_in_the_text() -> None:
    formats = re.findall(r"`--format text`, (.*)\.", README)[0]
    from asyncops.lint.formats.registry import FORMATS

    assert tuple(re.findall(r"`(\w+)`", "`text`, " + formats)) == FORMATS
