"""Schedules as values: searching for one that shows a defect, and running it again.

``find_*`` look for a schedule in which an overlap, a stuck state or a touch outside a lifetime really happens;
``Schedule.replay`` runs it on the strict machine and says whether it does. ``str(schedule)`` tells it in a few steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from asyncops.checker.events import Mark, Point, Program
from asyncops.checker.machine import Machine, Settle, Step
from asyncops.checker.narration import narrate
from asyncops.checker.outcomes import Claim, Outcome, Outside, Overlap, Stuck, StuckWait, is_shown, outcome_of
from asyncops.checker.pictures.timelines import Timeline, timeline_of_schedule
from asyncops.checker.races import Race, Use
from asyncops.checker.scheduling import Goal, Position, Restraint, Runner, Segment, search
from asyncops.checker.trimming import compose, needed_part
from stateful.errors import InvalidArgumentError

__all__ = [
    "BUDGET",
    "Outcome",
    "Outside",
    "Overlap",
    "Schedule",
    "Scheduler",
    "Search",
    "Stuck",
    "StuckWait",
    "find_early_touch",
    "find_overlap",
    "find_stuck",
    "run_to_end",
]

BUDGET = 1000
"""States tried by default where several cores wait on one semaphore; elsewhere a single run decides."""


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """A run of a program, as far as it matters: its steps in order, and what it shows."""

    program: Program
    steps: tuple[Step, ...]
    claim: Claim

    def replay(self) -> Outcome:
        """Run it from the beginning; an error if the steps are no run of the program."""
        machine, mark_came_first = Machine(self.program), False
        for step in self.steps:
            machine.take(step)
            mark_came_first = mark_came_first or _only_mark_passed(machine, self.claim)
        shown = is_shown(machine, self.claim, mark_came_first)
        return outcome_of(self.program, machine.at, machine.counts, shown, not machine.flying)

    def __str__(self) -> str:
        lines = narrate(self.program, self.steps, self.claim)
        return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1))

    def timeline(self) -> Timeline:
        """The run as a timeline with the defect marked: to look at, to save, to open in a viewer of traces."""
        caption = narrate(self.program, self.steps, self.claim)[-1]
        return timeline_of_schedule(self.program, self.steps, self.claim, caption[:1].upper() + caption[1:])

    def to_svg(self) -> str:
        """The picture of :meth:`timeline` as SVG text."""
        return self.timeline().to_svg()

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def to_chrome_trace(self) -> dict[str, Any]:
        """The schedule in the Trace Event Format, for ui.perfetto.dev: ``json.dump`` it to a file."""
        return self.timeline().to_chrome_trace()


def _only_mark_passed(machine: Machine, claim: Claim) -> bool:
    if not isinstance(claim, Outside):
        return False
    point, mark = claim.point, claim.mark
    return machine.at[point.core] <= point.index and machine.at[mark.core] > mark.index


@dataclass(frozen=True, slots=True)
class Search:
    """The result of a search. No schedule, and ``exhaustive``: it cannot happen. Not exhaustive: not known."""

    schedule: Schedule | None
    exhaustive: bool


class Scheduler:
    """A program prepared for several searches. ``budget`` bounds each where it has to try orders."""

    def __init__(self, program: Program, budget: int = BUDGET) -> None:
        self.program = program
        self.budget = budget
        self._runner = Runner(program)

    def run_to_end(self) -> Outcome:
        """Run every core as far as it gets, every copy completing; stuck if any order of events gets stuck."""
        found = search(self._runner, Restraint(), self._is_unfinished, self.budget, stuck=True)
        state = found.state or self._some_end()
        counts = dict(zip(self._runner.numbers, state.counts))
        return outcome_of(self.program, state.at, counts, exhaustive=found.exhaustive)

    def stuck(self) -> Search:
        """A schedule that gets stuck."""
        found = search(self._runner, Restraint(), self._is_unfinished, self.budget, stuck=True)
        if found.state is None:
            return Search(None, found.exhaustive)
        return self._schedule(Stuck(), found.state.segments(), Restraint(), (Settle(),))

    def overlap(self, race: Race) -> Search:
        """A schedule in which both uses of the race are going on."""
        uses = race.first, race.second
        cores = [use.begin.core for use in uses]
        if cores[0] == cores[1] and race.first.copy is None and race.second.copy is None:
            return Search(None, True)
        holds = {use.begin.core: use.begin.index for use in uses if use.copy is None}
        restraint = Restraint(holds, frozenset(use.end for use in uses if use.copy is not None))
        found = search(self._runner, restraint, lambda state: self._are_open(state, uses), self.budget, cores)
        if found.state is None:
            return Search(None, found.exhaustive)
        stops = _stops(*(use.begin if use.copy is None else _after(use.begin) for use in uses))
        segments = found.state.segments()
        part = needed_part(self._runner, segments, restraint, stops, holds)
        short = self._schedule(Overlap(race), part, restraint)
        return short if short.schedule else self._schedule(Overlap(race), segments, restraint)

    def outside(self, point: Point, mark: Point) -> Search:
        """A schedule in which a signal or a half of a copy falls before a begin or after an end."""
        early = self._mark(mark).kind in ("enter", "allocate")
        claim = Outside(point, mark, early)
        goals, restraints = self._early(claim) if early else self._late(claim)
        found = search(self._runner, restraints[0], goals[0], self.budget, [point.core, mark.core])
        if found.state is None:
            return Search(None, found.exhaustive)
        if len(goals) > 1 and not self._runner.run(found.state, restraints[1], [point.core], goals[1]):
            return Search(None, False)
        segments = found.state.segments()
        stops = _stops(_after(point)) if early else _stops(_after(point), _after(mark))
        part = needed_part(self._runner, segments, restraints[0], stops)
        short = self._schedule(claim, part, restraints[0])
        return short if short.schedule else self._schedule(claim, segments, restraints[0])

    def _early(self, claim: Outside) -> tuple[list[Goal], list[Restraint]]:
        point, mark = claim.point, claim.mark
        return [lambda state: state.at[point.core] > point.index], [Restraint({mark.core: mark.index})]

    def _late(self, claim: Outside) -> tuple[list[Goal], list[Restraint]]:
        """A copy is kept from completing; a signal is kept back until the mark has passed, then let go."""
        point, mark, limit = claim.point, claim.mark, self._next_begin(claim.mark)

        def happened(state: Position) -> bool:
            return state.at[point.core] > point.index

        def passed(state: Position) -> bool:
            return state.at[mark.core] > mark.index

        if point.half is not None:
            both: Goal = lambda state: happened(state) and passed(state)  # noqa: E731
            return [both], [Restraint({mark.core: limit}, frozenset((point,)))]
        first = {mark.core: limit} | {point.core: point.index}
        return [passed, happened], [Restraint(first), Restraint({mark.core: limit})]

    def _mark(self, mark: Point) -> Mark:
        event = self.program.cores[mark.core].events[mark.index]
        if not isinstance(event, Mark):
            raise InvalidArgumentError(
                f"mark: {mark} is no Mark but {type(event).__name__}; pass the point of one"
            )
        return event

    def _next_begin(self, mark: Point) -> int:
        """Where the core begins the next life of what ends at ``mark``: from there on it may be touched again."""
        what, events = self._mark(mark).what, self.program.cores[mark.core].events
        for index in range(mark.index + 1, len(events)):
            event = events[index]
            if isinstance(event, Mark) and event.what == what and event.kind in ("enter", "allocate"):
                return index
        return len(events)

    def _schedule(
        self, claim: Claim, segments: Sequence[Segment], restraint: Restraint, last: tuple[Step, ...] = ()
    ) -> Search:
        steps = compose(self.program, segments, restraint)
        schedule = None if steps is None else Schedule(self.program, (*steps, *last), claim)
        if schedule is None or not schedule.replay().reproduced:
            return Search(None, False)
        return Search(schedule, True)

    def _are_open(self, state: Position, uses: Iterable[Use]) -> bool:
        for use in uses:
            core, index = use.begin.core, use.begin.index
            if use.copy is not None:
                if state.at[core] <= index:
                    return False
            elif state.at[core] != index or self._runner.is_gated(state, core):
                return False
        return True

    def _is_unfinished(self, state: Position) -> bool:
        return any(at < len(core.events) for at, core in zip(state.at, self.program.cores))

    def _some_end(self) -> Position:
        state = self._runner.beginning()
        self._runner.run(state, Restraint(), ())
        while choices := self._runner.choices(state, Restraint()):
            state = self._runner.choose(state, choices[0])
            self._runner.run(state, Restraint(), ())
        return state


def _after(point: Point) -> Point:
    return Point(point.core, point.index + 1)


def _stops(*points: Point) -> dict[int, int]:
    stops: dict[int, int] = {}
    for point in points:
        stops[point.core] = max(point.index, stops.get(point.core, 0))
    return stops


def run_to_end(program: Program, budget: int = BUDGET) -> Outcome:
    """Run every core as far as it gets, every copy completing."""
    return Scheduler(program, budget).run_to_end()


def find_overlap(program: Program, race: Race, budget: int = BUDGET) -> Schedule | None:
    """A schedule in which both uses of a race are going on at once, or None if none was found."""
    return Scheduler(program, budget).overlap(race).schedule


def find_stuck(program: Program, budget: int = BUDGET) -> Schedule | None:
    """A schedule after which some core can never go on, or None if none was found."""
    return Scheduler(program, budget).stuck().schedule


def find_early_touch(program: Program, point: Point, mark: Point, budget: int = BUDGET) -> Schedule | None:
    """A schedule in which a signal or a copy's half falls before an enter or allocate, or after an exit or free."""
    return Scheduler(program, budget).outside(point, mark).schedule
