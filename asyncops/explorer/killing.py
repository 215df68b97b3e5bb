"""Which mistakes the checker sees: mutants of right programs, and what exploration and checker say of each.

A mutant is *wrong* if some schedule of it, for some of the arguments that are tried, goes wrong; *equivalent* if none
does; *open* where its schedules are too many or it cannot be followed, unless a schedule of the checker's shows that it
is wrong. Only wrong ones count: the checker kills those that it reports.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from asyncops.checker.session import check_jaxpr
from asyncops.explorer.arithmetic import Unknown
from asyncops.explorer.judging import judge
from asyncops.explorer.mutation import Mutant, mutants
from asyncops.explorer.unrolling import unroll
from stateful._jax.jaxprs import open_jaxpr
from stateful.errors import StatefulError

KILLED, SURVIVED, UNSURE = "killed", "survived", "not sure"
EQUIVALENT, REPORTED, OPEN = "equivalent", "equivalent, but reported", "open"
FATES = (KILLED, SURVIVED, UNSURE, EQUIVALENT, REPORTED, OPEN)
_MOST_VARIANTS = 6


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant of the program ``name``."""

    name: str
    mutant: Mutant
    fate: str
    text: str = ""


@dataclass
class Tally:
    """How many mutants of each operator met each fate, and those that should be looked at."""

    counts: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    shown: list[Verdict] = field(default_factory=list[Verdict])

    def add(self, verdict: Verdict) -> None:
        """Counts one mutant."""
        row = self.counts.setdefault(verdict.mutant.operator, dict.fromkeys(FATES, 0))
        row[verdict.fate] += 1
        if verdict.fate in (SURVIVED, UNSURE, REPORTED):
            self.shown.append(verdict)

    def take_shown(self) -> list[Verdict]:
        """The mutants to look at that were not taken before."""
        shown, self.shown = self.shown, []
        return shown

    def rate(self, operator: str | None = None) -> float:
        """The part of the wrong mutants that is killed, of one operator or of all; 1 where there are none."""
        rows = [row for name, row in self.counts.items() if operator in (None, name)]
        killed, wrong = (sum(row[f] for row in rows for f in fates) for fates in ((KILLED,), FATES[:3]))
        return killed / wrong if wrong else 1.0

    def table(self) -> str:
        """One line for each operator, and one for all."""
        lines = [f"{'operator':32}" + "".join(f"{fate:>26}" for fate in FATES) + f"{'kill rate':>12}"]
        for name, row in sorted(self.counts.items()):
            lines.append(f"{name:32}" + "".join(f"{row[f]:26}" for f in FATES) + f"{self.rate(name):12.1%}")
        total = {f: sum(row[f] for row in self.counts.values()) for f in FATES}
        lines.append(f"{'all':32}" + "".join(f"{total[f]:26}" for f in FATES) + f"{self.rate():12.1%}")
        return "\n".join(lines)


def try_mutants(
    name: str, closed: Any, args: Sequence[Any], *, values: bool = False, most: int = 0
) -> Iterator[Verdict]:
    """Judges the mutants of a right program.

    Args:
      name: of the program.
      closed: its jaxpr.
      args: its flat arguments; integers among them are tried first, then others of the same shape for which the
        program is right.
      values: the checker is told the integers, and no others are tried.
      most: so many of each operator, evenly spread; 0: all.
    """
    inputs = [given for given in _variants(args, values) if _judged(closed, given) != "wrong"]
    for mutant in _spread(list(mutants(closed)), most):
        yield _verdict(name, mutant, args, inputs, values)


def _spread(every: list[Mutant], most: int) -> Iterator[Mutant]:
    """Of each operator's mutants at most so many."""
    for operator in dict.fromkeys(m.operator for m in every):
        of_it = [m for m in every if m.operator == operator]
        step = max(1, len(of_it) / most) if most else 1
        yield from (of_it[int(i * step)] for i in range(int(len(of_it) / step)))


def _verdict(
    name: str, mutant: Mutant, args: Sequence[Any], inputs: list[Sequence[Any]], values: bool
) -> Verdict:
    found = {_judged(mutant.jaxpr, given) for given in inputs}
    try:
        started = time.perf_counter()
        report = check_jaxpr(open_jaxpr(mutant.jaxpr), list(args), values=values, calls=1, started=started)
    except StatefulError as error:
        return Verdict(name, mutant, UNSURE, f"{type(error).__name__}: {error}")
    reported = report.verdict == "findings"
    if not reported and "wrong" in found:
        return Verdict(name, mutant, UNSURE if report.verdict == "unknown" else SURVIVED, str(report))
    if reported:
        confirmed = any(d.confirmed for d in report.diagnostics)
        if "wrong" in found or (confirmed and found != {"right"}):
            return Verdict(name, mutant, KILLED)
        return Verdict(name, mutant, REPORTED if found == {"right"} else OPEN, str(report))
    return Verdict(name, mutant, EQUIVALENT if found == {"right"} else OPEN, str(report))


def _judged(closed: Any, args: Sequence[Any]) -> str:
    try:
        unrolled = unroll(closed, args)
    except Unknown:
        return "undecided"
    return "wrong" if unrolled.faults else judge(unrolled.program)


def _variants(args: Sequence[Any], values: bool) -> Iterator[Sequence[Any]]:
    """The arguments, then integer ones that are all 0, all 1, all 2, and one more or less than they were."""
    given = [a if _is_integer(a) else None for a in args]
    if not any(a is not None or _is_integer_type(a_) for a, a_ in zip(given, args)):
        yield args
        return
    if all(a is not None for a, a_ in zip(given, args) if _is_integer_type(a_)):
        yield args
    if values:
        return
    changes = (lambda a, c=c: np.full(a.shape, c, a.dtype) for c in (0, 1, 2, 3))
    shifts = (lambda a, d=d: _numbers(a) + np.asarray(d).astype(a.dtype) for d in (1, -1))
    for change in itertools.islice(itertools.chain(changes, shifts), _MOST_VARIANTS):
        yield [change(a) if _is_integer_type(a) else a for a in args]


def _numbers(a: Any) -> Any:
    return a if _is_integer(a) else np.zeros(a.shape, a.dtype)


def _is_integer(a: Any) -> bool:
    return isinstance(a, np.ndarray) and a.dtype.kind in "iub"


def _is_integer_type(a: Any) -> bool:
    return getattr(getattr(a, "dtype", None), "kind", "?") in "iub"
