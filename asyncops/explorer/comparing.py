"""The checker against the explorer on one program: laws that must hold, and how tight the checker is.

The explorer knows every schedule of a small program, so it can say of each claim of the checker whether it is
true. A *law* broken is a defect of one of the two. What is allowed to differ is counted: the order may miss
an order that only a deeper argument shows, and may then report a race that no schedule has; it must not be
confirmed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from asyncops.checker.events import Program
from asyncops.explorer.cases import Case, open_case
from asyncops.explorer.findings import Exploration
from asyncops.explorer.order_laws import ORDER_LAWS
from asyncops.explorer.replay_laws import REPLAY_LAWS

DEFAULT_LIMIT = 20_000
LAWS = {**ORDER_LAWS, **REPLAY_LAWS}


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A law that a program breaks, and where."""

    law: str
    text: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """What explorer and checker say of one program.

    Attributes:
      disagreements: broken laws.
      counts: how tight the checker is, by the labels of ``TIGHTNESS``. Both are empty if the exploration is
        not complete, for then nothing is known.
    """

    exploration: Exploration
    disagreements: tuple[Disagreement, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict[str, int])


ORDERS = "orders that hold in every schedule"
ORDERS_MISSED = "  not claimed by the checker"
RACES = "races of the checker that some schedule has"
RACES_UNCONFIRMED = "  not confirmed"
FALSE_RACES = "races of the checker that no schedule has"
FALSE_RACES_KEPT = "  not refuted"
TIGHTNESS = (ORDERS, ORDERS_MISSED, RACES, RACES_UNCONFIRMED, FALSE_RACES, FALSE_RACES_KEPT)


def compare(program: Program, *, limit: int = DEFAULT_LIMIT) -> Comparison:
    """Explores ``program`` up to ``limit`` states and holds the checker to it."""
    exploration, case = open_case(program, limit)
    if case is None:
        return Comparison(exploration)
    broken = (Disagreement(law, text) for law, find in LAWS.items() for text in find(case))
    return Comparison(exploration, tuple(broken), _tightness(case))


def _tightness(case: Case) -> dict[str, int]:
    orders = list(case.exact_orders())
    real = [search for pair, search in case.searches.items() if pair in case.races]
    false = [search for pair, search in case.searches.items() if pair not in case.races]
    return {
        ORDERS: len(orders),
        ORDERS_MISSED: sum(not case.order.before(a, b) for a, b in orders),
        RACES: len(real),
        RACES_UNCONFIRMED: sum(search.schedule is None for search in real),
        FALSE_RACES: len(false),
        FALSE_RACES_KEPT: sum(not search.exhaustive for search in false),
    }
