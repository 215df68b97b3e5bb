"""The progress line: on a terminal only, and gone at the end."""

from __future__ import annotations

import io
import sys

import pytest

from asyncops.lint.discovery import Source
from asyncops.lint.linting import silent
from asyncops.lint.progress import progress_line


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_each_file_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with progress_line() as progress:
        progress(Source("kernels.py"), 1, 2)
        progress(Source("more.py"), 2, 2)
    assert "2/2" in terminal.getvalue()
    assert "more.py" in terminal.getvalue()
    assert terminal.getvalue().endswith("\x1b[2K")  # the line is erased


def test_it_is_silent_when_piped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", pipe := io.StringIO())
    with progress_line() as progress:
        assert progress is silent
        progress(Source("kernels.py"), 1, 1)
    assert pipe.getvalue() == ""
