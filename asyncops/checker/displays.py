"""How a report shows itself in a notebook: the findings with their steps, cures and pictures, as HTML. No JAX."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncops.checker.report import Diagnostic, Report

# Colours that are legible on white and on black: notebooks do not tell which they have.
_COLOURS = {
    "error": "#d1242f",
    "warning": "#9a6700",
    "info": "#0969da",
    "clean": "#1a7f37",
    "unknown": "#8250df",
}
_MOST_ASSUMPTIONS = 5


def html_of(report: Report) -> str:
    """The report as an HTML fragment without scripts."""
    colour = _COLOURS.get(report.verdict, _COLOURS["error"])
    names = ", ".join(dict.fromkeys(kernel.name for kernel in report.kernels))
    parts = [
        f'<p><b style="color: {colour}">{escape(report.verdict)}</b>{escape(names and f" in {names}")}</p>'
    ]
    parts += [part for diagnostic in report.diagnostics for part in _finding(diagnostic)]
    parts += _list("Not modelled", report.unknowns)
    parts += _list("Assumed", report.assumptions[:_MOST_ASSUMPTIONS])
    if len(report.assumptions) > _MOST_ASSUMPTIONS:
        parts.append(f"<p>and {len(report.assumptions) - _MOST_ASSUMPTIONS} more in report.assumptions</p>")
    return f'<div class="asyncops-report">{"".join(parts)}</div>'


def _finding(d: Diagnostic) -> Iterator[str]:
    doubt = "" if d.confirmed or d.severity == "info" else " (unconfirmed)"
    place = f" <code>{escape(str(d.location))}</code>" if d.location else ""
    code = f'<b style="color: {_COLOURS[d.severity]}">{escape(d.severity)} {escape(d.code)}</b>'
    yield f"<p>{code} {escape(d.rule)}{place}<br>{escape(d.message + doubt)}</p>"
    yield from _list("", (f"{label}: {where}" for label, where in d.related))
    timeline = getattr(d.witness, "timeline", lambda: None)()
    if timeline is not None:
        yield f'<div style="overflow-x: auto">{timeline.to_svg()}</div>'
    if d.witness is not None:
        yield f"<details><summary>how it happens</summary><pre>{escape(str(d.witness))}</pre></details>"
    yield from _list("Follows from it", map(str, d.secondary))
    if d.help:
        yield f"<p><b>Cure:</b> {escape(d.help)}</p>"


def _list(title: str, items: Iterable[str]) -> Iterator[str]:
    entries = "".join(f"<li>{escape(item)}</li>" for item in items)
    if entries:
        yield f"{f'<b>{title}</b>' if title else ''}<ul>{entries}</ul>"
