"""Loops explored to a fixpoint: states at loop heads, families of states, and the interpreter that forks.

A loop's first iterations run as they are. When three head states p iterations apart have one shape and their integers
move by the same steps twice, they are taken for members of a *family*: the last of them plus ``k`` times the step, for
an unknown ``k``. One more period is run from the family. If every way back to the head ends in the same family with
``k + 1``, the family holds for every iteration that the conditions on ``k`` allow, and nothing is left to explore but
the ways out. So a periodic loop costs its period whatever its trip count, known or not; a grid is a nest of loops.

Where no family closes, the loop runs on, iteration by iteration, within a budget.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from asyncops.checker import canonical, pipelines, scalars
from asyncops.checker.calls import FIRST_IN_LOOPS, KernelCall
from asyncops.checker.cores import CORE_INDEX
from asyncops.checker.devices import ProgramInterpreter
from asyncops.checker.memory import Buffer
from asyncops.checker.parallel import parallel_axes
from asyncops.checker.paths import Patience
from asyncops.checker.skeleton import ArrayValue, Outcome, OutOfBudget, PathEnds, State
from asyncops.checker.tables import COUNTER
from asyncops.checker.tracking import Tracker, rebased
from stateful import terms
from stateful.terms import Atom, Comparison, Conditions, Junction, Linear, Predicate, Term

MOST_HEADS = 100_000
MOST_FORKS = 4000
MOST_WORK = 1_500_000
_TOO_MANY = "more branches on unknown values than are followed; give the scalar arguments and values=True"
LONGEST_PERIOD = 8
MOST_ALTERNATIVES = 8  # comparisons in which joined paths may differ; more, and the difference is forgotten
MOST_CONTENTS = 40  # different contents of one buffer at the heads of a loop; more, and it is forgotten
VERSIONS_PER_ITERATION = 1 << 20  # of one buffer's contents: more than an iteration has stores
MOST_VARIANTS = 6
"""Sets of assumptions under which one state is explored before they are joined."""
MOST_FAILURES = 6
SHORT_LOOP = 8
"""Loops of so few iterations are run as they are."""

_OUTLIVING = ("operand", "result")  # memory that a kernel leaves to its caller

Test = Callable[[tuple[Any, ...], State], list[tuple[tuple[Any, ...], State, bool]]]
Step = Callable[[tuple[Any, ...], State], list[Outcome]]


class ForkPolicy:
    """Takes every side of a condition that the path allows."""

    def __init__(self, forks: int = MOST_FORKS, patience: Patience | None = None):
        self.forks_left, self.patience = forks, patience

    def decide(self, state: State, predicate: Predicate) -> list[tuple[bool, State]]:
        """One side where the path decides, else both, the second on a copy of the state."""
        if self.patience is not None:
            self.patience.spend()
        conditions: Conditions = state.path
        known = conditions.decide(predicate)
        if known is None:
            predicate = conditions.with_equations(predicate)
            known = conditions.decide(predicate)
        if known is not None:
            return [(known, state)]
        yes, no = conditions.assume(predicate), conditions.assume(terms.logical_not(predicate))
        if yes is None or no is None:
            state.path = (no if yes is None else yes) or conditions
            return [(yes is not None, state)]
        self.forks_left -= 1
        if self.forks_left < 0:
            raise OutOfBudget(_TOO_MANY)
        other = state.fork()
        state.path, other.path = yes, no
        return [(True, state), (False, other)]

    def concretise(self, state: State, term: Term, low: int | None = None, high: int | None = None) -> Any:
        """Terms stay terms; what an equation of the path says of a symbol is put in."""
        return state.path.with_equations(term)

    def avoid(self, state: State, predicate: Predicate) -> Predicate:
        """Assumes that ``predicate`` does not hold; the condition under which the program itself makes it hold.

        Values from outside are taken to avoid it (a caller keeps indices in range), loop counters are not.
        """
        known = state.path.decide(predicate)
        if known is False:
            return False
        if known is None and all(
            s.operation == "element" and _is_argument(s) for s in terms.symbols(predicate)
        ):
            return False  # an index read from memory is in range; nothing is learnt from saying so
        is_callers = any(
            _is_argument(s) for f in _facts_behind(state.path, predicate) for s in terms.symbols(f)
        )
        narrowed = state.path.assume(terms.logical_not(predicate))
        if narrowed is not None:
            state.path = narrowed
        elif is_callers:
            raise PathEnds
        return False if is_callers else predicate


def _facts_behind(path: Conditions, predicate: Predicate) -> Iterator[Any]:
    """The predicate and the facts that decide it: those about its symbols; all of them where it has none."""
    yield predicate
    mentioned = terms.symbols(predicate)
    for fact in path.facts():
        if (not mentioned or mentioned & terms.symbols(fact)) and not _is_choice(fact):
            yield fact


def _is_choice(fact: Any) -> bool:
    """True where one value is, or is not, a certain number: a flag that the program itself asks for, no range that its
    caller keeps."""
    return isinstance(fact, Comparison) and fact.relation != "<=" and len(fact.term.parts) == 1


def _is_argument(s: Atom) -> bool:
    """True for values that come from outside; loop counters of families do not."""
    return not s.text.startswith((COUNTER, CORE_INDEX))


@dataclass(frozen=True, eq=False)
class Family:
    """``base + k * step`` for all ``k`` that the conditions allow."""

    shape: Any  # of its members, without what is assumed of them
    size: int  # how many of their integers are not those of assumptions
    base: tuple[int, ...]
    step: tuple[int, ...]
    counter: Linear
    period: int
    path: Conditions = field(default_factory=Conditions)  # what is assumed of member k

    @property
    def k(self) -> Atom:
        """The atom of the counter."""
        return self.counter.parts[0][0]

    def holds(self, carry: Sequence[Any], state: State) -> bool:
        """True when a state is a member of this family for some later ``k``.

        The state may contain the counter itself. It is compared at several values of it: a shape equal to the family's
        and integers that are affine in it, on the family's line. It may assume more than the member does, not less.
        """
        images = []
        for value in (0, 1, 2, 5):
            shape, numbers = canonical.freeze(carry, state, {self.k: value}, None)
            if shape != self.shape:
                return False
            images.append(numbers)
        ahead = [self._ahead(numbers) for numbers in images]
        if None in ahead:
            return False
        first, slope = ahead[0], ahead[1] - ahead[0]  # type: ignore[operator]
        if first < 0 or slope < 0 or ahead[2] != first + 2 * slope or ahead[3] != first + 5 * slope:  # type: ignore[operator]
            return False
        later = {self.k: terms.add(terms.scale(self.counter, slope), first)}  # type: ignore[arg-type]
        return all(state.path.decide(terms.substitute(fact, later)) is True for fact in self.path.facts())

    def _ahead(self, numbers: tuple[int, ...]) -> int | None:
        """The ``k`` for which the family has these integers; None if there is none."""
        found: int | None = None
        for n, b, d in zip(numbers, self.base, self.step):
            if d == 0:
                if n != b:
                    return None
            elif (n - b) % d:
                return None
            elif found is None:
                found = (n - b) // d
            elif found != (n - b) // d:
                return None
        return 0 if found is None else found


@dataclass
class Head:
    """A state at a loop head, with the frozen heads before it on its path."""

    carry: tuple[Any, ...]
    state: State
    history: tuple[tuple[Any, tuple[int, ...]], ...] = ()
    family: Family | None = None
    age: int = 0


@dataclass
class _Loop:
    """One exploration of one loop."""

    test: Test
    step: Step
    short: bool
    held: frozenset[Atom] = frozenset()
    """What something was assumed about before the loop: what surrounds the loop may go by that."""
    in_use: frozenset[int] = frozenset()
    """The calls in loops around this one, and before it in their iteration, whose memory may still be in use."""
    exits: list[Outcome] = field(default_factory=list)
    seen: dict[Any, dict[tuple[int, ...], list[Conditions]]] = field(default_factory=dict)
    heads: int = 0
    contents: dict[Any, set[Any]] = field(default_factory=dict)
    """Of each buffer, what it held at loop heads."""
    forgotten: dict[Any, Term] = field(default_factory=dict)
    """Each buffer's version when it was first forgotten."""

    def forget_growing(self, iteration: Term, state: State) -> None:
        """Forgets what is known of memory that holds something else at every head, such as a table being filled.

        Its elements are unknown values from then on, others in each iteration, so that heads can repeat.
        """
        if self.short:
            return
        for buffer, content in state.cells.contents.items():
            seen = self.contents.setdefault(buffer, set())
            if len(seen) <= MOST_CONTENTS:
                initial = content.initial
                seen.add((len(content.values), None if initial is None else hash(initial.tobytes())))
            if len(seen) > MOST_CONTENTS and (content.values or content.initial is not None):
                state.cells.disturb(buffer)
                first = self.forgotten.setdefault(buffer, content.version)
                content.version = terms.add(first, terms.scale(iteration, VERSIONS_PER_ITERATION))

    failures: int = 0
    """Families that did not close."""

    def is_promising(self) -> bool:
        """False where families have failed so often that only now and then another is tried."""
        return self.failures < MOST_FAILURES or self.heads % (self.failures * LONGEST_PERIOD) == 0


