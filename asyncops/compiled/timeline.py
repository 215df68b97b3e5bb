"""A schedule report as a picture: time runs right; a bar for each copy, below it what it overlaps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from asyncops.compiled.schedule import Pair, ScheduleReport

WIDTH, ROW, LABEL, PAD = 960, 26, 250, 16
# Where the compiler estimated no cost, everything is drawn equally wide.
_UNIT = 100
_STYLE = """
.asyncops { font: 12px ui-sans-serif, system-ui, sans-serif; }
.asyncops text { fill: #1f2328; } .asyncops .faint { fill: #656d76; } .asyncops .rule { stroke: #d0d7de; }
.asyncops .copy { fill: #54aeff; } .asyncops .idle { fill: #ffb77c; } .asyncops .work { fill: #4ac26b; }
@media (prefers-color-scheme: dark) {
  .asyncops text { fill: #e6edf3; } .asyncops .faint { fill: #8d96a0; } .asyncops .rule { stroke: #30363d; }
  .asyncops .copy { fill: #1f6feb; } .asyncops .idle { fill: #bd561d; } .asyncops .work { fill: #238636; } }
"""


@dataclass(frozen=True, slots=True)
class _Bar:
    """A rectangle of one row, in units of the time axis; ``hint`` is shown when the mouse rests on it."""

    begin: int
    length: int
    kind: str
    text: str
    hint: str


def draw(report: ScheduleReport) -> str:
    """SVG of ``report``; it stands alone, has no external references, and suits light and dark pages."""
    rows = [(pair, list(_bars(pair))) for pair in report.pairs]
    longest = max((bars[-1].begin + bars[-1].length for _, bars in rows), default=1)
    scale = (WIDTH - LABEL - 2 * PAD) / longest
    height = 2 * PAD + ROW * (2 * len(rows) + 2)
    body = [_text(PAD, PAD + 14, f"schedule of {report.module}")]
    for number, (pair, bars) in enumerate(rows):
        body += _row(pair, bars, PAD + ROW * (2 * number + 1), scale)
    if not rows:
        body.append(_text(PAD, PAD + ROW + 14, "no asynchronous operation", "faint"))
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="asyncops" role="img" {size}>'
    title = f"<title>{escape(f'What overlaps the copies in flight of {report.module}')}</title>"
    return "\n".join([head, title, f"<style>{_STYLE}</style>", *body, "</svg>"]) + "\n"


def _bars(pair: Pair) -> Iterator[_Bar]:
    """The copy first, then what runs under it."""
    lengths = [item.cycles or _UNIT for item in pair.overlapped]
    total = sum(lengths) or _UNIT
    kind = "copy" if pair.overlapped else "idle"
    size = f"{pair.nbytes:,} bytes"
    yield _Bar(0, total, kind, size, f"%{pair.start} to %{pair.done}: {size} in flight")
    at = 0
    for item, length in zip(pair.overlapped, lengths, strict=True):
        cycles = f"{item.cycles:,} cycles" if item.cycles is not None else "no estimate"
        line = f", {item.line}" if item.line is not None else ""
        yield _Bar(at, length, "work", item.what, f"%{item.instruction}: {cycles}{line}")
        at += length


def _row(pair: Pair, bars: list[_Bar], top: int, scale: float) -> Iterator[str]:
    often = "" if pair.times == 1 else f", {pair.times} times" if pair.times else " in a loop"
    yield f'<line class="rule" x1="{PAD}" y1="{top}" x2="{WIDTH - PAD}" y2="{top}"/>'
    yield _text(PAD, top + 18, f"{pair.what} ({pair.by}){often}")
    place = f"{pair.start_line}" if pair.start_line is not None else f"%{pair.start}"
    yield _text(PAD, top + ROW + 14, place if len(place) < 38 else "…" + place[-36:], "faint")
    for bar in bars:
        lane = top + 3 + (ROW if bar.kind == "work" else 0)
        yield _rectangle(bar, lane, scale)
    if len(bars) == 1:
        yield _text(LABEL + PAD, top + ROW + 14, "nothing runs meanwhile", "faint")


def _rectangle(bar: _Bar, top: int, scale: float) -> str:
    x, width = LABEL + PAD + bar.begin * scale, max(2.0, bar.length * scale - 1)
    shape = f'<rect class="{bar.kind}" x="{x:.1f}" y="{top}" width="{width:.1f}" height="{ROW - 6}" rx="3"/>'
    fits = len(bar.text) * 7 < width
    label = _text(x + 6, top + 14, bar.text) if fits else ""
    return f"<g><title>{escape(bar.hint)}</title>{shape}{label}</g>"


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    chosen = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{chosen}>{escape(text)}</text>'
