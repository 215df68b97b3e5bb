"""Comparisons over many generated programs, added up."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from asyncops.checker.events import Program
from asyncops.explorer.comparing import LAWS, TIGHTNESS, Comparison, compare
from asyncops.explorer.generating import random_program
from asyncops.explorer.notation import format_program
from asyncops.explorer.shrinking import shrink


@dataclass
class Tally:
    """What a number of comparisons showed, and a few small programs per broken law."""

    shown_per_law: int = 3
    programs: int = 0
    incomplete: int = 0
    clean: int = 0
    states: int = 0
    findings: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def add(self, name: str, program: Program, limit: int) -> None:
        """Compares ``program`` and adds the result."""
        began = time.perf_counter()
        comparison = compare(program, limit=limit)
        self._add_exploration(comparison)
        self.counts.update(comparison.counts)
        for law in dict.fromkeys(found.law for found in comparison.disagreements):
            self.broken[law] += 1
            if self.broken[law] <= self.shown_per_law:
                self.examples.append(_example(name, law, program, limit))
        self.seconds += time.perf_counter() - began

    def _add_exploration(self, comparison: Comparison) -> None:
        exploration = comparison.exploration
        self.programs += 1
        self.incomplete += not exploration.complete
        self.clean += exploration.verdict == "clean"
        self.states += exploration.states
        for kind in ("races", "deadlocks", "leaks", "unfinished", "strays"):
            self.findings[kind] += bool(getattr(exploration, kind))

    def take_examples(self) -> list[str]:
        """The examples that were not taken before."""
        examples, self.examples = self.examples, []
        return examples

    def table(self) -> str:
        """The numbers, one a line."""
        return "\n".join(f"{label:<44}{value:>12}" for label, value in self._rows())

    def _rows(self) -> Iterator[tuple[str, str]]:
        yield "programs", f"{self.programs:,}"
        yield "  beyond the limit, so not compared", f"{self.incomplete:,}"
        yield "  clean", f"{self.clean:,}"
        for kind, text in _KINDS.items():
            yield f"  with {text}", f"{self.findings[kind]:,}"
        yield "states explored", f"{self.states:,}"
        for law in LAWS:
            yield f"law broken: {law}", f"{self.broken[law]:,}"
        for label in TIGHTNESS:
            yield label, f"{self.counts[label]:,}"
        yield "seconds", f"{self.seconds:,.1f}"


_KINDS = {
    "races": "races",
    "deadlocks": "deadlocks",
    "leaks": "counts left behind",
    "unfinished": "memory released in flight",
    "strays": "touches outside a lifetime",
}


def tally_programs(
    seed: int, programs: int, *, first: int = 0, limit: int, shown_per_law: int = 3
) -> Iterator[Tally]:
    """The tally after each of the programs ``first``, ``first + 1``, ... of ``seed``: one object, growing."""
    tally = Tally(shown_per_law)
    for i in range(first, first + programs):
        tally.add(f"program {i} of seed {seed}", random_program(f"{seed}/{i}"), limit)
        yield tally


def _example(name: str, law: str, program: Program, limit: int) -> str:
    """The program, as small as it can be made while it breaks the law, and what breaks it."""

    def breaks(candidate: Program) -> bool:
        return any(found.law == law for found in compare(candidate, limit=limit).disagreements)

    small = shrink(program, breaks)
    texts = [found.text for found in compare(small, limit=limit).disagreements if found.law == law]
    return f"{law}: {'; '.join(texts)} ({name})\n{format_program(small)}"
