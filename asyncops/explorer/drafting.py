"""What generators write programs with: a draft, and where its choices come from."""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from asyncops.checker.events import Box, Core, Event, Program

T = TypeVar("T")

Barrier = tuple[tuple[int, int], ...]


class Chooser(Protocol):
    """Makes a generator's choices: a seeded one is here, one of hypothesis in ``strategies.py``."""

    def integer(self, low: int, high: int) -> int:
        """A number from ``low`` to ``high``, both included; ``low`` is the simplest."""
        ...


class SeededChooser:
    """The same choices for the same seed, in every process and on every machine."""

    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(str(seed))

    def integer(self, low: int, high: int) -> int:
        return self._random.randint(low, high)


@dataclass(slots=True)
class Draft:
    """A program being written: one list of events per core. The simplest choice always is the first."""

    chooser: Chooser
    cores: list[list[Event]]
    shared_memory: bool = False
    initial: dict[Hashable, int] = field(default_factory=dict)
    barriers: list[Barrier] = field(default_factory=list)

    def pick(self, options: Sequence[T]) -> T:
        """One of ``options``."""
        return options[self.chooser.integer(0, len(options) - 1)]

    def flag(self, one_in: int = 2) -> bool:
        """True once in ``one_in`` times."""
        return self.chooser.integer(1, one_in) == one_in

    def many(self, at_least: int, at_most: int) -> Iterator[int]:
        """Turns of a loop, each asked for when the one before is over, so that whole turns shrink away."""
        for turn in range(at_most):
            if turn >= at_least and self.chooser.integer(0, 2) == 0:
                return
            yield turn

    def core(self) -> int:
        """The number of a core."""
        return self.chooser.integer(0, len(self.cores) - 1)

    def neighbour(self, core: int) -> int:
        """Another core; ``core`` itself if there is no other."""
        others = len(self.cores) - 1
        return (core + self.chooser.integer(1, others)) % len(self.cores) if others else core

    def device(self, core: int) -> int:
        """The device of a core."""
        return 0 if self.shared_memory else core

    def amount(self) -> int:
        """A small amount, often one that has a part."""
        return self.chooser.integer(1, 3)

    def box(self, core: int, names: str = "xy") -> Box:
        """A few elements of one of few buffers on the core's device, so that boxes meet."""
        start, size = self.chooser.integer(0, 1), self.chooser.integer(1, 2)
        return Box(f"{self.pick(names)}{self.device(core)}", ((start, size, 1),))

    def semaphore(self, core: int, names: str = "st") -> str:
        """One of few semaphores of a core."""
        return f"{self.pick(names)}{core}"

    def weave(self, core: int, events: Sequence[Event]) -> None:
        """Adds ``events`` at the end of the core or puts them between its own, keeping the order of both."""
        line = self.cores[core]
        position = 0 if self.flag(3) else len(line)
        for event in events:
            position = len(line) - self.chooser.integer(0, len(line) - position)
            line.insert(position, event)
            position += 1

    def program(self) -> Program:
        """The program as it stands."""
        cores = (Core(self.device(c), tuple(events), c) for c, events in enumerate(self.cores))
        return Program(tuple(cores), tuple(self.barriers), self.initial)
