"""Source lines with carets below them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.text import Text

from asyncops.checker.events import Location
from asyncops.lint.formats import wording
from asyncops.lint.source import SourceText, read_source

_TAB = 4
_EDGE = "bold blue"


@dataclass(frozen=True)
class Mark:
    """A place to underline, with a label; the one primary mark is where the finding is."""

    location: Location
    label: str = ""
    style: str = "bold blue"
    primary: bool = False


def snippets(marks: Sequence[Mark]) -> list[Text]:
    """Per file a header with its place, then the marked lines; the first mark's file first."""
    margin = max(len(str(m.location.line)) for m in marks)
    by_file: dict[str, list[Mark]] = {}
    for mark in marks:
        by_file.setdefault(mark.location.file, []).append(mark)
    return [line for group in by_file.values() for line in _file_lines(group, margin)]


def _file_lines(marks: Sequence[Mark], margin: int) -> Iterator[Text]:
    first = marks[0]
    arrow = "-->" if first.primary else ":::"
    inside = f" in {first.location.function}" if first.location.function else ""
    yield Text.assemble((" " * margin + arrow, _EDGE), f" {wording.place(first.location)}{inside}")
    source = read_source(first.location.file)
    if all(source.line(m.location.line) is None for m in marks):
        yield from (_note(m, margin) for m in marks if m.label)
        return
    yield _edge(margin)
    previous = None
    for number, group in itertools.groupby(sorted(marks, key=_row), key=_row):
        yield from _bridge(source, previous, number, margin)
        yield _source_line(source, number, margin)
        yield from (_underline(source, m, margin) for m in group)
        previous = number
    yield _edge(margin)


def _row(mark: Mark) -> int:
    return mark.location.line


def _bridge(source: SourceText, previous: int | None, number: int, margin: int) -> Iterator[Text]:
    """What stands between two marked lines: one line is shown, more are not."""
    if previous is None or number <= previous + 1:
        return
    if number == previous + 2:
        yield _source_line(source, previous + 1, margin)
    else:
        yield Text("." * max(3, margin), style=_EDGE)


def _edge(margin: int, number: int | None = None) -> Text:
    return Text(f"{'' if number is None else number:>{margin}} |", style=_EDGE)


def _source_line(source: SourceText, number: int, margin: int) -> Text:
    text = wording.printable((source.line(number) or "").expandtabs(_TAB).rstrip())
    return Text.assemble(_edge(margin, number), f" {text}" if text else "")


def _underline(source: SourceText, mark: Mark, margin: int) -> Text:
    span = source.span(mark.location)
    if span is None:
        return _note(mark, margin)
    text = source.line(mark.location.line) or ""
    start, end = (len(text[:column].expandtabs(_TAB)) for column in span)
    carets = ("^" if mark.primary else "-") * max(1, end - start)
    label = f" {wording.printable(mark.label)}" if mark.label else ""
    return Text.assemble(_edge(margin), " " * (start + 1), (carets + label, mark.style))


def _note(mark: Mark, margin: int) -> Text:
    return Text.assemble((" " * margin + " = ", _EDGE), f"{wording.printable(mark.label)}: {mark.location}")


def as_lines(texts: Iterable[Text]) -> Text:
    """The lines joined to one text."""
    return Text("\n").join(texts)
