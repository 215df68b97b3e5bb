"""Which instructions of a compiled program need the results of which others, and how the two lie to each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from asyncops.compiled.hlo import Computation, Instruction
from asyncops.compiled.sites import Sites


@dataclass
class Dependences:
    """What instructions are computed from, within one run of a computation.

    What an iteration hands to the next is left out: of a loop's body, each iteration is looked at alone.
    """

    sites: Sites
    _behind: dict[Instruction, frozenset[Instruction]] = field(default_factory=dict)

    def could_run_between(
        self, part: Instruction, whole: Instruction, start: Instruction, done: Instruction
    ) -> bool:
        """Whether ``whole``, an instruction that ran, is one that could run after this start and before this done.

        It is beside them or in something beside them, needs nothing that the done gives, and the start needs nothing
        that it gives. ``part`` is ``whole``, or what was fused into it: only its own operands count. Of a loop's
        iterations, unrolled, these are the ones that the work does not belong to.
        """
        home = self._common(start, done)
        beside = self._lifted(whole, home)
        first, last = self._lifted(start, home), self._lifted(done, home)
        if home is None or beside is None or first is None or last is None:
            return False
        return last not in self._needed_by(part, home) and not self._gives(beside, first)

    def is_beside(self, whole: Instruction, start: Instruction, done: Instruction) -> bool:
        """Whether ``whole`` is in the innermost computation that start and done are in, or in what that one calls."""
        return self._lifted(whole, self._common(start, done)) is not None

    def _gives(self, instruction: Instruction, to: Instruction) -> bool:
        """Whether ``to`` needs ``instruction``; of one with several results it is not told which."""
        return not instruction.shape_text.startswith("(") and instruction in self._all_behind(to)

    def _common(self, one: Instruction, other: Instruction) -> Computation | None:
        """The innermost computation from which both are reached."""
        homes = [self.sites.home(i) for i in self._outwards(other)]
        return next((h for h in map(self.sites.home, self._outwards(one)) if h in homes), None)

    def _lifted(self, instruction: Instruction, home: Computation | None) -> Instruction | None:
        """The instruction of ``home`` that is, or calls, ``instruction``; None where there is none."""
        return next((i for i in self._outwards(instruction) if self.sites.home(i) is home), None)

    def _outwards(self, instruction: Instruction | None) -> Iterator[Instruction]:
        """The instruction, then the one that calls its computation, and so on; no computation twice."""
        seen = set()
        while instruction is not None and instruction not in seen:
            seen.add(instruction)
            yield instruction
            instruction = self.sites.caller(instruction)

    def _needed_by(self, part: Instruction, home: Computation) -> frozenset[Instruction]:
        """The instructions of ``home`` that ``part``, which may be fused into one of them, is computed from."""
        needed: Iterable[Instruction] = [part]
        for inner in self._outwards(part):
            needed = frozenset().union(*(self._all_behind(i) for i in needed))
            if self.sites.home(inner) is home:
                return needed
            caller = self.sites.caller(inner)
            needed = list(self._arguments(needed, caller)) if caller is not None else []
        return frozenset()

    def _arguments(self, needed: Iterable[Instruction], caller: Instruction) -> Iterator[Instruction]:
        """What the caller gives for the parameters among ``needed``; of a loop or branch, all that it is given."""
        for parameter in needed:
            if parameter.opcode == "parameter":
                exact = caller.opcode == "fusion" and 0 <= parameter.index < len(caller.operands)
                names = (caller.operands[parameter.index],) if exact else caller.operands
                yield from self._named(names, caller)

    def _named(self, names: Iterable[str], beside: Instruction) -> Iterator[Instruction]:
        home = self.sites.home(beside)
        found = (home.by_name.get(name) for name in names) if home is not None else ()
        return (i for i in found if i is not None)

    def _all_behind(self, instruction: Instruction) -> frozenset[Instruction]:
        """The instruction, and all of its own computation that it is computed from."""
        if instruction not in self._behind:
            found, waiting = {instruction}, [instruction]
            while waiting:
                latest = waiting.pop()
                new = [i for i in self._named(latest.operands, latest) if i not in found]
                found.update(new)
                waiting += new
            self._behind[instruction] = frozenset(found)
        return self._behind[instruction]
