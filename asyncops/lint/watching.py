"""Checks the kernels of a program that runs: every program that JAX traces while it is watched."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Generator, Sequence
from typing import Any, Literal

import asyncops
from asyncops.checker.events import Location
from asyncops.checker.report import Report
from asyncops.lint.checks import outcome_of
from asyncops.lint.formats.registry import Page, render
from asyncops.lint.linting import Settings, conclude
from asyncops.lint.paths import shown
from asyncops.lint.results import LintResult, Outcome
from stateful._jax.tracing import TracedProgram, muted, record_programs
from stateful.errors import FindingsError, InvalidArgumentError

_ACTIONS = ("raise", "warn", "collect")


class FindingsWarning(UserWarning):
    """Kernels that were checked on the way have findings: see ``asyncops.checking(on_finding="warn")``."""


class Watch:
    """Collects the programs traced while it is open, and checks each once.

    Args:
      on_settled: given what comes of the programs that turn out to be no part of a later one, as soon as that is known.
        Without it they wait for :meth:`check`.
    """

    def __init__(self, on_settled: Callable[[tuple[Outcome, ...]], None] | None = None) -> None:
        self._on_settled = on_settled
        self._waiting: list[TracedProgram] = []
        self._seen: set[int] = set()
        # Keeps what was seen alive: an identity is only good as long as its object lives.
        self._kept: list[Any] = []

    @contextlib.contextmanager
    def open(self) -> Generator[Watch]:
        """Records inside."""
        with record_programs(self._record):
            yield self

    def check(self) -> tuple[Outcome, ...]:
        """Checks what was recorded since the last call."""
        waiting, self._waiting = self._waiting, []
        with muted():
            return tuple(map(_checked, outermost(waiting)))

    def _record(self, program: TracedProgram) -> None:
        if id(program.jaxpr) not in self._seen:
            self._seen.add(id(program.jaxpr))
            self._kept.append(program.jaxpr)
            self._waiting.append(program)
            if self._on_settled is not None:
                *earlier, _ = outermost(self._waiting)
                self._waiting = [program]
                with muted():
                    self._on_settled(tuple(map(_checked, earlier)))


def outermost(programs: Sequence[TracedProgram]) -> list[TracedProgram]:
    """The programs less those that are part of a later one: a loop's body is traced before the loop."""
    covered: set[int] = set()
    left: list[TracedProgram] = []
    for program in reversed(programs):
        kernels = set(map(id, program.kernels))
        if not kernels <= covered:
            left.append(program)
        covered |= kernels
    return left[::-1]


class checking(contextlib.ContextDecorator):
    """Checks every kernel that is traced inside a ``with`` block or a decorated function.

    The kernels run as ever; the checks follow at the end of the block. A function that JAX has traced before
    is not traced again, so open the block before the first call::

        with asyncops.checking():
            train_step(state, batch)

    Args:
      on_finding: "raise" a :class:`stateful.errors.FindingsError` at the end of the block (unless the block
        raised something), "warn", or "collect": look at ``result`` yourself.
    """

    def __init__(self, *, on_finding: Literal["raise", "warn", "collect"] = "raise") -> None:
        if on_finding not in _ACTIONS:
            raise InvalidArgumentError(f"checking: on_finding must be one of {_ACTIONS}, not {on_finding!r}")
        self.on_finding: Literal["raise", "warn", "collect"] = on_finding
        self.result = LintResult()
        self._stack = contextlib.ExitStack()
        self._watch = Watch()

    def _recreate_cm(self) -> checking:
        # contextlib's hook for decorators: each call of the function is a block of its own.
        return type(self)(on_finding=self.on_finding)

    def __enter__(self) -> checking:
        self._stack.enter_context(self._watch.open())
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._stack.close()
        self.result = conclude(self._watch.check(), Settings())
        if self.result.verdict != "findings" or self.on_finding == "collect":
            return
        text = f"\n{render('text', self.result, Page())}"
        if self.on_finding == "warn":
            warnings.warn(text, FindingsWarning, stacklevel=2)
        elif error is None:
            raise FindingsError(text)


def _checked(program: TracedProgram) -> Outcome:
    place = Location(*program.location) if program.location else None
    outcome = outcome_of(_name(program, place), place, lambda: asyncops.check(program.fn, *program.args))
    if outcome.failure is None:
        return outcome
    # The user's program has been traced, so it is not the user's mistake that it cannot be checked.
    report = Report(unknowns=(f"{outcome.target}: {outcome.failure.message}",))
    return Outcome.of_report(outcome.target, place, report, outcome.seconds)


def _name(program: TracedProgram, place: Location | None) -> str:
    shapes = ", ".join(f"{a.dtype}[{','.join(map(str, a.shape))}]" for a in program.args)
    file = f"{shown(place.file)}:" if place else ""
    return f"{file}{place.function if place else program.name}({shapes})"
