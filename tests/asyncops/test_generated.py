"""The checker against the explorer on generated programs, and proof that this would notice an unsound
checker.

The laws are in ``asyncops/explorer/order_laws.py`` and ``replay_laws.py``. ``python -m asyncops.explorer
--programs 100000`` checks them on as many programs as one likes; here hypothesis does, hundreds of programs
by default and thousands with ``HYPOTHESIS_PROFILE=nightly``.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, note, settings

from asyncops.checker import clocks
from asyncops.checker.completions import Ledger
from asyncops.checker.scheduling import Runner
from asyncops.explorer.comparing import (
    FALSE_RACES,
    FALSE_RACES_KEPT,
    ORDERS,
    ORDERS_MISSED,
    RACES,
    RACES_UNCONFIRMED,
    compare,
)
from asyncops.explorer.notation import format_program, parse_program
from asyncops.explorer.strategies import programs
from asyncops.explorer.tallying import Tally, tally_programs

# The default profile is made for properties that trace kernels; a program here takes some milliseconds.
EXAMPLES_PER_DEFAULT = 12
LIMIT = 5_000
PLANTED_PROGRAMS = 200


@settings(max_examples=settings().max_examples * EXAMPLES_PER_DEFAULT)
@given(programs())
def test_the_laws_hold(program):
    note(format_program(program))
    assert not compare(program, limit=LIMIT).disagreements


def tally(programs: int = PLANTED_PROGRAMS) -> Tally:
    *_, result = tally_programs(0, programs, limit=LIMIT, shown_per_law=1)
    return result


@pytest.fixture(scope="module")
def unharmed() -> Tally:
    return tally()


def test_the_checker_is_tight(unharmed):
    """Laws alone would hold for a checker that orders nothing and confirms nothing."""
    counts = unharmed.counts
    assert counts[ORDERS] > 10_000
    assert counts[ORDERS_MISSED] < counts[ORDERS] / 20
    assert counts[RACES] > 100
    assert counts[RACES_UNCONFIRMED] == 0
    assert counts[FALSE_RACES] < counts[RACES] / 10
    assert counts[FALSE_RACES_KEPT] == 0


def test_programs_are_of_every_kind(unharmed):
    assert unharmed.incomplete < unharmed.programs / 100
    assert unharmed.clean > unharmed.programs / 10
    assert min(unharmed.findings.values()) > unharmed.programs / 50


HARD = {
    "full barrier, twice": """
        core 0
          signal g1 1
          signal g2 1
          wait g0 2
          read x1
          signal g1 1
          signal g2 1
          wait g0 2
        core 1
          write x1
          signal g0 1
          signal g2 1
          wait g1 2
          signal g0 1
          signal g2 1
          wait g1 2
        core 2
          signal g0 1
          signal g1 1
          wait g2 2
          signal g0 1
          signal g1 1
          wait g2 2
        """,
    "lock": """
        initial lock 1
        core 0
          wait lock 1
          write x
          signal lock 1
        core 1
          wait lock 1
          write x
          signal lock 1
        """,
    "start or exit, never both": """
        core 0
          signal g 1
          wait g 1
          exit k x / s
        core 1
          wait g 1
          start _ -> x
        """,
}


@pytest.mark.parametrize("text", HARD.values(), ids=HARD)
def test_what_takes_a_deeper_argument(text):
    """Counting does not order these, wait by wait. The search for a schedule has to say that there is none."""
    comparison = compare(parse_program(text))
    assert not comparison.exploration.races
    assert not comparison.disagreements
    assert comparison.counts[FALSE_RACES_KEPT] == 0


# Planted defects. Each must be noticed; nothing may be noticed where nothing is planted.

Plant = Callable[[pytest.MonkeyPatch], None]


def join_clocks_at_a_semaphore(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait orders every copy on its semaphore, however little it takes: the mistake of vector clocks."""
    right = Ledger.first_with_spare
    monkeypatch.setattr(Ledger, "first_with_spare", lambda ledger, most: right(ledger, 10**9))


def see_no_part_of_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that still moves is taken to show nothing; a wait may rest on parts of two."""
    right = Ledger.first_with_spare
    monkeypatch.setattr(Ledger, "first_with_spare", lambda ledger, most: right(ledger, most + 1))


def try_one_order_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where several cores wait on one semaphore, the search lets the first go and thinks that was all."""
    right = Runner.choices
    monkeypatch.setattr(
        Runner, "choices", lambda runner, state, restraint: right(runner, state, restraint)[:1]
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "laws"),
    [
        (join_clocks_at_a_semaphore, ("missed race", "false order")),
        (see_no_part_of_a_copy, ("missed race", "false order")),
        (try_one_order_only, ("missed deadlock", "false refutation of a race")),
    ],
)
def test_a_planted_unsoundness_is_found(plant: Plant, laws: tuple[str, ...], monkeypatch, unharmed):
    plant(monkeypatch)
    harmed = tally()
    assert all(harmed.broken[law] for law in laws)
    assert harmed.examples
    assert not unharmed.broken


def skip_the_fixpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each wait is decided once and never again when something it rests on becomes known."""
    monkeypatch.setattr(clocks._Agenda, "add", lambda agenda, core, sync: None)


def forget_earlier_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a wait needs is its own amount, without what earlier waits have taken off."""
    monkeypatch.setattr(clocks.Drain, "need", lambda drain, turn: drain.amounts[turn])


@pytest.mark.slow
@pytest.mark.parametrize("plant", [skip_the_fixpoint, forget_earlier_waits])
def test_a_planted_blindness_is_found(plant: Plant, monkeypatch, unharmed):
    """It breaks no law, for a race that is not excluded is looked for; it shows in what is not claimed."""
    plant(monkeypatch)
    assert tally().counts[ORDERS_MISSED] > unharmed.counts[ORDERS_MISSED]
