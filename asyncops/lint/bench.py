"""``asyncops bench``: the benchmark on the command line."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import click

from asyncops.bench.benchmark import Plan, run_plan
from asyncops.bench.cases import all_pairs
from asyncops.bench.outcomes import Outcome
from asyncops.bench.results import STORED, Run, load
from asyncops.bench.scoring import TOOL
from asyncops.bench.tables import disagreements, render
from stateful.errors import InvalidArgumentError, LintUsageError


def print_kernels() -> None:
    """Names, kinds and rules of the kernels."""
    for pair in all_pairs():
        click.echo(f"{pair.kind}: {pair.name} ({', '.join(pair.rules)})")


def bench(
    only: tuple[str, ...], peers: bool, limit: float, save: Path | None, format_: str, width: int
) -> tuple[str, bool]:
    """The table, and whether every answer of the checker is the label's.

    Raises:
      LintUsageError: no kernel is meant, or the file to update holds something else.
    """
    plan = Plan(only, peers, limit, save)
    try:
        run = run_plan(plan, _Counter())
    except InvalidArgumentError as error:
        raise LintUsageError(str(error)) from error
    # With all kernels, beside what is stored of other versions of JAX.
    runs = {} if only else load(STORED)
    text = render(dict(sorted({**runs, run.versions["jax"]: run}.items())), format_, width)
    wrong = list(disagreements(_of(run), plan.pairs()))
    for line in wrong:
        click.echo(line, err=True)
    return text, not wrong


def _of(run: Run) -> list[Outcome]:
    return list(run.tools[TOOL].values())


class _Counter:
    """Says on a terminal's error stream how far the run is."""

    def __init__(self) -> None:
        self._done: Counter[str] = Counter()

    def __call__(self, tool: str, outcome: Outcome) -> None:
        self._done[tool] += 1
        if sys.stderr.isatty():
            click.echo(f"\r{tool}: {self._done[tool]} programs, {outcome.kernel}\033[K", nl=False, err=True)
