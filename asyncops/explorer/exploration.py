"""All schedules of a small program, and what can go wrong in them.

Breadth first over executed sets (``steps.py``), following a persistent set in each (``reduction.py``). All
ways into a state have the same length, so every state is met after all its predecessors: one pass counts
executions, and a witness is no longer than any other explored way to a state that shows the same.
"""

from __future__ import annotations

from asyncops.checker.events import Program
from asyncops.explorer.conflicts import find_conflicts
from asyncops.explorer.findings import Exploration, Schedule
from asyncops.explorer.observing import Observer
from asyncops.explorer.reduction import Reduction
from asyncops.explorer.steps import Machine, State, build_machine
from stateful.errors import InvalidArgumentError

DEFAULT_LIMIT = 200_000


def explore(program: Program, *, limit: int = DEFAULT_LIMIT, reduced: bool = True) -> Exploration:
    """Explores every schedule of ``program``.

    Args:
      program: cores, copies and semaphores; a few dozen events.
      limit: states to visit at most. If there are more, the result says that it is not complete.
      reduced: False follows every enabled step in every state: the same findings, far slower. It is there to
        check the reduction.

    Raises:
      InvalidArgumentError: ``limit`` is not positive, or ``program`` is malformed.
    """
    if limit < 1:
        raise InvalidArgumentError(f"limit: {limit} states hold no program; give 1 or more")
    return _Search(build_machine(program), limit, reduced).run()


class _Search:
    """One exploration, level by level."""

    def __init__(self, machine: Machine, limit: int, reduced: bool) -> None:
        conflicts = find_conflicts(machine)
        self._machine = machine
        self._limit = limit
        self._reduction = Reduction(machine, conflicts.any) if reduced else None
        self._observer = Observer(machine, conflicts, self._schedule)
        self._ways: dict[int, int] = {machine.initial.executed: 1}  # state -> number of ways to it
        self._came_by: dict[int, int] = {}  # state -> the last step of the first way to it
        self._complete = True
        self._executions = 0

    def run(self) -> Exploration:
        level = [self._machine.initial]
        while level and self._complete:
            level = [new for state in level for new in self._expand(state)]
        seen = self._observer
        return Exploration(
            races=seen.races.in_order(),
            deadlocks=seen.deadlocks.in_order(),
            leaks=seen.leaks.in_order(),
            unfinished=seen.unfinished.in_order(),
            strays=seen.strays.in_order(),
            complete=self._complete,
            states=len(self._ways),
            executions=self._executions,
        )

    def _expand(self, state: State) -> list[State]:
        """The states after ``state`` that are new."""
        enabled = self._machine.enabled(state)
        self._observer.state(state, enabled)
        if not enabled:
            self._executions += self._ways[state.executed]
        new = []
        for n in self._reduction.choose(state, enabled) if self._reduction else enabled:
            self._observer.step(state, n)
            if self._enter(state, n):
                new.append(self._machine.execute(state, n))
        return new

    def _enter(self, state: State, n: int) -> bool:
        """Notes the way through ``state`` and ``n``; True if it leads to a state that is new and has room."""
        executed, ways = state.executed | 1 << n, self._ways[state.executed]
        if executed in self._ways:
            self._ways[executed] += ways
            return False
        if len(self._ways) >= self._limit:
            self._complete = False
            return False
        self._came_by[executed], self._ways[executed] = n, ways
        return True

    def _schedule(self, state: State) -> Schedule:
        points, executed = [], state.executed
        while executed:
            n = self._came_by[executed]
            points.append(self._machine.steps[n].point)
            executed ^= 1 << n
        return tuple(reversed(points))
