"""A run of the benchmark: which kernels, which tools, and what is kept of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import jax

from asyncops.bench import results
from asyncops.bench.cases import Pair, all_pairs
from asyncops.bench.outcomes import Outcome
from asyncops.bench.peers import PEERS, run_peer
from asyncops.bench.results import Run
from asyncops.bench.scoring import TOOL, check_pairs
from stateful.errors import InvalidArgumentError

Progress = Callable[[str, Outcome], None]


@dataclass(frozen=True)
class Plan:
    """What to run.

    Attributes:
      only: substrings of names or kinds of the kernels; empty: all.
      peers: run JAX's detector, too. Otherwise its stored answers are shown.
      limit: seconds that a program may take the detector.
      save: the file of results to update after each tool; None: keep nothing.
    """

    only: Sequence[str] = ()
    peers: bool = False
    limit: float = 10.0
    save: Path | None = None

    def pairs(self) -> list[Pair]:
        """The kernels of the plan.

        Raises:
          InvalidArgumentError: there are none.
        """
        chosen = [
            p for p in all_pairs() if not self.only or any(o in f"{p.kind} {p.name}" for o in self.only)
        ]
        if not chosen:
            raise InvalidArgumentError(
                f"only={list(self.only)}: no kernel has such a name or kind; --list shows all"
            )
        return chosen


def run_plan(plan: Plan, progress: Progress) -> Run:
    """The answers of the checker and, run now or stored, of JAX's detector."""
    pairs = plan.pairs()
    run = results.load(results.STORED).get(jax.__version__, Run())
    run.versions = results.current_versions()
    for tool, outcomes in _tools(plan, pairs):
        run.add(tool, _watched(tool, outcomes, progress))
        _keep(plan, run)
    run.restrict(p.name for p in pairs)
    return run


def _tools(plan: Plan, pairs: list[Pair]) -> Iterator[tuple[str, Iterator[Outcome]]]:
    yield TOOL, check_pairs(pairs)
    if plan.peers:
        yield from ((peer.name, run_peer(peer, pairs, plan.limit)) for peer in PEERS)


def _watched(tool: str, outcomes: Iterator[Outcome], progress: Progress) -> Iterator[Outcome]:
    for outcome in outcomes:
        progress(tool, outcome)
        yield outcome


def _keep(plan: Plan, run: Run) -> None:
    """Writes what there is, so that an interrupt costs one tool's answers at most."""
    if plan.save is None:
        return
    run.restrict(p.name for p in all_pairs())
    runs = results.load(plan.save)
    runs[jax.__version__] = run
    results.save(plan.save, runs)
