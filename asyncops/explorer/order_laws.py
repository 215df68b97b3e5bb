"""Laws of the checker's order: nothing is missed, and whatever it claims holds in every schedule."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import permutations

from asyncops.checker.events import Event, Mark, Point, Signal, Start
from asyncops.explorer.cases import Case, by_place, name
from asyncops.explorer.findings import Stray, Unfinished


def _missed_races(case: Case) -> Iterator[str]:
    return (f"{name(a)} {name(b)}" for a, b in sorted(case.races - case.claimed_races.keys(), key=by_place))


def _false_orders(case: Case) -> Iterator[str]:
    for a, b in permutations(case.exact.points, 2):
        if case.order.before(a, b) and not case.exact.before(a, b):
            yield f"{name(a)} before {name(b)}"


def _false_ends(case: Case) -> Iterator[str]:
    """The order says that a core never gets past an event."""
    return (name(point) for point in case.order.never if case.exact.can_happen(point))


def _missed_leaks(case: Case) -> Iterator[str]:
    for leak in case.exploration.leaks:
        balances = case.order.balances_at(leak.mark) if leak.mark else case.order.balances()
        if balances[leak.semaphore].left <= 0:
            yield f"{leak.semaphore} {f'at {name(leak.mark)}' if leak.mark else 'at the end'}"


def _missed_touches(case: Case) -> Iterator[str]:
    if not _keeps_own_scopes(case):
        return
    claimed = {(touch.point.core, touch.point.index, touch.mark.core) for touch in case.order.touches()}
    for found in (*case.exploration.strays, *case.exploration.unfinished):
        touch = found.touch if isinstance(found, Stray) else found.completion
        if (touch.core, touch.index, found.mark.core) not in claimed and _is_an_error(case, found):
            yield f"{name(touch)} {name(found.mark)}"


ORDER_LAWS: dict[str, Callable[[Case], Iterator[str]]] = {
    "missed race": _missed_races,
    "missed leak": _missed_leaks,
    "missed touch": _missed_touches,
    "false order": _false_orders,
    "false end of a core": _false_ends,
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
