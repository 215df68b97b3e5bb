"""Tracks as an SVG picture: cores, the copies each starts, and the semaphores it waits on; time runs to the right.

The picture brings its own ground, so that it is legible on any page; its colours follow the reader's light or dark
setting. It has no scripts and refers to nothing outside. What is cut to fit is told in full when the mouse rests on it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from xml.sax.saxutils import escape

from asyncops.checker.pictures.tracks import CoreTrack, Deed, Flight, Level, SemaphoreTrack, Tracks

GUTTER, PAD = 132, 14
NARROW, WIDE, LEAST = 112, 150, 720  # width of a column, and of the whole picture
_DEED, _BAR, _COUNT, _GAP = 46, 22, 26, 8
_MOMENT, _LINE = 16, 17
_LETTER = 6.1  # width of a letter of the small text, on the safe side
LIGHT = {
    "ground": "#ffffff", "ink": "#1f2328", "faint": "#59636e", "rule": "#d1d9e0", "band": "#f3f5f8",
    "core": "#dafbe1", "core-edge": "#1a7f37", "wait": "#fff8c5", "wait-edge": "#9a6700",
    "signal": "#fbefff", "signal-edge": "#8250df", "copy": "#ddf4ff", "copy-edge": "#0969da",
    "count": "#d0d7de", "bad": "#ffebe9", "bad-edge": "#cf222e",
}  # fmt: skip
DARK = {
    "ground": "#0d1117", "ink": "#f0f6fc", "faint": "#9198a1", "rule": "#3d444d", "band": "#161b22",
    "core": "#0f3d1c", "core-edge": "#3fb950", "wait": "#4b2900", "wait-edge": "#d29922",
    "signal": "#3c1e70", "signal-edge": "#ab7df8", "copy": "#0c2d6b", "copy-edge": "#4493f8",
    "count": "#3d444d", "bad": "#5d0f12", "bad-edge": "#f85149",
}  # fmt: skip
_KINDS = {"read": "core", "write": "core", "start": "copy", "signal": "signal", "wait": "wait"}
_RULES = """
.ao { font: 11px ui-sans-serif, system-ui, sans-serif; } .ao .b { font-weight: 600; }
.ao text { fill: var(--ink); } .ao .faint { fill: var(--faint); } .ao .big { font-size: 12.5px; }
.ao .ground { fill: var(--ground); stroke: var(--rule); } .ao .band { fill: var(--band); }
.ao .rule { stroke: var(--rule); fill: none; } .ao .link { stroke: var(--copy-edge); fill: none; }
.ao .plain { fill: none; stroke: var(--rule); stroke-dasharray: 3 2; } .ao .count { fill: var(--count); }
.ao .clash { fill: var(--bad-edge); fill-opacity: .1; stroke: var(--bad-edge); stroke-dasharray: 5 3; }
.ao .bad { stroke: var(--bad-edge); stroke-width: 2.5; } .ao .alarm { fill: var(--bad-edge); font-weight: 600; }
"""


@dataclass(frozen=True, slots=True)
class _Scale:
    """From columns to points."""

    columns: int
    width: float

    def x(self, at: float) -> float:
        """Where a moment is."""
        return round(PAD + GUTTER + self.width * at, 1)

    @property
    def total(self) -> int:
        """The width of the picture."""
        return max(LEAST, round(2 * PAD + GUTTER + self.width * self.columns))


@dataclass(frozen=True, slots=True)
class _Lane:
    """A row of the picture and what stands in it, its top at 0."""

    height: int
    name: str
    parts: tuple[str, ...]
    is_core: bool = False


def draw(tracks: Tracks, title: str = "") -> str:
    """The picture as SVG text that stands alone; ``title`` above it, the caption below."""
    scale = _Scale(tracks.columns, min(WIDE, max(NARROW, 960 // tracks.columns)))
    lanes = [lane for core in tracks.cores for lane in _lanes(core, tracks, scale)]
    width = scale.total
    head = _paragraph(title, PAD + 12, width, "b big") if title else []
    top = PAD + _LINE * len(head) + (_GAP if head else 0)
    bottom = top + sum(lane.height for lane in lanes)
    foot = _caption(tracks, bottom + 22, width)
    height = bottom + _LINE * len(foot) + PAD + 10
    parts = [f'<rect class="ground" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="6"/>', *head]
    if tracks.clash:
        parts.append(_clash(tracks, scale, top - 4, bottom + 2))
    parts += [*_stacked(lanes, top, width), *foot]
    summary = escape(tracks.caption or "a run of the kernel")
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    start = f'<svg xmlns="http://www.w3.org/2000/svg" class="ao" role="img" {size}>'
    return (
        "\n".join([start, f"<title>{summary}</title>", f"<style>{_style()}</style>", *parts, "</svg>"]) + "\n"
    )


def _style() -> str:
    light, dark = ("".join(f"--{name}: {colour}; " for name, colour in p.items()) for p in (LIGHT, DARK))
    kinds = "".join(
        f".ao .{kind} {{ fill: var(--{kind}); stroke: var(--{kind}-edge); }}\n"
        for kind in ("core", "wait", "signal", "copy")
    )
    return f"\n.ao {{ {light}}}\n@media (prefers-color-scheme: dark) {{ .ao {{ {dark}}} }}\n{kinds}{_RULES}"


def _caption(tracks: Tracks, top: float, width: int) -> list[str]:
    lines = _paragraph(tracks.caption, top, width, "b" if tracks.clash else "")
    if tracks.hidden:
        what = f"{tracks.hidden} more core{'s are' if tracks.hidden > 1 else ' is'} not shown."
        lines.append(_text(PAD, top + _LINE * len(lines), what, "faint"))
    return lines


def _paragraph(text: str, top: float, width: int, kind: str) -> list[str]:
    room = max(30, int((width - 2 * PAD) / (_LETTER + 0.9)))
    return [_text(PAD, top + _LINE * n, line, kind) for n, line in enumerate(textwrap.wrap(text, room))]


def _clash(tracks: Tracks, scale: _Scale, top: float, bottom: float) -> str:
    left, right = scale.x(tracks.columns - 1) + 2, scale.x(tracks.columns) - 2
    shape = (
        f'<rect class="clash" x="{left}" y="{top}" width="{right - left}" height="{bottom - top}" rx="4"/>'
    )
    return f"<g><title>{escape(tracks.caption)}</title>{shape}</g>"


def _stacked(lanes: Sequence[_Lane], top: float, width: int) -> Iterator[str]:
    for lane in lanes:
        if lane.is_core:
            yield f'<line class="rule" x1="{PAD}" y1="{top}" x2="{width - PAD}" y2="{top}"/>'
        kind = "b" if lane.is_core else "faint"
        name = _text(PAD, lane.height / 2 + 4, _fitting(lane.name, GUTTER - 8), kind, lane.name)
        yield "\n".join([f'<g transform="translate(0 {top})">', name, *lane.parts, "</g>"])
        top += lane.height


def _lanes(core: CoreTrack, tracks: Tracks, scale: _Scale) -> Iterator[_Lane]:
    """The lane of the core, those of its copies, those of its semaphores."""
    rows = tracks.rows(core.flights)
    moments = _moments(core.deeds, scale)
    links = [_link(flight, row, scale) for row, flights in enumerate(rows) for flight in flights]
    boxes = [part for deed in core.deeds for part in _deed(deed, scale)]
    yield _Lane(_MOMENT + _DEED + _GAP, core.name, (*moments, *links, *boxes), is_core=True)
    for number, flights in enumerate(rows):
        bars = tuple(part for flight in flights for part in _bar(flight, tracks, scale))
        yield _Lane(_BAR + 4, "" if number else "copies in flight", bars)
    for semaphore in core.semaphores:
        yield _Lane(_COUNT + 4, semaphore.name, tuple(_counts(semaphore, scale)))
    yield _Lane(_GAP, "", ())


def _moments(deeds: Sequence[Deed], scale: _Scale) -> Iterator[str]:
    """A band over the boxes of one grid step or iteration."""
    shown = [d for d in deeds if d.kind != "skipped"]
    for number, (moment, group) in enumerate(groupby(shown, key=lambda d: d.moment)):
        if moment:
            inside = list(group)
            left, right = scale.x(inside[0].column), scale.x(inside[-1].column + 1)
            if number % 2:
                size = f'width="{right - left}" height="{_MOMENT + _DEED + _GAP}"'
                yield f'<rect class="band" x="{left}" y="0" {size}/>'
            yield _text(left + 4, 12, _fitting(moment, right - left - 6), "faint", moment)


def _deed(deed: Deed, scale: _Scale) -> Iterator[str]:
    """A box: what is done and in which line, and to what."""
    left, width = scale.x(deed.column) + 3, scale.width - 6
    kind = _KINDS.get(deed.kind, "plain") + (" bad" if deed.accused else "")
    verb = deed.verb + (f" \u00d7{deed.times}" if deed.times > 1 and deed.kind != "skipped" else "")
    told = " ".join(filter(None, (verb, deed.what, deed.line and f"({deed.line})", deed.moment)))
    yield f'<g><title>{escape(told)}</title><rect class="{kind}" x="{left}" y="{_MOMENT}" width="{width}"'
    yield f' height="{_DEED}" rx="4"/>'
    number = deed.line.rpartition(":")[2]
    room = width - 8 - (len(number) + 2) * _LETTER
    first = _MOMENT + 14
    yield _text(left + 5, first, _fitting(verb, room), "b")
    if number:
        yield f'<text x="{left + width - 5}" y="{first}" text-anchor="end" class="faint">L{number}</text>'
    for n, text in enumerate(_halves(deed.what), 1):
        yield _text(left + 5, first + 13 * n, _fitting(text, width - 8))
    yield "</g>"


def _halves(what: str) -> list[str]:
    """A copy's two ends on a line each."""
    source, arrow, destination = what.partition(" -> ")
    return [source, f"→ {destination}"] if arrow else [what]


