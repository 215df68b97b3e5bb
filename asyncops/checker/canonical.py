"""States at loop heads, compared up to a shift of their integers.

A state is walked in a fixed order. What has to be equal (which buffers, which source lines, the shape of every term)
goes into its *shape*; the integers it contains go into a vector. Two states of one shape differ by the difference of
their vectors, and a state can be rebuilt with other integers or terms in their place.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from asyncops.checker.memory import Buffer, Cells, _Content
from asyncops.checker.pipelines import Visit, WindowState
from asyncops.checker.recording import CopyDraft, SemaphoreKey
from asyncops.checker.skeleton import ArrayValue, State
from asyncops.checker.tracking import Count, InFlight
from stateful import terms
from stateful.terms import Atom, Comparison, Conditions, Junction, Linear, Term
from stateful.types import Region, View

Visitor = Callable[[int], Term]


class Walk:
    """One walk over a state: collects the shape, and replaces each integer by what ``visit`` returns."""

    def __init__(self, visit: Visitor, values: Mapping[Atom, Term] | None = None):
        self.visit = visit
        self.values = values or {}
        self.shape: list[Hashable] = []

    def term(self, t: Term) -> Term:
        """A term; linear ones part by part, in the order of the parts' shapes."""
        if self.values and type(t) is not int:
            t = terms.substitute(t, self.values)
        if type(t) is int:
            self.shape.append("n")
            return self.visit(t)
        assert isinstance(t, Linear)
        parts: Sequence[tuple[Atom, int]] = t.parts
        if len(parts) > 1:
            parts = sorted(parts, key=lambda part: (_atom_shape(part[0]), part[1], part[0].text))
        self.shape.append(("linear", len(parts)))
        total = self.visit(t.constant)
        for atom, c in parts:
            self.shape.append(c)
            total = terms.add(total, terms.scale(self.atom(atom), c))
        return total

    def atom(self, atom: Atom) -> Term:
        """An atom; its arguments are walked."""
        self.shape.append((atom.operation, len(atom.arguments), atom.low, atom.high))
        if atom.operation == "symbol":
            self.shape.append(atom.text)
            return Linear(((atom, 1),), 0)
        arguments = tuple(self.value(x) for x in atom.arguments)
        return terms._rebuilt(atom, arguments, {})

    def predicate(self, p: Any) -> Any:
        """A comparison or a junction of them."""
        if self.values:
            p = terms.substitute(p, self.values)
            if isinstance(p, bool):
                self.shape.append(p)
                return p
        if isinstance(p, Comparison):
            self.shape.append(p.relation)
            new = self.term(p.term)
            return (
                terms.le(new, 0)
                if p.relation == "<="
                else (terms.eq if p.relation == "==" else terms.ne)(new, 0)
            )
        self.shape.append((p.is_all, len(p.parts)))
        return (terms.logical_and if p.is_all else terms.logical_or)(*(self.predicate(q) for q in p.parts))

    def value(self, x: Any) -> Any:
        """Any value of the skeleton."""
        if isinstance(x, bool | np.bool_) or x is None or isinstance(x, str):
            self.shape.append(x)
            return x
        if isinstance(x, int | Linear):
            return self.term(x)
        if isinstance(x, Comparison | Junction):
            return self.predicate(x)
        if isinstance(x, View):
            return self.view(x)
        if isinstance(x, tuple):
            self.shape.append(("tuple", len(x)))
            return tuple(self.value(y) for y in x)
        if isinstance(x, ArrayValue):
            self.shape.append((x.buffer, id(x.data) if x.data is not None else None))
            return x
        if isinstance(x, np.ndarray):
            self.shape.append((x.shape, x.tobytes()))
            return x
        self.shape.append(id(x))
        return x

    def view(self, v: View) -> View:
        """A view of a Ref."""
        self.shape.append((v.root, v.system, v.axes, v.dtype, v.exact))
        ranges = tuple((self.term(s), self.term(n), d) for s, n, d in v.ranges)
        return v._with(ranges=ranges)

    def region(self, r: Region | None) -> Region | None:
        """A region."""
        if r is None:
            self.shape.append(None)
            return None
        self.shape.append((r.root, r.system, r.exact, tuple(d for _, _, d in r.ranges)))
        return Region(
            r.root, r.system, tuple((self.term(s), self.term(n), d) for s, n, d in r.ranges), r.exact
        )

    def key(self, k: SemaphoreKey | None) -> SemaphoreKey | None:
        """A semaphore."""
        if k is None:
            self.shape.append(None)
            return None
        self.shape.append(k.buffer)
        return SemaphoreKey(k.buffer, tuple(self.term(i) for i in k.index))

    def copy(self, c: InFlight) -> InFlight:
        """A copy in flight."""
        d = c.draft
        self.shape.append((d.site.location, d.kind, d.accumulate, c.reading, c.writing))
        draft = CopyDraft(
            self.region(d.source), self.region(d.destination), self.key(d.source_semaphore),
            self.key(d.destination_semaphore),
            self.term(d.source_amount), self.term(d.destination_amount), d.accumulate, d.kind, d.site,
            tuple(self.region(r) for r in d.indices), d.alike,  # type: ignore[misc]
        )  # fmt: skip
        return InFlight(draft, c.reading, c.writing)

    def content(self, c: _Content) -> _Content:
        """What is known of one buffer."""
        initial = None if c.initial is None else (c.initial.shape, c.initial.tobytes())
        self.shape.append(("content", initial, len(c.values)))
        version: Any = self.term(c.version)
        values = {self.value(k): self.value(v) for k, v in c.values.items()}
        return _Content(version, values, c.initial)

    def window(self, w: WindowState) -> WindowState:
        """Where a block window stands; of its visits the last one matters for what comes."""
        self.shape.append((w.pending_fetch, w.pending_write, w.stored_input is None, bool(w.visits)))
        visits: tuple[Visit, ...] = ()
        if w.visits:
            v = w.visits[-1]
            self.shape.append((v.is_return, v.stored, v.complete, v.written_back is None))
            visits = (
                dataclasses.replace(
                    v, index=self.value(v.index), first=self.term(v.first), last=self.term(v.last),
                    written_back=None if v.written_back is None else self.term(v.written_back),
                ),
            )  # fmt: skip
        return dataclasses.replace(
            w, index=self.value(w.index), slot=self.term(w.slot), following=self.value(w.following),
            fetched_at=self.term(w.fetched_at), next_fetched_at=self.term(w.next_fetched_at), visits=visits,
        )  # fmt: skip

    def conditions(self, c: Conditions, keep: Callable[[Atom], bool]) -> Conditions | None:
        """The facts about what is still in the state."""
        result: Conditions | None = Conditions()
        for fact in self.facts(c, keep):
            new = self.predicate(fact)
            result = result.assume(new) if result is not None else None
        return result

    def facts(self, c: Conditions, keep: Callable[[Atom], bool]) -> list[Any]:
        """Those facts, in an order that shifting their integers does not change."""
        facts = [f for f in c.facts() if all(keep(s) for s in terms.symbols(f))]
        if self.values:
            facts = [g for g in (terms.substitute(f, self.values) for f in facts) if not isinstance(g, bool)]
        if len(facts) > 1:
            facts.sort(key=lambda f: (_fact_shape(f), repr(f)))
        self.shape.append(("facts", len(facts)))
        return facts


