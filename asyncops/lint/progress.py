"""A progress line on the terminal for long checks; silent when stderr is piped."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator

from asyncops.lint.discovery import Source
from asyncops.lint.linting import Progress, silent
from asyncops.lint.paths import shown


@contextlib.contextmanager
def progress_line() -> Generator[Progress]:
    """A function to call after each source; the line disappears at the end."""
    if not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as display:
        task = display.add_task("checking", total=None)

        def advance(source: Source, done: int, total: int) -> None:
            display.update(task, completed=done, total=total, description=shown(source.file))

        yield advance
