"""The table of the benchmark, for a terminal, for the README and for programs."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from asyncops.bench.cases import Pair
from asyncops.bench.outcomes import REPORT, SILENT, Outcome, Score, score
from asyncops.bench.results import Run

FORMATS = ("text", "json", "markdown")
_HEADINGS = (
    "tool",
    "JAX",
    "bugs found",
    "right rule",
    "right line",
    "false alarms",
    "hung",
    "no answer",
    "median s",
)


def render(runs: dict[str, Run], format_: str, width: int = 120) -> str:
    """Every tool with every JAX version, one row each."""
    if format_ == "json":
        return json.dumps(_as_json(runs), indent=1) + "\n"
    rows = list(_rows(runs))
    return _markdown(rows) if format_ == "markdown" else _text(rows, width)


def disagreements(outcomes: Iterable[Outcome], pairs: Iterable[Pair]) -> Iterator[str]:
    """One line for every answer that is not the label's."""
    rules = {p.name: " or ".join(p.rules) for p in pairs}
    for o in outcomes:
        which = "the wrong one" if o.wrong else "its clean twin"
        if o.wrong and o.answer != REPORT:
            yield f"{o.kernel}, {which}: {o.answer}, expected {rules[o.kernel]} {o.note}".rstrip()
        elif o.wrong and not (o.rule and o.line):
            missing = " and ".join(w for w, ok in (("rule", o.rule), ("line", o.line)) if not ok)
            yield f"{o.kernel}, {which}: not the {missing}, expected {rules[o.kernel]}: {o.note}"
        elif not o.wrong and o.answer != SILENT:
            yield f"{o.kernel}, {which}: {o.answer}: {o.note}"


def _scores(runs: dict[str, Run]) -> Iterator[tuple[str, str, Score]]:
    for version, run in runs.items():
        for tool in sorted(run.tools, key=lambda t: (t.startswith("JAX"), t)):
            yield tool, version, score(run.tools[tool].values())


def _rows(runs: dict[str, Run]) -> Iterator[tuple[str, ...]]:
    for tool, version, s in _scores(runs):
        is_detector = tool.startswith("JAX")
        yield (
            tool,
            version,
            f"{s.detected}/{s.wrong}",
            "" if is_detector else f"{s.rule}/{s.wrong}",
            f"{s.line}/{s.wrong}",
            f"{s.false_alarms}/{s.clean}",
            str(s.hangs),
            str(s.unanswered),
            f"{s.median:.2f}",
        )


def _text(rows: list[tuple[str, ...]], width: int) -> str:
    table = Table(*_HEADINGS)
    table.columns[0].no_wrap = True
    for column in table.columns[2:]:
        column.justify = "right"
    for row in rows:
        table.add_row(*row)
    stream = io.StringIO()
    Console(file=stream, width=width).print(table)
    return stream.getvalue()


def _markdown(rows: list[tuple[str, ...]]) -> str:
    lines = [_HEADINGS, ("---", "---", *("--:" for _ in _HEADINGS[2:])), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _as_json(runs: dict[str, Run]) -> list[dict[str, object]]:
    return [
        {
            "tool": tool,
            "versions": runs[version].versions,
            **asdict(s),
            "answers": [asdict(o) for o in runs[version].tools[tool].values()],
        }
        for tool, version, s in _scores(runs)
    ]
