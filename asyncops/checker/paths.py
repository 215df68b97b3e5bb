"""Policies that follow one path of a program at a time, and the enumeration of all of them.

A path is fixed by the answers it gives to conditions over symbols. :class:`PathPolicy` replays a prefix of answers and
then takes the first answer that does not contradict what was assumed; :func:`explore_paths` runs the program again for
each untried alternative, depth first, within a budget.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from asyncops.checker.skeleton import OutOfBudget
from stateful import terms
from stateful.terms import Conditions, Predicate

MOST_SECONDS = 20.0
"""Processor seconds after which no more work is done, however little it was."""


class Patience:
    """The work that a check may do on conditions over unknown values, in equations run and ranges of terms looked for.

    Counted, not timed: the same program gets the same answer on every machine, unless it is a very slow one.
    """

    def __init__(self, work: int, until: float | None = None):
        self.granted = self.left = work
        self.until = time.process_time() + MOST_SECONDS if until is None else until
        self._seen = terms.effort()

    def count(self, equations: int) -> None:
        """So many equations were run."""
        self.left -= equations

    def share(self, parts: int) -> Patience:
        """One of so many equal parts of what is left, to be given back to :meth:`take_back`."""
        return Patience(max(self.left, 0) // parts, self.until)

    def take_back(self, part: Patience) -> None:
        """A part comes back: what it spent is spent."""
        self.left, self._seen = self.left - (part.granted - part.left), terms.effort()

    def spend(self) -> None:
        """Raises :class:`OutOfBudget` when the work is done."""
        now = terms.effort()
        self.left, self._seen = self.left - (now - self._seen), now
        if self.left < 0 or time.process_time() > self.until:
            raise OutOfBudget(
                "conditions on unknown values were followed for as long as a check may take; give the scalar arguments "
                "and values=True"
            )


@dataclass
class PathPolicy:
    """Follows one path. ``answers`` are those given so far; ``open`` marks where the other side is possible too.

    ``model``: values of symbols; where they decide a condition that the assumptions do not, theirs is the side.
    """

    prefix: tuple[bool, ...] = ()
    answers: list[bool] = field(default_factory=list)
    open: list[bool] = field(default_factory=list)
    limit: int = 400
    narrowed: list[str] = field(default_factory=list)
    patience: Patience | None = None
    model: Any = None

    def decide(self, state: Any, predicate: Predicate) -> list[tuple[bool, Any]]:
        """One side: the prefix's, else False where that is possible."""
        if self.patience is not None:
            self.patience.spend()
        conditions: Conditions = state.path
        known = conditions.decide(predicate)
        if known is not None:
            return [(known, state)]
        yes, no = conditions.assume(predicate), conditions.assume(terms.logical_not(predicate))
        chosen = None if self.model is None else terms.evaluate(predicate, self.model)
        if isinstance(chosen, bool):
            state.path = (yes if chosen else no) or conditions
            return [(chosen, state)]
        if yes is None or no is None:
            state.path = no if yes is None else yes
            return [(yes is not None, state)]
        if len(self.answers) >= self.limit:
            raise PathTooLong
        at = len(self.answers)
        answer = self.prefix[at] if at < len(self.prefix) else False
        self.answers.append(answer)
        self.open.append(at >= len(self.prefix))
        state.path = yes if answer else no
        return [(answer, state)]

    def concretise(self, state: Any, term: Any, low: int | None = None, high: int | None = None) -> int:
        """One value of a term that has to be known; the path is narrowed to it."""
        if type(term) is int:
            return term
        conditions: Conditions = state.path
        for bound in (
            (terms.le(low, term) if low is not None else True),
            (terms.le(term, high) if high is not None else True),
        ):
            conditions = conditions.assume(bound) or conditions
        first, last = conditions.range(term)
        if first is not None and first == last:
            state.path = conditions
            return first
        for value in _near(first, last):
            chosen = conditions.assume(terms.eq(term, value))
            if chosen is not None:
                self.narrowed.append(str(term))
                state.path = chosen
                return value
        raise PathTooLong

    def avoid(self, state: Any, predicate: Predicate) -> bool:
        """Assumes that ``predicate`` does not hold; False where the program forces it, whatever its arguments are.

        Where only the path's values force it, no caller passes these values: the path ends.
        """
        known = state.path.decide(predicate)
        if known and any(True for _ in state.path.facts()):
            raise PathExcluded
        if known is None:
            narrowed = state.path.assume(terms.logical_not(predicate))
            if narrowed is None:
                return False
            state.path = narrowed
            return True
        return not known


class PathExcluded(Exception):
    """The path's values lead out of bounds, which the arguments are taken not to do."""


class PathTooLong(Exception):
    """The path has more decisions than are followed."""


def _near(first: int | None, last: int | None) -> Iterator[int]:
    if first is not None:
        yield from range(first, first + 20 if last is None else min(last + 1, first + 20))
    elif last is not None:
        yield from range(last, last - 20, -1)
    else:
        yield from range(20)


def explore_paths(
    run: Callable[[PathPolicy], Any], most: int = 256, limit: int = 400, patience: Patience | None = None
) -> tuple[list[Any], bool]:
    """Runs once per path, depth first: the results, and whether every path was run."""
    results: list[Any] = []
    pending: list[tuple[bool, ...]] = [()]
    complete = True
    while pending:
        if len(results) >= most:
            return results, False
        policy = PathPolicy(pending.pop(), limit=limit, patience=patience)
        try:
            results.append(run(policy))
        except PathExcluded:
            pass
        except OutOfBudget:
            if not results:
                raise
            return results, False
        except PathTooLong:
            complete = False
        for at in range(len(policy.prefix), len(policy.answers)):
            if policy.open[at]:
                pending.append((*policy.answers[:at], not policy.answers[at]))
        complete = complete and not policy.narrowed
    return results, complete
