"""The exact order of a program: which point comes before which in every schedule.

``a`` comes before ``b`` in every schedule exactly when no schedule executes ``b`` while ``a`` is never
executed: a schedule that so far has ``b`` without ``a`` is one in which ``a`` never comes, and the other way
round. So for each ``a`` the program is run without it. Only what waits take off can keep steps from being
executed, so only competing waits conflict; where there are none, one schedule executes all that can be
executed.
"""

from __future__ import annotations

from dataclasses import dataclass

from asyncops.checker.events import Point, Program
from asyncops.explorer.conflicts import find_competing_waits
from asyncops.explorer.reduction import Reduction
from asyncops.explorer.steps import Machine, build_machine

DEFAULT_LIMIT = 20_000


@dataclass(frozen=True, slots=True)
class ExactOrder:
    """What comes before what in every schedule of a program."""

    points: tuple[Point, ...]
    _numbers: dict[Point, int]
    _possible: int
    _possible_without: tuple[int, ...]

    def before(self, a: Point, b: Point) -> bool:
        """Whether ``a`` comes before ``b`` in every schedule that has ``b``."""
        return a != b and not self._possible_without[self._numbers[a]] >> self._numbers[b] & 1

    def can_happen(self, point: Point) -> bool:
        """Whether some schedule gets to ``point``."""
        return bool(self._possible >> self._numbers[point] & 1)


def exact_order(program: Program, *, limit: int = DEFAULT_LIMIT) -> ExactOrder | None:
    """The exact order of ``program``, or None if one of the runs has more than ``limit`` states.

    Raises:
      InvalidArgumentError: ``program`` is malformed.
    """
    machine = build_machine(program)
    conflicts = find_competing_waits(machine)
    possible = [_executable(machine, conflicts, limit)]
    for n in range(len(machine.steps)):
        if None in possible:
            return None
        possible.append(_executable(machine.without(n), conflicts, limit))
    found = tuple(executed for executed in possible if executed is not None)
    return ExactOrder(tuple(step.point for step in machine.steps), machine.numbers, found[0], found[1:])


def _executable(machine: Machine, conflicts: tuple[int, ...], limit: int) -> int | None:
    """The steps that some schedule executes: each is in the executed set of a state where nothing is left.

    ``reduction.py`` tells why all those states are met.
    """
    reduction = Reduction(machine, conflicts)
    seen, todo, result = {machine.initial.executed}, [machine.initial], 0
    while todo:
        state = todo.pop()
        enabled = machine.enabled(state)
        if not enabled:
            result |= state.executed
        for n in reduction.choose(state, enabled):
            new = machine.execute(state, n)
            if new.executed not in seen:
                seen.add(new.executed)
                todo.append(new)
        if len(seen) > limit:
            return None
    return result
