"""What may be wrong with the use of an operation, as a value: raised under ``program_order``, listed by ``check``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stateful.errors import FutureError

Line = tuple[str, int, str]  # file, line, function


@dataclass(frozen=True)
class Place:
    """A line of the user's in a message.

    Args:
        label: what happens there, as in "started at".
        line: None where it is not known.
    """

    label: str
    line: Line | None = None

    def __str__(self) -> str:
        return self.label if self.line is None else f"{self.label} {shown(self.line)}"


@dataclass(frozen=True)
class Problem:
    """A future that is not consumed exactly once, or what is touched or moved while an operation uses it.

    Args:
        code: of the checker's rule.
        error: the exception for it.
        message: names the lines.
        line: the user's line that is to blame.
        related: other lines.
        cure: what would help.
    """

    code: str
    error: type[FutureError]
    message: str
    line: Line | None
    related: tuple[Place, ...] = ()
    cure: str = ""

    def refuse(self) -> None:
        """Raises `error`."""
        raise self.error(self.message)


Report = Callable[[Problem], None]


def shown(line: Line | None) -> str:
    """A line for messages."""
    if line is None:
        return "an unknown line"
    file, number, function = line
    return f"{file.rsplit('/', 1)[-1]}:{number} ({function})"
