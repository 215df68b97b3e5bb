"""The user's source text: lines, the part of a line worth underlining, and the lines of one statement."""

from __future__ import annotations

import functools
import io
import os
import tokenize
from dataclasses import dataclass, replace

from asyncops.checker.events import Location
from asyncops.lint.overlays import edited_text

# Tokens that no caret should stand under.
_BLANK = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.ENCODING,
}


@dataclass(frozen=True)
class Comment:
    """A comment with its line and the column of its ``#``."""

    line: int
    column: int
    text: str


@dataclass(frozen=True)
class SourceText:
    """One file. All line numbers count from 1, columns from 0; an unreadable file has no lines."""

    lines: tuple[str, ...]
    spans: dict[int, tuple[int, int]]
    statements: dict[int, tuple[int, int]]
    comments: tuple[Comment, ...]

    def line(self, number: int) -> str | None:
        """The text of a line without its end, or None where the file has no such line."""
        return self.lines[number - 1] if 1 <= number <= len(self.lines) else None

    def span(self, place: Location) -> tuple[int, int] | None:
        """Columns (start, end) to underline: those of ``place``, else the code of its line."""
        text = self.line(place.line)
        if text is None or not text.strip():
            return None
        columns = _characters(text, place)
        if columns is not None:
            return columns
        return self.spans.get(place.line, (len(text) - len(text.lstrip()), len(text.rstrip())))

    def statement(self, number: int) -> tuple[int, int]:
        """First and last line of the statement (the logical line) that line ``number`` belongs to."""
        return self.statements.get(number, (number, number))


def columns(place: Location) -> tuple[int, int] | None:
    """First and last column of ``place`` in characters, from 0; None where it has none."""
    text = read_source(place.file).line(place.line)
    return None if text is None else _characters(text, place)


def at_characters(place: Location, start: int, end: int) -> Location:
    """``place`` with columns that are given in characters."""
    text = read_source(place.file).line(place.line) or ""
    return replace(place, column=len(text[:start].encode()), end_column=len(text[:end].encode()))


def _characters(text: str, place: Location) -> tuple[int, int] | None:
    """The columns of ``place`` in characters; None where it has none, or they are not of this line."""
    if place.column is None:
        return None
    data = text.rstrip().encode()
    end = len(data) if place.end_column is None else place.end_column
    if not place.column < end <= len(data):
        return None
    return len(data[: place.column].decode(errors="ignore")), len(data[:end].decode(errors="ignore"))


def read_source(file: str) -> SourceText:
    """The file's text, read once for each version of it; empty if it cannot be read. Edits on trial count."""
    text = edited_text(file)
    if text is not None:
        return parse_source(text)
    try:
        stamp = os.stat(file).st_mtime_ns
    except (OSError, ValueError):
        return SourceText((), {}, {}, ())
    return _read(file, stamp)


@functools.lru_cache(maxsize=256)
def _read(file: str, stamp: int) -> SourceText:
    try:
        with tokenize.open(file) as stream:
            text = stream.read()
    except (OSError, SyntaxError, UnicodeDecodeError):
        return SourceText((), {}, {}, ())
    return parse_source(text)


def parse_source(text: str) -> SourceText:
    """Spans, statements and comments of ``text``; what comes after a syntax error has none."""
    spans: dict[int, tuple[int, int]] = {}
    statements: dict[int, tuple[int, int]] = {}
    comments: list[Comment] = []
    first = last = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            (row, column), (end_row, end_column) = token.start, token.end
            if token.type == tokenize.COMMENT:
                comments.append(Comment(row, column, token.string))
            if token.type == tokenize.NEWLINE:
                statements.update((n, (first, last)) for n in range(first, last + 1))
                first = 0
            if token.type in _BLANK:
                continue
            first, last = first or row, end_row
            start, _ = spans.get(row, (column, 0))
            spans[row] = (start, end_column if row == end_row else column + 1)
    except (tokenize.TokenError, IndentationError, SyntaxError):
        pass
    return SourceText(tuple(text.splitlines()), spans, statements, tuple(comments))