@functools.lru_cache(maxsize=1 << 16)
def _atom_shape(atom: Atom) -> str:
    if atom.operation == "symbol":
        return atom.text
    return f"{atom.operation}({','.join(_value_shape(x) for x in atom.arguments)})"


def _value_shape(x: Any) -> str:
    if isinstance(x, int):
        return "n"
    if isinstance(x, Linear):
        return "+".join(sorted(f"{c}*{_atom_shape(a)}" for a, c in x.parts))
    return _fact_shape(x) if isinstance(x, Comparison | Junction) else str(x)


def _fact_shape(f: Any) -> str:
    if isinstance(f, Comparison):
        return f.relation + _value_shape(f.term)
    return ("all" if f.is_all else "any") + ",".join(_fact_shape(q) for q in f.parts)


def walk_state(
    walk: Walk, carry: Sequence[Any], state: State, held: frozenset[Atom] | None = frozenset()
) -> tuple[tuple[Any, ...], State]:
    """Walks everything that the future of a state depends on; the rebuilt carry and state.

    Conditions on elements of memory and unknown results that it does not mention come and go; those on ``held`` ones
    stay. ``held`` is None where no conditions are of interest.
    """
    new_carry = tuple(walk.value(x) for x in carry)
    new = state.fork()
    walk.shape.append((state.place, state.calls, id(state.call), len(state.grid)))
    new.grid = tuple((walk.value(i), walk.value(n)) for i, n in state.grid)
    new.step = walk.value(state.step)
    new.windows = tuple(walk.window(w) for w in state.windows)
    flight = new.machine
    flight.copies = tuple(walk.copy(c) for c in state.machine.copies)
    flight.counts = dict(_counts(walk, state))
    contents = sorted(state.cells.contents.items(), key=lambda item: str(item[0].path))
    walk.shape.append(tuple(b for b, _ in contents))
    new.cells = Cells({b: walk.content(c) for b, c in contents})
    if held is None or not any(True for _ in state.path.facts()):
        walk.shape.append(("facts", 0))  # as where no fact is left
        return new_carry, new
    live = live_symbols(carry, state) | held
    conditions = walk.conditions(state.path, lambda s: s in live or not _is_passing(s))
    new.path = conditions if conditions is not None else state.path
    return new_carry, new


