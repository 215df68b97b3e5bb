"""One program with what the explorer and the checker say of it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from asyncops.checker.events import Point, Program
from asyncops.checker.order import Order, Race, must_happen_before
from asyncops.checker.replay import Scheduler, Search
from asyncops.explorer.exploration import explore
from asyncops.explorer.findings import Exploration
from asyncops.explorer.precedence import ExactOrder, exact_order

Pair = tuple[Point, Point]


class Case:
    """A program that the explorer could explore, and the answers of the checker, each computed when asked for."""

    def __init__(self, program: Program, exploration: Exploration, exact: ExactOrder) -> None:
        self.program = program
        self.exploration = exploration
        self.exact = exact

    @cached_property
    def order(self) -> Order:
        """The checker's order."""
        return must_happen_before(self.program)

    @cached_property
    def scheduler(self) -> Scheduler:
        """The checker's search for schedules."""
        return Scheduler(self.program)

    @cached_property
    def races(self) -> frozenset[Pair]:
        """The races of the explorer."""
        return frozenset(_in_order(race.first, race.second) for race in self.exploration.races)

    @cached_property
    def claimed_races(self) -> dict[Pair, Race]:
        """The races of the order. A use of memory is named by its end, as the explorer does."""
        return {_in_order(race.first.end, race.second.end): race for race in self.order.races()}

    @cached_property
    def searches(self) -> dict[Pair, Search]:
        """The checker's search for a schedule of each race of its order."""
        return {pair: self.scheduler.overlap(race) for pair, race in self.claimed_races.items()}

    def exact_orders(self) -> Iterator[Pair]:
        """Pairs of points that every schedule has in this order, the second of which some schedule has."""
        for b in filter(self.exact.can_happen, self.exact.points):
            yield from ((a, b) for a in self.exact.points if self.exact.before(a, b))


def open_case(program: Program, limit: int) -> tuple[Exploration, Case | None]:
    """The exploration up to ``limit`` states, and the case if it is complete."""
    exploration, exact = explore(program, limit=limit), exact_order(program, limit=limit)
    if not exploration.complete or exact is None:
        return exploration, None
    return exploration, Case(program, exploration, exact)


def _in_order(a: Point, b: Point) -> Pair:
    return (a, b) if _place(a) <= _place(b) else (b, a)


def _place(point: Point) -> tuple[int, int, str]:
    return point.core, point.index, point.half.value if point.half else ""


def by_place(pair: Pair) -> list[tuple[int, int, str]]:
    """A key that sorts pairs of points the same way everywhere."""
    return [_place(point) for point in pair]


def name(point: Point) -> str:
    """A point in short: ``core.event``, with a copy's half behind it."""
    return f"{point.core}.{point.index}" + (f".{point.half.value}" if point.half else "")
