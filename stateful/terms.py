"""Integer terms with symbols, and path conditions over them.

A :data:`Term` is a Python ``int`` where the value is known, else a :class:`Linear` combination of atoms. Atoms are
symbols (an argument, a loaded scalar, a loop counter) and the non-linear operations over terms: floor division,
remainder, product, minimum, maximum, selection, and predicates used as numbers. Known values stay plain ints, so that
a program whose scalars are all known costs integer arithmetic and nothing more.

A :data:`Predicate` is ``True``, ``False``, or a normalised comparison: ``Le(t)`` says ``t <= 0``, ``Eq(t)`` says
``t == 0``, and their negations, conjunctions and disjunctions. :class:`Conditions` holds what a path has assumed and
decides further predicates against it. Deciding is sound and incomplete: ``None`` means "not known", never "false".

Arithmetic is that of the integers: 32-bit overflow is outside the model.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

Bound = int | None
Interval = tuple[Bound, Bound]


class Atom:
    """An indivisible term: a symbol, or an operation over terms that has no linear form.

    Atoms with the same ``text`` are the same value. ``low`` and ``high`` bound the value whatever the path
    (inclusive; None: unbounded).
    """

    __slots__ = ("_hash", "_selects", "_symbols", "arguments", "high", "low", "operation", "text")

    def __init__(self, text: str, operation: str, arguments: tuple[Any, ...], low: Bound, high: Bound):
        self.text, self.operation, self.arguments, self.low, self.high = text, operation, arguments, low, high
        self._hash = hash(text)
        self._symbols: frozenset[Atom] | None = None
        self._selects: bool | None = None

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Atom) and self.text == other.text)

    def __repr__(self) -> str:
        return self.text

    @property
    def is_symbol(self) -> bool:
        """True for a free value: a symbol, or an element of unknown memory (:func:`element`)."""
        return self.operation == "symbol" or self.operation == "element"

    @property
    def selects(self) -> bool:
        """True for a selection, or where one occurs in it."""
        if self._selects is None:
            inside = (atom for argument in self.arguments for atom in atoms(argument))
            self._selects = self.operation == "select" or any(atom.operation == "select" for atom in inside)
        return self._selects

    @property
    def symbols(self) -> frozenset[Atom]:
        """The free symbols in it, itself included."""
        if self._symbols is None:
            found: set[Atom] = {self} if self.is_symbol else set()
            for argument in self.arguments:
                found |= symbols(argument)
            self._symbols = frozenset(found)
        return self._symbols


class Linear:
    """``constant + sum(coefficient * atom)``; at least one atom, no zero coefficient, atoms sorted by text."""

    __slots__ = ("_hash", "constant", "parts")

    def __init__(self, parts: tuple[tuple[Atom, int], ...], constant: int):
        self.parts, self.constant = parts, constant
        self._hash = hash((parts, constant))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Linear)
            and self._hash == other._hash
            and self.constant == other.constant
            and self.parts == other.parts
        )

    def __repr__(self) -> str:
        text = ""
        for atom, c in self.parts:
            size = "" if abs(c) == 1 else f"{abs(c)}*"
            text += (" - " if c < 0 else " + ") + size + atom.text
        text = "-" + text[3:] if text.startswith(" - ") else text[3:]
        if self.constant:
            text += f" {'-' if self.constant < 0 else '+'} {abs(self.constant)}"
        return text


class Comparison:
    """A predicate over a linear term: ``relation`` is "<=" , "==" or "!=", against zero."""

    __slots__ = ("_hash", "relation", "term")
    comparisons = 1

    def __init__(self, relation: str, term: Linear):
        self.relation, self.term = relation, term
        self._hash = hash((relation, term))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Comparison)
            and self._hash == other._hash
            and self.relation == other.relation
            and self.term == other.term
        )

    def __repr__(self) -> str:
        left = Linear(self.term.parts, 0)
        if all(c < 0 for _, c in left.parts) and self.relation != "<=":
            return f"{negate(left)} {self.relation} {self.term.constant}"
        if all(c < 0 for _, c in left.parts):
            return f"{negate(left)} >= {self.term.constant}"
        return f"{left} {self.relation} {-self.term.constant}"


class Junction:
    """``all`` or ``any`` of several predicates, in a fixed order."""

    __slots__ = ("_atoms", "_hash", "comparisons", "is_all", "parts")

    def __init__(self, is_all: bool, parts: tuple[Any, ...]):
        self.is_all, self.parts = is_all, parts
        self._hash = hash((is_all, parts))
        self._atoms: frozenset[Atom] | None = None
        self.comparisons: int = sum(p.comparisons for p in parts)
        """How many comparisons it is made of."""

    @property
    def atoms(self) -> frozenset[Atom]:
        """Every atom of its parts."""
        if self._atoms is None:
            self._atoms = frozenset(atoms(self))
        return self._atoms

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Junction)
            and self._hash == other._hash
            and self.is_all == other.is_all
            and self.parts == other.parts
        )

    def __repr__(self) -> str:
        return "(" + (" and " if self.is_all else " or ").join(map(repr, self.parts)) + ")"


Term = int | Linear
Predicate = bool | Comparison | Junction


LONGEST_TEXT = 3000
"""Characters of an operation's text from which on a term is refused: it would slow everything down "
"and decide nothing."""


