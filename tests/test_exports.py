"""The public surface: every name is exported once, from one home, and documented."""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path

import pytest

import asyncops
import stateful

PACKAGES = [stateful, asyncops]
NAMES = [(package, name) for package in PACKAGES for name in package.__all__]


def ids(pair):
    return f"{pair[0].__name__}.{pair[1]}"


@pytest.mark.parametrize("package", PACKAGES)
def test_all_is_sorted_and_has_each_name_once(package):
    assert list(package.__all__) == sorted(set(package.__all__))


def test_no_name_is_exported_by_both_packages():
    assert not set(stateful.__all__) & set(asyncops.__all__)


@pytest.mark.parametrize("pair", NAMES, ids=ids)
def test_a_public_name_is_there_and_documented(pair):
    package, name = pair
    value = getattr(package, name)
    if not callable(value) and not inspect.isclass(value):
        return  # a constant; its comment is in the source
    text = inspect.getdoc(value) or ""
    # dataclass() makes up a docstring where there is none
    assert text
    assert not text.startswith(f"{name}(")


@pytest.mark.parametrize("package", PACKAGES)
def test_no_object_has_two_public_names(package):
    values = [getattr(package, name) for name in package.__all__]
    assert len({id(v) for v in values}) == len(values)


@pytest.mark.parametrize("package", PACKAGES)
def test_lazy_imports_and_those_for_type_checkers_agree(package):
    tree = ast.parse(Path(package.__file__).read_text())
    for_checkers = {
        alias.asname: node.module
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert for_checkers == package._HOMES
    assert set(package._HOMES) == set(package.__all__)


@pytest.mark.parametrize("pair", NAMES, ids=ids)
def test_a_public_name_lives_in_its_home(pair):
    package, name = pair
    home = importlib.import_module(package._HOMES[name])
    assert getattr(home, name) is getattr(package, name)


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_has_the_name_of_a_public_function(package):
    modules = {p.stem for p in Path(package.__file__).parent.rglob("*.py")}
    clashes = {n for n in package.__all__ if n in modules and inspect.isfunction(getattr(package, n))}
    assert not clashes


@pytest.mark.parametrize("package", PACKAGES)
def test_an_unknown_name_is_an_attribute_error(package):
    with pytest.raises(AttributeError, match="no_such_name"):
        package.no_such_name  # noqa: B018
