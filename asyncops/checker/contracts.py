"""What a kernel's contract promises of its integer arguments: ``check(..., requires=...)``.

``requires`` is a function of the checked function's arguments. It gets an :class:`Argument` for each and returns
promises about them, which the symbols then obey::

    def requires(x, n, lengths):
        return n >= 1, n <= 6, lengths.between(1, 64), lengths.increasing()

    asyncops.check(kernel, x, n, lengths, requires=requires)

Scalars and elements (``lengths[0]``) can be compared, added, multiplied by integers, and divided by them
(``//``, ``%``); comparisons can be joined by ``&``, ``|`` and ``~``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from asyncops.checker import scalars
from asyncops.checker.memory import Buffer
from stateful import terms
from stateful.errors import InvalidArgumentError


@dataclass(frozen=True)
class Promise:
    """A predicate over arguments, or a property of a whole array."""

    predicate: terms.Predicate = True
    buffer: Buffer | None = None
    bounds: tuple[int | None, int | None] | None = None
    is_increasing: bool = False

    def __and__(self, other: Promise) -> Promise:
        return Promise(terms.logical_and(self._compared("&"), other._compared("&")))

    def __or__(self, other: Promise) -> Promise:
        return Promise(terms.logical_or(self._compared("|"), other._compared("|")))

    def __invert__(self) -> Promise:
        return Promise(terms.logical_not(self._compared("~")))

    def __bool__(self) -> bool:
        raise InvalidArgumentError(
            "requires: a promise is neither true nor false yet, so `and`, `or`, `not` and a <= b <= c cannot be used: "
            "return several promises, or join them with &, | and ~"
        )

    def _compared(self, operator: str) -> terms.Predicate:
        if self.buffer is not None:
            raise InvalidArgumentError(
                f"requires: {operator} joins comparisons; return between(...) and increasing() as promises of their own"
            )
        return self.predicate


class Expression:
    """An integer over arguments."""

    __slots__ = ("term",)

    def __init__(self, term: terms.Term):
        self.term = term

    def __add__(self, other: Any) -> Expression:
        return Expression(terms.add(self.term, _term(other)))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Expression:
        return Expression(terms.sub(self.term, _term(other)))

    def __rsub__(self, other: Any) -> Expression:
        return Expression(terms.sub(_term(other), self.term))

    def __mul__(self, other: Any) -> Expression:
        return Expression(terms.mul(self.term, _term(other)))

    __rmul__ = __mul__

    def __floordiv__(self, other: int) -> Expression:
        return Expression(terms.floordiv(self.term, other))

    def __mod__(self, other: int) -> Expression:
        return Expression(terms.mod(self.term, other))

    def __le__(self, other: Any) -> Promise:
        return Promise(terms.le(self.term, _term(other)))

    def __lt__(self, other: Any) -> Promise:
        return Promise(terms.lt(self.term, _term(other)))

    def __ge__(self, other: Any) -> Promise:
        return Promise(terms.le(_term(other), self.term))

    def __gt__(self, other: Any) -> Promise:
        return Promise(terms.lt(_term(other), self.term))

    def __eq__(self, other: object) -> Promise:  # type: ignore[override]
        return Promise(terms.eq(self.term, _term(other)))

    def __ne__(self, other: object) -> Promise:  # type: ignore[override]
        return Promise(terms.ne(self.term, _term(other)))

    __hash__ = None  # type: ignore[assignment]


class Argument(Expression):
    """One argument of the checked function: a scalar to compare, or an array to index and bound."""

    __slots__ = ("buffer", "name")

    def __init__(self, name: str, value: Any, buffer: Buffer | None):
        super().__init__(scalars.as_term(value) if scalars.is_scalar(value) else 0)
        self.name = name
        self.buffer = buffer
        if buffer is None and not scalars.is_scalar(value):
            self.term = None  # type: ignore[assignment]

    def __getattribute__(self, attribute: str) -> Any:
        value = object.__getattribute__(self, attribute)
        if attribute == "term" and value is None:
            raise InvalidArgumentError(
                f"requires: {self.name} holds no integers that a promise could be about"
            )
        return value

    def __getitem__(self, index: Any) -> Expression:
        """An element of an integer array."""
        buffer = self._array()
        key = index if isinstance(index, tuple) else (index,)
        if len(key) != len(buffer.type.shape):
            raise InvalidArgumentError(
                f"requires: {self.name} has shape {buffer.type.shape}, got the index {index!r}"
            )
        low, high = buffer.bounds
        return Expression(terms.element(buffer.source or buffer.name, tuple(map(_term, key)), 0, low, high))

    def between(self, low: int | None, high: int | None) -> Promise:
        """Every element is at least ``low`` and at most ``high`` (None: unbounded)."""
        return Promise(buffer=self._array(), bounds=(low, high))

    def increasing(self) -> Promise:
        """No element is smaller than the one before it."""
        return Promise(buffer=self._array(), is_increasing=True)

    def _array(self) -> Buffer:
        if self.buffer is None:
            raise InvalidArgumentError(f"requires: {self.name} is not an integer array; compare it instead")
        return self.buffer


def _term(x: Any) -> terms.Term:
    if isinstance(x, Expression):
        return x.term
    if isinstance(x, int):
        return int(x)
    raise InvalidArgumentError(f"requires: a promise compares integers and arguments, got {x!r}")


def promises_of(requires: Callable[..., Any], arguments: Any) -> list[Promise]:
    """What ``requires`` promises of these arguments."""
    given = requires(*arguments)
    found = list(given) if isinstance(given, Iterable) else [given]
    for promise in found:
        if not isinstance(promise, Promise):
            raise InvalidArgumentError(
                f"requires must return promises such as n >= 1 or lengths.between(1, 64), got {promise!r}"
            )
    return found
