"""From what the user names (files, folders, modules, functions) to the targets registered there."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from asyncops.lint.examples import Example, with_example
from asyncops.lint.overlays import loader_for
from asyncops.lint.targets import LintTarget, forget_targets, targets_of
from stateful.errors import LintUsageError

_MENTION = re.compile(rb"\blint_target\b")
_SKIPPED_FOLDERS = {"__pycache__", "node_modules", "build", "dist", "site-packages"}


@dataclass(frozen=True)
class Source:
    """A Python file to load, the one function in it that is wanted, if only one is, and the examples for it."""

    file: str
    function: str | None = None
    examples: tuple[Example, ...] = ()


def find_sources(names: Iterable[str], examples: Sequence[Example] = ()) -> tuple[Source, ...]:
    """The files that ``names`` stand for, each once and in order.

    A folder stands for the files below it that mention ``lint_target`` or have ``examples``; no other file is executed.
    """
    by_file: dict[str, tuple[Example, ...]] = {}
    for example in examples:
        by_file[example.file] = (*by_file.get(example.file, ()), example)
    found: dict[Source, None] = {}
    for name in names:
        found.update(dict.fromkeys(_sources(name, by_file)))
    whole = {s.file for s in found if s.function is None}
    kept = (s for s in found if s.function is None or s.file not in whole)
    return tuple(replace(s, examples=by_file.get(s.file, ())) for s in kept)


def load_targets(source: Source) -> tuple[LintTarget, ...]:
    """Executes the file and returns what it registers; what it raises is the caller's to report."""
    module = load_module(source.file)
    targets = (*targets_of(source.file), *(_of_example(module, example) for example in source.examples))
    if source.function is None:
        return targets
    named = tuple(t for t in targets if source.function in (t.name, getattr(t.fn, "__qualname__", None)))
    return named or (_unregistered(module, source.file, source.function),)


def load_module(file: str) -> ModuleType:
    """Imports ``file`` under the name it has for other modules, so that both see one module."""
    name, root = _module_name(Path(file))
    loaded = sys.modules.get(name)
    if loaded is not None and _is_file(loaded, file):
        return loaded
    if root not in sys.path:
        sys.path.insert(0, root)
    forget_targets(file)
    if "." in name:
        return importlib.import_module(name)
    if loaded is not None or name in sys.stdlib_module_names or not name.isidentifier():
        name = f"_lint_{hashlib.sha256(file.encode()).hexdigest()[:12]}"
    return _execute(name, file)


def _sources(name: str, examples: Container[str]) -> Iterator[Source]:
    path, function = name, None
    if not os.path.exists(path) and ":" in name:
        path, _, function = name.rpartition(":")
    if os.path.isdir(path) and function is None:
        yield from (Source(f) for f in _files_below(path, examples))
    elif os.path.isfile(path):
        yield Source(_absolute(path), function)
    elif path.endswith(".py") or os.sep in path or os.path.isdir(path):
        raise LintUsageError(f"{name}: no such file or folder")
    else:
        yield from _module_sources(path, function, examples)


def _module_sources(module: str, function: str | None, examples: Container[str]) -> Iterator[Source]:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        raise LintUsageError(
            f"{module}: no such file, folder or module; say a path, "
            "a module that can be imported from here, or module:function"
        )
    if spec.submodule_search_locations and function is None:
        for folder in spec.submodule_search_locations:
            yield from (Source(f) for f in _files_below(folder, examples))
    elif spec.origin and spec.origin.endswith(".py"):
        yield Source(_absolute(spec.origin), function)
    else:
        raise LintUsageError(f"{module}: has no Python source that could be linted")


def _files_below(folder: str, examples: Container[str]) -> Iterator[str]:
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(f for f in folders if _is_searched(os.path.join(parent, f)))
        for file in sorted(files):
            path = os.path.join(parent, file)
            wanted = _absolute(path) in examples or (
                file.endswith(".py") and _MENTION.search(Path(path).read_bytes())
            )
            if wanted:
                yield _absolute(path)


def _is_searched(folder: str) -> bool:
    name = os.path.basename(folder)
    is_environment = os.path.exists(os.path.join(folder, "pyvenv.cfg"))
    return not (name.startswith(".") or name in _SKIPPED_FOLDERS or is_environment)


def _of_example(module: ModuleType, example: Example) -> LintTarget:
    """The target that an example of the configuration makes."""
    fn = _function(module, example.file, example.function)
    return with_example(_target(fn, example.file, example.function), example)


def _unregistered(module: ModuleType, file: str, name: str) -> LintTarget:
    """A function that was named but not registered: it can be checked if it needs no arguments."""
    fn = _function(module, file, name)
    needed = [p.name for p in inspect.signature(fn).parameters.values() if _is_required(p)]
    if needed:
        raise LintUsageError(
            f"{name} takes {', '.join(needed)}: register example arguments with "
            "@asyncops.lint_target(...) above it, or in pyproject.toml under [tool.asyncops.examples]; shapes suffice"
        )
    return _target(fn, file, name)


def _function(module: ModuleType, file: str, name: str) -> Callable[..., Any]:
    fn: object = module
    for part in name.split("."):
        fn = getattr(fn, part, None)
    if not callable(fn):
        raise LintUsageError(f"{file}: has no function or target named {name!r}")
    return fn


def _target(fn: Callable[..., Any], file: str, name: str) -> LintTarget:
    inner = inspect.unwrap(fn)
    line = getattr(getattr(inner, "__code__", None), "co_firstlineno", 1)
    return LintTarget(fn, (), name, file, line)


def _is_required(parameter: inspect.Parameter) -> bool:
    variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and not variadic


def _module_name(path: Path) -> tuple[str, str]:
    """Dotted name and the folder that has to be on ``sys.path`` for it."""
    parts = [] if path.stem == "__init__" else [path.stem]
    folder = path.parent
    while (folder / "__init__.py").exists():
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts), str(folder)


def _execute(name: str, file: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file, loader=loader_for(name, file))
    if spec is None or spec.loader is None:
        raise LintUsageError(f"{file}: is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _is_file(module: ModuleType, file: str) -> bool:
    loaded = getattr(module, "__file__", None)
    return loaded is not None and os.path.realpath(loaded) == os.path.realpath(file)


def _absolute(path: str) -> str:
    return os.path.abspath(path)
