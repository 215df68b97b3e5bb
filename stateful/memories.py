"""Names for memory, in the user's words."""

from __future__ import annotations

import linecache
import re
from dataclasses import dataclass

from stateful.types import RefType


@dataclass(frozen=True, eq=False, slots=True)
class Memory:
    """One piece of memory, known by identity; ``name`` is the user's, ``kind`` says where it is from."""

    name: str
    kind: str
    type: RefType

    def __str__(self) -> str:
        return self.name


_ASSIGNMENT = re.compile(r"^\s*\(?\s*([A-Za-z_]\w*(?:\s*,\s*[A-Za-z_]\w*)*)\s*\)?\s*(?::[^=]*)?=(?!=)")


class Namer:
    """Gives each name once; a second memory or symbol of that name gets a number."""

    def __init__(self) -> None:
        self._given: dict[str, int] = {}
        self._lines: dict[tuple[str, int], int] = {}

    def unique(self, name: str) -> str:
        """``name`` itself the first time, ``name'2`` the second."""
        count = self._given[name] = self._given.get(name, 0) + 1
        return name if count == 1 else f"{name}'{count}"

    def assigned(self, location: tuple[str, int, str] | None) -> str | None:
        """The variable that the line at ``location`` assigns to; with several, the next one at each call."""
        if location is None:
            return None
        line = linecache.getline(location[0], location[1])
        found = [m[1] for m in map(_ASSIGNMENT.match, line.split(";")) if m]
        targets = [name.strip() for names in found for name in names.split(",")]
        if not targets:
            return None
        turn = self._lines[location[:2]] = self._lines.get(location[:2], -1) + 1
        return targets[turn % len(targets)]
