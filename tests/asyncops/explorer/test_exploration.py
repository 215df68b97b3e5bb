"""What callers rely on: limits are said, input is checked, results do not vary."""

from __future__ import annotations

import subprocess
import sys

import pytest

from asyncops.checker.events import Copy, Core, Program, Start, Wait
from asyncops.explorer import explore
from asyncops.explorer.generating import random_program
from asyncops.explorer.notation import parse_program
from asyncops.explorer.precedence import exact_order
from stateful.errors import InvalidArgumentError

TWO_WRITERS = parse_program("core 0\n  write x\ncore 1\n  write x\n")
ONE_WRITER = parse_program("core 0\n  write x\n  write x\n")


def test_no_program_has_one_state_and_one_execution():
    exploration = explore(Program(()))
    assert (exploration.verdict, exploration.states, exploration.executions) == ("clean", 1, 1)


def test_a_limit_in_the_way_is_said():
    exploration = explore(ONE_WRITER, limit=2)
    assert not exploration.complete
    assert exploration.verdict == "incomplete"
    assert exploration.states == 2


def test_a_limit_that_suffices_is_not():
    exploration = explore(ONE_WRITER, limit=3)
    assert exploration.verdict == "clean"


def test_what_was_found_before_the_limit_is_kept():
    exploration = explore(TWO_WRITERS, limit=1)
    assert not exploration.complete
    assert exploration.verdict == "findings"
    assert len(exploration.races) == 1


def test_a_finding_has_the_schedule_that_leads_to_it():
    program = parse_program("core 0\n  start x -> y recv s:4\n  wait s 3\n  read y\n")
    (race,) = explore(program).races
    assert [(point.index, point.half and point.half.value) for point in race.schedule] == [
        (0, None), (0, "read-done"), (1, None)
    ]  # fmt: skip


def test_the_exact_order_has_a_limit_too():
    program = parse_program("core 0\n  wait s 1\ncore 1\n  wait s 1\ncore 2\n  signal s 2\n")
    assert exact_order(program, limit=1) is None
    assert exact_order(program) is not None


def test_one_copy_object_started_twice_is_two_copies():
    start = Start(Copy(None, None, None, "s", 0, 2))
    exploration = explore(Program((Core(0, (start, start, Wait("s", 4))),)))
    assert exploration.verdict == "clean"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: explore(ONE_WRITER, limit=0), "limit: 0 states hold no program; give 1 or more"),
        (
            lambda: explore(Program((Core(0, (Wait("s", -1),)),))),
            "program: event 0 of core 0 has a negative amount; amounts count up from 0",
        ),
        (
            lambda: explore(Program((Core(0, ()),), barriers=(((0, 0),),))),
            "program: a barrier names event 0 of core 0, which does not exist; "
            "give (core, event index) pairs of the program's own events",
        ),
    ],
)
def test_bad_input_is_refused_with_its_cure(call, message):
    with pytest.raises(InvalidArgumentError) as refused:
        call()
    assert str(refused.value) == message


PRINT_EXPLORATIONS = """
from asyncops.explorer import explore
from asyncops.explorer.generating import random_program
from asyncops.explorer.notation import format_program
for seed in range(60):
    print(format_program(random_program(seed)), explore(random_program(seed)))
"""


def test_programs_and_findings_do_not_depend_on_hashing():
    printed = {
        subprocess.run(
            [sys.executable, "-c", PRINT_EXPLORATIONS],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1


def test_a_program_explores_the_same_again():
    for seed in range(20):
        assert explore(random_program(seed)) == explore(random_program(seed))
