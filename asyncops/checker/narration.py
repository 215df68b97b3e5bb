"""A schedule told in a few steps, in the user's terms: who starts what, what is waited for, what then goes wrong.

Everything up to the first copy that matters is one line; what does not fit in is left out from the middle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from asyncops.checker.events import Half, Point, Program, Signal, Start, Wait
from asyncops.checker.machine import Advance, Machine, Move, Step, half_of
from asyncops.checker.naming import Names
from asyncops.checker.outcomes import Claim, Outside, Overlap, Stuck, outcome_of
from asyncops.checker.races import Use

_MOST_LINES = 12
_MOST_STUCK = 6


def narrate(program: Program, steps: Sequence[Step], claim: Claim) -> list[str]:
    """The lines of a schedule, without numbers."""
    teller = _Teller(program, steps, claim)
    story, end = list(teller.story()), list(teller.end())
    return [*_shortened(story, teller.key_lines, _MOST_LINES - len(end)), *end]


def _shortened(story: list[str], key_lines: set[int], room: int) -> list[str]:
    """The first line, the key lines and as many of the last as there is room for."""
    lines = story
    tail = len(story)
    while len(lines) > room and tail > 0:
        tail -= 1
        lines = _with_gaps(story, {0, *key_lines, *range(len(story) - tail, len(story))})
    return lines


def _with_gaps(story: list[str], kept: set[int]) -> list[str]:
    lines: list[str] = []
    for before, n in pairwise([-1, *sorted(kept), len(story)]):
        missing = n - before - 1
        # Saying that one step is left out takes as much room as the step.
        lines += story[before + 1 : n] if missing == 1 else [f"... ({missing} more steps)"] * (missing > 1)
        lines += story[n : n + 1]
    return lines


class _Teller(Names):
    def __init__(self, program: Program, steps: Sequence[Step], claim: Claim) -> None:
        super().__init__(program)
        self.steps, self.claim = steps, claim
        self.at = [0] * len(program.cores)
        self.key_starts = {(point.core, point.index) for point in self._key_points()}
        self.key_lines: set[int] = set()

    def _key_points(self) -> Iterator[Point]:
        if isinstance(self.claim, Overlap):
            yield from (
                use.begin for use in (self.claim.race.first, self.claim.race.second) if use.copy is not None
            )
        elif isinstance(self.claim, Outside) and self.claim.point.half is not None:
            yield self.claim.point

    def story(self) -> Iterator[str]:
        """What happens, step by step."""
        if isinstance(self.claim, Stuck):
            stops = {step.core: step.stop for step in self.steps if isinstance(step, Advance)}
            events = sum(stops.values())
            yield f"every core runs as far as it can, every copy completes ({events} event{'s' * (events != 1)})"
            return
        for line, (text, is_key) in enumerate(self._lines(self._prelude_length())):
            if is_key:
                self.key_lines.add(line)
            yield text

    def _lines(self, number: int) -> Iterator[tuple[str, bool]]:
        """The lines, and whether each starts a copy that matters; the first ``number`` steps are told as one."""
        yield from ((text, False) for text in self._prelude(self.steps[:number]))
        for step in self.steps[number:]:
            if isinstance(step, Advance):
                yield from self._advance(step)
            elif isinstance(step, Move) and (step.half.half is Half.WRITE_DONE or self._matters(step)):
                yield self._move(step), False

    def _prelude_length(self) -> int:
        """How many steps come before the first copy that matters is started."""
        at = [0] * len(self.at)
        for number, step in enumerate(self.steps):
            if isinstance(step, Advance):
                if any(core == step.core and at[core] <= i < step.stop for core, i in self.key_starts):
                    return number
                at[step.core] = step.stop
        return 0

    def _prelude(self, steps: Sequence[Step]) -> Iterator[str]:
        for step in steps:
            if isinstance(step, Advance):
                self.at[step.core] = step.stop
        accused = {core for core, _ in self.key_starts}
        went = sorted((c for c, stop in enumerate(self.at) if stop), key=lambda c: (c not in accused, c))
        places = [self.place(c, self.at[c] - 1) for c in went]
        if len(went) > 2 and len(went) == len(self.at) and len(set(places)) == 1:
            yield f"all {len(went)} devices and cores run to {places[0]}"
        elif went:
            parts = [f"{self.core(c)} runs to {place}" for c, place in zip(went[:3], places)]
            more = len(went) - 3
            if more > 0:
                parts.append(f"{more} more {'core runs' if more == 1 else 'cores run'}, too")
            yield "; ".join(parts)

    def _advance(self, step: Advance) -> Iterator[tuple[str, bool]]:
        core, start = step.core, self.at[step.core]
        stops = sorted(i for c, i in self.key_starts if c == core and start <= i < step.stop)
        for index in stops:
            if index > start:
                yield self._stretch(core, start, index), False
            yield f"{self.core(core)} {self.told(core, index)}", True
            start = index + 1
        if start < step.stop:
            yield self._stretch(core, start, step.stop), False
        self.at[core] = step.stop

    def _stretch(self, core: int, start: int, stop: int) -> str:
        first, last = self.program.cores[core].events[start], self.program.cores[core].events[stop - 1]
        if isinstance(first, Wait):
            verb = (
                f"passes its wait for {first.amount} on {self.semaphore(first)} ({self.place(core, start)})"
            )
        elif stop - start == 1:
            return f"{self.core(core)} {self.told(core, start)}"
        else:
            verb = ""
        if stop - start == 1:
            return f"{self.core(core)} {verb}"
        onward = f"{self.doing(core, stop - 1)} " if isinstance(last, Signal) else ""
        runs = f"runs on to {self.place(core, stop - 1)}" + (f", where it {onward.strip()}" if onward else "")
        return f"{self.core(core)} {verb} and {runs}" if verb else f"{self.core(core)} {runs}"

    def _matters(self, step: Move) -> bool:
        return (step.half.core, step.half.index) in self.key_starts

    def _move(self, step: Move) -> str:
        core, index = step.half.core, step.half.index
        event = self.program.cores[core].events[index]
        assert isinstance(event, Start)
        name = self.whose_copy(core, index)
        if step.done:
            return f"{name} {'completes' if step.half.half is Half.WRITE_DONE else 'has read its source'}"
        semaphore, amount = half_of(event.copy, step.half.half)
        return f"{name} is under way: it has counted {step.count} of {amount} on {semaphore}"

    def end(self) -> Iterator[str]:
        """What is wrong in the state that the schedule leads to."""
        if isinstance(self.claim, Overlap):
            first, second = self.claim.race.first, self.claim.race.second
            if first.copy is None:
                first, second = second, first
            yield f"{self._using(second)} while {self._still(first)}"
        elif isinstance(self.claim, Outside):
            yield self._outside(self.claim)
        else:
            yield from self._stuck()

    def _using(self, use: Use) -> str:
        if use.copy is None:
            return f"{self.core(use.begin.core)} {self.told(*_place(use))}"
        return self._still(use)

    def _still(self, use: Use) -> str:
        if use.copy is None:
            return self._using(use)
        what = "writing its destination" if use.end.half is Half.WRITE_DONE else "reading its source"
        started = f" (started {self.by(*_place(use))})" if self.copy_name(*_place(use)) else ""
        return f"{self.copy(*_place(use))}{started} may still be {what}"

    def _outside(self, claim: Outside) -> str:
        point, mark = claim.point, claim.mark
        if point.half is None:
            where = point.core, point.index
            deed = f"{self.core(point.core)} {self.told(*where)}"
        else:
            verb = "writes its destination" if point.half is Half.WRITE_DONE else "reads its source"
            deed = f"{self.whose_copy(point.core, point.index)} {verb}"
        when = f"before {self.core(mark.core)}" if claim.early else f"after {self.core(mark.core)}"
        return f"{deed} {when} {self.told(mark.core, mark.index)}"

    def _stuck(self) -> Iterator[str]:
        machine = Machine(self.program)
        for step in self.steps:
            machine.take(step)
        stuck = outcome_of(self.program, machine.at, machine.counts).stuck
        for wait in stuck[:_MOST_STUCK]:
            core, index = wait.point.core, wait.point.index
            if wait.semaphore is None:
                yield f"{self.core(core)} waits at a barrier that not every core reaches ({self.place(core, index)})"
                continue
            yield (
                f"{self.core(core)} {self.told(core, index)} for ever: "
                f"{wait.count} there, of {wait.signalled} ever signalled"
            )
        if len(stuck) > _MOST_STUCK:
            yield f"{len(stuck) - _MOST_STUCK} more cores are stuck likewise"


def _place(use: Use) -> tuple[int, int]:
    return use.begin.core, use.begin.index
