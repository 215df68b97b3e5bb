"""Results of a run of the benchmark, as a file: one entry a JAX version, one line a program."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import jax

from asyncops.bench.outcomes import Outcome
from asyncops.version import __version__
from asyncops.writing import write_whole
from stateful.errors import InvalidArgumentError

STORED = Path(__file__).with_name("results.json")
"""The results that the README shows."""
_KEPT = {"answer", "rule", "line", "findings", "seconds"}


@dataclass
class Run:
    """Everything that was measured with one JAX version: tool name to its answers, by (kernel, wrong)."""

    versions: dict[str, str] = field(default_factory=dict)
    tools: dict[str, dict[tuple[str, bool], Outcome]] = field(default_factory=dict)

    def add(self, tool: str, outcomes: Iterable[Outcome]) -> None:
        """Takes answers in; each replaces an earlier one on the same program."""
        known = self.tools.setdefault(tool, {})
        known.update({(o.kernel, o.wrong): o for o in outcomes})

    def restrict(self, kernels: Iterable[str]) -> None:
        """Drops the answers on all other kernels."""
        kept = set(kernels)
        self.tools = {
            tool: {key: o for key, o in answers.items() if key[0] in kept}
            for tool, answers in self.tools.items()
        }


def current_versions() -> dict[str, str]:
    """The versions that a run of now is of."""
    return {"asyncops": __version__, "jax": jax.__version__}


def load(file: Path) -> dict[str, Run]:
    """JAX version to run; empty where there is no such file.

    Raises:
      InvalidArgumentError: the file is no file of results.
    """
    if not file.exists():
        return {}
    try:
        entries = json.loads(file.read_text(encoding="utf-8"))
        return {version: _run(entry) for version, entry in entries.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidArgumentError(
            f"file={str(file)!r}: not a file of results of `asyncops bench` ({error})"
        ) from None


def save(file: Path, runs: dict[str, Run]) -> None:
    """Writes the file anew, at once: an interrupt leaves the old one."""
    text = "{\n" + ",\n".join(f"{json.dumps(v)}: {_entry(run)}" for v, run in sorted(runs.items())) + "\n}\n"
    write_whole(file, text)


def _entry(run: Run) -> str:
    rows = [json.dumps([tool, kernel, wrong, _kept(o)]) for tool, kernel, wrong, o in _rows(run)]
    return f'{{"versions": {json.dumps(run.versions)}, "answers": [\n' + ",\n".join(rows) + "\n]}"


def _rows(run: Run) -> Iterable[tuple[str, str, bool, Outcome]]:
    for tool in sorted(run.tools):
        for (kernel, wrong), outcome in sorted(run.tools[tool].items()):
            yield tool, kernel, wrong, outcome


def _kept(outcome: Outcome) -> dict[str, Any]:
    values = {k: v for k, v in asdict(outcome).items() if k in _KEPT and v}
    return values | {"seconds": round(outcome.seconds, 3)}


def _run(entry: dict[str, Any]) -> Run:
    run = Run(dict(entry["versions"]))
    for tool, kernel, wrong, kept in entry["answers"]:
        run.add(tool, [Outcome(kernel, wrong, **kept)])
    return run