class TermTooLargeError(Exception):
    """A term has grown beyond :data:`LONGEST_TEXT`."""


# -- building terms ---------------------------------------------------------------------------------------------


def symbol(name: str, low: Bound = None, high: Bound = None) -> Term:
    """A free integer, identified by its name; a known one if ``low == high``."""
    if low is not None and low == high:
        return low
    return Linear(((Atom(name, "symbol", (), low, high), 1),), 0)


def _from_parts(parts: dict[Atom, int], constant: int) -> Term:
    items = [(a, c) for a, c in parts.items() if c]
    if not items:
        return constant
    items.sort(key=lambda item: item[0].text)
    return Linear(tuple(items), constant)


def element(name: str, index: tuple[Term, ...], version: Term, low: Bound = None, high: Bound = None) -> Term:
    """The unknown integer at ``index`` of a memory called ``name`` that has been changed ``version`` times.

    A free value like a symbol, but one that moves with its index: replacing a symbol in the index gives
    another element.
    """
    return _of_atom("element", (name, version, *index), low, high)


def _text(operation: str, arguments: tuple[Any, ...]) -> str:
    if operation != "element":
        return f"{operation}({', '.join(map(repr, arguments))})"
    name, version, *index = arguments
    where = f"[{', '.join(map(repr, index))}]" if index else ""
    return f"{name}{where}" + ("" if version == 0 else f"@{version}")


def _of_atom(operation: str, arguments: tuple[Any, ...], low: Bound, high: Bound) -> Term:
    if low is not None and low == high:
        return low
    text = _text(operation, arguments)
    _EFFORT.count += len(text) >> 7
    if len(text) > LONGEST_TEXT:
        raise TermTooLargeError
    return Linear(((Atom(text, operation, arguments, low, high), 1),), 0)


def add(a: Term, b: Term) -> Term:
    """``a + b``."""
    if type(a) is int:
        if type(b) is int:
            return a + b
        a, b = b, a
    assert isinstance(a, Linear)
    if type(b) is int:
        return a if b == 0 else Linear(a.parts, a.constant + b)
    assert isinstance(b, Linear)
    parts = dict(a.parts)
    for atom, c in b.parts:
        parts[atom] = parts.get(atom, 0) + c
    return _from_parts(parts, a.constant + b.constant)


def scale(a: Term, factor: int) -> Term:
    """``a * factor`` for a known factor."""
    if type(a) is int:
        return a * factor
    assert isinstance(a, Linear)
    if factor == 0:
        return 0
    return a if factor == 1 else Linear(tuple((x, c * factor) for x, c in a.parts), a.constant * factor)


def negate(a: Term) -> Term:
    """``-a``."""
    return scale(a, -1)


def sub(a: Term, b: Term) -> Term:
    """``a - b``."""
    if type(a) is int and type(b) is int:
        return a - b
    return add(a, scale(b, -1))


def mul(a: Term, b: Term) -> Term:
    """``a * b``; linear where one side is known."""
    if type(b) is int:
        return scale(a, b)
    if type(a) is int:
        return scale(b, a)
    first, second = sorted((a, b), key=repr)
    corners = [x * y for x in interval(a) for y in interval(b) if x is not None and y is not None]
    low, high = (min(corners), max(corners)) if len(corners) == 4 else (None, None)
    if low is None and is_nonnegative(a) and is_nonnegative(b):
        low = 0
    return _of_atom("mul", (first, second), low, high)


def interval(a: Term) -> Interval:
    """Bounds that hold on every path, inclusive; None where unbounded."""
    if type(a) is int:
        return a, a
    assert isinstance(a, Linear)
    low: Bound = a.constant
    high: Bound = a.constant
    for atom, c in a.parts:
        lo, hi = (atom.low, atom.high) if c > 0 else (atom.high, atom.low)
        low = None if low is None or lo is None else low + c * lo
        high = None if high is None or hi is None else high + c * hi
    return low, high


def is_nonnegative(a: Term) -> bool:
    """True when ``a >= 0`` on every path."""
    low = interval(a)[0]
    return low is not None and low >= 0


def _split(a: Linear, m: int) -> tuple[Term, Term]:
    """``a = m * quotient + rest`` where the rest has coefficients in ``[0, m)``."""
    quotient: dict[Atom, int] = {}
    rest: dict[Atom, int] = {}
    for atom, c in a.parts:
        q, r = divmod(c, m)
        quotient[atom], rest[atom] = q, r
    q, r = divmod(a.constant, m)
    return _from_parts(quotient, q), _from_parts(rest, r)