class ForkingInterpreter(ProgramInterpreter):
    """Follows every path of one device; its machine is a :class:`~asyncops.checker.tracking.Tracker`."""

    machine: Tracker

    # -- joining paths --

    def merge(self, outcomes: list[Outcome]) -> list[Outcome]:
        """Joins outcomes whose states are the same but for what was assumed on the way."""
        if len(outcomes) < 2:
            return outcomes
        kept: dict[Any, Outcome] = {}
        for values, state in outcomes:
            key = self._frozen(values, state, None, None)
            if key in kept:
                one = kept[key][1]
                one.machine.is_weakened |= state.machine.is_weakened or one.path.key() != state.path.key()
                one.path = _either(one.path, state.path)
                one.in_use |= state.in_use
            else:
                kept[key] = (values, state)
        return list(kept.values())

    def select(self, eqn: Any, args: tuple[Any, ...], state: State) -> list[Outcome]:
        """A choice that the loop's own progress decides (is this the last step?) is one between paths."""
        which, *cases = args
        if isinstance(which, Linear | Comparison | Junction) and all(map(scalars.is_scalar, cases)):
            predicate = scalars.as_predicate(which)
            known = predicate if isinstance(predicate, bool) else state.path.decide(predicate)
            if known is None and not any(map(_is_argument, terms.symbols(predicate))):
                sides = self.decide(state, predicate)
                return [((cases[int(answer)],), s) for answer, s in sides]
            if known is not None:
                args = (int(known), *cases)
        return super().select(eqn, args, state)

    work_left = MOST_WORK

    @cached_property
    def seen_of_terms(self) -> dict[Any, Any]:
        """The shapes and integers of terms, for comparing states."""
        return {}

    def _frozen(self, carry: Sequence[Any], state: State, *options: Any) -> tuple[Any, tuple[int, ...]]:
        """The frozen state; its size counts against the budget."""
        frozen = canonical.freeze(carry, state, *options, kept=self.seen_of_terms)
        self.work_left -= len(frozen[0])  # type: ignore[arg-type]
        if self.work_left < 0:
            raise OutOfBudget(_TOO_MANY)
        return frozen

    # -- kernel calls in loops of the program --

    loops_around = 0  # loops of the program, not of a kernel, that are being explored

    @cached_property
    def numbers_of(self) -> dict[int, list[int]]:
        """The numbers that the calls of each kernel equation in a loop have had."""
        return {}

    def call_number(self, eqn: Any, state: State) -> int:
        """In a loop of the program, one that an earlier iteration is done with: heads can only repeat where their
        arrays do."""
        if not self.loops_around:
            return super().call_number(eqn, state)
        had = self.numbers_of.setdefault(id(eqn), [])
        number = next((n for n in had if n not in state.in_use), None)
        if number is None:
            number = FIRST_IN_LOOPS + sum(map(len, self.numbers_of.values()))
            had.append(number)
        state.in_use |= {number}
        return number

    def tell_apart(self, result: Buffer, call: KernelCall, state: State) -> None:
        """In a loop also from what an earlier iteration got from a call of the same number."""
        super().tell_apart(result, call, state)
        if call.number >= FIRST_IN_LOOPS:
            version: Term = 0
            for what, k in state.moment.frames:
                if what == "iteration":
                    version = terms.scale(terms.add(version, k), VERSIONS_PER_ITERATION)
            state.cells.renew(result, version)

    def _release(self, run: _Loop, carry: Sequence[Any], state: State) -> None:
        """Of this loop's calls, those are in use whose memory is carried on or in flight; the rest is forgotten."""
        if state.call is not None or state.in_use == run.in_use:
            return
        state.in_use = run.in_use | canonical.calls_in(carry, state)
        contents = state.cells.contents
        for buffer in [b for b in contents if canonical.number_in(b) >= FIRST_IN_LOOPS]:
            if buffer.role not in _OUTLIVING or canonical.number_in(buffer) not in state.in_use:
                del contents[buffer]

    # -- loops --

    def run_scan(
        self, form: Any, value: Any, state: State, eqn: Any, location: Any, stack: Any
    ) -> list[Outcome]:
        """``scan`` and counted ``fori_loop``."""
        consts, xs = [value(c) for c in form.consts], [value(x) for x in form.xs]
        carry = (0, *(value(c) for c in form.carry))
        outer = state.moment

        def test(now: tuple[Any, ...], at: State) -> list[tuple[tuple[Any, ...], State, bool]]:
            return [(now, s, goes_on) for goes_on, s in self.decide(at, terms.lt(now[0], form.length))]

        def step(now: tuple[Any, ...], at: State) -> list[Outcome]:
            k, *rest = now
            at.moment = outer.inside("iteration", k)
            index = terms.sub(form.length - 1, k) if form.reverse else k
            arguments = [*consts, *rest, *(self._slice(x, index, eqn, at) for x in xs)]
            results = self.run(form.jaxpr, arguments, at)
            return [((terms.add(k, 1), *outs[: len(rest)]), s) for outs, s in results]

        exits = self.loop(carry, state, test, step, form.length <= SHORT_LOOP)
        stacked = (None,) * (len(eqn.outvars) - len(form.carry))
        for _, s in exits:
            s.moment = outer
        return [((*done[1:], *stacked), s) for done, s in exits]

    def _slice(self, x: Any, index: Term, eqn: Any, state: State) -> Any:
        data = x.data if isinstance(x, ArrayValue) else x
        if data is None or getattr(data, "ndim", 0) == 0:
            return None
        return scalars.concrete(data[index]) if type(index) is int else None

    def run_while(
        self, form: Any, value: Any, state: State, eqn: Any, location: Any, stack: Any
    ) -> list[Outcome]:
        """``while`` and ``fori_loop`` with a dynamic bound."""
        cond_consts, body_consts = [value(c) for c in form.cond_consts], [value(c) for c in form.body_consts]
        carry = (0, *(value(c) for c in form.carry))
        outer = state.moment

        def test(now: tuple[Any, ...], at: State) -> list[tuple[tuple[Any, ...], State, bool]]:
            at.moment = outer.inside("iteration", now[0])
            found = []
            for (holds,), s in self.run(form.cond, [*cond_consts, *now[1:]], at):
                for goes_on, taken in self.decide(s, self._as_condition(holds, eqn, s)):
                    found.append((now, taken, goes_on))
            return found

        def step(now: tuple[Any, ...], at: State) -> list[Outcome]:
            results = self.run(form.body, [*body_consts, *now[1:]], at)
            return [((terms.add(now[0], 1), *outs), s) for outs, s in results]

        exits = self.loop(carry, state, test, step, False)
        if not exits and self.compiler.reads_a_count(form.cond.jaxpr):
            self.machine.doubts[f"{location}: whether this loop, which polls a semaphore, is ever left"] = (
                None
            )
        for _, s in exits:
            s.moment = outer
        return [(done[1:], s) for done, s in exits]

    def run_grid(self, call: KernelCall, sizes: list[Any], arguments: list[Any], state: State) -> list[State]:
        """A grid is a nest of loops, the last dimension innermost."""
        sizes = [scalars.as_term(n) for n in sizes]
        flow = pipelines.Flow(self, call, arguments, is_symbolic=True)
        call.pipeline = flow
        state.windows = tuple(pipelines.WindowState() for _ in call.windows)
        outer = state.moment
        reached = self._grid_dimension(call, flow, sizes, (), outer, state)
        for path in reached:
            flow.finish(path)
            path.moment = outer
        return reached

    def _grid_dimension(
        self, call: KernelCall, flow: Any, sizes: list[Term], at: tuple[Term, ...], outer: Any, state: State
    ) -> list[State]:
        d = len(at)
        if d == len(sizes):
            return self._grid_step(flow, sizes, at, outer, state)
        size = sizes[d]

        def test(now: tuple[Any, ...], s: State) -> list[tuple[tuple[Any, ...], State, bool]]:
            return [(now, taken, goes_on) for goes_on, taken in self.decide(s, terms.lt(now[0], size))]

        is_parallel = d in parallel_axes(call.form)

        def step(now: tuple[Any, ...], s: State) -> list[Outcome]:
            if is_parallel:
                self.fresh_core(s, call)
            reached = self._grid_dimension(call, flow, sizes, (*at, now[0]), outer, s)
            return [((terms.add(now[0], 1),), path) for path in reached]

        short = type(size) is int and size <= SHORT_LOOP
        return [s for _, s in self.loop((0,), state, test, step, short)]

    def fresh_core(self, state: State, call: KernelCall) -> None:
        """As for one path; what earlier steps left in flight is another core's. (AO207 looks at what they leave.)"""
        super().fresh_core(state, call)
        self.machine.forget(state, {b for b in call.buffers if b.role in ("scratch", "window", "pipeline")})

    def _grid_step(
        self, flow: Any, sizes: list[Term], at: tuple[Term, ...], outer: Any, state: State
    ) -> list[State]:
        reached: list[State] = []
        for following, path in self._following(sizes, at, state):
            path.grid = tuple(zip(at, sizes))
            if at:
                path.moment = outer.inside("grid step", at[0] if len(at) == 1 else at)
            reached += flow.run_step(path, 0, at, following)
        return [s for _, s in self.merge([((), s) for s in reached])]

    def _following(
        self, sizes: list[Term], at: tuple[Term, ...], state: State
    ) -> Iterator[tuple[Any, State]]:
        """The next grid step, or None after the last; whichever the path allows."""
        pending = [state]
        for d in range(len(at) - 1, -1, -1):
            rest: list[State] = []
            for path in pending:
                for has_next, s in self.decide(path, terms.lt(terms.add(at[d], 1), sizes[d])):
                    if has_next:
                        yield (*at[:d], terms.add(at[d], 1), *(0 for _ in at[d + 1 :])), s
                    else:
                        rest.append(s)
            pending = rest
        for path in pending:
            yield None, path

    # -- the fixpoint --

    def loop(
        self, carry: tuple[Any, ...], state: State, test: Test, step: Step, short: bool
    ) -> list[Outcome]:
        """Explores a loop; the states in which it ends."""
        of_program = state.call is None
        self.loops_around += of_program
        try:
            return self._explore(carry, state, test, step, short)
        finally:
            self.loops_around -= of_program

    def _explore(
        self, carry: tuple[Any, ...], state: State, test: Test, step: Step, short: bool
    ) -> list[Outcome]:
        held = frozenset(s for fact in state.path.facts() for s in terms.symbols(fact))
        run = _Loop(test, step, short, held, state.in_use)
        work = deque([Head(carry, state)])
        while work:
            # Earlier iterations first: what they assumed is joined before it is gone on with.
            head = work.popleft()
            run.heads += 1
            if run.heads > MOST_HEADS:
                raise OutOfBudget(
                    f"a loop whose states do not repeat was followed for {MOST_HEADS} iterations"
                )
            work += self._visit(run, head)
        return self.merge([self._solved(run, c, s) for c, s in run.exits])

    def _visit(self, run: _Loop, head: Head) -> list[Head]:
        """Explores one head: exits are kept, the heads that follow returned."""
        self._release(run, head.carry, head.state)
        run.forget_growing(head.carry[0], head.state)
        if head.family is not None and head.age > 0 and head.family.holds(head.carry, head.state):
            return []
        shape, numbers = self._frozen(head.carry, head.state, None, run.held)
        if self._is_covered(run, shape, numbers, head.state):
            return []
        if not run.short and head.family is None and run.is_promising():
            family = self._family(run, head, shape, numbers)
            if family is not None:
                widened = self._widened(run, head, family)
                if widened is not None:
                    return [widened]
                run.failures += 1
        history = (*head.history, (shape, numbers))[-2 * LONGEST_PERIOD :]
        return self._advance(run, head, history)

    def _advance(self, run: _Loop, head: Head, history: Any) -> list[Head]:
        following: list[Head] = []
        for carry, state, goes_on in run.test(head.carry, head.state):
            if not goes_on:
                run.exits.append((carry, state))
                continue
            for after, s in run.step(carry, state):
                following.append(Head(after, s, history, head.family, head.age + 1))
        return following

    def _is_covered(self, run: _Loop, shape: Any, numbers: tuple[int, ...], state: State) -> bool:
        """True where this state was explored, assuming no more than this path does.

        A state of which only assumptions differ is explored again; with what they have in common when they are many.
        """
        explored = run.seen.setdefault(shape, {}).setdefault(numbers, [])
        for known in explored:
            if all(state.path.decide(fact) is True for fact in known.facts()):
                return True
        if len(explored) >= MOST_VARIANTS:
            for known in explored:
                state.path = known.common(state.path)
            state.machine.is_weakened = True
            explored.clear()
        explored.append(state.path)
        return False

    def _family(self, run: _Loop, head: Head, shape: Any, numbers: tuple[int, ...]) -> Family | None:
        history = head.history
        for p in range(1, LONGEST_PERIOD + 1):
            if len(history) < 2 * p:
                return None
            (shape1, one), (shape2, two) = history[-p], history[-2 * p]
            if shape1 != shape or shape2 != shape:
                continue
            step = tuple(a - b for a, b in zip(numbers, one))
            if step == tuple(a - b for a, b in zip(one, two)):
                counter = terms.element(COUNTER, (), self._next_fresh(), 0)
                outline, own = self._frozen(head.carry, head.state, None, None)
                family = Family(outline, len(own), numbers, step, counter, p)  # type: ignore[arg-type]
                return replace(family, path=self._member(run, head, family)[1].path)
        return None

    def _widened(self, run: _Loop, head: Head, family: Family) -> Head | None:
        """The family as one head, if it closes: every way back to the loop head leads into it again."""
        bounds = self._probe(run, head, family)
        if bounds is None:
            return None
        carry, state = self._member(run, head, family)
        for bound in bounds:
            narrowed = state.path.assume(bound)
            if narrowed is None:
                return None
            state.path = narrowed
        return Head(carry, state, (), family, 0)

    def _member(self, run: _Loop, head: Head, family: Family) -> tuple[tuple[Any, ...], State]:
        new = [terms.add(n, terms.scale(family.counter, d)) for n, d in zip(family.base, family.step)]
        carry, state = canonical.shifted(head.carry, head.state, new, run.held)
        state.machine.chain = rebased(state.machine)
        return carry, state

    def _probe(self, run: _Loop, head: Head, family: Family) -> list[Predicate] | None:
        """Runs one period from the family without keeping what it shows: the bounds on its counter, None if open."""
        back = self.machine.checkpoint()
        trial = _Loop(run.test, run.step, run.short, run.held, run.in_use)
        carry, state = self._member(run, head, family)
        work, closing = [Head(carry, state, (), family, 0)], []
        try:
            while work:
                at = work.pop()
                self._release(run, at.carry, at.state)
                run.forget_growing(at.carry[0], at.state)
                if at.age > 0 and family.holds(at.carry, at.state):
                    closing.append(at.state.path)
                    continue
                if at.age >= 2 * family.period or len(work) > 64:
                    return None
                work += self._advance(trial, at, ())
        finally:
            back()
        return _bounds_of(closing, family) if closing else None

    def _solved(self, run: _Loop, carry: tuple[Any, ...], state: State) -> Outcome:
        """The exit state with the loop's own counters that the conditions determine put in."""
        values = {atom: value for atom, value in _solutions(state.path) if atom not in run.held}
        if not values:
            return carry, state
        walk = canonical.Walk(lambda n: n, values)
        return canonical.walk_state(walk, carry, state, run.held)


