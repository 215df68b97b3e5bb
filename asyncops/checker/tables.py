"""Places that a program reads from memory: page tables, slice lists, offsets that something else computed.

Two copies to ``cache[pages[0]]`` and ``cache[pages[1]]`` meet only where two entries of the table name one page. Values
for which they do exist, but it is the caller's business to keep the entries apart, or not: what the entries are is
what the program was not told. So no finding rests on it.
"""

from __future__ import annotations

from typing import Any

from stateful import terms
from stateful.terms import Atom, Predicate
from stateful.types import Region

COUNTER = "iterations skipped"
"""What loop counters are called; they are no memory."""


def same_entries(a: Region, b: Region) -> Predicate | None:
    """Whether the places that two regions read from memory are those of the same entries; None where not both do.

    ``False``: they are different entries, or entries of different tables.
    """
    mine, theirs = _entries(a), _entries(b)
    mine, theirs = mine - theirs, theirs - mine
    if not mine or not theirs:
        return None
    parts: list[Predicate] = []
    rest = sorted(theirs, key=lambda entry: entry.text)
    for entry in sorted(mine, key=lambda entry: entry.text):
        other = next((x for x in rest if _table(x) == _table(entry)), None)
        if other is None:
            return False
        rest.remove(other)
        parts += [terms.eq(i, j) for i, j in zip(entry.arguments[2:], other.arguments[2:])]
        parts.append(terms.eq(_term(entry), _term(other)))
    return terms.logical_and(*parts)


def table_names(a: Region, b: Region) -> str:
    """The tables whose entries say where two regions lie."""
    return " and ".join(sorted({str(entry.arguments[0]) for entry in _entries(a) ^ _entries(b)}))


def _entries(region: Region) -> set[Atom]:
    starts = [start for start, _, _ in region.ranges if type(start) is not int]
    found: set[Atom] = set().union(*map(terms.symbols, starts))
    return {s for s in found if s.operation == "element" and s.arguments[0] != COUNTER}


def _table(entry: Atom) -> Any:
    name, version, *index = entry.arguments
    return name, version, len(index)


def _term(atom: Atom) -> terms.Linear:
    return terms.Linear(((atom, 1),), 0)
