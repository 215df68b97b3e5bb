"""The user's line that started or finished an operation."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from types import FrameType

_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep
_MACHINERY = (os.sep + "jax" + os.sep, os.sep + "contextlib.py", os.sep + "functools.py", "<frozen ")


@dataclass(frozen=True, eq=False)
class Origin:
    """A source line. All origins are equal: two programs that differ only in their lines are the same program."""

    file: str
    line: int
    function: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Origin)

    def __hash__(self) -> int:
        return 0

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.line} ({self.function})"

    __repr__ = __str__


def _is_machinery(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    return name.startswith(_OWN) or any(part in name for part in _MACHINERY)


def here() -> Origin:
    """The innermost line of the caller's that is neither this package's nor JAX's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_machinery(frame):
        frame = frame.f_back
    if frame is None:
        return Origin("<unknown>", 0, "<unknown>")
    return Origin(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


# Of an operation that no line of the user's asks for.
NOWHERE = Origin("<asyncops>", 0, "moved by program_order")
