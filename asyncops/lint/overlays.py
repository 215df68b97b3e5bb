"""Modules loaded from edited text instead of their files, and everything put back afterwards."""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Generator, Mapping, Sequence
from types import CodeType, ModuleType

from asyncops.lint import targets
from asyncops.lint.paths import is_library

# Real path to text of the files that are edited now.
_texts: dict[str, bytes] = {}


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads one file from a text."""

    def __init__(self, name: str, path: str, text: bytes) -> None:
        super().__init__(name, path)
        self._text = text

    def get_data(self, path: str) -> bytes:
        """The text, whatever is on disk."""
        return self._text

    def get_code(self, fullname: str) -> CodeType:
        """Compiled from the text: a cached file would be that of the text on disk."""
        return self.source_to_code(self._text, self.path)


def loader_for(name: str, file: str) -> importlib.machinery.SourceFileLoader | None:
    """The loader of a module whose file is edited; None for others."""
    text = _texts.get(os.path.realpath(file))
    return None if text is None else _Loader(name, file, text)


def edited_text(file: str) -> str | None:
    """The text of a file that is edited now; None for others."""
    data = _texts.get(os.path.realpath(file)) if _texts else None
    return None if data is None else importlib.util.decode_source(data)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds modules as Python does, and gives those of edited files the other loader."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec, if the module is an edited one; else None, so that others find it."""
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        loader = loader_for(fullname, spec.origin) if spec and spec.origin else None
        if spec is None or loader is None:
            return None
        spec.loader = loader
        return spec


@contextlib.contextmanager
def edited(texts: Mapping[str, bytes]) -> Generator[None]:
    """Inside, the user's modules are loaded anew, those whose real path is in ``texts`` from there.

    At the end the modules that were loaded before, and the targets they had registered, are put back.
    """
    before = {name: sys.modules.pop(name) for name in user_modules()}
    registered = targets.replace_targets(())
    finder = _Finder()
    _texts.update(texts)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        _texts.clear()
        for name in user_modules():
            del sys.modules[name]
        sys.modules.update(before)
        targets.replace_targets(registered)


def user_modules() -> list[str]:
    """The names of the loaded modules that are no library's."""
    return [name for name, module in list(sys.modules.items()) if _is_the_users(module)]


def _is_the_users(module: ModuleType) -> bool:
    """It lies neither with Python, nor with installed packages, nor here."""
    file: str | None = getattr(module, "__file__", None)
    return file is not None and module.__name__ != "__main__" and not is_library(file)
