"""``asyncops.config``: settings of a whole process, changed as those of ``jax.config`` are."""

from __future__ import annotations

import atexit
import contextlib
import sys
import warnings
from typing import Any, Literal

from asyncops.lint.formats.registry import Page, render
from asyncops.lint.linting import Settings, conclude
from asyncops.lint.results import Outcome
from asyncops.lint.watching import FindingsWarning, Watch
from stateful.errors import InvalidArgumentError

_VALUES = {"check_kernels": ("off", "warn")}


class Config:
    """The settings of this process, for notebooks and services.

    ``check_kernels``: with "warn", every kernel that is traced from then on is checked once, and findings are warned of
    (:class:`FindingsWarning`): in a notebook after the cell, elsewhere when the next program has been traced, and at
    the end. "off" by default, and then without any cost::

        asyncops.config.update("check_kernels", "warn")
    """

    def __init__(self) -> None:
        self._values: dict[str, str] = {name: allowed[0] for name, allowed in _VALUES.items()}
        self._watcher: _Watcher | None = None

    def update(self, name: str, value: str) -> None:
        """Sets a setting.

        Raises:
          InvalidArgumentError: there is no setting of the name, or it has no such value.
        """
        if name not in _VALUES:
            raise InvalidArgumentError(f"config: {name!r} is no setting; there is {', '.join(_VALUES)}")
        if value not in _VALUES[name]:
            allowed = " or ".join(map(repr, _VALUES[name]))
            raise InvalidArgumentError(f"config: {name} is {allowed}, not {value!r}")
        self._values[name] = value
        self._watch(value != "off")

    @property
    def check_kernels(self) -> Literal["off", "warn"]:
        """Whether kernels are checked as they are traced."""
        return "warn" if self._values["check_kernels"] == "warn" else "off"

    def _watch(self, wanted: bool) -> None:
        if wanted and self._watcher is None:
            self._watcher = _Watcher()
        elif not wanted and self._watcher is not None:
            self._watcher.close()
            self._watcher = None


class _Watcher:
    """Watches until it is closed, and warns of what it finds."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._watch = self._stack.enter_context(Watch(on_settled=self._warn).open())
        atexit.register(self.check)
        self._stack.callback(atexit.unregister, self.check)
        events = _cell_events()
        if events is not None:
            events.register("post_run_cell", self.check)
            self._stack.callback(events.unregister, "post_run_cell", self.check)

    def check(self, *_: object) -> None:
        """Checks what was traced since the last time."""
        self._warn(self._watch.check())

    def close(self) -> None:
        """Checks what is left, and stops."""
        self.check()
        self._stack.close()

    def _warn(self, outcomes: tuple[Outcome, ...]) -> None:
        result = conclude(outcomes, Settings())
        if result.verdict == "findings":
            # The line that is to blame stands in the text.
            warnings.warn(f"\n{render('text', result, Page())}", FindingsWarning, stacklevel=3)


def _cell_events() -> Any:
    """Where a notebook tells that a cell has been run; None elsewhere."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "events", None)


config = Config()
"""The settings of this process."""