def _link(flight: Flight, row: int, scale: _Scale) -> str:
    x, bottom = scale.x(flight.begin), _MOMENT + _DEED + _GAP + row * (_BAR + 4) + 2
    return f'<line class="link" x1="{x}" y1="{_MOMENT + _DEED}" x2="{x}" y2="{bottom}"/>'


def _bar(flight: Flight, tracks: Tracks, scale: _Scale) -> Iterator[str]:
    left, right = scale.x(flight.begin), scale.x(tracks.end(flight))
    kind = "copy bad" if flight.accused else "copy"
    state = "still under way at the end" if flight.end is None else "complete"
    told = " ".join(filter(None, (f"copy {flight.name}", flight.line and f"({flight.line})", flight.moment)))
    yield f"<g><title>{escape(f'{told}: {state}')}</title>"
    width = round(max(right - left, 4), 1)
    yield f'<rect class="{kind}" x="{left}" y="1" width="{width}" height="{_BAR}" rx="3"/>'
    if flight.read is not None and flight.end is None:
        x = scale.x(flight.read)
        yield f'<line class="link" x1="{x}" y1="1" x2="{x}" y2="{_BAR + 1}"/>'
    yield f"{_text(left + 6, _BAR / 2 + 5, _fitting(flight.name.replace('->', '→'), width - 10))}</g>"


