"""Programs to compile, each compiled once, and the dumps that are stored beside the tests."""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import asyncops
from asyncops.compiled.checking import CompiledReport

HERE = Path(__file__).parent
DUMPS = sorted((HERE / "dumps").glob("*/*.txt"))


@functools.cache
def _programs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("compiled_programs", HERE / "programs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def _compiled(name: str, topology: str) -> Any:
    return asyncops.compile_for(topology, *_programs().programs()[name])


@pytest.fixture(scope="session")
def programs() -> ModuleType:
    """The module of programs."""
    return _programs()


@pytest.fixture(scope="session")
def compiled() -> Callable[..., Any]:
    """``compiled(name, topology="v5e:2x2")``: a program, compiled by the TPU compiler."""
    return lambda name, topology="v5e:2x2": _compiled(name, topology)


@pytest.fixture(scope="session")
def report(compiled: Callable[..., Any]) -> Callable[..., CompiledReport]:
    """``report(name, topology="v5e:2x2")``: the report of a compiled program."""
    return lambda name, topology="v5e:2x2": asyncops.check_compiled(compiled(name, topology))


@pytest.fixture(params=DUMPS, ids=lambda path: f"{path.parent.name}/{path.name.partition('.')[0]}")
def dump(request: pytest.FixtureRequest) -> Path:
    """Each stored dump."""
    return request.param


@pytest.fixture
def calls_made() -> Callable[[Callable[[], object]], int]:
    """``calls_made(fn)``: how many calls ``fn()`` makes: work counted so that no other process changes it."""

    def count(fn: Callable[[], object]) -> int:
        made = 0

        def note(frame: object, event: str, argument: object) -> None:
            nonlocal made
            made += event in ("call", "c_call")

        sys.setprofile(note)
        try:
            fn()
        finally:
            sys.setprofile(None)
        return made

    return count
