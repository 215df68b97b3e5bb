"""Runs a user's program as Python would, and checks the kernels it traces."""

from __future__ import annotations

import os
import runpy
import sys
import time
import traceback
from collections.abc import Sequence
from types import TracebackType

from asyncops.checker.events import Location
from asyncops.lint.linting import Settings, conclude
from asyncops.lint.results import Failure, LintResult, Outcome
from asyncops.lint.watching import Watch
from stateful.errors import LintUsageError

_OWN = (os.path.dirname(os.path.abspath(__file__)) + os.sep, os.path.abspath(runpy.__file__))


def run_program(target: str, arguments: Sequence[str], *, module: bool, settings: Settings) -> LintResult:
    """Runs a script or module as ``__main__``; its own failure is part of the result.

    The checks follow when it ends. Nothing about its environment is changed.
    """
    if not module and not os.path.isfile(target):
        raise LintUsageError(f"{target}: no such script; to run a module say: asyncops run -m {target}")
    start = time.perf_counter()
    watch = Watch()
    with watch.open():
        failure = _run(target, arguments, module)
    outcomes = watch.check()
    if failure:
        outcomes = (*outcomes, Outcome(target, failure.location, failure=failure))
    return conclude(outcomes, settings, seconds=time.perf_counter() - start)


def _run(target: str, arguments: Sequence[str], module: bool) -> Failure | None:
    argv, path = sys.argv, list(sys.path)
    sys.argv = [target, *arguments]
    sys.path[0:0] = [os.getcwd() if module else os.path.dirname(os.path.abspath(target))]
    try:
        if module:
            runpy.run_module(target, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(target, run_name="__main__")
    except SystemExit as error:
        return _exit_failure(error)
    except BaseException as error:
        traceback.print_exception(type(error), error, _user_part(error.__traceback__))
        return Failure(f"ended with {type(error).__name__}: {error}", _place(error.__traceback__))
    finally:
        sys.argv, sys.path[:] = argv, path
    return None


def _exit_failure(error: SystemExit) -> Failure | None:
    if error.code in (None, 0):
        return None
    if isinstance(error.code, str):
        print(error.code, file=sys.stderr)
    return Failure(f"ended with exit status {error.code if isinstance(error.code, int) else 1}")


def _user_part(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without our frames and those of ``runpy`` at its beginning."""
    while trace and (trace.tb_frame.f_code.co_filename.startswith((*_OWN, "<frozen runpy>"))):
        trace = trace.tb_next
    return trace


def _place(trace: TracebackType | None) -> Location | None:
    user = _user_part(trace)
    return Location(user.tb_frame.f_code.co_filename, user.tb_lineno) if user else None
