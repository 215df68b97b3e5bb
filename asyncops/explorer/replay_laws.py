"""Laws of the checker's schedules: what one shows is real, and what is said to have none has none."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from asyncops.checker.events import Point
from asyncops.checker.order import Touch
from asyncops.explorer.cases import Case, name


def _false_confirmations(case: Case) -> Iterator[str]:
    for (a, b), search in case.searches.items():
        if search.schedule is not None:
            if not search.schedule.replay().reproduced:
                yield f"the schedule for {name(a)} {name(b)} does not show it"
            elif (a, b) not in case.races:
                yield f"{name(a)} {name(b)}"


def _false_refutations(case: Case) -> Iterator[str]:
    """A race that the search says cannot happen."""
    for (a, b), search in case.searches.items():
        if search.schedule is None and search.exhaustive and (a, b) in case.races:
            yield f"{name(a)} {name(b)}"


def _missed_deadlocks(case: Case) -> Iterator[str]:
    search, outcome = case.scheduler.stuck(), case.scheduler.run_to_end()
    for deadlock in case.exploration.deadlocks[:1]:
        waits = " ".join(map(name, deadlock.waits))
        if search.schedule is None and search.exhaustive:
            yield f"no schedule gets stuck at {waits}"
        if not outcome.stuck and outcome.exhaustive:
            yield f"a run to the end is not stuck at {waits}"


def _false_deadlocks(case: Case) -> Iterator[str]:
    schedule, outcome = case.scheduler.stuck().schedule, case.scheduler.run_to_end()
    if schedule is not None and not (case.exploration.deadlocks and schedule.replay().reproduced):
        yield f"stuck at {schedule.replay().at}"
    if outcome.stuck and tuple(wait.point for wait in outcome.stuck) not in {
        deadlock.waits for deadlock in case.exploration.deadlocks
    }:
        yield f"a run to the end is stuck at {' '.join(name(wait.point) for wait in outcome.stuck)}"


def _wrong_ends(case: Case) -> Iterator[str]:
    """What is left at the end of a run that does not get stuck."""
    outcome = case.scheduler.run_to_end()
    if not outcome.stuck:
        left = {semaphore: count for semaphore, count in outcome.left.items() if count}
        leaks = {leak.semaphore: leak.count for leak in case.exploration.leaks if leak.mark is None}
        if left != leaks:
            yield f"{left} left, not {leaks}"


def _wrong_touches(case: Case) -> Iterator[str]:
    """A touch outside a lifetime has a schedule exactly when touch and mark can come in the wrong order."""
    for touch in case.order.touches():
        search, real = case.scheduler.outside(touch.point, touch.mark), _can_happen(case, touch)
        where = f"{name(touch.point)} {'before' if touch.early else 'after'} {name(touch.mark)}"
        if search.schedule is not None and not search.schedule.replay().reproduced:
            yield f"the schedule for {where} does not show it"
        elif search.schedule is not None and not real:
            yield f"{where} is shown"
        elif search.schedule is None and search.exhaustive and real:
            yield f"{where} is said to be impossible"


def _can_happen(case: Case, touch: Touch) -> bool:
    """Early: it comes while the mark has not. Late: it starts after the mark, or is then still going on."""
    start = Point(touch.point.core, touch.point.index)
    if touch.early:
        return not case.exact.before(touch.mark, start)
    started = any((stray.touch, stray.mark) == (start, touch.mark) for stray in case.exploration.strays)
    return started or any(
        (unfinished.completion, unfinished.mark) == (touch.point, touch.mark)
        for unfinished in case.exploration.unfinished
    )


REPLAY_LAWS: dict[str, Callable[[Case], Iterator[str]]] = {
    "false confirmation of a race": _false_confirmations,
    "false refutation of a race": _false_refutations,
    "missed deadlock": _missed_deadlocks,
    "false deadlock": _false_deadlocks,
    "wrong counts at the end": _wrong_ends,
    "wrong schedule of a touch": _wrong_touches,
}
