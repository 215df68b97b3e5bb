"""``[tool.asyncops]`` in ``pyproject.toml``."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from asyncops.checker.report import SEVERITIES
from asyncops.lint.examples import Argument, Example, parse_argument
from asyncops.lint.rulebook import matching_codes
from asyncops.lint.selection import Selection
from stateful.errors import LintUsageError

T = TypeVar("T")
_KEYS = (
    "baseline", "chip", "compile", "examples", "ignore", "mesh", "per-file-ignores", "select", "severity", "strict",
    "targets",
)  # fmt: skip


@dataclass(frozen=True)
class Configuration:
    """What the file says; ``root`` is its folder, and paths and patterns in it are relative to that."""

    selection: Selection
    root: Path
    targets: tuple[str, ...] = ()
    baseline: Path | None = None
    strict: bool = False
    chip: str | None = None
    topologies: tuple[str, ...] = ()
    examples: tuple[Example, ...] = ()


def find_configuration(folder: Path) -> Configuration:
    """From the nearest ``pyproject.toml`` at or above ``folder`` that has the table, else the defaults."""
    for parent in (folder, *folder.parents):
        file = parent / "pyproject.toml"
        if file.is_file() and _table(file) is not None:
            return read_configuration(file)
    return default_configuration(folder)


def default_configuration(folder: Path) -> Configuration:
    """What holds without a file."""
    return Configuration(Selection(root=str(folder)), folder)


def read_configuration(file: Path) -> Configuration:
    """The configuration in ``file``; unknown keys and wrong values are refused, with what is allowed."""
    reader = _Reader(file, _table(file) or {})
    reader.refuse_unknown_keys(_KEYS)
    root = file.resolve().parent
    selection = Selection(
        select=reader.selectors("select") or ("ALL",),
        ignore=reader.selectors("ignore"),
        per_file_ignores=reader.per_file_ignores(),
        severity=reader.severities(),
        root=str(root),
    )
    baseline = reader.value("baseline", str, "a path")
    return Configuration(
        selection,
        root,
        tuple(_anchored(t, root) for t in reader.strings("targets")),
        root / baseline if baseline else None,
        reader.value("strict", bool, "true or false") or False,
        reader.value("chip", str, 'a chip such as "v5e"'),
        reader.strings("compile"),
        tuple(reader.examples(root)),
    )


def _table(file: Path) -> Mapping[str, Any] | None:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LintUsageError(f"{file}: {error}") from None
    table = document.get("tool", {}).get("asyncops")
    if table is not None and not isinstance(table, dict):
        raise LintUsageError(f"{file}: [tool.asyncops] must be a table")
    return cast("Mapping[str, Any] | None", table)


def _anchored(target: str, root: Path) -> str:
    """A path in the file is relative to it; a module name stays as it is."""
    path = root / target.partition(":")[0]
    return str(root / target) if path.exists() else target


class _Reader:
    """Typed access to the table; every complaint names the file, the key, and what may stand there."""

    def __init__(self, file: Path, table: Mapping[str, Any]) -> None:
        self.file = file
        self.table = table

    def refuse_unknown_keys(self, known: Iterable[str]) -> None:
        """Complains about the first key that is not ``known``."""
        allowed = sorted(known)
        for key in self.table:
            if key not in allowed:
                close = difflib.get_close_matches(key, allowed, n=1)
                hint = f" (did you mean {close[0]!r}?)" if close else ""
                raise self.error(key, f"is not a key{hint}; known: {', '.join(allowed)}")

    def value(self, key: str, kind: type[T], what: str) -> T | None:
        """A value of one type; None if the key is missing."""
        value = self.table.get(key)
        if value is not None and not isinstance(value, kind):
            raise self.error(key, f"must be {what}, not {value!r}")
        return value

    def strings(self, key: str) -> tuple[str, ...]:
        """A list of strings; empty if the key is missing."""
        return self._strings(key, self.table.get(key, []))

    def selectors(self, key: str) -> tuple[str, ...]:
        """A list of rule selectors that each match a rule."""
        return self._selectors(key, self.table.get(key, []))

    def per_file_ignores(self) -> dict[str, tuple[str, ...]]:
        """Pattern to selectors."""
        key = "per-file-ignores"
        table = self._subtable(key)
        return {pattern: self._selectors(f"{key}.{pattern}", names) for pattern, names in table.items()}

    def severities(self) -> dict[str, str]:
        """Selector to severity."""
        table = self._subtable("severity")
        for selector, severity in table.items():
            self._selectors("severity", [selector])
            if severity not in SEVERITIES:
                raise self.error(
                    f"severity.{selector}", f"must be one of {', '.join(SEVERITIES)}, not {severity!r}"
                )
        return dict(table)

    def mesh(self, key: str, table: object) -> tuple[tuple[str, int], ...]:
        """Axis names and sizes."""
        pairs = list(cast("dict[str, Any]", table).items()) if isinstance(table, dict) else [("", 0)]
        if any(not isinstance(size, int) or isinstance(size, bool) or size < 1 for _, size in pairs):
            raise self.error(key, f"must be axes and sizes such as {{ x = 4 }}, not {table!r}")
        return tuple(pairs)

    def examples(self, root: Path) -> Iterator[Example]:
        """The functions with example arguments: a list of them, or a table with ``args`` and ``mesh``."""
        default = self.mesh("mesh", self.table.get("mesh", {}))
        for name, entry in self._subtable("examples").items():
            key = f"examples.{name}"
            file, _, function = name.rpartition(":")
            if not (root / file).is_file():
                raise self.error(
                    key, f'must name a file and a function in it such as "a.py:f"; no file {root / file}'
                )
            table = cast("dict[str, Any]", entry if isinstance(entry, dict) else {"args": entry})
            if not {"args"} <= set(table) <= {"args", "mesh"}:
                raise self.error(key, 'must be a list of arguments, or a table of "args" and "mesh"')
            mesh = self.mesh(f"{key}.mesh", table["mesh"]) if "mesh" in table else default
            yield Example(str(root / file), function, self._arguments(key, table["args"]), mesh)

    def _arguments(self, key: str, value: object) -> tuple[Argument, ...]:
        try:
            return tuple(map(parse_argument, self._strings(key, value)))
        except LintUsageError as error:
            raise self.error(key, f"holds an argument that cannot be: {error}") from None

    def error(self, key: str, problem: str) -> LintUsageError:
        """The complaint about a key."""
        return LintUsageError(f"{self.file}: [tool.asyncops] {key} {problem}")

    def _subtable(self, key: str) -> Mapping[str, Any]:
        table = self.table.get(key, {})
        if not isinstance(table, dict):
            raise self.error(key, "must be a table")
        return cast("Mapping[str, Any]", table)

    def _selectors(self, key: str, value: object) -> tuple[str, ...]:
        names = self._strings(key, value)
        for name in names:
            try:
                matching_codes(name)
            except LintUsageError as error:
                raise self.error(key, f"names {name!r}: {error}") from None
        return names

    def _strings(self, key: str, value: object) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(v, str) for v in cast("list[Any]", value)):
            raise self.error(key, f'must be a list of strings, such as ["AO201"], not {value!r}')
        return tuple(cast("list[str]", value))
