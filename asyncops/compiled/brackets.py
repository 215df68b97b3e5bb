"""Text with brackets and quoted strings: where a bracket closes, and the parts between outer commas.

Linear in the text, without recursion: it may be hostile.
"""

from __future__ import annotations

import re

_NESTING = re.compile(r'["(){}\[\]]')
# A whole quoted string is one token, so that brackets and commas inside count for nothing.
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[(){}\[\],]', re.DOTALL)


def closing(text: str, start: int) -> int:
    """Index of the bracket that closes the one at ``start``; -1 where none does.

    The kinds of bracket are not told apart: the texts are machine-made, and a cut one must not be followed
    far.
    """
    depth = 0
    for token in _TOKEN.finditer(text, start):
        character = text[token.start()]
        if character in "({[":
            depth += 1
        elif character in ")}]":
            depth -= 1
            if depth == 0:
                return token.start()
    return -1


def split_commas(text: str) -> list[str]:
    """The parts between commas outside brackets and strings, stripped; no parts for an empty text."""
    if not text.strip():
        return []
    if not _NESTING.search(text):
        return [part.strip() for part in text.split(",")]
    parts, depth, begin = [], 0, 0
    for token in _TOKEN.finditer(text):
        character = text[token.start()]
        if character in "({[":
            depth += 1
        elif character in ")}]":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[begin : token.start()].strip())
            begin = token.end()
    parts.append(text[begin:].strip())
    return parts
