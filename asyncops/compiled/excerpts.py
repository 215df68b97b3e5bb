"""Witnesses of findings on compiled programs: the few steps of the schedule that show them."""

from __future__ import annotations

from dataclasses import dataclass

from asyncops.checker.events import Location
from asyncops.compiled.following import follow
from asyncops.compiled.hlo import Instruction, Module
from asyncops.compiled.windows import ran


@dataclass(frozen=True, slots=True)
class Step:
    """An instruction of the schedule, and what it does, as in "starts the copy"."""

    instruction: Instruction
    does: str
    line: Location | None = None


@dataclass(frozen=True, slots=True)
class Replayed:
    """Whether running a witness again met its steps in their order."""

    reproduced: bool


@dataclass(frozen=True, eq=False)
class Excerpt:
    """Steps of a schedule, in the order in which they run; ``str()`` numbers them."""

    module: Module
    steps: tuple[Step, ...]

    def replay(self) -> Replayed:
        """Follows the schedule again."""
        runs = iter(ran(follow(self.module).log))
        return Replayed(all(any(run is step.instruction for run in runs) for step in self.steps))

    def __str__(self) -> str:
        lines = (f"{n}. {s.instruction} {s.does}{_at(s.line)}" for n, s in enumerate(self.steps, 1))
        return "\n".join(lines)


def _at(line: Location | None) -> str:
    return f" ({line})" if line is not None else ""
