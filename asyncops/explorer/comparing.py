"""The checker's order against the explorer: laws that must hold on every program, and how tight the order is.

The explorer knows every schedule of a small program, so it can say of each claim of the checker whether it is
true. A *law* broken is a defect of one of the two. What is allowed to differ is counted: the order may miss
an order that only a deeper argument shows, and may then report a race that no schedule has (unconfirmed).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations

from asyncops.checker.events import Event, Mark, Point, Program, Signal, Start
from asyncops.checker.order import Order, must_happen_before
from asyncops.explorer.exploration import explore
from asyncops.explorer.findings import Exploration, Stray, Unfinished
from asyncops.explorer.precedence import ExactOrder, exact_order

DEFAULT_LIMIT = 20_000

Pair = tuple[Point, Point]


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A law that a program breaks, and where."""

    law: str
    text: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """What explorer and checker say of one program.

    Attributes:
      disagreements: broken laws; empty if the exploration is not complete, for then nothing is known.
      races_without_schedule: races of the order that no schedule has.
      orders: pairs of points that every schedule orders and that can happen; ``orders_missed`` of them are
        not claimed.
    """

    exploration: Exploration
    disagreements: tuple[Disagreement, ...] = ()
    races_without_schedule: int = 0
    orders: int = 0
    orders_missed: int = 0


class Case:
    """One program with what both sides say of it."""

    def __init__(self, program: Program, exploration: Exploration, exact: ExactOrder) -> None:
        self.program = program
        self.exploration = exploration
        self.exact = exact
        self.order: Order = must_happen_before(program)

    @cached_property
    def races(self) -> set[Pair]:
        """The races of the explorer."""
        return {_in_order(race.first, race.second) for race in self.exploration.races}

    @cached_property
    def claimed_races(self) -> set[Pair]:
        """The races of the order; a use of memory is named by its end, as the explorer does."""
        return {_in_order(race.first.end, race.second.end) for race in self.order.races()}

    @cached_property
    def claimed_touches(self) -> set[tuple[int, int, int]]:
        """Core and event of a touch outside a lifetime, and the core whose marks say so."""
        return {(t.point.core, t.point.index, t.mark.core) for t in self.order.touches()}


def compare(program: Program, *, limit: int = DEFAULT_LIMIT) -> Comparison:
    """Explores ``program`` up to ``limit`` states and holds the checker to it."""
    exploration, exact = explore(program, limit=limit), exact_order(program, limit=limit)
    if not exploration.complete or exact is None:
        return Comparison(exploration)
    case = Case(program, exploration, exact)
    pairs = [
        pair for pair in permutations(exact.points, 2) if exact.can_happen(pair[1]) and exact.before(*pair)
    ]
    return Comparison(
        exploration,
        tuple(Disagreement(law, text) for law, broken in LAWS.items() for text in broken(case)),
        len(case.claimed_races - case.races),
        len(pairs),
        sum(not case.order.before(*pair) for pair in pairs),
    )


def _missed_races(case: Case) -> Iterator[str]:
    return (f"{name(a)} {name(b)}" for a, b in sorted(case.races - case.claimed_races, key=_keys))


def _false_orders(case: Case) -> Iterator[str]:
    for a, b in permutations(case.exact.points, 2):
        if case.order.before(a, b) and not case.exact.before(a, b):
            yield f"{name(a)} before {name(b)}"


def _false_deadlocks(case: Case) -> Iterator[str]:
    """The order says that a core never gets past an event."""
    return (f"{name(point)}" for point in case.order.never if case.exact.can_happen(point))


def _missed_leaks(case: Case) -> Iterator[str]:
    for leak in case.exploration.leaks:
        balances = case.order.balances_at(leak.mark) if leak.mark else case.order.balances()
        if balances[leak.semaphore].left <= 0:
            yield f"{leak.semaphore} {f'at {name(leak.mark)}' if leak.mark else 'at the end'}"


def _missed_touches(case: Case) -> Iterator[str]:
    if not _keeps_own_scopes(case):
        return
    for found in (*case.exploration.strays, *case.exploration.unfinished):
        touch = found.touch if isinstance(found, Stray) else found.completion
        if (
            _is_an_error(case, found)
            and (touch.core, touch.index, found.mark.core) not in case.claimed_touches
        ):
            yield f"{name(touch)} {name(found.mark)}"


LAWS: dict[str, Callable[[Case], Iterator[str]]] = {
    "missed race": _missed_races,
    "missed leak": _missed_leaks,
    "missed touch": _missed_touches,
    "false order": _false_orders,
    "false deadlock": _false_deadlocks,
}


def _keeps_own_scopes(case: Case) -> bool:
    """Whether marks alternate, and each core uses what it allocates between its marks, as scopes make it."""
    for core in case.program.cores:
        lives: dict[Hashable, bool] = {}
        for event in core.events:
            if isinstance(event, Mark):
                begins = event.kind in ("enter", "allocate")
                for resource in (*event.memory, *event.semaphores):
                    if lives.get(resource, not begins) == begins:
                        return False
                    lives[resource] = begins
    return all(stray.touch.core != stray.mark.core for stray in case.exploration.strays)


def _is_an_error(case: Case, found: Stray | Unfinished) -> bool:
    """Whether it is one for the machine, which lays out scoped memory statically.

    Another core may reach it from its owner's *enter* on, and between instances of the scope; not after the
    last. Only its copies and signals can.
    """
    owner = case.program.cores[found.mark.core].events
    if isinstance(found, Unfinished):
        return found.completion.core == found.mark.core or not _comes_again(owner, found.mark.index)
    if not isinstance(case.program.cores[found.touch.core].events[found.touch.index], Start | Signal):
        return False
    enters = [
        Point(found.mark.core, i) for i, e in enumerate(owner) if isinstance(e, Mark) and e.kind == "enter"
    ]
    entered = any(case.exact.before(enter, found.touch) for enter in enters)
    return found.when == "after" or (found.when == "before" and not entered)


def _comes_again(events: Sequence[Event], index: int) -> bool:
    """Whether a later mark is of the same scope."""
    mark = events[index]
    return any(
        isinstance(e, Mark) and isinstance(mark, Mark) and e.what == mark.what for e in events[index + 1 :]
    )


def _in_order(a: Point, b: Point) -> Pair:
    return (a, b) if _key(a) <= _key(b) else (b, a)


def _keys(pair: Pair) -> list[tuple[int, int, str]]:
    return [_key(point) for point in pair]


def _key(point: Point) -> tuple[int, int, str]:
    return point.core, point.index, point.half.value if point.half else ""


def name(point: Point) -> str:
    """A point in short: ``core.event``, with a copy's half behind it."""
    return f"{point.core}.{point.index}" + (f".{point.half.value}" if point.half else "")