def _counts(semaphore: SemaphoreTrack, scale: _Scale) -> Iterator[str]:
    """The semaphore's count: a step as high as the count, the number in it."""
    most = max((level.count for level in semaphore.levels), default=0) or 1
    yield f'<line class="rule" x1="{scale.x(0)}" y1="{_COUNT}" x2="{scale.x(scale.columns)}" y2="{_COUNT}"/>'
    for level, following in pairwise([*_changes(semaphore.levels), Level(float(scale.columns), 0)]):
        left, right = scale.x(level.at), scale.x(following.at)
        height = max(0.0, (_COUNT - 2) * level.count / most)
        size = f'width="{right - left:.1f}" height="{height:.1f}"'
        told = f"{semaphore.name}: {level.count}"
        yield f'<g><title>{escape(told)}</title><rect class="count" x="{left}" y="{_COUNT - height:.1f}" {size}/>'
        yield f"{_text(left + 4, _COUNT - 6, _fitting(f'{level.count:,}', right - left))}</g>"


def _changes(levels: Sequence[Level]) -> Iterator[Level]:
    """Without those that change nothing."""
    for before, level in pairwise([None, *levels]):
        if level is not None and (before is None or level.count != before.count):
            yield level


def _fitting(text: str, width: float) -> str:
    """The text, its middle left out where it is too wide."""
    room = int(width / _LETTER)
    if len(text) <= room:
        return text
    if room < 3:
        return ""
    tail = (room - 1) // 2
    return f"{text[: room - 1 - tail]}…{text[len(text) - tail :]}"


def _text(x: float, y: float, text: str, kind: str = "", hint: str = "") -> str:
    if not text:
        return ""
    chosen = f' class="{kind}"' if kind else ""
    more = f"<title>{escape(hint)}</title>" if hint and hint != text else ""
    return f'<text x="{x}" y="{y:.1f}"{chosen}>{more}{escape(text)}</text>'
