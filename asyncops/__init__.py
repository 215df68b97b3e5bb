"""Checked asynchronous copies for JAX: decomposed copies and collectives, the checker and its linter.

A name is imported on first use, so that ``asyncops --help`` and a pytest plugin that is off do not start JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from asyncops.version import __version__ as __version__

if TYPE_CHECKING:
    from asyncops.lint.targets import lint_target as lint_target

# Where each public name lives; the imports above say the same to type checkers.
_HOMES = {
    "lint_target": "asyncops.lint.targets",
}

__all__ = ["lint_target"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'asyncops' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
