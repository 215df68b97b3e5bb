"""Checked asynchronous copies for JAX: decomposed copies and collectives, the checker and its linter.

A name is imported on first use, so that ``asyncops --help`` and a pytest plugin that is off do not start JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from asyncops.version import __version__ as __version__

if TYPE_CHECKING:
    from asyncops.checker.report import Diagnostic as Diagnostic
    from asyncops.checker.report import Report as Report
    from asyncops.checker.session import check as check
    from asyncops.collectives import all_gather_done as all_gather_done
    from asyncops.collectives import all_gather_start as all_gather_start
    from asyncops.collectives import all_to_all_done as all_to_all_done
    from asyncops.collectives import all_to_all_start as all_to_all_start
    from asyncops.collectives import async_copy_done as async_copy_done
    from asyncops.collectives import async_copy_start as async_copy_start
    from asyncops.collectives import ppermute_done as ppermute_done
    from asyncops.collectives import ppermute_start as ppermute_start
    from asyncops.collectives import psum_done as psum_done
    from asyncops.collectives import psum_scatter_done as psum_scatter_done
    from asyncops.collectives import psum_scatter_start as psum_scatter_start
    from asyncops.collectives import psum_start as psum_start
    from asyncops.compiled.checking import check_compiled as check_compiled
    from asyncops.compiled.compiling import compile_for as compile_for
    from asyncops.futures import Future as Future
    from asyncops.lint.targets import lint_target as lint_target
    from asyncops.lint.watching import checking as checking

# Where each public name lives; the imports above say the same to type checkers.
_HOMES = {
    "Diagnostic": "asyncops.checker.report",
    "Future": "asyncops.futures",
    "Report": "asyncops.checker.report",
    "all_gather_done": "asyncops.collectives",
    "all_gather_start": "asyncops.collectives",
    "all_to_all_done": "asyncops.collectives",
    "all_to_all_start": "asyncops.collectives",
    "async_copy_done": "asyncops.collectives",
    "async_copy_start": "asyncops.collectives",
    "check": "asyncops.checker.session",
    "check_compiled": "asyncops.compiled.checking",
    "checking": "asyncops.lint.watching",
    "compile_for": "asyncops.compiled.compiling",
    "lint_target": "asyncops.lint.targets",
    "ppermute_done": "asyncops.collectives",
    "ppermute_start": "asyncops.collectives",
    "psum_done": "asyncops.collectives",
    "psum_scatter_done": "asyncops.collectives",
    "psum_scatter_start": "asyncops.collectives",
    "psum_start": "asyncops.collectives",
}

__all__ = [
    "Diagnostic",
    "Future",
    "Report",
    "all_gather_done",
    "all_gather_start",
    "all_to_all_done",
    "all_to_all_start",
    "async_copy_done",
    "async_copy_start",
    "check",
    "check_compiled",
    "checking",
    "compile_for",
    "lint_target",
    "ppermute_done",
    "ppermute_start",
    "psum_done",
    "psum_scatter_done",
    "psum_scatter_start",
    "psum_start",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'asyncops' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
