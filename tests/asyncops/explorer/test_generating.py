"""Generated programs: varied, small, and shrunk to what can be read."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, find, settings

from asyncops.checker.events import Access, Program, Start, Wait
from asyncops.explorer import explore
from asyncops.explorer.drafting import Draft, SeededChooser
from asyncops.explorer.generating import random_program
from asyncops.explorer.idioms import IDIOMS
from asyncops.explorer.notation import format_program, parse_program
from asyncops.explorer.shrinking import shrink
from asyncops.explorer.strategies import programs

STATES = 20_000


def events(program: Program) -> list[object]:
    return [event for core in program.cores for event in core.events]


def test_programs_are_small_and_all_different():
    made = [random_program(seed) for seed in range(300)]
    assert max(len(events(program)) for program in made) < 80
    assert len({format_program(program) for program in made}) > 270


def test_programs_have_every_kind_of_event_and_both_verdicts():
    made = [random_program(seed) for seed in range(300)]
    kinds = Counter(type(event).__name__ for program in made for event in events(program))
    assert set(kinds) == {"Access", "Start", "Signal", "Wait", "Mark"}
    assert any(program.barriers for program in made)
    verdicts = Counter(explore(program, limit=STATES).verdict for program in made)
    assert verdicts["clean"] > 30
    assert verdicts["findings"] > 100


@pytest.mark.parametrize("idiom", IDIOMS, ids=lambda idiom: idiom.__name__)
def test_every_idiom_is_right_in_some_draft_of_its_own(idiom):
    """Otherwise it would only ever show that wrong programs are found."""
    verdicts = set()
    for seed in range(40):
        draft = Draft(SeededChooser(seed), [[], [], []])
        idiom(draft)
        exploration = explore(draft.program(), limit=STATES)
        verdicts.add((bool(exploration.races), bool(exploration.deadlocks)))
    assert (False, False) in verdicts


def has_short_wait(program: Program) -> bool:
    """A race of a copy with an access of its own core: it takes a start and an access at least."""
    exploration = explore(program, limit=STATES)
    return any(race.first.core == race.second.core and race.second.half is None for race in exploration.races)


def test_hypothesis_shrinks_to_few_events():
    program = find(
        programs(),
        has_short_wait,
        settings=settings(
            max_examples=500, database=None, derandomize=True, phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck), deadline=None,
        ),
    )  # fmt: skip
    assert len(events(program)) <= 4, format_program(program)


def test_shrinking_keeps_the_property_and_nothing_else():
    seed = next(seed for seed in range(100) if has_short_wait(random_program(seed)))
    program = shrink(random_program(seed), has_short_wait)
    assert [type(event) for event in events(program)] == [Start, Access]


def test_shrinking_moves_barriers_with_their_events():
    text = "core 0\n  read x\n  write y\n  write y\ncore 1\n  write y\n  read x\nbarrier 0:1 1:0\n"

    def is_ordered(program: Program) -> bool:
        writes = [event for event in events(program) if isinstance(event, Access) and event.write]
        return len(program.barriers) == 1 and len(writes) == 3 and len(explore(program).races) == 1

    shrunk = shrink(parse_program(text), is_ordered)
    assert format_program(shrunk) == "core 0\n  write y\n  write y\ncore 1\n  write y\nbarrier 0:0 1:0\n"


def test_shrinking_lowers_amounts():
    text = "core 0\n  start x -> y send t:3 recv s:3 add\n  wait s 2\n"
    shrunk = shrink(
        parse_program(text), lambda program: any(isinstance(event, Wait) for event in events(program))
    )
    assert format_program(shrunk) == "core 0\n  wait s 1\n"
