"""Terms and path conditions against Python's integers: whatever is claimed holds for every value of the symbols."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stateful import terms
from stateful.terms import Conditions

LOW, HIGH = -2, 3
FREE = tuple(terms.symbol(name) for name in "ab")
BOUNDED = terms.symbol("i", 0, HIGH), terms.symbol("j", LOW, HIGH)
SYMBOLS = FREE + BOUNDED
ATOMS = tuple(s.parts[0][0] for s in SYMBOLS if isinstance(s, terms.Linear))
VALUES = (range(LOW, HIGH + 1),) * 2 + (range(HIGH + 1), range(LOW, HIGH + 1))


@dataclass(frozen=True)
class Pair:
    """A term or predicate, and what it means: a function of the values of the symbols."""

    term: Any
    meaning: Callable[[tuple[int, ...]], Any]

    def __repr__(self) -> str:
        return repr(self.term)


def _truncated_division(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


BINARY: dict[str, tuple[Callable[[Any, Any], Any], Callable[[int, int], int]]] = {
    "add": (terms.add, lambda a, b: a + b),
    "sub": (terms.sub, lambda a, b: a - b),
    "mul": (terms.mul, lambda a, b: a * b),
    "min": (terms.minimum, min),
    "max": (terms.maximum, max),
}
DIVISIONS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[int, int], int]]] = {
    "floordiv": (terms.floordiv, lambda a, b: a // b),
    "mod": (terms.mod, lambda a, b: a % b),
    "truncdiv": (terms.truncdiv, _truncated_division),
    "rem": (terms.rem, lambda a, b: a - b * _truncated_division(a, b)),
}
COMPARISONS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[int, int], bool]]] = {
    "le": (terms.le, lambda a, b: a <= b),
    "lt": (terms.lt, lambda a, b: a < b),
    "eq": (terms.eq, lambda a, b: a == b),
    "ne": (terms.ne, lambda a, b: a != b),
}

_LEAVES = st.one_of(
    st.integers(-5, 8).map(lambda n: Pair(n, lambda _: n)),
    st.integers(0, len(SYMBOLS) - 1).map(lambda k: Pair(SYMBOLS[k], lambda v: v[k])),
)


def _applied(operation: tuple[Any, Any], a: Pair, b: Pair) -> Pair:
    build, compute = operation
    return Pair(build(a.term, b.term), lambda v: compute(a.meaning(v), b.meaning(v)))


def _comparison(children: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    return st.builds(_applied, st.sampled_from(list(COMPARISONS.values())), children, children)


def _selected(p: Pair, a: Pair, b: Pair) -> Pair:
    return Pair(
        terms.select(p.term, a.term, b.term), lambda v: a.meaning(v) if p.meaning(v) else b.meaning(v)
    )


def _counted(p: Pair) -> Pair:
    return Pair(terms.from_predicate(p.term), lambda v: int(p.meaning(v)))


def _wider(children: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    divisor = st.sampled_from([-4, -3, -1, 1, 2, 3, 4]).map(lambda n: Pair(n, lambda _: n))
    return st.one_of(
        st.builds(_applied, st.sampled_from(list(BINARY.values())), children, children),
        st.builds(_applied, st.sampled_from(list(DIVISIONS.values())), children, divisor),
        st.builds(_selected, _comparison(children), children, children),
        _comparison(children).map(_counted),
    )


INTEGERS = st.recursive(_LEAVES, _wider, max_leaves=6)


def _not(p: Pair) -> Pair:
    return Pair(terms.logical_not(p.term), lambda v: not p.meaning(v))


def _and(p: Pair, q: Pair) -> Pair:
    return Pair(terms.logical_and(p.term, q.term), lambda v: p.meaning(v) and q.meaning(v))


def _or(p: Pair, q: Pair) -> Pair:
    return Pair(terms.logical_or(p.term, q.term), lambda v: p.meaning(v) or q.meaning(v))


PREDICATES = st.recursive(
    st.one_of(
        _comparison(INTEGERS),
        INTEGERS.map(lambda a: Pair(terms.to_predicate(a.term), lambda v: a.meaning(v) != 0)),
    ),
    lambda ps: st.one_of(ps.map(_not), st.builds(_and, ps, ps), st.builds(_or, ps, ps)),
    max_leaves=4,
)
ASSIGNMENTS = st.tuples(*(st.sampled_from(list(v)) for v in VALUES))


def values_of(assignment: tuple[int, ...]) -> dict[terms.Atom, int]:
    return dict(zip(ATOMS, assignment))


def everywhere() -> itertools.product[tuple[int, ...]]:
    return itertools.product(*VALUES)


# -- terms --------------------------------------------------------------------------------------------------------


@settings(max_examples=80)
@given(INTEGERS, ASSIGNMENTS)
def test_a_term_has_the_value_of_its_expression(pair: Pair, assignment: tuple[int, ...]) -> None:
    assert terms.evaluate(pair.term, values_of(assignment)) == pair.meaning(assignment)


@settings(max_examples=80)
@given(PREDICATES, ASSIGNMENTS)
def test_a_predicate_has_the_value_of_its_expression(pair: Pair, assignment: tuple[int, ...]) -> None:
    assert terms.evaluate(pair.term, values_of(assignment)) is bool(pair.meaning(assignment))


@settings(max_examples=80)
@given(INTEGERS, ASSIGNMENTS)
def test_the_interval_of_a_term_holds_its_value(pair: Pair, assignment: tuple[int, ...]) -> None:
    low, high = terms.interval(pair.term)
    value = pair.meaning(assignment)
    assert low is None or low <= value
    assert high is None or value <= high


@settings(max_examples=40)
@given(INTEGERS, INTEGERS, ASSIGNMENTS)
def test_replacing_a_symbol_by_a_term_gives_the_value_with_that_terms_value(
    pair: Pair, replacement: Pair, assignment: tuple[int, ...]
) -> None:
    replaced = terms.substitute(pair.term, {ATOMS[0]: replacement.term})
    expected = pair.meaning((replacement.meaning(assignment), *assignment[1:]))
    assert terms.evaluate(replaced, values_of(assignment)) == expected


@settings(max_examples=40)
@given(INTEGERS, INTEGERS, ASSIGNMENTS)
def test_terms_with_one_text_have_one_value(a: Pair, b: Pair, assignment: tuple[int, ...]) -> None:
    if a.term == b.term:
        assert a.meaning(assignment) == b.meaning(assignment)


@pytest.mark.parametrize("name", DIVISIONS)
@pytest.mark.parametrize(
    ("a", "b"), [(BOUNDED[0], BOUNDED[1]), (BOUNDED[1], BOUNDED[0]), (FREE[0], FREE[1]), (7, FREE[0])]
)
def test_divisions_by_unknown_divisors(name: str, a: Any, b: Any) -> None:
    build, compute = DIVISIONS[name]
    term = build(a, b)
    low, high = terms.interval(term)
    for assignment in everywhere():
        x, y = (terms.evaluate(t, values_of(assignment)) for t in (a, b))
        if y == 0:
            continue
        assert terms.evaluate(term, values_of(assignment)) == compute(x, y)
        assert low is None or low <= compute(x, y)
        assert high is None or compute(x, y) <= high


@pytest.mark.parametrize("n", [1, 2, 3])
def test_slot_arithmetic_is_understood(n: int) -> None:
    i = terms.symbol("i", 0, 99)
    assert terms.mod(terms.add(terms.scale(i, n), n + 1), n) == 1 % n
    assert terms.floordiv(terms.add(terms.scale(i, 4), 3), 4) == i
    assert terms.sub(terms.add(i, 1), i) == 1
    assert terms.select(terms.lt(i, 100), 5, i) == 5
    assert terms.to_predicate(terms.from_predicate(terms.lt(i, n))) == terms.lt(i, n)


def test_a_term_that_grows_without_bound_is_refused() -> None:
    term = terms.symbol("a")
    with pytest.raises(terms.TermTooLargeError):
        for k in range(2000):
            term = terms.maximum(terms.mul(term, term), terms.symbol(f"b{k}"))


def test_an_element_moves_with_its_index() -> None:
    i = BOUNDED[0]
    loaded = terms.element("table", (i,), 0, 0, 63)
    assert terms.substitute(loaded, {ATOMS[2]: 3}) == terms.element("table", (3,), 0, 0, 63)
    assert terms.interval(loaded) == (0, 63)
    assert loaded != terms.element("table", (i,), 1, 0, 63)


# -- path conditions ------------------------------------------------------------------------------------------------


def assumed(facts: list[Pair]) -> Conditions | None:
    path: Conditions | None = Conditions()
    for fact in facts:
        path = path.assume(fact.term) if path is not None else None
    return path


def solutions(facts: list[Pair]) -> list[tuple[int, ...]]:
    return [v for v in everywhere() if all(fact.meaning(v) for fact in facts)]


FACTS = st.lists(PREDICATES, min_size=1, max_size=3)


@settings(max_examples=40)
@given(FACTS)
def test_a_path_that_some_values_take_is_never_pruned(facts: list[Pair]) -> None:
    if assumed(facts) is None:
        assert not solutions(facts)


@settings(max_examples=40)
@given(FACTS, PREDICATES)
def test_what_a_path_decides_holds_for_all_its_values(facts: list[Pair], asked: Pair) -> None:
    path = assumed(facts)
    assume(path is not None)
    assert path is not None
    answer = path.decide(asked.term)
    if answer is not None:
        assert all(bool(asked.meaning(v)) is answer for v in solutions(facts))


@settings(max_examples=40)
@given(FACTS, INTEGERS)
def test_the_range_on_a_path_holds_all_values_of_a_term(facts: list[Pair], asked: Pair) -> None:
    path = assumed(facts)
    assume(path is not None)
    assert path is not None
    low, high = path.range(asked.term)
    for v in solutions(facts):
        assert low is None or low <= asked.meaning(v)
        assert high is None or asked.meaning(v) <= high


@settings(max_examples=40)
@given(FACTS, PREDICATES)
def test_a_path_weakened_or_substituted_keeps_its_solutions(facts: list[Pair], asked: Pair) -> None:
    path = assumed(facts)
    assume(path is not None)
    assert path is not None
    kept = solutions(facts)
    weaker = path.restricted(lambda atom: atom in ATOMS[:2])
    for p in weaker.facts():
        assert all(terms.evaluate(p, values_of(v)) is True for v in kept[:20])
    for v in kept[:20]:
        moved = path.substituted({ATOMS[0]: v[0]})
        assert moved is not None
        assert moved.decide(terms.substitute(asked.term, values_of(v))) is bool(asked.meaning(v))


@settings(max_examples=50)
@given(FACTS)
def test_a_model_satisfies_what_was_assumed(facts: list[Pair]) -> None:
    path = assumed(facts)
    assume(path is not None)
    assert path is not None
    model = terms.find_model(path, SYMBOLS, budget=500)
    if model is not None:
        assert set(ATOMS) <= model.keys()
        assert all(fact.meaning(tuple(model[a] for a in ATOMS)) for fact in facts)


def test_a_model_is_found_for_small_systems() -> None:
    i, j = BOUNDED
    path = Conditions()
    for p in terms.lt(i, j), terms.ne(terms.mod(j, 2), 0), terms.eq(terms.add(i, j), 5):
        narrowed = path.assume(p)
        assert narrowed is not None
        path = narrowed
    model = terms.find_model(path)
    assert model is not None
    assert (model[ATOMS[2]], model[ATOMS[3]]) == (2, 3)


def test_the_opposite_of_an_assumption_is_a_contradiction() -> None:
    n = terms.symbol("n")
    both = terms.logical_and(terms.le(2, n), terms.ne(terms.mod(n, 3), 0))
    path = Conditions().assume(both)
    assert path is not None
    assert path.decide(both) is True
    assert path.assume(terms.logical_not(both)) is None
    assert path.decide(terms.lt(n, 2)) is False


@settings(max_examples=60)
@given(
    st.sampled_from(["floordiv", "truncdiv"]),
    st.integers(1, 5),
    st.integers(-6, 6),
    st.integers(-4, 4),
    st.integers(-20, 20),
)
def test_a_bound_on_a_quotient_bounds_its_dividend_and_back(
    name: str, divisor: int, shift: int, least: int, asked: int
) -> None:
    """Exactly as far as it does: no value is lost and no contradiction overlooked."""
    build, compute = DIVISIONS[name]
    x = terms.symbol("x")
    quotient = build(terms.add(x, shift), divisor)
    numbers = range(-60, 60)

    def between(p: terms.Predicate, q: terms.Predicate, holds: list[tuple[bool, bool]]) -> None:
        path = Conditions().assume(p)
        assert path is not None
        answers = {second for first, second in holds if first}
        assert path.decide(q) is (answers.pop() if len(answers) == 1 else None)

    at_least = [compute(n + shift, divisor) >= least for n in numbers]
    below = [n < asked for n in numbers]
    between(terms.le(least, quotient), terms.lt(x, asked), list(zip(at_least, below)))
    between(terms.lt(x, asked), terms.le(least, quotient), list(zip(below, at_least)))


@settings(max_examples=60)
@given(FACTS, INTEGERS, INTEGERS)
def test_what_an_equation_says_may_be_put_in(facts: list[Pair], asked: Pair, other: Pair) -> None:
    equation = Pair(terms.eq(FREE[0], other.term), lambda v: v[0] == other.meaning(v))
    path = assumed([equation, *facts])
    assume(path is not None)
    assert path is not None
    resolved = path.with_equations(asked.term)
    for v in solutions([equation, *facts]):
        assert terms.evaluate(resolved, values_of(v)) == asked.meaning(v)
