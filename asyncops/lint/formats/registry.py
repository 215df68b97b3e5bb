"""The output formats by name."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Protocol, cast

from asyncops.lint.results import LintResult

FORMATS = ("text", "concise", "json", "sarif", "github", "junit", "html")


@dataclass(frozen=True)
class Page:
    """What the output is written on: whether it shows colours, and how wide it is."""

    color: bool = False
    width: int = 100
    statistics: bool = False


class Format(Protocol):
    """A format is a module with this function; it reads the result and nothing else but source lines."""

    def render(self, result: LintResult, page: Page) -> str:
        """The whole output as text."""
        ...


def render(name: str, result: LintResult, page: Page) -> str:
    """The result in format ``name``; ends with a line end unless empty. Imports that format only."""
    module = cast("Format", importlib.import_module(f"asyncops.lint.formats.{name}"))
    return module.render(result, page)
