from __future__ import annotations

import pytest
from hypothesis import given

from asyncops.checker.events import Box
from asyncops.explorer import explore
from asyncops.explorer.notation import format_box, format_program, format_schedule, parse_program
from asyncops.explorer.strategies import programs
from stateful.errors import InvalidArgumentError

EVERYTHING = """\
initial lock 1
core 0
  enter k x0[0:4] / s
  start x0[0:4] -> y1[0:4] send s:4 recv r:4
  wait s 4
  exit k x0[0:4] / s
core 1 device 0
  wait r 4
  test r 1
  start _ -> z?
  start z -> a[0:2,3:8:2] recv q:1 add
  read y1[0:7:2]
  write y1
  signal lock 2
  allocate scope / q
  free scope
barrier 0:0 1:0
"""


def test_what_is_written_is_read_back():
    assert format_program(parse_program(EVERYTHING)) == EVERYTHING


@given(programs())
def test_any_program_is_read_back(program):
    text = format_program(program)
    assert format_program(parse_program(text)) == text


def test_a_schedule_reads_like_the_program():
    program = parse_program("core 0\n  start x -> y recv s:4\n  wait s 3\n  read y\n")
    (race,) = explore(program).races
    assert format_schedule(program, race.schedule).splitlines() == [
        "core 0: start x -> y recv s:4",
        "core 0: read-done of start x -> y recv s:4",
        "core 0: wait s 3",
    ]


def test_comments_and_empty_lines_mean_nothing():
    assert (
        format_program(parse_program("# a race\n\ncore 0  # the only one\n  read x\n"))
        == "core 0\n  read x\n"
    )


@pytest.mark.parametrize(
    ("box", "text"),
    [
        (Box("x"), "x"),
        (Box("x", ((2, 3, 1),)), "x[2:5]"),
        (Box("x", ((2, 3, 4), (0, 1, 1))), "x[2:11:4,0:1]"),
        (Box("x", ((2, 0, 1),)), "x[2:2]"),
        (Box("x", (), exact=False), "x?"),
        (None, "_"),
    ],
)
def test_boxes(box, text):
    assert format_box(box) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("read x", "text: line 1, 'read x': write 'core 0' before the first event"),
        ("core 0\n  read", "text: line 2, 'read': the form is 'read BOX'"),
        ("core 1", "text: line 1, 'core 1': the form is 'core NUMBER [device NUMBER]'"),
        ("core 0\n  wait s x", "text: line 2, 'wait s x': the form is 'wait SEMAPHORE AMOUNT'"),
        (
            "core 0\n  start x -> y send s",
            "text: line 2, 'start x -> y send s': the form is 'start BOX -> BOX",
        ),
        ("core 0\n  read x[1]", "text: line 2, 'read x[1]': the form is 'read BOX'"),
        ("core 0\n  jump", "text: line 2, 'jump': a line begins with one of core, initial, barrier, start,"),
    ],
)
def test_a_line_that_is_no_event_is_refused_with_its_form(text, message):
    with pytest.raises(InvalidArgumentError) as refused:
        parse_program(text)
    assert str(refused.value).startswith(message)
