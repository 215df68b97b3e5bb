"""Recognises findings in the states and steps of an exploration; keeps the first schedule that shows each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar, get_args

from asyncops.checker.events import Point
from asyncops.explorer.conflicts import Conflicts
from asyncops.explorer.findings import Deadlock, Leak, Race, Schedule, Stray, Unfinished, When
from asyncops.explorer.steps import Machine, State, as_set, bits

F = TypeVar("F")


class _Kept(Generic[F]):
    """Findings of one kind by what they say, in numbers of steps and semaphores."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, ...], F] = {}

    def keep(self, key: tuple[int, ...], make: Callable[[], F]) -> None:
        """Makes the finding unless there is one that says the same."""
        if key not in self._found:
            self._found[key] = make()

    def in_order(self) -> tuple[F, ...]:
        return tuple(self._found[key] for key in sorted(self._found))


class Observer:
    """Is shown every state and every step that the search follows; ``schedule`` gives the way to a state."""

    def __init__(self, machine: Machine, conflicts: Conflicts, schedule: Callable[[State], Schedule]) -> None:
        self._machine = machine
        self._conflicts = conflicts
        self._schedule = schedule
        self.races = _Kept[Race]()
        self.deadlocks = _Kept[Deadlock]()
        self.leaks = _Kept[Leak]()
        self.unfinished = _Kept[Unfinished]()
        self.strays = _Kept[Stray]()

    def state(self, state: State, enabled: list[int]) -> None:
        """Looks at what is open at once in ``state``, and at its end if nothing is enabled."""
        both = as_set(enabled)
        for n in enabled:
            for m in bits(self._conflicts.races[n] & both & (-1 << n)):
                self._race(state, n, m)
            if n in self._conflicts.releases:
                for m in bits(self._conflicts.releases[n].held & both):
                    self._release(state, n, m)
        if not enabled:
            self._end(state)

    def step(self, state: State, n: int) -> None:
        """Looks at step ``n``, about to be executed in ``state``."""
        for life in self._conflicts.lives.get(n, ()):
            if offence := life.offence(state.executed):
                self._stray(state, n, *offence)
        if n in self._conflicts.releases:
            for semaphore, holders in self._conflicts.releases[n].counts:
                if state.counts[semaphore] and not self._in_flight(state, holders):
                    self._leak(state, semaphore, n)

    def _race(self, state: State, n: int, m: int) -> None:
        self.races.keep((n, m), lambda: Race(self._point(n), self._point(m), self._schedule(state)))

    def _release(self, state: State, mark: int, completion: int) -> None:
        self.unfinished.keep(
            (mark, completion),
            lambda: Unfinished(self._point(completion), self._point(mark), self._schedule(state)),
        )

    def _stray(self, state: State, n: int, when: When, mark: int) -> None:
        key = (n, mark, get_args(When).index(when))
        self.strays.keep(key, lambda: Stray(self._point(n), when, self._point(mark), self._schedule(state)))

    def _leak(self, state: State, semaphore: int, mark: int | None) -> None:
        count, identity = state.counts[semaphore], self._machine.semaphores[semaphore]
        point = None if mark is None else self._point(mark)
        key = (semaphore, len(self._machine.steps) if mark is None else mark, count)
        self.leaks.keep(key, lambda: Leak(identity, count, point, self._schedule(state)))

    def _end(self, state: State) -> None:
        """Nothing is enabled: a deadlock if a core has not ended, else the counts are final."""
        stuck = [
            next(n for n in core if not state.executed >> n & 1)
            for core in self._machine.cores
            if not state.executed >> core[-1] & 1
        ]
        if stuck:
            waits = tuple(map(self._point, stuck))
            self.deadlocks.keep(tuple(stuck), lambda: Deadlock(waits, self._schedule(state)))
            return
        for semaphore, count in enumerate(state.counts):
            if count:
                self._leak(state, semaphore, None)

    def _in_flight(self, state: State, completions: int) -> bool:
        """Whether one of these copy halves is under way: it is ``Unfinished``, and its count is not final."""
        points = (self._machine.steps[n].point for n in bits(completions & ~state.executed))
        return any(state.executed >> self._machine.numbers[Point(p.core, p.index)] & 1 for p in points)

    def _point(self, n: int) -> Point:
        return self._machine.steps[n].point
