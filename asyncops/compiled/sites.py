"""Where instructions stand in the user's Python."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from asyncops.checker.events import Location
from asyncops.compiled.facts import ScopePath
from asyncops.compiled.frames import Frame
from asyncops.compiled.hlo import Computation, Instruction, Module

_MAX_STEPS = 50

Call = tuple[int, str, str]
"""One call of a function: the frame that calls it, its file and its name."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """The frames in which one call of one function reaches two instructions."""

    first: Frame
    second: Frame


@dataclass
class Sites:
    """Stack frames of a module's instructions, also of those that the compiler made without any."""

    module: Module
    _chains: dict[Instruction, tuple[Frame, ...]] = field(default_factory=dict)

    @cached_property
    def _homes(self) -> dict[Instruction, Computation]:
        return {i: c for c in self.module.computations.values() for i in c.instructions}

    @cached_property
    def _callers(self) -> dict[str, Instruction]:
        """An instruction that calls a computation, by the computation's name."""
        return {name: i for i in self.module.instructions() for name in i.callees}

    def home(self, instruction: Instruction) -> Computation | None:
        """The computation that an instruction belongs to."""
        return self._homes.get(instruction)

    def caller(self, instruction: Instruction) -> Instruction | None:
        """An instruction that calls the computation which an instruction belongs to."""
        home = self._homes.get(instruction)
        return self._callers.get(home.name) if home is not None else None

    def own_chain(self, instruction: Instruction) -> tuple[Frame, ...]:
        """The frames recorded with the instruction, innermost first."""
        if instruction.frame:
            return self.module.frames.chain(instruction.frame)
        if instruction.source_line is not None:
            file, line = instruction.source_line
            return (Frame(0, Location(file, line), 0, line),)
        return ()

    def chain(self, instruction: Instruction, path: ScopePath = ()) -> tuple[Frame, ...]:
        """The frames of an instruction; of one without, those of its operand, user or loop, in this order.

        ``path``: the calls around it. In a program that is not compiled yet, a called computation's frames
        end at the call.
        """
        frames = self._chains.get(instruction)
        if frames is None:
            frames = self._chains[instruction] = self.own_chain(instruction) or self._borrowed(instruction)
        for scope in reversed(path):
            if scope.kind == "call":
                frames = (*frames, *self.own_chain(scope.instruction))
        return frames

    def _borrowed(self, instruction: Instruction) -> tuple[Frame, ...]:
        home = self._homes.get(instruction)
        if home is None:
            return ()
        return (
            self._from_operands(instruction, home)
            or self._from_users(instruction, home)
            or self._from_caller(home, 0)
        )

    def _from_operands(self, instruction: Instruction, home: Computation) -> tuple[Frame, ...]:
        for _ in range(_MAX_STEPS):
            operand = home.by_name.get(instruction.operands[0]) if instruction.operands else None
            if operand is None or operand.opcode == "parameter":
                return ()
            if frames := self.own_chain(operand):
                return frames
            instruction = operand
        return ()

    def _from_users(self, instruction: Instruction, home: Computation) -> tuple[Frame, ...]:
        for _ in range(_MAX_STEPS):
            users = home.users.get(instruction.name, ())
            if not users:
                return ()
            for user in users:
                if frames := self.own_chain(user):
                    return frames
            instruction = users[0]
        return ()

    def _from_caller(self, home: Computation, depth: int) -> tuple[Frame, ...]:
        caller = self._callers.get(home.name)
        if caller is None or depth > _MAX_STEPS:
            return ()
        return self.own_chain(caller) or self._from_caller(self._homes[caller], depth + 1)

    def innermost(self, instruction: Instruction) -> Location | None:
        """The user's line that an instruction comes from."""
        frames = self.chain(instruction)
        return frames[0].location if frames else None

    def towards(self, instruction: Instruction, other: Instruction) -> Location | None:
        """The line of ``instruction`` in the function that reaches both: a helper's call, not its inside."""
        met = self.meeting(instruction, other)
        return met.first.location if met is not None else self.innermost(instruction)

    def meeting(self, first: Instruction, second: Instruction) -> Meeting | None:
        """The innermost frames of both that belong to the same call of the same function."""
        return meeting(self.chain(first), self.chain(second))


def meeting(first: tuple[Frame, ...], second: tuple[Frame, ...]) -> Meeting | None:
    """As `Sites.meeting`, of two chains."""
    by_call = {call_of(frame): frame for frame in reversed(second)}
    for frame in first:
        if call_of(frame) in by_call:
            return Meeting(frame, by_call[call_of(frame)])
    return None


def call_of(frame: Frame) -> Call:
    """Which call of which function a frame belongs to."""
    return (frame.caller, frame.location.file, frame.location.function)
