"""From an HLO module's stack-frame tables to lines of Python."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property

from asyncops.checker.events import Location

_HERE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Frames of these are not the user's: where the user called them, the frame outside is.
_LIBRARIES = tuple(os.path.join(_HERE, package) + os.sep for package in ("asyncops", "stateful"))
_PACKAGES = ("asyncops/", "stateful/")  # as they are named in a dump whose paths are relative
_INSTALLED = tuple(f"/site-packages/{package}/" for package in ("asyncops", "stateful", "jax", "jaxlib"))
_MAX_FRAMES = 200


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a Python stack: ``id`` names it in the module, ``caller`` the frame that called it, or 0.

    Two instructions came from the same call of a function exactly when their frames have the same ``caller``.
    """

    id: int
    location: Location
    caller: int
    end_line: int


@dataclass
class Frames:
    """The tables FileNames, FunctionNames, FileLocations and StackFrames of a module, by id."""

    files: dict[int, str] = field(default_factory=dict)
    functions: dict[int, str] = field(default_factory=dict)
    places: dict[int, dict[str, int]] = field(default_factory=dict)
    stack: dict[int, dict[str, int]] = field(default_factory=dict)
    _chains: dict[int, tuple[Frame, ...]] = field(default_factory=dict)

    @cached_property
    def _shift(self) -> int:
        """XLA numbers frames from 1, but some versions print a caller's number plus one (then 1 is "none").

        No frame calls itself, so a frame that seems to tells which version it is.
        """
        return 1 if any(s.get("parent_frame_id") == number for number, s in self.stack.items()) else 0

    def chain(self, frame: int) -> tuple[Frame, ...]:
        """The user's frames from ``frame`` outwards, innermost first; empty where nothing is recorded."""
        if frame not in self._chains:
            self._chains[frame] = tuple(f for f in self._walk(frame) if not _is_library(f.location.file))
        return self._chains[frame]

    def _walk(self, number: int) -> list[Frame]:
        frames: list[Frame] = []
        while number in self.stack and len(frames) < _MAX_FRAMES:
            record = self.stack[number]
            caller = record.get("parent_frame_id", 0) - self._shift
            frames.append(self._frame(number, caller, self.places.get(record.get("file_location_id", 0), {})))
            number = caller
        return [f for f in frames if f.location.line > 0]

    def _frame(self, number: int, caller: int, place: dict[str, int]) -> Frame:
        line = place.get("line", 0)
        location = Location(
            file=self.files.get(place.get("file_name_id", 0), "?"),
            line=line,
            function=self.functions.get(place.get("function_name_id", 0), ""),
            column=place.get("column"),
            end_column=place.get("end_column"),
        )
        return Frame(number, location, caller, max(line, place.get("end_line", line)))


def _is_library(path: str) -> bool:
    return path.startswith((*_LIBRARIES, *_PACKAGES)) or any(part in path for part in _INSTALLED)
