"""Checked asynchronous copies for JAX: decomposed copies and collectives, the checker and its linter.

A name is imported on first use, so that ``asyncops --help`` and a pytest plugin that is off do not start JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from asyncops.version import __version__ as __version__

if TYPE_CHECKING:
    from asyncops.buffering import fori_loop as fori_loop
    from asyncops.buffering import scan as scan
    from asyncops.buffering import while_loop as while_loop
    from asyncops.checker.drawing import draw_timeline as draw_timeline
    from asyncops.checker.pictures.timelines import Timeline as Timeline
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
    from asyncops.lint.flags import config as config
    from asyncops.lint.targets import lint_target as lint_target
    from asyncops.lint.watching import checking as checking
    from asyncops.ordering import program_order as program_order
    from asyncops.ref_collectives import Slots as Slots
    from asyncops.ref_collectives import all_gather_done_ref as all_gather_done_ref
    from asyncops.ref_collectives import all_gather_start_ref as all_gather_start_ref
    from asyncops.ref_collectives import all_to_all_done_ref as all_to_all_done_ref
    from asyncops.ref_collectives import all_to_all_start_ref as all_to_all_start_ref
    from asyncops.ref_collectives import async_copy_done_ref as async_copy_done_ref
    from asyncops.ref_collectives import async_copy_start_ref as async_copy_start_ref
    from asyncops.ref_collectives import ppermute_done_ref as ppermute_done_ref
    from asyncops.ref_collectives import ppermute_start_ref as ppermute_start_ref
    from asyncops.ref_collectives import psum_done_ref as psum_done_ref
    from asyncops.ref_collectives import psum_scatter_done_ref as psum_scatter_done_ref
    from asyncops.ref_collectives import psum_scatter_start_ref as psum_scatter_start_ref
    from asyncops.ref_collectives import psum_start_ref as psum_start_ref
    from asyncops.ref_collectives import slots as slots

# Where each public name lives; the imports above say the same to type checkers.
_HOMES = {
    "Diagnostic": "asyncops.checker.report",
    "Future": "asyncops.futures",
    "Report": "asyncops.checker.report",
    "Slots": "asyncops.ref_collectives",
    "Timeline": "asyncops.checker.pictures.timelines",
    "all_gather_done": "asyncops.collectives",
    "all_gather_done_ref": "asyncops.ref_collectives",
    "all_gather_start": "asyncops.collectives",
    "all_gather_start_ref": "asyncops.ref_collectives",
    "all_to_all_done": "asyncops.collectives",
    "all_to_all_done_ref": "asyncops.ref_collectives",
    "all_to_all_start": "asyncops.collectives",
    "all_to_all_start_ref": "asyncops.ref_collectives",
    "async_copy_done": "asyncops.collectives",
    "async_copy_done_ref": "asyncops.ref_collectives",
    "async_copy_start": "asyncops.collectives",
    "async_copy_start_ref": "asyncops.ref_collectives",
    "check": "asyncops.checker.session",
    "check_compiled": "asyncops.compiled.checking",
    "checking": "asyncops.lint.watching",
    "compile_for": "asyncops.compiled.compiling",
    "config": "asyncops.lint.flags",
    "draw_timeline": "asyncops.checker.drawing",
    "fori_loop": "asyncops.buffering",
    "lint_target": "asyncops.lint.targets",
    "ppermute_done": "asyncops.collectives",
    "ppermute_done_ref": "asyncops.ref_collectives",
    "ppermute_start": "asyncops.collectives",
    "ppermute_start_ref": "asyncops.ref_collectives",
    "program_order": "asyncops.ordering",
    "psum_done": "asyncops.collectives",
    "psum_done_ref": "asyncops.ref_collectives",
    "psum_scatter_done": "asyncops.collectives",
    "psum_scatter_done_ref": "asyncops.ref_collectives",
    "psum_scatter_start": "asyncops.collectives",
    "psum_scatter_start_ref": "asyncops.ref_collectives",
    "psum_start": "asyncops.collectives",
    "psum_start_ref": "asyncops.ref_collectives",
    "scan": "asyncops.buffering",
    "slots": "asyncops.ref_collectives",
    "while_loop": "asyncops.buffering",
}

__all__ = [
    "Diagnostic",
    "Future",
    "Report",
    "Slots",
    "Timeline",
    "all_gather_done",
    "all_gather_done_ref",
    "all_gather_start",
    "all_gather_start_ref",
    "all_to_all_done",
    "all_to_all_done_ref",
    "all_to_all_start",
    "all_to_all_start_ref",
    "async_copy_done",
    "async_copy_done_ref",
    "async_copy_start",
    "async_copy_start_ref",
    "check",
    "check_compiled",
    "checking",
    "compile_for",
    "config",
    "draw_timeline",
    "fori_loop",
    "lint_target",
    "ppermute_done",
    "ppermute_done_ref",
    "ppermute_start",
    "ppermute_start_ref",
    "program_order",
    "psum_done",
    "psum_done_ref",
    "psum_scatter_done",
    "psum_scatter_done_ref",
    "psum_scatter_start",
    "psum_scatter_start_ref",
    "psum_start",
    "psum_start_ref",
    "scan",
    "slots",
    "while_loop",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'asyncops' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