def _counts(walk: Walk, state: State) -> Iterator[tuple[SemaphoreKey, Count]]:
    counts = sorted(
        state.machine.counts.items(), key=lambda item: (str(item[0].buffer.path), repr(item[0].index))
    )
    walk.shape.append(len(counts))
    for key, count in counts:
        new = walk.key(key)
        assert new is not None
        yield new, Count(walk.term(count.signalled), walk.term(count.waited))


def _is_passing(s: Atom) -> bool:
    """Elements of memory and unknown results come and go with iterations; arguments stay."""
    return s.operation == "element"


def live_symbols(carry: Sequence[Any], state: State) -> set[Atom]:
    """Every symbol that the state mentions outside its conditions."""
    found: set[Atom] = set()

    def look(x: Any) -> None:
        kind = type(x)
        if kind is int or kind is bool or x is None:
            return
        if kind is Linear:
            for atom, _ in x.parts:
                found.update(atom.symbols)
        elif kind is Comparison or kind is Junction:
            found.update(terms.symbols(x))
        elif kind is tuple:
            for y in x:
                look(y)
        elif kind is View or kind is Region:
            for start, size, _ in x.ranges:
                look(start)
                look(size)

    look(tuple(carry))
    look(state.grid)
    for copy in state.machine.copies:
        look(copy.draft.source)
        look(copy.draft.destination)
        look(copy.draft.indices)
        look((copy.draft.source_amount, copy.draft.destination_amount))
    for key, count in state.machine.counts.items():
        look((key.index, count.signalled, count.waited))
    for content in state.cells.contents.values():
        look(tuple(content.values.items()))
    return found


def calls_in(carry: Sequence[Any], state: State) -> frozenset[int]:
    """The numbers of the kernel calls whose memory a state holds on to: as values, in copies, by counts."""
    found: set[Buffer] = {key.buffer for key in state.machine.counts}

    def look(x: Any) -> None:
        if isinstance(x, tuple):
            for y in x:
                look(y)
        elif isinstance(x, ArrayValue):
            found.add(x.buffer)
        elif isinstance(x, View | Region):
            found.add(x.root)  # type: ignore[arg-type]
        elif isinstance(x, SemaphoreKey):
            found.add(x.buffer)

    look(tuple(carry))
    for copy in state.machine.copies:
        d = copy.draft
        look((d.source, d.destination, d.source_semaphore, d.destination_semaphore, tuple(d.indices)))
    return frozenset(number_in(b) for b in found) - {-1}


