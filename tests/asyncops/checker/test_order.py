"""Must-happen-before: litmus programs, the rule word for word, and every run of small programs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from tiny_programs import (
    AllRuns,
    busy_program,
    is_contested,
    points,
    program,
    programs,
    rule,
    slot,
    start,
)

from asyncops.checker.events import (
    Access,
    Box,
    Half,
    Location,
    Mark,
    Point,
    Signal,
    Site,
    Start,
    Wait,
)
from asyncops.checker.order import Balance, must_happen_before
from asyncops.checker.races import uses_of

KIB4 = 4096
# The programs are tiny: many of them cost little, and what is rare among them is what matters.
many = settings(max_examples=max(400, settings.default.max_examples))


def read(core: int, index: int) -> Point:
    return Point(core, index, Half.READ_DONE)


def written(core: int, index: int) -> Point:
    return Point(core, index, Half.WRITE_DONE)


# -- litmus -----------------------------------------------------------------------------------------------------------


def test_one_wait_for_two_copies_orders_neither():
    order = must_happen_before(
        program([start("s", KIB4), start("s", KIB4), Wait("s", KIB4), Wait("s", KIB4)])
    )
    for copy in (0, 1):
        assert not order.before(written(0, copy), Point(0, 2))
        assert order.before(written(0, copy), Point(0, 3))
        assert order.before(read(0, copy), Point(0, 3))
        assert order.completion_waits(written(0, copy)) == (Point(0, 3),)
    assert [order.spare(Point(0, index)) for index in (2, 3)] == [KIB4, 0]


def test_partial_waits_order_the_copy_only_when_they_add_up():
    order = must_happen_before(program([start("s", 4), Wait("s", 1), Wait("s", 3)]))
    assert not order.before(written(0, 0), Point(0, 1))
    assert order.before(written(0, 0), Point(0, 2))


def test_one_wait_may_cover_many_copies():
    order = must_happen_before(program([start("s", 2), start("s", 2), Wait("s", 4)]))
    assert all(order.before(written(0, copy), Point(0, 2)) for copy in (0, 1))


def test_copies_of_one_core_are_not_first_in_first_out():
    order = must_happen_before(program([start("s"), Wait("s", 1), start("s"), start("s"), Wait("s", 1)]))
    assert order.before(written(0, 0), Point(0, 1))
    assert not order.before(written(0, 2), Point(0, 4))
    assert not order.before(written(0, 2), written(0, 3))


def test_a_wait_without_decrement_needs_its_amount_and_adds_nothing():
    order = must_happen_before(
        program([start("s", 2), Wait("s", 2, decrement=False), start("s", 2), Wait("s", 2)])
    )
    assert order.before(written(0, 0), Point(0, 1))
    assert not order.before(written(0, 2), Point(0, 3))  # the first copy's counts are still there


def test_a_test_after_a_wait_needs_the_earlier_decrements_too():
    order = must_happen_before(
        program([start("s", 2), start("s", 2), Wait("s", 2), Wait("s", 2, decrement=False)])
    )
    assert all(order.before(written(0, copy), Point(0, 3)) for copy in (0, 1))


def test_both_halves_of_a_copy_may_count_on_one_semaphore():
    order = must_happen_before(
        program([start("s", 2, source="s", source_amount=2), Wait("s", 3), Wait("s", 1)])
    )
    assert order.before(read(0, 0), Point(0, 1))  # else two counts at most are short of three
    assert not order.before(written(0, 0), Point(0, 1))
    assert order.before(written(0, 0), Point(0, 2))


def test_the_count_of_a_copy_is_full_only_when_it_is_done():
    """A wait for less than all returns while the copy is still moving; its start is behind nevertheless."""
    order = must_happen_before(program([start("s", KIB4)], [Wait("s", 1)]))
    assert order.before(Point(0, 0), Point(1, 0))
    assert not order.before(written(0, 0), Point(1, 0))


def test_either_neighbours_signal_implies_that_the_right_one_has_entered():
    """Double barrier: the second wait needs a signal that its sender gives only after it met all it waits for."""
    enter, left, middle, right = Mark("enter", "kernel"), "left", "middle", "right"
    order = must_happen_before(
        program(
            [enter, Signal(middle, 1), Signal(right, 1), Wait(left, 2), Signal(middle, 1)],
            [enter, Signal(left, 1), Signal(right, 1), Wait(middle, 3)],
            [enter, Signal(left, 1), Signal(middle, 1), Wait(right, 2), Signal(middle, 1)],
        )
    )
    # The middle one gets four signals and needs three: whichever is missing, both neighbours have entered.
    assert order.before(Point(0, 0), Point(1, 3))
    assert order.before(Point(2, 0), Point(1, 3))
    assert not order.before(Point(2, 4), Point(1, 3))


def test_a_signal_chain_orders_across_three_devices():
    order = must_happen_before(
        program(
            [Access(slot("x"), True), Signal("a", 1)],
            [Wait("a", 1), Signal("b", 1)],
            [Wait("b", 1), Access(slot("x"), False)],
        )
    )
    assert order.before(Point(0, 0), Point(2, 1))
    assert order.races() == ()


def test_a_completion_known_on_one_device_is_known_where_it_signals():
    order = must_happen_before(program([start("s"), Wait("s", 1), Signal("t", 1)], [Wait("t", 1)]))
    assert order.before(written(0, 0), Point(1, 0))


def test_two_devices_that_may_tell_of_a_copy_tell_of_it_together():
    """Neither of the two signals is needed, but both are given only after the copy has read its source."""
    order = must_happen_before(
        program(
            [start("there", source="here"), Wait("here", 1), Signal("go", 1)],
            [Wait("there", 1), Signal("go", 1)],
            [Wait("go", 1)],
        )
    )
    assert order.before(read(0, 0), Point(2, 0))
    assert not order.before(written(0, 0), Point(2, 0))
    assert not order.before(Point(0, 1), Point(2, 0))


def test_a_later_wait_on_another_core_needs_what_the_earlier_one_took():
    order = must_happen_before(
        program([start("s"), start("s")], [Wait("s", 1), Signal("t", 1)], [Wait("t", 1), Wait("s", 1)])
    )
    assert not order.before(written(0, 0), Point(1, 0))
    assert all(order.before(written(0, copy), Point(2, 1)) for copy in (0, 1))


def test_a_signal_that_comes_only_after_the_wait_cannot_feed_it():
    order = must_happen_before(
        program([Wait("t", 1), Signal("s", 1)], [Signal("s", 1)], [Wait("s", 1), Signal("t", 1)])
    )
    assert order.before(Point(1, 0), Point(2, 0))


def test_what_precedes_is_found_also_where_waits_support_each_other_in_a_circle():
    """Cores 0 and 3 may each go on by what the other does next, but the first of them needs core 1, and that core 2."""
    order = must_happen_before(
        program(
            [Wait("b", 1), Wait("b", 1), Signal("c", 1)],
            [Wait("a", 1), Signal("b", 2), Signal("c", 3)],
            [Signal("a", 3)],
            [Wait("c", 1), Signal("a", 2), Signal("b", 1)],
        )
    )
    assert order.before(Point(1, 1), Point(0, 0))
    assert order.before(Point(2, 0), Point(0, 0))
    assert order.before(Point(2, 0), Point(3, 0))


def test_a_start_that_waits_for_an_earlier_copy_withholds_its_counts_with_it():
    """The second copy starts only after the first has read its source; so whichever count comes, the first one has."""
    first, second = start("there", source="here"), start("there", source="here")
    order = must_happen_before(program([first, Wait("here", 1), second, Wait("here", 1)], [Wait("there", 1)]))
    assert order.before(read(0, 0), Point(1, 0))
    assert not order.before(written(0, 0), Point(1, 0))
    assert order.completion_waits(read(0, 0)) == (Point(0, 1), Point(1, 0))


@pytest.mark.parametrize("separate", [False, True])
def test_a_barrier_used_twice_can_be_passed_on_signals_of_the_next_call(separate: bool):
    """Four devices in a ring meet their neighbours, twice. On one semaphore the first meeting proves nothing."""

    def core(device: int) -> list:
        rounds = []
        for call in (0, 1):
            names = [("barrier", call * separate, (device + way) % 4) for way in (-1, 1)]
            rounds += [Mark("enter", call), *(Signal(n, 1) for n in names)]
            rounds.append(Wait(("barrier", call * separate, device), 2))
        return rounds

    order = must_happen_before(program(*map(core, range(4))))
    assert order.before(Point(1, 0), Point(0, 3)) is separate
    assert order.before(Point(1, 0), Point(0, 7))


def test_a_barrier_of_the_program_orders_everything_before_with_everything_after():
    order = must_happen_before(
        program(
            [Mark("enter", "k"), Access(slot("x"), True)],
            [Access(slot("x"), False), Mark("enter", "k"), Signal("s", 1)],
            barriers=(((0, 0), (1, 1)),),
        )
    )
    assert order.before(Point(1, 0), Point(0, 1))
    assert order.before(Point(0, 0), Point(1, 2))
    assert not order.before(Point(0, 0), Point(1, 1))
    assert order.races() == ()


def test_counts_that_are_there_from_the_beginning_need_nobody():
    events = [start("s"), Wait("s", 1)]
    assert must_happen_before(program(events)).before(written(0, 0), Point(0, 1))
    assert not must_happen_before(program(events, initial={"s": 1})).before(written(0, 0), Point(0, 1))


def test_waits_that_wait_for_each_other_never_happen():
    order = must_happen_before(
        program(
            [Wait("a", 1), Signal("b", 1)],
            [Wait("b", 1), Signal("a", 1)],
            [Wait("a", 1), Signal("c", 1)],
            [start()],
        )
    )
    assert order.never == (Point(0, 0), Point(1, 0), Point(2, 0))
    assert order.before(Point(3, 0), Point(0, 1))
    assert not order.before(Point(0, 1), Point(3, 0))


# -- properties -------------------------------------------------------------------------------------------------------


def possible_points(program, order):
    """All points that the order does not hold to be impossible."""
    never = {point.core: point.index for point in order.never}
    return [p for p in points(program) if p.index < never.get(p.core, p.index + 1)]


@many
@given(programs(largest=12) | st.builds(busy_program, st.integers(0, 10**6)))
def test_it_is_the_rule_pair_by_pair(program):
    order, expected = must_happen_before(program), rule(program)
    possible = possible_points(program, order)
    assert {p for p in points(program) if expected(p, p)}.isdisjoint(possible)
    assert all(expected(stop, stop) for stop in order.never)
    assert [
        (a, b) for a in possible for b in possible if order.before(a, b) != (a != b and expected(a, b))
    ] == []


@many
@given(programs())
def test_what_it_orders_is_ordered_in_every_run(program):
    runs, order = AllRuns(program), must_happen_before(program)
    assume(runs.complete)
    possible = runs.possible()
    assert {
        p for stop in order.never for p in points(program) if p.core == stop.core and p.index >= stop.index
    }.isdisjoint(possible)
    for b in possible:
        ordered = {a for a in possible if a != b and order.before(a, b)}
        if is_contested(program):
            assert ordered <= runs.must(b)
        else:
            assert ordered == runs.must(b) & possible  # and nothing is missed


@many
@given(programs(largest=14, boxes=True))
def test_races_are_the_conflicting_uses_that_nothing_orders(program):
    order = must_happen_before(program)
    never = {point.core: point.index for point in order.never}
    events = [(c, i) for c, core in enumerate(program.cores) for i in range(never.get(c, len(core.events)))]
    uses = [use for core, index in events for use in uses_of(program, core, index)]
    expected = set()
    for n, a in enumerate(uses):
        for b in uses[:n]:
            conflict = a.begin != b.begin and (a.write or b.write) and a.box.overlaps(b.box)
            if conflict and not order.before(a.end, b.begin) and not order.before(b.end, a.begin):
                expected.add(frozenset((a, b)))
    races = order.races(limit=10**6)
    assert len(races) == len(expected)
    assert {frozenset((race.first, race.second)) for race in races} == expected


@given(programs(largest=10, boxes=True))
def test_the_same_program_gives_the_same_races_in_the_same_order(program):
    assert must_happen_before(program).races() == must_happen_before(program).races()


# -- races ------------------------------------------------------------------------------------------------------------


def copy_in(index: int, line: int = 1, semaphore: str = "s") -> Start:
    event = start(semaphore, writes=slot("buf", index), reads=slot("x", index))
    return Start(event.copy, Site(Location("kernel.py", line)))


def test_a_copy_writes_until_its_wait_and_reads_until_its_read_wait():
    copy = start("recv", source="send", reads=slot("x"), writes=slot("y"))
    events = [copy, Wait("send", 1), Access(slot("x"), True), Access(slot("y"), False), Wait("recv", 1)]
    (race,) = must_happen_before(program(events)).races()
    assert (race.first.copy, race.first.end) == (copy.copy, written(0, 0))
    assert race.second.begin == Point(0, 3)


def test_disjoint_strided_regions_do_not_race():
    even, odd = (Box("buf", ((first, 4, 2),)) for first in (0, 1))
    events = [start(writes=even), Access(odd, True), Access(even, True)]
    (race,) = must_happen_before(program(events)).races()
    assert race.second.begin == Point(0, 2)


def test_boxes_of_another_rank_are_taken_to_overlap():
    flat, square = slot("buf", 5), Box("buf", ((0, 1, 1), (0, 1, 1)))
    assert len(must_happen_before(program([start(writes=flat), Access(square, False)])).races()) == 1


def test_a_copy_onto_itself_is_no_race_of_two():
    assert must_happen_before(program([start(reads=slot("x"), writes=slot("x"))])).races() == ()


def test_races_of_one_pair_of_lines_can_be_thinned_out():
    events = [copy_in(0, line) for line in (1, 2) for _ in range(5)]
    order = must_happen_before(program(events))
    assert len(order.races()) == 45
    assert len(order.races(limit=7)) == 7
    assert len(order.races(per_place=2)) == 6  # lines (1, 1), (1, 2) and (2, 2), twice each


# -- facts ------------------------------------------------------------------------------------------------------------


def test_feeders_leave_out_what_comes_later_and_what_is_used_up():
    events = [start("s"), Wait("s", 1), start("s"), Signal("s", 1), Wait("s", 1), start("s"), Wait("s", 2)]
    order = must_happen_before(program(events))
    assert order.feeders(Point(0, 1)) == (written(0, 0),)
    assert order.feeders(Point(0, 4)) == (written(0, 2), Point(0, 3))
    assert order.feeders(Point(0, 6)) == (written(0, 2), Point(0, 3), written(0, 5))


def test_feeders_of_anything_but_a_wait_is_an_error():
    with pytest.raises(ValueError, match="not a wait"):
        must_happen_before(program([Signal("s", 1)])).feeders(Point(0, 0))


def test_balances_over_the_program_and_at_a_mark():
    end = Mark("exit", "kernel", semaphores=("s", "unused"))
    order = must_happen_before(
        program(
            [start("s", 4, source="r", source_amount=2), Wait("s", 3), end, Signal("t", 1)],
            [Wait("t", 1), Signal("s", 1)],
        )
    )
    assert order.balances()["s"] == Balance(0, 5, 3)
    assert order.balances()["r"].left == 2
    assert order.balances_at(Point(0, 2)) == {"s": Balance(0, 4, 3), "unused": Balance(0, 0, 0)}


def scope(kind: str, what: str = "scope") -> Mark:
    return Mark(kind, what, (slot("buf", 0, 8),), ("s",))


def test_a_copy_that_nobody_waits_for_outlives_its_scope():
    order = must_happen_before(program([scope("allocate"), copy_in(0), scope("free")]))
    touches = {(touch.point, touch.what, touch.mark, touch.early) for touch in order.touches()}
    assert touches == {
        (written(0, 1), slot("buf", 0), Point(0, 2), False),
        (written(0, 1), "s", Point(0, 2), False),
    }


def test_a_copy_that_is_waited_for_stays_within_its_scope_each_time():
    once = [scope("allocate"), copy_in(0), Wait("s", 1), scope("free")]
    assert must_happen_before(program(once * 3)).touches() == ()


def test_a_copy_started_between_two_scopes_touches_the_second_too_early():
    once = [scope("allocate"), copy_in(0), Wait("s", 1), scope("free")]
    (touch,) = must_happen_before(program([*once, copy_in(0, semaphore="t"), *once])).touches()
    assert (touch.point, touch.mark, touch.early) == (written(0, 4), Point(0, 5), True)


def kernel(*body) -> list:
    memory = (slot("buf", 0, 8),)
    return [Mark("enter", "kernel", memory, ("s", "go")), *body, Mark("exit", "kernel", memory, ("s", "go"))]


def test_without_an_entry_barrier_a_remote_copy_comes_too_early():
    touches = must_happen_before(program([copy_in(0)], kernel(Wait("s", 1)))).touches()
    assert {(touch.point, touch.mark, touch.early) for touch in touches} == {
        (written(0, 0), Point(1, 0), True)
    }
    ready = program([Wait("ready", 1), copy_in(0)], kernel(Signal("ready", 1), Wait("s", 1)))
    assert must_happen_before(ready).touches() == ()


def test_a_remote_signal_may_come_too_early_or_too_late():
    alone = must_happen_before(program([Signal("go", 1)], kernel(Wait("go", 1))))
    assert [(t.point, t.mark, t.early) for t in alone.touches()] == [(Point(0, 0), Point(1, 0), True)]
    late = must_happen_before(program([Wait("ready", 1), Signal("go", 1)], kernel(Signal("ready", 1))))
    assert [(t.point, t.mark, t.early) for t in late.touches()] == [(Point(0, 1), Point(1, 2), False)]


def test_a_scoped_semaphore_may_be_signalled_by_others_from_enter_on():
    scoped = [scope("allocate"), Wait("s", 1), scope("free")]
    order = must_happen_before(
        program([Wait("ready", 1), Signal("s", 1)], [Mark("enter", "kernel"), Signal("ready", 1), *scoped])
    )
    assert order.touches() == ()


def test_memory_that_several_cores_mark_lives_as_long_as_one_of_them_says():
    """Operands of a device with two cores: a core's own copy does not wait for the other core to enter."""
    both = must_happen_before(program(kernel(copy_in(0), Wait("s", 1)), kernel()))
    assert both.touches() == ()


# -- growth -----------------------------------------------------------------------------------------------------------


def test_a_fixpoint_that_converges_too_slowly_is_cut_short_and_says_so(monkeypatch):
    from asyncops.checker import clocks

    def core(device: int) -> list:
        meet = [Signal((device + 1) % 4, 1), Signal((device - 1) % 4, 1), Wait(device, 2)]
        return meet * 6

    cores = program(*map(core, range(4)))
    whole = must_happen_before(cores)
    assert whole.exact
    monkeypatch.setattr(clocks, "_VISITS", 1)
    short = must_happen_before(cores)
    assert not short.exact
    pairs = [(a, b) for a in points(cores) for b in points(cores)]
    assert all(whole.before(*pair) for pair in pairs if short.before(*pair))
