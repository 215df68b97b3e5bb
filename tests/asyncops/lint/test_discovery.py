"""From names on the command line to targets."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from asyncops.lint.discovery import Source, find_sources, load_module, load_targets
from asyncops.lint.paths import shown
from stateful.errors import LintUsageError
from tests.asyncops.lint.conftest import Write

TARGET = "@lint_target()\ndef {name}():\n    return Report()\n"


def names(*wanted: object) -> list[str]:
    found = [t for s in find_sources(map(str, wanted)) for t in load_targets(s)]
    return [f"{shown(t.file)}:{t.name}" for t in found]


def test_a_file_gives_its_targets_in_order(targets: Write) -> None:
    file = targets("kernels.py", TARGET.format(name="b") + TARGET.format(name="a"))
    assert names(file) == ["kernels.py:b", "kernels.py:a"]


def test_a_folder_executes_only_files_that_register_something(targets: Write, write: Write) -> None:
    targets("src/deep/kernels.py", TARGET.format(name="a"))
    write("src/setup.py", "raise RuntimeError('executed')\n")
    for skipped in (".hidden", "__pycache__", "build", "env"):
        targets(f"src/{skipped}/kernels.py", "raise RuntimeError('executed')\n")
    write("src/env/pyvenv.cfg", "")
    assert names("src") == ["src/deep/kernels.py:a"]


def test_one_function_of_a_file_or_a_module(targets: Write) -> None:
    targets("kernels.py", TARGET.format(name="a") + TARGET.format(name="b"))
    assert names("kernels.py:b") == ["kernels.py:b"]
    assert names("kernels:a") == ["kernels.py:a"]
    assert names("kernels") == ["kernels.py:a", "kernels.py:b"]


def test_a_whole_file_includes_its_functions(targets: Write) -> None:
    targets("kernels.py", TARGET.format(name="a"))
    assert find_sources(["kernels.py:a", "kernels.py", "."]) == (Source(str(Path("kernels.py").absolute())),)


def test_a_package_is_searched_like_a_folder(targets: Write, write: Write) -> None:
    write("package/__init__.py", "")
    write("package/sub/__init__.py", "")
    targets("package/sub/kernels.py", "from .. import sub\n" + TARGET.format(name="a"))
    assert names("package") == ["package/sub/kernels.py:a"]


def test_a_module_is_loaded_once_for_the_linter_and_its_importers(targets: Write) -> None:
    targets("shared_targets.py", TARGET.format(name="a"))
    importer = targets("importer.py", "import shared_targets\n" + TARGET.format(name="b"))
    assert names(importer) == ["importer.py:b"]
    assert names("shared_targets.py") == ["shared_targets.py:a"]
    assert load_module(str(Path("shared_targets.py").absolute())) is sys.modules["shared_targets"]


def test_files_of_one_name_in_two_folders(targets: Write) -> None:
    for folder in ("one", "two"):
        targets(f"{folder}/same_name.py", TARGET.format(name=folder))
    assert names("one", "two") == ["one/same_name.py:one", "two/same_name.py:two"]


def test_a_file_called_like_a_standard_module(targets: Write) -> None:
    assert names(targets("random.py", TARGET.format(name="a"))) == ["random.py:a"]


def test_a_function_that_needs_no_arguments_need_not_be_registered(write: Write) -> None:
    write("plain.py", "def f(n=3): pass\ndef g(x, y): pass\n")
    assert names("plain.py:f") == ["plain.py:f"]
    with pytest.raises(LintUsageError, match=re.escape("g takes x, y: register example arguments")):
        names("plain.py:g")
    with pytest.raises(LintUsageError, match="has no function or target named 'h'"):
        names("plain.py:h")


@pytest.mark.parametrize(
    "name", ["missing.py", "folder/missing", "no_such_module", "no_such_module:f", "sys"]
)
def test_what_does_not_exist_is_refused(name: str) -> None:
    with pytest.raises(LintUsageError, match=name.partition(":")[0]):
        find_sources([name])
