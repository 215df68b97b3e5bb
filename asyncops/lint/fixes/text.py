"""A Python file as it is on disk, edited at places of its syntax tree; all that is not edited stays as it is."""

from __future__ import annotations

import ast
import difflib
import io
import os
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from asyncops.writing import write_whole
from stateful.errors import LintUsageError


@dataclass(frozen=True)
class Edit:
    """The characters from ``start`` to ``end`` become ``text``."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class SourceFile:
    """A file and its text. ``original``: the bytes it had when it was read."""

    path: Path
    text: str
    encoding: str
    original: bytes

    @staticmethod
    def read(file: str) -> SourceFile | None:
        """The file; None where it is no Python that can be parsed."""
        path = Path(os.path.realpath(file))
        try:
            original = path.read_bytes()
            encoding, _ = tokenize.detect_encoding(io.BytesIO(original).readline)
            text = original.decode(encoding)
            ast.parse(text)
        except (OSError, SyntaxError, ValueError):
            return None
        return SourceFile(path, text, encoding, original)

    @property
    def newline(self) -> str:
        """What ends its lines."""
        return "\r\n" if "\r\n" in self.text else "\n"

    def edited(self, edits: Sequence[Edit]) -> SourceFile | None:
        """The file with the edits made; None where it could not be parsed back."""
        text = self.text
        for edit in sorted(edits, key=lambda e: (e.start, e.end), reverse=True):
            text = text[: edit.start] + edit.text + text[edit.end :]
        try:
            ast.parse(text)
            text.encode(self.encoding)
        except (SyntaxError, ValueError):
            return None
        return replace(self, text=text)

    def diff(self, before: SourceFile, shown: str) -> str:
        """What changed since ``before``, as a unified diff."""
        lines = difflib.unified_diff(
            before.text.splitlines(), self.text.splitlines(), f"a/{shown}", f"b/{shown}", lineterm=""
        )
        return "".join(f"{line}\n" for line in lines)

    def write(self) -> None:
        """Replaces the file at once: whoever reads it sees the old text or the new one.

        Raises:
          LintUsageError: it was changed meanwhile; nothing is written.
        """
        if self.path.read_bytes() != self.original:
            raise LintUsageError(f"{self.path}: was changed while it was being fixed; nothing is written")
        write_whole(self.path, self.text, self.encoding)


class Tree:
    """The syntax tree of a file, with the places of its nodes in the text."""

    def __init__(self, source: SourceFile) -> None:
        self.source = source
        self.module = ast.parse(source.text)
        self._lines = source.text.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def span(self, node: ast.expr | ast.stmt | ast.keyword) -> tuple[int, int]:
        """First character of a node, and the one after its last."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._at(node.lineno, node.col_offset), self._at(node.end_lineno, node.end_col_offset)

    def _at(self, line: int, column: int) -> int:
        # The tree counts bytes of UTF-8.
        text = self._lines[line - 1] if line <= len(self._lines) else ""
        return self._starts[line - 1] + len(text.encode()[:column].decode())

    def text(self, node: ast.expr | ast.stmt | ast.keyword) -> str:
        """The node as it is written."""
        start, end = self.span(node)
        return self.source.text[start:end]

    def block(self, line: int) -> tuple[list[ast.stmt], int] | None:
        """The innermost block with a simple statement on ``line``, and the statement's number in it."""
        for node in ast.walk(self.module):
            for block in _blocks(node):
                for number, statement in enumerate(block):
                    if _is_simple(statement) and statement.lineno <= line <= (statement.end_lineno or 0):
                        return block, number
        return None

    def has_own_lines(self, statement: ast.stmt) -> bool:
        """Nothing else stands on the lines of the statement, but perhaps a comment."""
        start, end = self.span(statement)
        before = self.source.text[self._starts[statement.lineno - 1] : start]
        after = self.source.text[end : self.line_end(statement)].strip()
        return not before.strip() and (not after or after.startswith("#"))

    def line_end(self, statement: ast.stmt) -> int:
        """The end of the statement's last line, its newline included."""
        return self._starts[statement.end_lineno or statement.lineno]

    def line_start(self, statement: ast.stmt) -> int:
        """The beginning of the statement's first line."""
        return self._starts[statement.lineno - 1]

    def indentation(self, statement: ast.stmt) -> str:
        """The white space before a statement."""
        return self.source.text[self.line_start(statement) : self.span(statement)[0]]

    def insertion(self, after: ast.stmt, code: str) -> Edit:
        """``code`` on a line of its own below a statement."""
        at, newline = self.line_end(after), self.source.newline
        missing = "" if self.source.text[:at].endswith("\n") else newline
        return Edit(at, at, f"{missing}{self.indentation(after)}{code}{newline}")


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        block: object = getattr(node, name, None)
        if isinstance(block, list):  # of a lambda it is an expression
            yield cast("list[ast.stmt]", block)


def _is_simple(statement: ast.AST) -> bool:
    return isinstance(statement, ast.stmt) and not hasattr(statement, "body")
