"""For people: source lines with carets, related lines, the witness as numbered steps, and the cure."""

from __future__ import annotations

import io
import textwrap
from collections import Counter
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from asyncops.lint.formats import wording
from asyncops.lint.formats.registry import Page
from asyncops.lint.formats.snippet import Mark, snippets
from asyncops.lint.results import Finding, LintResult, Outcome

_STYLES = {"error": "bold red", "warning": "bold yellow", "info": "bold cyan"}
_LABELS = {"error": "error", "warning": "warning", "info": "note"}
_MOST_ASSUMPTIONS = 5
_EDGE = "bold blue"


def render(result: LintResult, page: Page) -> str:
    """Every live finding, then what could not be checked or is not modelled, then one line of summary."""
    stream = io.StringIO()
    console = Console(
        file=stream,
        force_terminal=page.color,
        color_system="standard" if page.color else None,
        width=page.width,
        highlight=False,
        emoji=False,
        markup=False,
    )
    for finding in result.live:
        _print_finding(console, finding)
    for outcome in result.failures:
        _print_failure(console, outcome)
    _print_limits(console, result)
    if page.statistics:
        _print_statistics(console, result)
    if result.stale:
        entries = wording.count(len(result.stale), "entry").replace("entrys", "entries")
        console.print(f"the baseline has {entries} that match nothing any more; --prune-baseline drops them")
    for note in result.notes:
        console.print(Text.assemble(("note", _STYLES["info"]), f": {note}"), soft_wrap=True)
    console.print(Text(wording.summary(result), style="bold"), soft_wrap=True)
    return stream.getvalue()


def _print_finding(console: Console, finding: Finding) -> None:
    d = finding.diagnostic
    style = _STYLES[d.severity]
    kind = f"{_LABELS[d.severity]}[{d.code}]"
    console.print(Text.assemble((kind, style), (f" {d.rule}: ", "bold"), wording.message(d)), soft_wrap=True)
    marks = [Mark(place, label) for label, place in d.related]
    if d.location:
        marks.insert(0, Mark(d.location, style=style, primary=True))
    margin = max((len(str(m.location.line)) for m in marks), default=1)
    if marks:
        for line in snippets(marks):
            console.print(line, soft_wrap=True)
    for title, lines in _details(finding):
        _print_detail(console, title, lines, margin)
    console.print()


def _details(finding: Finding) -> Iterator[tuple[str, list[str]]]:
    d = finding.diagnostic
    if finding.steps:
        yield "how it happens", numbered([step_text(step) for step in finding.steps])
    for below in d.secondary:
        where = f" at {wording.place(below.location)}" if below.location else ""
        yield f"follows from it, {below.code}{where}", [wording.printable(below.message)]
    if d.help:
        yield "cure", [wording.printable(d.help)]
    if len(finding.targets) > 1:
        yield "seen in", [", ".join(finding.targets)]
    yield "more", [f"asyncops --explain {d.code}"]


def numbered(lines: list[str]) -> list[str]:
    """The lines with numbers; a single one needs none."""
    return lines if len(lines) == 1 else [f"{n}. {line}" for n, line in enumerate(lines, 1)]


def step_text(step: object) -> str:
    """A witness step on one line."""
    return wording.printable(str(step)).replace("\n", " ")


def _print_detail(console: Console, title: str, lines: list[str], margin: int) -> None:
    """``= title: text``, wrapped with a hanging indent; several lines stand below the title."""
    lead = Text.assemble((" " * margin + " = ", _EDGE), (f"{title}:", "bold"))
    if len(lines) == 1 and "\n" not in lines[0]:
        console.print(lead.append(f" {lines[0]}", style="not bold"), soft_wrap=True)
        return
    console.print(lead, soft_wrap=True)
    indent = " " * (margin + 5)
    for line in lines:
        wrapped = textwrap.fill(line, console.width, initial_indent=indent, subsequent_indent=f"{indent}   ")
        console.print(wrapped, soft_wrap=True)


def _print_failure(console: Console, outcome: Outcome) -> None:
    assert outcome.failure is not None
    failure = outcome.failure
    head = Text.assemble(
        ("error", _STYLES["error"]), f": {outcome.target} {wording.printable(failure.message)}"
    )
    console.print(head, soft_wrap=True)
    if failure.location:
        for line in snippets([Mark(failure.location, style=_STYLES["error"], primary=True)]):
            console.print(line, soft_wrap=True)
    console.print()


def _print_limits(console: Console, result: LintResult) -> None:
    """What the verdict does not cover, each once."""
    unknowns: dict[str, list[str]] = {}
    for target, text in result.unknowns:
        unknowns.setdefault(text, []).append(target)
    for text, targets in unknowns.items():
        _print_limit(console, "unknown", f"{text} ({', '.join(dict.fromkeys(targets))})")
    assumptions = list(dict.fromkeys(a for o in result.outcomes for a in o.assumptions))
    for text in assumptions[:_MOST_ASSUMPTIONS]:
        _print_limit(console, "assumed", text)
    if len(assumptions) > _MOST_ASSUMPTIONS:
        more = len(assumptions) - _MOST_ASSUMPTIONS
        console.print(f"... and {wording.count(more, 'more assumption')}; --format json lists them all")


def _print_limit(console: Console, kind: str, text: str) -> None:
    console.print(Text.assemble((kind, "bold magenta"), f": {wording.printable(text)}"), soft_wrap=True)


def _print_statistics(console: Console, result: LintResult) -> None:
    tally = Counter((f.code, f.diagnostic.rule) for f in result.live)
    for (code, rule), number in sorted(tally.items(), key=lambda item: (-item[1], item[0])):
        console.print(f"{number:>5}  {code}  {rule}", soft_wrap=True)