def _either(a: Conditions, b: Conditions) -> Conditions:
    """What holds on either of two paths: the common facts, and one disjunction of the rest where it is small."""
    result = a.common(b)
    shared = set(result.facts())
    left = [f for f in a.facts() if f not in shared]
    right = [f for f in b.facts() if f not in shared]
    if (
        left
        and right
        and sum(f.comparisons for f in (*left, *right) if not isinstance(f, bool)) <= MOST_ALTERNATIVES
    ):
        both = terms.logical_or(terms.logical_and(*left), terms.logical_and(*right))
        return result.assume(both) or result
    return result


def _bounds_of(closing: list[Conditions], family: Family) -> list[Predicate]:
    """Upper bounds on ``k - 1`` that every way back assumed: the family's member k exists only if k - 1 went round."""
    bounds: list[Predicate] | None = None
    before = {family.k: terms.sub(family.counter, 1)}
    for path in closing:
        mine: list[Predicate] = []
        for fact in path.facts():
            if not isinstance(fact, Comparison) or family.k not in terms.symbols(fact):
                continue
            c = dict(fact.term.parts).get(family.k, 0)
            if fact.relation == "<=" and c > 0:
                mine.append(terms.substitute(fact, before))
            elif fact.relation == "!=" and abs(c) == 1 and len(fact.term.parts) == 1:
                mine.append(terms.le(family.counter, -c * fact.term.constant))
        bounds = mine if bounds is None else [b for b in bounds if b in mine]
    return bounds or []


def _solutions(path: Conditions) -> Iterator[tuple[Atom, Term]]:
    """Loop counters that an equation of the path determines."""
    for fact in path.facts():
        if not isinstance(fact, Comparison) or fact.relation != "==":
            continue
        for atom, c in fact.term.parts:
            if atom.text.startswith(COUNTER) and abs(c) == 1:
                rest = terms.add(fact.term, terms.scale(Linear(((atom, 1),), 0), -c))
                if atom not in terms.symbols(rest):
                    yield atom, terms.scale(rest, -c)
                    return
