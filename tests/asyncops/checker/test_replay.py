"""Schedules: each witness really shows what it claims, and where none is found no run shows it."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest
from hypothesis import assume, given, settings

sys.path.insert(0, str(Path(__file__).parent))

from tiny_programs import AllRuns, is_contested, points, program, programs, slot, start

from asyncops.checker.events import (
    Access,
    Copy,
    Half,
    Location,
    Mark,
    Point,
    Program,
    Signal,
    Site,
    Start,
    Wait,
)
from asyncops.checker.machine import Advance, Move
from asyncops.checker.order import must_happen_before
from asyncops.checker.replay import (
    Schedule,
    Scheduler,
    Stuck,
    StuckWait,
    find_early_touch,
    find_overlap,
    find_stuck,
    run_to_end,
)
from stateful.errors import InvalidArgumentError

many = settings(max_examples=max(200, settings.default.max_examples))


def written(core: int, index: int) -> Point:
    return Point(core, index, Half.WRITE_DONE)


def at(line: int, label: str = "", moment: str = "") -> Site:
    return Site(Location("/home/user/kernel.py", line), moment, label)


# -- overlaps ---------------------------------------------------------------------------------------------------------


@many
@given(programs(boxes=True))
def test_a_race_has_a_witness_exactly_when_some_run_shows_it(program: Program):
    runs, scheduler = AllRuns(program), Scheduler(program)
    assume(runs.complete)
    for race in must_happen_before(program).races():
        uses = race.first, race.second
        shown = any(all(runs.is_open(state, use.begin, use.end) for use in uses) for state in runs.states)
        search = scheduler.overlap(race)
        assert (search.schedule is not None) is shown
        assert search.exhaustive
        if search.schedule is not None:
            assert search.schedule.replay().reproduced
            assert len(str(search.schedule).splitlines()) <= 12
        # With one waiting core a semaphore, what nothing orders can always be shown.
        assert shown or is_contested(program)


def test_a_copy_that_shares_its_semaphore_is_delayed_by_letting_the_other_one_through():
    events = [start("s", 4096, writes=slot("buf", i)) for i in (0, 1)] + [
        Wait("s", 4096),
        Access(slot("buf", 0), False),
    ]
    whole = program(events)
    (race,) = must_happen_before(whole).races()
    schedule = find_overlap(whole, race)
    assert schedule is not None
    assert schedule.replay().reproduced
    assert [step.half for step in schedule.steps if isinstance(step, Move) and step.done][-1] == written(0, 1)


def test_a_delayed_copy_counts_all_but_one_where_that_is_what_it_takes():
    events = [
        start("s", 4096, writes=slot("buf")),
        Wait("s", 4000),
        Access(slot("buf"), False),
        Wait("s", 96),
    ]
    whole = program(events)
    (race,) = must_happen_before(whole).races()
    schedule = find_overlap(whole, race)
    assert schedule is not None
    assert Move(written(0, 0), 4095, False) in schedule.steps


def test_what_a_semaphore_used_as_a_lock_keeps_apart_is_refuted():
    """Neither access is ordered before the other, yet they never meet: the search has tried every order."""
    critical = [Wait("lock", 1), Access(slot("x"), True), Signal("lock", 1)]
    whole = program(critical, critical, initial={"lock": 1})
    (race,) = must_happen_before(whole).races()
    search = Scheduler(whole).overlap(race)
    assert search.schedule is None
    assert search.exhaustive


def test_a_lock_that_a_delayed_copy_never_gives_back_keeps_others_out():
    """The copy gives the lock back when it has written; while it reads it has not written."""
    copy = start("lock", reads=slot("x"), writes=slot("y"))
    whole = program(
        [Wait("lock", 1), copy],
        [Wait("lock", 1), Access(slot("x"), True), Access(slot("y"), True), Signal("lock", 1)],
        initial={"lock": 1},
    )
    races, scheduler = must_happen_before(whole).races(), Scheduler(whole)
    assert {race.first.end.half for race in races} | {race.second.end.half for race in races} == {None, *Half}
    assert {(search.schedule, search.exhaustive) for search in map(scheduler.overlap, races)} == {
        (None, True)
    }


def test_a_budget_that_runs_out_proves_nothing():
    critical = [Wait("lock", 1), Access(slot("x"), True), Signal("lock", 1)]
    whole = program(critical * 3, critical * 3, initial={"lock": 1})
    race = must_happen_before(whole).races()[0]
    search = Scheduler(whole, budget=2).overlap(race)
    assert search.schedule is None
    assert not search.exhaustive


def test_a_witness_holds_only_what_matters():
    """Cores that have nothing to do with the race do not appear, and what comes after it neither."""
    busy = [event for i in range(50) for event in (Signal(("own", 3), 1), Wait(("own", 3), 1))]
    racing = [start("s", writes=slot("buf")), Access(slot("buf"), False), Wait("s", 1)]
    whole = program(busy, racing + busy)
    (race,) = must_happen_before(whole).races()
    schedule = find_overlap(whole, race)
    assert schedule is not None
    assert schedule.steps == (Advance(1, 1),)


def test_a_schedule_that_the_machine_cannot_follow_is_refused():
    events = [start("s", writes=slot("buf")), Wait("s", 1), Access(slot("buf"), False)]
    claim = Stuck()
    for steps in (
        (Advance(0, 2),),
        (Advance(0, 1), Move(written(0, 0), 1, True)),
        (Advance(0, 1), Move(written(0, 0), 1, False)),
        (Move(written(0, 0), 0, False),),
    ):
        with pytest.raises(InvalidArgumentError, match="schedule"):
            Schedule(program(events), steps, claim).replay()


def test_a_schedule_that_does_not_show_its_claim_is_not_reproduced():
    events = [start("s", writes=slot("buf")), Access(slot("buf"), False), Wait("s", 1)]
    whole = program(events)
    schedule = find_overlap(whole, must_happen_before(whole).races()[0])
    assert schedule is not None
    read = Move(Point(0, 0, Half.READ_DONE), 0, True)
    later = dataclasses.replace(schedule, steps=(*schedule.steps, read, Move(written(0, 0), 1, True)))
    assert not later.replay().reproduced


# -- running to the end -----------------------------------------------------------------------------------------------


@many
@given(programs(boxes=True))
def test_a_run_gets_stuck_exactly_when_some_run_does(program: Program):
    runs, outcome, schedule = AllRuns(program), run_to_end(program), find_stuck(program)
    assume(runs.complete)
    ends = runs.ends()
    stuck = [state for state in ends if runs.is_stuck(state)]
    assert outcome.exhaustive
    assert bool(outcome.stuck) is bool(stuck)
    assert outcome.at in {state.at for state in (stuck or ends)}
    counts = [{name: count for name, count in runs.counts(state).items() if count} for state in ends]
    assert outcome.left in counts
    assert (schedule is not None) is bool(stuck)
    if schedule is not None:
        assert schedule.replay().reproduced
        assert schedule.replay().stuck == outcome.stuck
        assert len(str(schedule).splitlines()) <= 12


@many
@given(programs(boxes=True))
def test_cores_that_must_get_stuck_do(program: Program):
    at = run_to_end(program).at
    assert all(at[point.core] <= point.index for point in must_happen_before(program).never)


def test_a_stuck_wait_tells_what_it_waits_for_and_what_ever_came():
    outcome = run_to_end(
        program([start("s", 3), Wait("s", 1), Wait("s", 4)], [Wait("t", 1)], initial={"t": 0})
    )
    assert outcome.stuck == (StuckWait(Point(0, 2), "s", 4, 2, 3), StuckWait(Point(1, 0), "t", 1, 0, 0))
    assert outcome.unfinished == (0, 1)
    assert outcome.left == {"s": 2}


def test_a_barrier_that_not_every_core_reaches_is_named():
    whole = program(
        [Wait("s", 1), Mark("enter", "k"), Signal("t", 1)],
        [Mark("enter", "k"), Signal("t", 1)],
        barriers=(((0, 1), (1, 0)),),
    )
    assert run_to_end(whole).stuck == (StuckWait(Point(0, 0), "s", 1, 0, 0), StuckWait(Point(1, 1)))
    assert "barrier" in str(find_stuck(whole))


def test_cores_that_wait_on_one_semaphore_are_tried_in_every_order():
    """One order ends well: the core that signals takes the only count."""
    whole = program([Wait("s", 1), Signal("s", 1)], [Wait("s", 1)], [Signal("s", 1)])
    outcome = run_to_end(whole)
    assert outcome.unfinished == (0,)
    assert outcome.exhaustive
    assert not run_to_end(whole, budget=1).exhaustive


def test_counts_that_nobody_takes_are_left():
    outcome = run_to_end(program([start("s", 4, source="r", source_amount=2), Wait("s", 1)]))
    assert (outcome.left, outcome.stuck) == ({"s": 3, "r": 2}, ())


# -- lifetimes --------------------------------------------------------------------------------------------------------


@many
@given(programs(boxes=True))
def test_a_touch_outside_a_life_has_a_witness_exactly_when_some_run_shows_it(body: Program):
    """Everything that is touched is made to belong to core 0, from its first event to its last."""
    memory, names = (slot(0, 0, 9), slot(1, 0, 9)), tuple(range(3))
    begin, end = (Mark(kind, "kernel", memory, names) for kind in ("enter", "exit"))
    first = (begin, *body.cores[0].events, end)
    whole = Program((dataclasses.replace(body.cores[0], events=first), *body.cores[1:]), (), body.initial)
    runs, order = AllRuns(whole), must_happen_before(whole)
    assume(runs.complete)
    last, found = len(first) - 1, {(touch.point, touch.early) for touch in order.touches()}
    for point in points(whole):
        event = whole.cores[point.core].events[point.index]
        if isinstance(event, Start) is (point.half is None) or not isinstance(event, Start | Signal):
            continue
        mark = Point(0, 0) if (point, True) in found else Point(0, last)
        schedule = find_early_touch(whole, point, mark)
        begun = Point(point.core, point.index)
        early = any(runs.happened(s, begun) and s.at[0] == 0 for s in runs.states)
        ended = [s for s in runs.states if s.at[0] > last and not runs.happened(s, point)]
        late = any(runs.happened(s, begun) for s in ended) or (
            point.half is None
            and any(runs.can_advance(s, point.core) and s.at[point.core] == point.index for s in ended)
        )
        if schedule is not None:
            assert schedule.replay().reproduced
            assert len(str(schedule).splitlines()) <= 12
        if not is_contested(whole):
            assert (schedule is not None) is (early if mark.index == 0 else late)


def test_a_remote_copy_before_the_entry_and_after_the_exit():
    box = slot("buf")
    kernel = [Mark(kind, "kernel", (box,), ("s",), at(line)) for kind, line in (("enter", 1), ("exit", 9))]
    whole = program([Start(Copy(None, box, None, "s", 0, 4, name="x -> buf"), at(5))], kernel)
    early, late = (find_early_touch(whole, written(0, 0), Point(1, index)) for index in (0, 1))
    assert str(early).splitlines() == [
        "1. device 0 starts the copy x -> buf (kernel.py:5)",
        "2. device 0's copy x -> buf writes its destination before device 1 enters the kernel (kernel.py:1)",
    ]
    assert "after device 1 leaves the kernel (kernel.py:9)" in str(late)


def test_a_late_signal_is_held_back_until_the_mark_has_passed():
    kernel = [Mark("enter", "kernel"), Mark("exit", "kernel", (), ("s",))]
    whole = program([Signal("s", 1)], kernel)
    schedule = find_early_touch(whole, Point(0, 0), Point(1, 1))
    assert schedule is not None
    assert schedule.steps == (Advance(1, 2), Advance(0, 1))


def test_a_touch_is_looked_for_at_a_mark():
    with pytest.raises(InvalidArgumentError, match="mark"):
        find_early_touch(program([Signal("s", 1)]), Point(0, 0), Point(0, 0))


# -- the story --------------------------------------------------------------------------------------------------------


def test_a_schedule_reads_as_a_few_numbered_steps():
    """Double buffering that waits on the wrong slot's semaphore in step 1."""
    events = []
    for i in range(3):
        copy = Copy(None, slot("buf", i % 2), None, i % 2, 0, 4096, name=f"x[{i}] -> buf[{i % 2}]")
        events.append(Start(copy, at(12, moment=f"grid step {i}")))
    for i, semaphore in ((0, 0), (1, 0)):
        events.append(Wait(semaphore, 4096, site=at(14, f"sem[{semaphore}]", f"grid step {i}")))
        events.append(Access(slot("buf", i % 2), False, at(15, f"buf[{i % 2}]", f"grid step {i}")))
    whole = program(events)
    race = next(r for r in must_happen_before(whole).races() if r.second.begin == Point(0, 6))
    assert str(find_overlap(whole, race)).splitlines() == [
        "1. device 0 starts the copy x[0] -> buf[0] (kernel.py:12, grid step 0)",
        "2. device 0 starts the copy x[1] -> buf[1] (kernel.py:12, grid step 1)",
        "3. device 0 starts the copy x[2] -> buf[0] (kernel.py:12, grid step 2)",
        "4. the copy x[0] -> buf[0] completes",
        "5. device 0 passes its wait for 4096 on sem[0] (kernel.py:14, grid step 0) "
        "and runs on to kernel.py:15, grid step 0",
        "6. the copy x[2] -> buf[0] completes",
        "7. device 0 passes its wait for 4096 on sem[0] (kernel.py:14, grid step 1)",
        "8. device 0 reads buf[1] (kernel.py:15, grid step 1) while the copy x[1] -> buf[1] "
        "(started at kernel.py:12, grid step 1) may still be writing its destination",
    ]


def test_a_long_schedule_leaves_out_its_middle():
    rounds = [event for i in range(40) for event in (start(("s", i)), Wait(("s", i), 1))]
    whole = program([start("s", writes=slot("buf")), *rounds, Access(slot("buf"), False)])
    (race,) = must_happen_before(whole).races()
    lines = str(find_overlap(whole, race)).splitlines()
    assert len(lines) == 12
    assert "more steps" in lines[1]


def test_a_stuck_state_names_each_stuck_core_and_what_it_waits_for():
    whole = program([Wait("s", 2, site=at(7, "ready"))], [Signal("s", 1)])
    assert str(find_stuck(whole)).splitlines() == [
        "1. every core runs as far as it can, every copy completes (1 event)",
        "2. device 0 waits for 2 on ready (kernel.py:7) for ever: 1 there, of 1 ever signalled",
    ]