def number_in(buffer: Buffer) -> int:
    """The number of the kernel call that made the buffer; -1 where none did."""
    path = buffer.path
    return path[1] if path[0] == "call" else -1  # type: ignore[return-value]


class _Freezing(Walk):
    """A walk that only looks: what was seen of a term is kept, nothing is rebuilt."""

    def __init__(self, values: Mapping[Atom, Term] | None, kept: dict[Any, tuple[list[Hashable], list[int]]]):
        self.numbers: list[int] = []
        super().__init__(self._collect, values)
        self.kept = kept

    def _collect(self, n: int) -> int:
        self.numbers.append(n)
        return n

    def term(self, t: Term) -> Term:
        """A term; seen once, its shape and integers are known."""
        if type(t) is int:
            self.shape.append("n")
            self.numbers.append(t)
            return t
        if self.values:
            return super().term(t)
        self._take(t, super().term)
        return t

    def predicate(self, p: Any) -> Any:
        """A predicate, likewise."""
        if self.values:
            return super().predicate(p)
        self._take(p, super().predicate)
        return p

    def _take(self, x: Any, look: Callable[[Any], Any]) -> None:
        seen = self.kept.get(x)
        if seen is None:
            outer = self.shape, self.numbers
            self.shape, self.numbers = [], []
            look(x)
            seen = self.kept[x] = self.shape, self.numbers
            self.shape, self.numbers = outer
        self.shape += seen[0]
        self.numbers += seen[1]

    def view(self, v: View) -> View:
        """A view of a Ref."""
        self.shape.append((v.root, v.system, v.axes, v.dtype, v.exact))
        self._ranges(v)
        return v

    def region(self, r: Region | None) -> Region | None:
        """A region."""
        if r is None:
            self.shape.append(None)
            return None
        self.shape.append((r.root, r.system, r.exact, tuple(d for _, _, d in r.ranges)))
        self._ranges(r)
        return r

    def _ranges(self, x: View | Region) -> None:
        for start, size, _ in x.ranges:
            self.term(start)
            self.term(size)

    def conditions(self, c: Conditions, keep: Callable[[Atom], bool]) -> Conditions | None:
        """The facts about what is still in the state."""
        for fact in self.facts(c, keep):
            self.predicate(fact)
        return None


def freeze(
    carry: Sequence[Any], state: State, values: Mapping[Atom, Term] | None = None,
    held: frozenset[Atom] | None = frozenset(),
    kept: dict[Any, tuple[list[Hashable], list[int]]] | None = None,
) -> tuple[Hashable, tuple[int, ...]]:  # fmt: skip
    """The shape of a state and the vector of its integers, with ``values`` put in for symbols.

    ``kept``: what was seen of terms, for the next call without ``values``.
    """
    walk = _Freezing(values, kept if kept is not None else {})
    walk_state(walk, carry, state, held)
    return tuple(walk.shape), tuple(walk.numbers)


def shifted(
    carry: Sequence[Any], state: State, new: Sequence[Term], held: frozenset[Atom]
) -> tuple[tuple[Any, ...], State]:
    """The state with its integers replaced, in the order of :func:`freeze`."""
    rest = iter(new)
    new_carry, after = walk_state(Walk(lambda n: next(rest)), carry, state, held)
    after.machine.is_weakened |= len(list(after.path.facts())) < len(list(state.path.facts()))
    return new_carry, after


__all__ = ["Buffer", "Walk", "calls_in", "freeze", "live_symbols", "number_in", "shifted", "walk_state"]
