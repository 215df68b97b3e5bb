"""One HTML page that opens from disk: no scripts, no external requests (its policy forbids them)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from asyncops.checker.events import Location
from asyncops.checker.pictures.timelines import Timeline
from asyncops.lint.formats import wording
from asyncops.lint.formats.registry import Page
from asyncops.lint.results import Finding, LintResult, Outcome
from asyncops.lint.source import SourceText, read_source
from asyncops.version import __version__

_CONTEXT = 2
_STYLE = """
:root { color-scheme: light dark; --edge: #8886; }
:root { --error: #c62828; --warning: #b26a00; --info: #1565c0; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
article { border: 1px solid var(--edge); border-left: 4px solid var(--kind); border-radius: 4px;
  padding: 0 1rem; margin: 1rem 0; }
.error { --kind: var(--error); } .warning { --kind: var(--warning); } .info { --kind: var(--info); }
h2 { font-size: 1.05rem; } h2 code { color: var(--kind); }
pre { overflow-x: auto; border: 1px solid var(--edge); border-radius: 4px; padding: .5rem; line-height: 1.4; }
pre .number { color: #888; user-select: none; }
pre mark { background: color-mix(in srgb, var(--kind) 25%, transparent); color: inherit; }
pre mark.related { background: #8884; }
pre .label { color: #888; font-style: italic; }
figure { overflow-x: auto; margin: 0; }
"""


def render(result: LintResult, page: Page) -> str:
    """The summary, every live finding with its source, steps and cure, and what is not covered."""
    body = "\n".join(_body(result))
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>asyncops: {escape(result.verdict)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _body(result: LintResult) -> Iterator[str]:
    yield f"<h1>asyncops: {escape(result.verdict)}</h1>"
    yield f"<p>{escape(wording.summary(result))}. asyncops {__version__}</p>"
    yield from map(_finding, result.live)
    yield from map(_failure, result.failures)
    yield from map(_run, result.outcomes)
    unknowns = [f"{target}: {text}" for target, text in result.unknowns]
    yield from _list("Not modelled", unknowns)
    yield from _list("Assumed", dict.fromkeys(a for o in result.outcomes for a in o.assumptions))


def _finding(finding: Finding) -> str:
    d = finding.diagnostic
    parts = [
        f'<article class="{d.severity}" id="{finding.fingerprint}">',
        f"<h2><code>{d.code}</code> {escape(d.rule)}: {escape(wording.message(d))}</h2>",
    ]
    marks = [(d.location, "")] if d.location else []
    marks += [(place, label) for label, place in d.related]
    parts += _snippets(marks)
    if finding.timeline:
        parts.append(f"<h3>In time</h3><figure>{finding.timeline.to_svg()}</figure>")
    if finding.steps:
        steps = "".join(f"<li>{escape(wording.printable(str(step)))}</li>" for step in finding.steps)
        parts.append(f"<h3>How it happens</h3><ol>{steps}</ol>")
    below = [f"{s.code} {wording.place(s.location)} {wording.printable(s.message)}" for s in d.secondary]
    parts += _list("Follows from it", below)
    if d.help:
        parts.append(f"<h3>Cure</h3><p>{escape(d.help)}</p>")
    if len(finding.targets) > 1:
        parts.append(f"<p>Seen in {escape(', '.join(finding.targets))}</p>")
    return "\n".join([*parts, "</article>"])


def _run(outcome: Outcome) -> str:
    """A target in time, right or wrong: one run of it, or what the compiler made of it."""
    pictures = [Timeline(outcome.run).to_svg()] if outcome.run else list(outcome.schedules)
    if not pictures:
        return ""
    what = "One run of it" if outcome.run else "Its schedule"
    head = f"{outcome.target}: {outcome.verdict}. {what}"
    opened = " open" if outcome.verdict == "clean" else ""
    figures = "".join(f"<figure>{picture}</figure>" for picture in pictures)
    return f"<details{opened}><summary>{escape(head)}</summary>{figures}</details>"


def _failure(outcome: Outcome) -> str:
    assert outcome.failure is not None
    head = f"<h2>{escape(outcome.target)} {escape(outcome.failure.message)}</h2>"
    trace = f"<details><summary>traceback</summary><pre>{escape(outcome.failure.traceback)}</pre></details>"
    return f'<article class="error">{head}{trace}</article>'


def _list(title: str, items: Iterable[str]) -> list[str]:
    entries = "".join(f"<li>{escape(wording.printable(item))}</li>" for item in items)
    return [f"<h3>{title}</h3><ul>{entries}</ul>"] if entries else []


def _snippets(marks: Sequence[tuple[Location, str]]) -> Iterator[str]:
    """Per file the marked lines with some context; the first mark is where the finding is."""
    by_file: dict[str, list[tuple[Location, str]]] = {}
    for place, label in marks:
        by_file.setdefault(place.file, []).append((place, label))
    for group in by_file.values():
        first = group[0][0]
        inside = f" in <code>{escape(first.function)}</code>" if first.function else ""
        yield f"<p>{escape(wording.place(first))}{inside}</p>"
        source = read_source(first.file)
        rows = "\n".join(_rows(source, group, marks[0][0]))
        if rows:
            yield f"<pre>{rows}</pre>"


def _rows(source: SourceText, marks: Sequence[tuple[Location, str]], primary: Location) -> Iterator[str]:
    wanted = {n for place, _ in marks for n in range(place.line - _CONTEXT, place.line + _CONTEXT + 1)}
    previous = None
    for number in sorted(wanted):
        text = source.line(number)
        if text is None:
            continue
        if previous is not None and number > previous + 1:
            yield "  ..."
        previous = number
        here = [(place, label) for place, label in marks if place.line == number]
        yield f'<span class="number">{number:>5} </span>{_marked(source, text, here, primary)}'


def _marked(source: SourceText, text: str, marks: Sequence[tuple[Location, str]], primary: Location) -> str:
    if not marks:
        return escape(wording.printable(text))
    place = primary if any(p is primary for p, _ in marks) else marks[0][0]
    start, end = source.span(place) or (0, len(text))
    before, inside, after = (
        escape(wording.printable(t)) for t in (text[:start], text[start:end], text[end:])
    )
    labels = "; ".join(label for _, label in marks if label)
    kind = "" if place is primary else ' class="related"'
    note = f' <span class="label">{escape(labels)}</span>' if labels else ""
    return f"{before}<mark{kind}>{inside}</mark>{after}{note}"