def floordiv(a: Term, b: Term) -> Term:
    """``a // b``, rounding down. The divisor is known in the cases that simplify."""
    if type(b) is int and b != 0:
        if type(a) is int:
            return a // b
        if b < 0:
            return floordiv(negate(a), -b)
        assert isinstance(a, Linear)
        quotient, rest = _split(a, b)
        low, high = interval(rest)
        if low is not None and high is not None and low // b == high // b:
            return add(quotient, low // b)
        atom = _of_atom(
            "floordiv", (rest, b), None if low is None else low // b, None if high is None else high // b
        )
        return add(quotient, atom)
    low, high = interval(a)
    positive = (interval(b)[0] or 0) > 0 and low is not None and low >= 0
    return _of_atom("floordiv", (a, b), 0 if positive else None, high if positive else None)


def mod(a: Term, b: Term) -> Term:
    """``a % b`` with the sign of the divisor (Python's, ``jnp.remainder``)."""
    if type(b) is int and b != 0:
        if type(a) is int:
            return a % b
        if b > 0:
            assert isinstance(a, Linear)
            rest = _split(a, b)[1]
            if type(rest) is int:
                return rest
            low, high = interval(rest)
            if low is not None and high is not None and low // b == high // b:
                return sub(rest, low // b * b)
            return _of_atom("mod", (rest, b), 0, b - 1)
    high = interval(b)[1]
    positive = (interval(b)[0] or 0) > 0
    return _of_atom("mod", (a, b), 0 if positive else None, high - 1 if positive and high else None)


def truncdiv(a: Term, b: Term) -> Term:
    """Division rounding towards zero (``lax.div``)."""
    if type(a) is int and type(b) is int and b != 0:
        q = abs(a) // abs(b)
        return q if (a < 0) == (b < 0) else -q
    if is_nonnegative(a) and (interval(b)[0] or 0) > 0:
        return floordiv(a, b)
    return _of_atom("truncdiv", (a, b), None, None)


def rem(a: Term, b: Term) -> Term:
    """Remainder with the sign of the dividend (``lax.rem``)."""
    if type(a) is int and type(b) is int and b != 0:
        r = abs(a) % abs(b)
        return -r if a < 0 else r
    if is_nonnegative(a) and (interval(b)[0] or 0) > 0:
        return mod(a, b)
    limit = interval(b)[1] if (interval(b)[0] or 0) > 0 else None
    return _of_atom("rem", (a, b), None if limit is None else 1 - limit, None if limit is None else limit - 1)


def _extreme(name: str, pick: Callable[[int, int], int], a: Term, b: Term) -> Term:
    if type(a) is int and type(b) is int:
        return pick(a, b)
    gap = interval(sub(a, b))
    smaller = a if gap[1] is not None and gap[1] <= 0 else b if gap[0] is not None and gap[0] >= 0 else None
    if smaller is not None:
        larger = b if smaller is a else a
        return smaller if name == "min" else larger
    (alo, ahi), (blo, bhi) = interval(a), interval(b)
    if name == "min":
        low = None if alo is None or blo is None else min(alo, blo)
        high = min((x for x in (ahi, bhi) if x is not None), default=None)
    else:
        low = max((x for x in (alo, blo) if x is not None), default=None)
        high = None if ahi is None or bhi is None else max(ahi, bhi)
    return _of_atom(name, tuple(sorted((a, b), key=repr)), low, high)


def minimum(a: Term, b: Term) -> Term:
    """``min(a, b)``."""
    return _extreme("min", min, a, b)


def maximum(a: Term, b: Term) -> Term:
    """``max(a, b)``."""
    return _extreme("max", max, a, b)


def opaque(operation: str, *arguments: Term, low: Bound = None, high: Bound = None) -> Term:
    """An operation without a model: equal arguments give the equal value, nothing more is known."""
    return _of_atom(operation, arguments, low, high)


def from_predicate(p: Predicate) -> Term:
    """1 where the predicate holds, else 0."""
    if isinstance(p, bool):
        return int(p)
    return _of_atom("bool", (p,), 0, 1)


def to_predicate(a: Term) -> Predicate:
    """``a != 0``, undoing :func:`from_predicate`."""
    return ne(a, 0)


def select(p: Predicate, if_true: Term, if_false: Term) -> Term:
    """``if_true`` where ``p`` holds, else ``if_false``."""
    if p is True or if_true == if_false:
        return if_true
    if p is False:
        return if_false
    (alo, ahi), (blo, bhi) = interval(if_true), interval(if_false)
    if (if_true, if_false) == (1, 0):
        return from_predicate(p)
    low = None if alo is None or blo is None else min(alo, blo)
    high = None if ahi is None or bhi is None else max(ahi, bhi)
    return _of_atom("select", (p, if_true, if_false), low, high)


# -- building predicates ----------------------------------------------------------------------------------------


def _compare(relation: str, term: Term) -> Predicate:
    """Normalises ``term relation 0``: divides by the common factor, decides by bounds."""
    if type(term) is int:
        return term <= 0 if relation == "<=" else (term == 0) == (relation == "==")
    assert isinstance(term, Linear)
    if len(term.parts) == 1 and term.parts[0][0].operation == "bool":
        return _about_predicate(relation, term)
    g = math.gcd(*(c for _, c in term.parts))
    if relation == "<=":
        if g > 1:
            term = Linear(tuple((x, c // g) for x, c in term.parts), -(-term.constant // g))
        low, high = interval(term)
        if high is not None and high <= 0:
            return True
        return False if low is not None and low > 0 else Comparison("<=", term)
    if term.constant % g:
        return relation == "!="
    if term.parts[0][1] < 0:
        g = -g
    term = Linear(tuple((x, c // g) for x, c in term.parts), term.constant // g)
    low, high = interval(term)
    if (low is not None and low > 0) or (high is not None and high < 0):
        return relation == "!="
    return Comparison(relation, term)


_RELATIONS: dict[str, Callable[[int], bool]] = {
    "<=": lambda x: x <= 0,
    "==": lambda x: x == 0,
    "!=": lambda x: x != 0,
}


def _about_predicate(relation: str, term: Linear) -> Predicate:
    """``c * [p] + k`` against zero, for a predicate p used as a number: p, its negation, or decided."""
    (atom, c), k = term.parts[0], term.constant
    p = atom.arguments[0]
    if_true, if_false = _RELATIONS[relation](c + k), _RELATIONS[relation](k)
    if if_true == if_false:
        return if_true
    return p if if_true else logical_not(p)


def le(a: Term, b: Term) -> Predicate:
    """``a <= b``."""
    if type(a) is int and type(b) is int:
        return a <= b
    return _compare("<=", sub(a, b))


def lt(a: Term, b: Term) -> Predicate:
    """``a < b``."""
    if type(a) is int and type(b) is int:
        return a < b
    return _compare("<=", add(sub(a, b), 1))


def eq(a: Term, b: Term) -> Predicate:
    """``a == b``."""
    if type(a) is int and type(b) is int:
        return a == b
    return _compare("==", sub(a, b))


def ne(a: Term, b: Term) -> Predicate:
    """``a != b``."""
    if type(a) is int and type(b) is int:
        return a != b
    return _compare("!=", sub(a, b))


def logical_not(p: Predicate) -> Predicate:
    """The negation, pushed inwards."""
    if isinstance(p, bool):
        return not p
    if isinstance(p, Junction):
        return _join(not p.is_all, [logical_not(q) for q in p.parts])
    if p.relation == "<=":
        return _compare("<=", sub(1, p.term))
    return Comparison("!=" if p.relation == "==" else "==", p.term)


def _join(is_all: bool, parts: Iterable[Predicate]) -> Predicate:
    flat: dict[Predicate, None] = {}
    for p in parts:
        if isinstance(p, bool):
            if p != is_all:
                return p
        elif isinstance(p, Junction) and p.is_all == is_all:
            flat.update(dict.fromkeys(p.parts))
        else:
            flat[p] = None
    # Of comparisons only: to negate what is nested, level by level, takes time that doubles with each.
    if any(isinstance(p, Comparison) and logical_not(p) in flat for p in flat):
        return not is_all
    if not flat:
        return is_all
    return next(iter(flat)) if len(flat) == 1 else Junction(is_all, tuple(flat))


def logical_and(*parts: Predicate) -> Predicate:
    """All of them."""
    return _join(True, parts)


def logical_or(*parts: Predicate) -> Predicate:
    """Any of them."""
    return _join(False, parts)


# -- looking into terms and replacing symbols ---------------------------------------------------------------------


def atoms(a: Any) -> Iterator[Atom]:
    """Every atom of a term or predicate, outermost first, repeated where it occurs again."""
    if isinstance(a, Linear):
        for atom, _ in a.parts:
            yield atom
            for argument in atom.arguments:
                yield from atoms(argument)
    elif isinstance(a, Comparison):
        yield from atoms(a.term)
    elif isinstance(a, Junction):
        for p in a.parts:
            yield from atoms(p)


def symbols(a: Any) -> set[Atom]:
    """The free symbols of a term or predicate."""
    if isinstance(a, Linear):
        return set[Atom]().union(*(atom.symbols for atom, _ in a.parts))
    if isinstance(a, Comparison):
        return symbols(a.term)
    if isinstance(a, Junction):
        return set[Atom]().union(*(symbols(p) for p in a.parts))
    return set()


_REBUILD: dict[str, Callable[..., Any]] = {
    "mul": mul, "floordiv": floordiv, "mod": mod, "truncdiv": truncdiv, "rem": rem, "min": minimum, "max": maximum,
    "bool": from_predicate, "select": select,
}  # fmt: skip


def substitute(a: Any, values: Mapping[Atom, Term]) -> Any:
    """The term or predicate with symbols replaced, simplified again."""
    if isinstance(a, Linear):
        total: Term = a.constant
        for atom, c in a.parts:
            total = add(total, scale(_substitute_atom(atom, values), c))
        return total
    if isinstance(a, Comparison):
        return _compare(a.relation, substitute(a.term, values))
    if isinstance(a, Junction):
        return _join(a.is_all, [substitute(p, values) for p in a.parts])
    return a


def _substitute_atom(atom: Atom, values: Mapping[Atom, Term]) -> Term:
    if atom in values:
        return values[atom]
    arguments = tuple(substitute(x, values) for x in atom.arguments)
    if arguments == atom.arguments:
        return Linear(((atom, 1),), 0)
    return _rebuilt(atom, arguments, values)


def _rebuilt(atom: Atom, arguments: tuple[Any, ...], values: Mapping[Atom, Term]) -> Term:
    """The operation over other arguments; an element that ``values`` knows by its new index gets its value."""
    if atom.operation in _REBUILD:
        return _REBUILD[atom.operation](*arguments)
    new = _of_atom(atom.operation, arguments, atom.low, atom.high)
    if atom.operation == "element" and isinstance(new, Linear):
        return values.get(new.parts[0][0], new)
    return new


# -- path conditions ----------------------------------------------------------------------------------------------

Direction = tuple[tuple[Atom, int], ...]


def _directed(a: Linear) -> tuple[Direction, int, int]:
    """``a = factor * direction + constant`` with a canonical direction; the factor may be negative."""
    g = math.gcd(*(c for _, c in a.parts))
    if a.parts[0][1] < 0:
        g = -g
    return tuple((x, c // g) for x, c in a.parts), g, a.constant


DIVISIONS = ("floordiv", "truncdiv")


def _quotients(direction: Direction) -> Iterator[tuple[Atom, Atom]]:
    """The quotients in a direction that have a constant divisor, each with every atom of its dividend."""
    for x, _ in direction:
        if x.operation in DIVISIONS and type(x.arguments[1]) is int and isinstance(x.arguments[0], Linear):
            for y, _ in x.arguments[0].parts:
                yield x, y


def _defining_facts(atom: Atom) -> list[Term]:
    """Terms that are ``<= 0`` by the meaning of the atom."""
    self_ = Linear(((atom, 1),), 0)
    args = atom.arguments
    if atom.operation in DIVISIONS and type(args[1]) is int and args[1] > 0:
        low = sub(scale(self_, args[1]), args[0])
        slack = 0 if atom.operation == "floordiv" else args[1] - 1
        return [sub(low, slack), sub(negate(low), args[1] - 1)]
    if atom.operation == "min":
        return [sub(self_, x) for x in args]
    if atom.operation == "max":
        return [sub(x, self_) for x in args]
    if atom.operation == "mod" and is_nonnegative(args[0]):
        return [sub(self_, args[0])]
    return []


class _Effort(threading.local):
    count = 0


_EFFORT = _Effort()


def effort() -> int:
    """How many ranges of terms this thread has looked for so far: the same for the same work on every machine."""
    return _EFFORT.count


class Conditions:
    """What a path has assumed: bounds on linear directions, excluded values, and undecided disjunctions.

    Immutable: :meth:`assume` gives a new object, or None where the assumption contradicts what is known.
    """

    __slots__ = (
        "_answers",
        "_clauses",
        "_equations",
        "_index",
        "_quotients",
        "bounds",
        "clauses",
        "excluded",
    )

    def __init__(
        self,
        bounds: dict[Direction, Interval] | None = None,
        excluded: dict[Direction, frozenset[int]] | None = None,
        clauses: tuple[Junction, ...] = (),
    ):
        self.bounds, self.excluded, self.clauses = bounds or {}, excluded or {}, clauses
        self._answers: dict[Predicate, bool | None] = {}  # what was decided before
        self._index: dict[Atom, tuple[Direction, ...]] | None = None  # the bounds on several atoms, by atom
        self._quotients: dict[Atom, tuple[Atom, ...]] | None = (
            None  # bounded quotients, by atom of the dividend
        )
        self._clauses = frozenset(clauses)
        self._equations: dict[Atom, Term] | None = None  # symbols that equal something else

    def facts(self) -> Iterator[Predicate]:
        """Everything assumed, as predicates."""
        for direction, (low, high) in self.bounds.items():
            term = Linear(direction, 0)
            if low is not None and low == high:
                yield Comparison("==", Linear(direction, -low))
                continue
            if low is not None:
                yield Comparison("<=", sub(low, term))  # type: ignore[arg-type]
            if high is not None:
                yield Comparison("<=", sub(term, high))  # type: ignore[arg-type]
        for direction, values in self.excluded.items():
            for value in sorted(values):
                yield Comparison("!=", Linear(direction, -value))
        yield from self.clauses

    def key(self) -> frozenset[Predicate]:
        """A hashable identity of what is assumed."""
        return frozenset(self.facts())

    def __str__(self) -> str:
        return ", ".join(sorted(map(repr, self.facts())))

    # -- deciding --

    def range(self, a: Term, depth: int = 2) -> Interval:
        """Bounds of a term under these conditions."""
        if type(a) is int:
            return a, a
        assert isinstance(a, Linear)
        direction, factor, constant = _directed(a)
        low, high = self._direction_range(direction, depth)
        if factor < 0:
            low, high = high, low
        return (
            None if low is None else low * factor + constant,
            None if high is None else high * factor + constant,
        )

    def _atom_range(self, atom: Atom) -> Interval:
        low, high = self.bounds.get(((atom, 1),), (None, None))
        return _tighter((low, high), (atom.low, atom.high))

    def _direction_range(self, direction: Direction, depth: int) -> Interval:
        _EFFORT.count += 1
        low: Bound = 0
        high: Bound = 0
        for atom, c in direction:
            lo, hi = self._atom_range(atom)
            lo, hi = (lo, hi) if c > 0 else (hi, lo)
            low = None if low is None or lo is None else low + c * lo
            high = None if high is None or hi is None else high + c * hi
        best = _tighter((low, high), self.bounds.get(direction, (None, None)))
        if depth > 0 and (best[0] is None or best[0] != best[1]):
            best = self._combined_range(direction, best, depth)
        return self._outside_excluded(direction, best)

    def _combined_range(self, direction: Direction, best: Interval, depth: int) -> Interval:
        """Bounds by adding a multiple of one known fact that cancels an atom (one Fourier-Motzkin step each)."""
        target = Linear(direction, 0)
        present = dict(direction)
        for fact in self._facts_about(direction):
            shared = next((x for x, _ in fact.parts if x in present), None)
            if shared is None:
                continue
            fact_c = dict(fact.parts)[shared]
            # The least multiple of the target in which the atom cancels; its bounds are rounded inwards.
            m = abs(fact_c) // math.gcd(present[shared], fact_c)
            k = m * present[shared] // fact_c
            rest = sub(scale(target, m), scale(fact, k))
            if isinstance(rest, Linear) and len(rest.parts) > len(direction) + 1:
                continue
            low, high = self.range(rest, depth - 1)
            # fact <= 0, so k * fact <= 0 for k > 0: an upper bound; a lower bound for k < 0.
            if k > 0:
                best = _tighter(best, (None, None if high is None else high // m))
            else:
                best = _tighter(best, (None if low is None else _ceil_div(low, m), None))
        return best

    def _facts_about(self, direction: Direction) -> Iterator[Linear]:
        for known in self._bounded_with(direction):
            low, high = self.bounds[known]
            if high is not None:
                yield Linear(known, -high)
            if low is not None:
                yield Linear(tuple((x, -c) for x, c in known), low)
        for x, _ in direction:
            yield from self._meaning(x)
            for quotient in self._index_of_quotients().get(x, ()):
                yield from self._meaning(quotient)

    def _meaning(self, x: Atom) -> Iterator[Linear]:
        """What defines an atom, as terms that are ``<= 0``: more of a quotient whose dividend has a known sign."""
        facts = _defining_facts(x)
        if x.operation == "truncdiv" and facts and isinstance(x.arguments[0], Linear):
            remainder = sub(x.arguments[0], scale(Linear(((x, 1),), 0), x.arguments[1]))
            direction, factor, constant = _directed(x.arguments[0])
            bounds = self._direction_range(direction, 0)
            low, high = bounds if factor > 0 else bounds[::-1]
            if low is not None and low * factor + constant >= 0:
                facts.append(negate(remainder))
            if high is not None and high * factor + constant <= 0:
                facts.append(remainder)
        for fact in facts:
            if isinstance(fact, Linear):
                yield fact

    def _index_of_quotients(self) -> dict[Atom, tuple[Atom, ...]]:
        if self._quotients is None:
            self._quotients = {}
            for known in self.bounds:
                _put_quotients_in_index(self._quotients, known)
        return self._quotients

    def _bounded_with(self, direction: Direction) -> Iterable[Direction]:
        """The other bounded directions that share an atom with this one."""
        if self._index is None:
            self._index = {}
            for known in self.bounds:
                _put_in_index(self._index, known)
        if len(direction) == 1:
            return [d for d in self._index.get(direction[0][0], ()) if d != direction]
        found: dict[Direction, None] = {}
        for x, _ in direction:
            found.update(dict.fromkeys(self._index.get(x, ())))
        found.pop(direction, None)
        return found

    def _outside_excluded(self, direction: Direction, best: Interval) -> Interval:
        values = self.excluded.get(direction)
        if values:
            low, high = best
            while low is not None and low in values:
                low += 1
            while high is not None and high in values:
                high -= 1
            best = low, high
        return best

    def decide(self, p: Predicate) -> bool | None:
        """Whether ``p`` holds on this path: True, False, or None where both may be."""
        if isinstance(p, bool):
            return p
        if p not in self._answers:
            self._answers[p] = self._decide(p)
        return self._answers[p]

    def _decide(self, p: Comparison | Junction) -> bool | None:
        if isinstance(p, Junction):
            is_open = False
            _EFFORT.count += len(p.parts)
            for q in p.parts:
                answer = self.decide(q)
                if answer is None:
                    is_open = True
                elif answer != p.is_all:
                    return answer
            if not is_open:
                return p.is_all
            return True if p in self._clauses else None
        low, high = self.range(p.term)
        if p.relation == "<=":
            if high is not None and high <= 0:
                return True
            return False if low is not None and low > 0 else None
        if low == high == 0:
            return p.relation == "=="
        direction, factor, constant = _directed(p.term)
        absent = -constant // factor in self.excluded.get(direction, ())
        if absent or (low is not None and low > 0) or (high is not None and high < 0):
            return p.relation == "!="
        resolved = self.resolved(p.term)
        return None if resolved is p.term else self.decide(_compare(p.relation, resolved))

    def resolved(self, a: Linear) -> Term:
        """The term with each selection whose condition is decided replaced by what it selects."""
        result: Term = a
        while isinstance(result, Linear) and _selects(result):
            chosen: dict[Atom, Term] = {}
            for atom in atoms(result):
                if atom.operation == "select" and atom not in chosen:
                    known = self.decide(atom.arguments[0])
                    if known is not None:
                        chosen[atom] = atom.arguments[1 if known else 2]
            if not chosen:
                break
            result = substitute(result, chosen)
        return result

    def with_equations(self, a: Any) -> Any:
        """The same value or predicate, with symbols that an equation of this path gives in terms of others put in."""
        if isinstance(a, int):
            return a
        if self._equations is None:
            self._equations = dict(self._solved())
        if not self._equations:
            return a
        values = {x: self._equations[x] for x in symbols(a) if x in self._equations}
        return substitute(a, values) if values else a

    def _solved(self) -> Iterator[tuple[Atom, Term]]:
        """Symbols that equal something else, each with what it equals."""
        for direction, (low, high) in self.bounds.items():
            if low is None or low != high:
                continue
            for x, c in direction:
                if abs(c) == 1 and x.operation in ("symbol", "element"):
                    others = sub(Linear(direction, 0), scale(Linear(((x, 1),), 0), c))
                    if x not in symbols(others):
                        yield x, scale(sub(low, others), c)
                        break

    # -- assuming --

    def assume(self, p: Predicate) -> Conditions | None:
        """These conditions and ``p``; None if that is a contradiction."""
        known = self.decide(p)
        if known is not None:
            return self if known else None
        assert not isinstance(p, bool)
        if isinstance(p, Junction):
            return self._assume_all(p.parts) if p.is_all else self._assume_any(p)
        bounds, excluded = dict(self.bounds), dict(self.excluded)
        direction, factor, constant = _directed(p.term)
        if p.relation == "!=":
            excluded[direction] = excluded.get(direction, frozenset()) | {-constant // factor}
        else:
            new: Interval
            if p.relation == "==":
                new = (-constant // factor, -constant // factor)
            elif factor > 0:
                new = (None, -constant // factor)
            else:
                new = (_ceil_div(constant, -factor), None)
            bounds[direction] = _tighter(bounds.get(direction, (None, None)), new)
        result = Conditions(bounds, excluded, self.clauses)
        if self._index is not None:
            result._index = self._index
            if direction in bounds and direction not in self.bounds and len(direction) > 1:
                result._index = dict(self._index)
                _put_in_index(result._index, direction)
        if self._quotients is not None:
            result._quotients = self._quotients
            if direction not in self.bounds and any(_quotients(direction)):
                result._quotients = dict(self._quotients)
                _put_quotients_in_index(result._quotients, direction)
        low, high = result._direction_range(direction, 2)
        if low is not None and high is not None and low > high:
            return None
        affected = {x for x, _ in direction}
        for other in result._bounded_with(direction):
            affected.update(x for x, _ in other)
        result = result._assume_meaning(p)._propagate_clauses(affected)
        return result._assume_selected(symbols(p)) if result is not None else None

    def _assume_selected(self, about: set[Atom]) -> Conditions | None:
        """What bounds on selections say, once it is known what they select. ``about``: what something is new of."""
        result: Conditions | None = self
        for direction, (low, high) in self.bounds.items():
            whole = Linear(direction, 0)
            if not _selects(whole) or about.isdisjoint(symbols(whole)):
                continue
            term = self.resolved(whole)
            if term is not whole:
                for bound in (low is None or le(low, term), high is None or le(term, high)):
                    result = result.assume(bound) if result is not None else None
        return result

    def _assume_meaning(self, p: Comparison) -> Conditions:
        """A predicate used as a number, once its value is known, is assumed itself."""
        if len(p.term.parts) == 1 and p.term.parts[0][0].operation == "bool":
            low, high = self._atom_range(p.term.parts[0][0])
            if low is not None and low == high:
                inner = p.term.parts[0][0].arguments[0]
                return self.assume(inner if low else logical_not(inner)) or self
        return self

    def _assume_all(self, parts: Iterable[Predicate]) -> Conditions | None:
        result: Conditions | None = self
        for p in parts:
            result = result.assume(p) if result is not None else None
        return result

    def _assume_any(self, p: Junction) -> Conditions | None:
        open_parts = [q for q in p.parts if self.decide(q) is not False]
        if len(open_parts) == 1:
            return self.assume(open_parts[0])
        return Conditions(self.bounds, self.excluded, (*self.clauses, Junction(False, tuple(open_parts))))

    def _propagate_clauses(self, affected: set[Atom]) -> Conditions | None:
        """Drops disjunctions about these atoms that hold now; of those with one open side, assumes it."""
        _EFFORT.count += len(self.clauses)
        kept: list[Junction] = []
        forced: list[Predicate] = []
        for clause in self.clauses:
            if affected.isdisjoint(clause.atoms):
                kept.append(clause)
                continue
            answers = [self.decide(q) for q in clause.parts]
            if True in answers:
                continue
            open_parts = [q for q, answer in zip(clause.parts, answers) if answer is None]
            if not open_parts:
                return None
            if len(open_parts) == 1:
                forced.append(open_parts[0])
            else:
                kept.append(clause)
        if len(kept) == len(self.clauses):
            return self
        rest = Conditions(self.bounds, self.excluded, tuple(kept))
        rest._index, rest._quotients = self._index, self._quotients
        return rest._assume_all(forced)

    def substituted(self, values: Mapping[Atom, Term]) -> Conditions | None:
        """The conditions with symbols replaced; None if they become contradictory."""
        result: Conditions | None = Conditions()
        for fact in self.facts():
            result = result.assume(substitute(fact, values)) if result is not None else None
        return result

    def common(self, other: Conditions) -> Conditions:
        """What holds under either: the facts of each that the other implies."""
        if self is other:
            return self
        bounds: dict[Direction, Interval] = {}
        for one, two in ((self, other), (other, self)):
            for direction, (low, high) in one.bounds.items():
                if direction in bounds:
                    continue
                lower, higher = two.range(Linear(direction, 0))
                low = None if low is None or lower is None else min(low, lower)
                high = None if high is None or higher is None else max(high, higher)
                if low is not None or high is not None:
                    bounds[direction] = low, high
        excluded: dict[Direction, frozenset[int]] = {}
        clauses: dict[Junction, None] = {}
        for one, two in ((self, other), (other, self)):
            for direction, values in one.excluded.items():
                kept = {v for v in values if two.decide(_compare("!=", Linear(direction, -v))) is True}
                if kept:
                    excluded[direction] = excluded.get(direction, frozenset()) | kept
            clauses.update(dict.fromkeys(c for c in one.clauses if two.decide(c) is True))
        return Conditions(bounds, excluded, tuple(clauses))

    def restricted(self, keep: Callable[[Atom], bool]) -> Conditions:
        """Only the facts all of whose symbols are kept: a weaker path condition."""

        def kept(direction: Direction) -> bool:
            return all(keep(s) for s in symbols(Linear(direction, 0)))

        return Conditions(
            {d: b for d, b in self.bounds.items() if kept(d)},
            {d: v for d, v in self.excluded.items() if kept(d)},
            tuple(c for c in self.clauses if all(keep(s) for s in symbols(c))),
        )


def _selects(a: Linear) -> bool:
    """True where a selection occurs in a term, however deep."""
    return any(atom.selects for atom, _ in a.parts)


def _put_in_index(index: dict[Atom, tuple[Direction, ...]], direction: Direction) -> None:
    if len(direction) > 1:
        for x, _ in direction:
            index[x] = (*index.get(x, ()), direction)


def _put_quotients_in_index(index: dict[Atom, tuple[Atom, ...]], direction: Direction) -> None:
    for quotient, part in _quotients(direction):
        if quotient not in index.get(part, ()):
            index[part] = (*index.get(part, ()), quotient)


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def _tighter(a: Interval, b: Interval) -> Interval:
    low = a[0] if b[0] is None else b[0] if a[0] is None else max(a[0], b[0])
    high = a[1] if b[1] is None else b[1] if a[1] is None else min(a[1], b[1])
    return low, high


# -- models ---------------------------------------------------------------------------------------------------------


def evaluate(a: Any, values: Mapping[Atom, int]) -> Any:
    """The int or bool of a term or predicate under a full assignment of its symbols."""
    return substitute(a, values)


def find_model(
    conditions: Conditions, extra: Iterable[Any] = (), budget: int = 20_000
) -> dict[Atom, int] | None:
    """Values for all symbols of ``conditions`` (and of the terms in ``extra``) that satisfy it, or None.

    None means that none was found within the budget, which is not a proof that none exists. Small values first.
    """
    facts = list(conditions.facts())
    budget_left = [budget]

    def search(path: Conditions, terms_: list[Any], chosen: dict[Atom, int]) -> dict[Atom, int] | None:
        free: set[Atom] = set()
        for x in (*path.facts(), *terms_):
            free |= symbols(x)
        free -= chosen.keys()
        # Symbols before elements: an index has to be known before the element it selects is.
        s = min(free, key=lambda a: (a.operation != "symbol", a.text), default=None)
        if s is None:
            return dict(chosen) if all(evaluate(f, chosen) is True for f in facts) else None
        for value in _candidates(path, s):
            budget_left[0] -= 1
            if budget_left[0] < 0:
                return None
            narrowed = path.substituted({s: value})
            if narrowed is None:
                continue
            found = search(narrowed, [substitute(x, {s: value}) for x in terms_], {**chosen, s: value})
            if found is not None:
                return found
        return None

    return search(conditions, list(extra), {})


def _candidates(path: Conditions, s: Atom, most: int = 40) -> Iterator[int]:
    low, high = path.range(Linear(((s, 1),), 0))
    if low is None and high is None:
        yield 0
        for k in range(1, most // 2):
            yield from (k, -k)
    elif low is not None:
        stop = low + most if high is None else min(high + 1, low + most)
        yield from range(low, stop)
        if high is not None and high >= stop:
            yield high
    else:
        assert high is not None
        yield from range(high, high - most, -1)
