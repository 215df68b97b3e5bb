"""The part of the pytest plugin that works: records while tests run, checks after each phase of a test."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from asyncops.lint.configuration import find_configuration
from asyncops.lint.formats.registry import Page, render
from asyncops.lint.linting import Settings, conclude
from asyncops.lint.results import LintResult
from asyncops.lint.watching import Watch

_SECTION = "asyncops"


class KernelWatch:
    """Checks what is traced in the setup, call and teardown of each test.

    A kernel is checked once per process, for the first test that traces it: JAX's caches trace it once.
    """

    def __init__(self, action: str, config: pytest.Config) -> None:
        self._config = config
        self._fails = action == "fail"
        self._watch = Watch()
        self._open = contextlib.ExitStack()
        configuration = find_configuration(Path(config.rootpath))
        self._settings = Settings(configuration.selection, root=str(configuration.root))

    # After collection, so that the tests' own set-up of JAX's environment has been executed.
    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> None:
        """Starts recording, unless this is xdist's controller, which runs no test itself."""
        if self._config.pluginmanager.has_plugin("dsession"):
            return
        self._open.enter_context(self._watch.open())

    def pytest_unconfigure(self) -> None:
        """Stops recording."""
        self._open.close()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Adds the findings of the phase that has just ended to its report."""
        report = yield
        result = conclude(self._watch.check(), self._settings)
        if result.live or result.unknowns:
            self._add(report, result)
        return report

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Lists the tests with findings; the reports carry them here from xdist's workers, too."""
        lines = [
            f"{report.nodeid}: {line}"
            for reports in terminalreporter.stats.values()
            for report in reports
            for line in getattr(report, "asyncops_lines", ())
        ]
        if lines:
            terminalreporter.section("asyncops: findings in kernels")
            for line in dict.fromkeys(lines):
                terminalreporter.line(line)

    def _add(self, report: pytest.TestReport, result: LintResult) -> None:
        text = render("text", result, Page())
        # xdist sends a report's attributes to the controller if they are plain data.
        report.__dict__["asyncops_lines"] = render("concise", result, Page()).splitlines()[:-1]
        if result.verdict == "findings" and self._fails and report.passed:
            report.outcome = "failed"
            report.longrepr = text
        else:
            report.sections.append((_SECTION, text))
