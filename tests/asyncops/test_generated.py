"""The checker against the explorer on generated programs, and proof that this would notice an unsound
checker.

The laws are in ``asyncops/explorer/comparing.py``. ``python -m asyncops.explorer --programs 100000`` checks
them on as many programs as one likes; here hypothesis does, hundreds of programs by default and thousands
with ``HYPOTHESIS_PROFILE=nightly``.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, note, settings

from asyncops.checker import clocks, completions
from asyncops.explorer.comparing import compare
from asyncops.explorer.notation import format_program
from asyncops.explorer.strategies import programs
from asyncops.explorer.tallying import Tally, tally_programs

# The default profile is made for properties that trace kernels; a program here takes some milliseconds.
EXAMPLES_PER_DEFAULT = 16
LIMIT = 5_000
PLANTED_PROGRAMS = 300


@settings(max_examples=settings().max_examples * EXAMPLES_PER_DEFAULT)
@given(programs())
def test_the_laws_hold(program):
    note(format_program(program))
    assert not compare(program, limit=LIMIT).disagreements


def tally(programs: int = PLANTED_PROGRAMS) -> Tally:
    *_, result = tally_programs(0, programs, limit=LIMIT)
    return result


@pytest.fixture(scope="module")
def unharmed() -> Tally:
    return tally()


def test_the_order_is_tight(unharmed):
    """Laws alone would hold for a checker that orders nothing and reports everything."""
    assert unharmed.orders > 10_000
    assert unharmed.orders_missed < unharmed.orders / 1_000
    assert unharmed.races_without_schedule < unharmed.programs / 5


def test_programs_are_of_every_kind(unharmed):
    assert unharmed.incomplete < unharmed.programs / 100
    assert unharmed.clean > unharmed.programs / 10
    assert min(unharmed.findings.values()) > unharmed.programs / 50


# Planted defects. Each must be noticed; none may be noticed where nothing is planted.


def join_clocks_at_a_semaphore(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait orders every copy on its semaphore, however little it takes: the mistake of vector clocks."""
    right = completions.Ledger.first_with_spare
    monkeypatch.setattr(
        completions.Ledger, "first_with_spare", lambda ledger, most: right(ledger, most=10**9)
    )


def believe_waits_see_full_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that still moves is taken to show nothing; a wait may rest on parts of two."""
    right = completions.Ledger.first_with_spare
    monkeypatch.setattr(
        completions.Ledger, "first_with_spare", lambda ledger, most: right(ledger, most=most + 1)
    )


@pytest.mark.parametrize("plant", [join_clocks_at_a_semaphore, believe_waits_see_full_counts])
def test_a_planted_unsoundness_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch, unharmed):
    plant(monkeypatch)
    harmed = tally()
    assert harmed.broken["missed race"] > 10
    assert harmed.broken["false order"] > 10
    assert harmed.examples
    assert not unharmed.broken


def skip_the_fixpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each wait is decided once and never again when something it rests on becomes known."""
    monkeypatch.setattr(clocks._Fixpoint, "_enqueue", lambda fixpoint, core, sync: None)


def forget_earlier_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a wait needs is its own amount, without what earlier waits have taken off."""
    monkeypatch.setattr(clocks.Drain, "need", lambda drain, turn: drain.amounts[turn])


@pytest.mark.parametrize("plant", [skip_the_fixpoint, forget_earlier_waits])
def test_a_planted_blindness_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch, unharmed):
    plant(monkeypatch)
    assert tally().orders_missed > unharmed.orders_missed
