"""The program around its kernels: where the copies go that kernels leave in flight.

:func:`program_facts` follows every value of a jaxpr, path by path, with the memory behind it: an operand that a kernel
takes over shares its memory with the result, and calls, branches and loops pass values on. Loops are followed for two
trips of as many iterations as they are unrolled by, which shows what crosses from one trip to the next. What XLA does
to values in flight (it copies what a loop's carry permutes or a branch returns, reuses memory after a last use, merges
equal starts; all seen in programs compiled for TPU) is then a question about these facts, which the rules'
``find_in_program`` ask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from jax import lax

from asyncops.checker import inflight_kernels
from asyncops.checker.flights import Call, Flight, Key, Memory, State, Value
from asyncops.checker.inflight_kernels import Started, Waited
from asyncops.checker.skeleton import location_of
from stateful import higher_order as ho
from stateful._jax import jaxprs
from stateful._jax import primitives as p
from stateful.types import MemorySpace, memory_space

MOST_PATHS = 64
MOST_ITERATIONS = 16

_Outcome = tuple[list[Value], State]
_FIXED = {MemorySpace.HBM, MemorySpace.VMEM, MemorySpace.SMEM, MemorySpace.CMEM, MemorySpace.HOST}


@dataclass(frozen=True)
class SecondDone:
    """A wait for a copy that an earlier call has waited for. ``is_certain``: nothing was decided since the start."""

    flight: Flight
    first: Call
    second: Call
    line: Any  # of the wait in the kernel
    is_certain: bool


@dataclass(frozen=True)
class Dropped:
    """A copy that nothing waits for on a path: in all, or only after a branch."""

    flight: Flight
    branch: Call | None


@dataclass(frozen=True)
class Disturbed:
    """An operation on an array in flight: "read" of a destination, "write" of a source, "branch" that returns it."""

    flight: Flight
    how: str
    call: Call


@dataclass(frozen=True)
class Carried:
    """A copy in flight across the iterations of a loop."""

    flight: Flight
    loop: Call
    unroll: int
    is_permuted: bool


@dataclass(frozen=True)
class Released:
    """A source that nothing needs until its copy is over; ``use``: its last user while in flight, if it is one.

    ``done``: what waits for the copy, None where that is the program's caller.
    """

    flight: Flight
    done: Call | None
    use: Call | None
    is_written: bool


@dataclass(frozen=True)
class TakenOver:
    """An operand that a start takes over and the program uses again."""

    start: Call
    use: Call


class TooManyPaths(Exception):
    """Branches multiply beyond what is followed."""


@dataclass
class ProgramFacts:
    """What was seen on the paths of a program.

    ``dropped_lines``: the copies that, path by path, are known to be able to be in flight at its end; None where that
    is not known. ``stuck_lines``: the waits that are known not to return.
    """

    dropped_lines: set[Any] | None = None
    stuck_lines: frozenset[Any] = frozenset()
    flights: dict[Flight, None] = field(default_factory=dict)
    second_dones: dict[SecondDone, None] = field(default_factory=dict)
    dropped: dict[Dropped, None] = field(default_factory=dict)
    returned: dict[Flight, None] = field(
        default_factory=dict
    )  # its caller gets the semaphores and what arrives
    parts: dict[Flight, Call] = field(default_factory=dict)  # what waits for a part of it
    disturbed: dict[Disturbed, None] = field(default_factory=dict)
    carried: dict[Carried, None] = field(default_factory=dict)
    released: dict[Released, None] = field(default_factory=dict)
    taken_over: dict[TakenOver, None] = field(default_factory=dict)
    lost: dict[tuple[Call, Call], None] = field(default_factory=dict)  # kernel on Refs, the loop around it
    is_complete: bool = True


def program_facts(
    closed: Any, dropped_lines: set[Any] | None = None, stuck_lines: frozenset[Any] = frozenset()
) -> ProgramFacts:
    """The facts about an opened jaxpr; the other arguments are what its runs have shown."""
    facts = ProgramFacts(dropped_lines, stuck_lines)
    walk = _Walk(facts)
    arguments = [Value(Memory(is_kept=True)) for _ in closed.inputs]
    try:
        walk.finish(walk.body(closed, arguments, State()))
    except TooManyPaths:
        facts.is_complete = False
    return facts


class _Walk:
    """Follows one program."""

    def __init__(self, facts: ProgramFacts):
        self.facts = facts
        self.loops: list[Call] = []
        self.literals: dict[Any, Value] = {}
        self.scalars: dict[Any, Value] = {}

    # -- bodies --

    def body(self, body: Any, arguments: Sequence[Value], state: State) -> list[_Outcome]:
        """The results of a body on every path."""
        constants = [Value(Memory(is_kept=True)) for _ in body.consts]
        env = dict(zip(body.inputs, arguments)) | dict(zip(body.jaxpr.constvars, constants))
        paths = [(env, state)]
        for eqn in body.jaxpr.eqns:
            reached = []
            for env, at in paths:
                outcomes = self.equation(eqn, [self.read(env, a) for a in eqn.invars], at)
                for results, after in outcomes:
                    forked = env if len(outcomes) == 1 else dict(env)
                    forked.update(zip(eqn.outvars, results))
                    reached.append((forked, after))
            paths = reached
            if len(paths) > MOST_PATHS:
                raise TooManyPaths
        return [([self.read(env, a) for a in body.outputs], at) for env, at in paths]

    def read(self, env: dict[Any, Value], atom: Any) -> Value:
        """The value of an atom; equal literals are one value."""
        if isinstance(atom, jaxprs.Literal):
            return self.literals.setdefault((str(atom.aval), str(atom.val)), Value(Memory(is_kept=True)))
        return env[atom]

    def equation(self, eqn: Any, values: list[Value], state: State) -> list[_Outcome]:
        """The results of an equation on every path."""
        form = ho.normal_form(eqn)
        if form is None:
            return [self.operation(eqn, values, state)]
        given = dict(zip(_names(eqn.invars), values))
        run = _RUN.get(type(form))
        if run is None:
            return [self.operation(eqn, values, state)]
        return run(self, eqn, form, lambda atoms: [given[n] for n in _names(atoms)], state)

    # -- first-order equations --

    def operation(self, eqn: Any, values: list[Value], state: State) -> _Outcome:
        """Anything without a body that is followed: uses its operands, makes new arrays."""
        after = frozenset[Flight]().union(*(v.after for v in values))
        call = call_of(eqn)
        self.use(call, values, after, state)
        if eqn.primitive in _PASSES_ON:
            return [Value(v.memory, after) for v in values], state
        writes = eqn.primitive in _UPDATES
        self.disturb(call, values, state, writes)
        if len(eqn.outvars) == 1 and getattr(eqn.outvars[0].aval, "shape", None) == () and not eqn.effects:
            key = (eqn.primitive, str(eqn.params), tuple(values))
            return [self.scalars.setdefault(key, Value(Memory(), after))], state
        return [Value(Memory(), after) for _ in eqn.outvars], state

    def use(self, call: Call, values: Sequence[Value], after: frozenset[Flight], state: State) -> None:
        """Notes that the values are needed here, after these copies are over."""
        memories = {v.memory for v in values}
        state.kept |= frozenset(f for f in after if f.source in memories)
        for value in values:
            if value in state.taken:
                self.facts.taken_over[TakenOver(state.taken[value], call)] = None

    def disturb(self, call: Call, values: Sequence[Value], state: State, writes: bool) -> None:
        """Notes operations on arrays in flight."""
        for flight in state.touching(v.memory for v in values):
            if state.is_writing(flight) and any(v.memory is flight.destination for v in values):
                self.facts.disturbed[Disturbed(flight, "read", call)] = None
            if state.is_reading(flight) and any(v.memory is flight.source for v in values):
                state.uses[flight] = (call, writes and values[0].memory is flight.source)

    # -- kernels --

    def kernel(
        self, eqn: Any, form: Any, values: Callable[[Any], list[Value]], state: State
    ) -> list[_Outcome]:
        """A kernel: results take over the memory of aliased operands; copies start and are waited for."""
        call, static = call_of(eqn), form.form
        operands = values(form.operands)
        inputs = values(form.inputs)
        aliased = {o: i for i, o in static.aliases.items() if i < len(inputs)}
        memories = [inputs[aliased[o]].memory if o in aliased else Memory() for o in range(len(eqn.outvars))]
        where = _Roles(values(form.constants), values(form.scalars), inputs, memories)
        if (
            self.loops
            and form.constants
            and not eqn.effects
            and any(jaxprs.is_ref(a.aval) for a in form.constants)
        ):
            self.facts.lost[call, self.loops[-1]] = None
        started, over = self._run_summary(call, form, where, operands, state)
        after = over.union(*(v.after for v in operands))
        self.use(call, operands, after, state)
        if any(f in state.open for f in started):
            state.taken |= {inputs[i]: call for i in aliased.values() if not inputs[i].memory.is_kept}
        return [([Value(m, after) for m in memories], state)]

    def _run_summary(
        self, call: Call, form: Any, where: _Roles, operands: list[Value], state: State
    ) -> tuple[list[Flight], frozenset[Flight]]:
        """The copies that the kernel starts, and those it waits for."""
        started, over = [], []
        for fact in inflight_kernels.summary(form.form):
            if isinstance(fact, Started):
                started.append(self.start(call, form.form, fact, where, operands, state))
            else:
                over += self.wait(call, fact, where, state)
        for flight in started:
            if flight not in state.open:
                self.facts.flights.pop(flight, None)  # over before the kernel ends
        return started, frozenset(over)

    def start(
        self, call: Call, static: Any, started: Started, where: _Roles, operands: list[Value], state: State
    ) -> Flight:
        """A copy that the kernel starts on a semaphore of its caller's."""
        read, written = where.key(started.source_semaphore), where.key(started.destination_semaphore)
        flight = Flight(
            call=call,
            line=started.line or call.location,  # JAX may have kept no line of a kernel's own
            source=where.memory(started.source),
            destination=where.memory(started.destination),
            waits={k: a for k, a in zip((read, written), started.amounts) if k is not None},
            halves=(read or written, written or read),  # type: ignore[arg-type]
            is_pinned=_is_pinned(static, started.source) and _is_pinned(static, started.destination),
            is_marked=static.has_side_effects,
            origin=(static.name, str(static.jaxpr.jaxpr), tuple(operands), started),
        )
        self.facts.flights[flight] = None
        state.start(flight)
        return flight

    def wait(self, call: Call, waited: Waited, where: _Roles, state: State) -> list[Flight]:
        """The copies that a wait is known to finish."""
        key = where.key(waited.semaphore)
        if key is None:
            return []
        flight = state.waiting_on(key)
        if flight is not None and key[1] is not None and flight.waits[key] == waited.amount:
            state.finish(flight, [key], call)
            state.ended[key] = (flight, call)
            return [flight]
        if flight is None and key in state.ended and state.ended[key][0].waits[key] == waited.amount:
            earlier, first = state.ended[key]
            if first is not call:
                self.facts.second_dones[
                    SecondDone(
                        earlier, first, call, waited.line or call.location, not state.decided_since(earlier)
                    )
                ] = None
            return []
        return self._wait_for_some(call, key, waited.amount, state)

    def _wait_for_some(self, call: Call, key: Key, amount: object, state: State) -> list[Flight]:
        """A wait for a part, for several copies, or on a semaphore that is not known: whether one is missing is for
        the run of the kernels to say."""
        same = [(f, k) for f, keys in state.open.items() for k in keys if _may_be_same(k, key)]
        if [k for _, k in same] == [key] and state.leaves_some(*same[0], amount):
            self.facts.parts[same[0][0]] = call
            return []
        for flight, k in same:
            state.finish(flight, [k], call)
            state.ended.pop(k, None)
        return [f for f, _ in same]

    # -- control flow --

    def call(self, eqn: Any, form: Any, values: Callable[[Any], list[Value]], state: State) -> list[_Outcome]:
        """A body that is run once."""
        return self.body(form.jaxpr, values(form.operands), state)

    def run_state(
        self, eqn: Any, form: Any, values: Callable[[Any], list[Value]], state: State
    ) -> list[_Outcome]:
        """A body on Refs: what they hold in the end is in the memory of what they held first."""
        operands = values(form.operands)
        outcomes = self.body(form.jaxpr, operands, state)
        return [([Value(v.memory, v.after) for v in operands], at) for _, at in outcomes]

    def branch(
        self, eqn: Any, form: Any, values: Callable[[Any], list[Value]], state: State
    ) -> list[_Outcome]:
        """Every branch; conditions on one value go one way."""
        call, operands, (index,) = call_of(eqn), values(form.operands), values([form.index])
        chosen = _literal_branch(form)
        if chosen is None:
            chosen = state.choices.get(index)
        self.use(call, [index], index.after, state)
        outcomes = []
        for i in range(len(form.branches)) if chosen is None else (chosen,):
            inner = state.fork()
            inner.choices[index] = i
            if chosen is None:
                inner.decisions = (*inner.decisions, (call, i, len(inner.starts)))
            outcomes += self.body(form.branches[i], operands, inner)
        for results, after in outcomes if len(form.branches) > 1 else ():
            self._returned(call, results, state, after)
        return _joined(outcomes, state) if len(outcomes) > 1 else outcomes

    def _returned(self, call: Call, results: list[Value], before: State, after: State) -> None:
        """A branch that returns what is in flight has it copied to where all branches leave their results."""
        memories = {v.memory for v in results}
        for flight in after.touching(memories):
            if flight in before.open:
                self.facts.disturbed[Disturbed(flight, "branch", call)] = None

    def scan(self, eqn: Any, form: Any, values: Callable[[Any], list[Value]], state: State) -> list[_Outcome]:
        """Two trips of a loop with a known number of iterations."""
        unroll = int(
            eqn.params.get("unroll", 1)
        )  # no meaning to any walker but this one: not in the normal form
        trips = -(-form.length // unroll)
        carry = values(form.carry)
        consts = values(form.consts)
        xs = values(form.xs)
        rest = len(eqn.outvars) - len(carry)
        if form.length == 0:
            return [(carry + [Value(Memory()) for _ in range(rest)], state)]

        def once(carried: list[Value], at: State) -> list[_Outcome]:
            fresh = [Value(Memory(), v.after) for v in xs]
            return self.body(form.jaxpr, [*consts, *carried, *fresh], at)

        per_trip = min(unroll, form.length)
        outcomes = self.trips(call_of(eqn), once, carry, state, min(trips, 2), per_trip)
        return [(carried + [Value(Memory()) for _ in range(rest)], at) for carried, at in outcomes]

    def while_loop(
        self, eqn: Any, form: Any, values: Callable[[Any], list[Value]], state: State
    ) -> list[_Outcome]:
        """Two trips of a loop that is left on a condition."""
        consts = values(form.body_consts)
        return self.trips(
            call_of(eqn),
            lambda carry, at: self.body(form.body, [*consts, *carry], at),
            values(form.carry),
            state,
            2,
            1,
        )

    def trips(
        self, loop: Call, once: Callable[[list[Value], State], list[_Outcome]], carry: list[Value], state: State,
        trips: int, unroll: int,
    ) -> list[_Outcome]:  # fmt: skip
        """Runs a loop's body, and looks at what is in flight from one trip to the next."""
        if trips * unroll > MOST_ITERATIONS:
            unroll = max(1, MOST_ITERATIONS // trips - (unroll % 2))
        self.loops.append(loop)
        outcomes = [(carry, state)]
        for _ in range(trips):
            reached = []
            for before, at in outcomes:
                ends = [(before, at)]
                for _ in range(unroll):
                    ends = [(r[: len(carry)], s) for values, x in ends for r, s in once(values, x)]
                    if len(ends) > MOST_PATHS:
                        raise TooManyPaths
                if trips > 1:
                    self._crossing(loop, unroll, before, ends)
                reached += ends
            outcomes = reached
        self.loops.pop()
        return outcomes

    def _crossing(self, loop: Call, unroll: int, before: list[Value], ends: list[_Outcome]) -> None:
        slots = {v.memory: i for i, v in enumerate(before)}
        for after, state in ends:
            for flight in state.touching(v.memory for v in after):
                moved = any(
                    v.memory in flight.memories and v.memory in slots and before[j].memory is not v.memory
                    for j, v in enumerate(after)
                )
                self.facts.carried[Carried(flight, loop, unroll, moved)] = None

    # -- the end --

    def finish(self, outcomes: list[_Outcome]) -> None:
        """What is left at the end of each path."""
        for results, state in outcomes:
            memories = {v.memory for v in results}
            self.use(_END, results, frozenset(), state)
            for flight, keys in state.open.items():
                target = flight.destination
                arrives = target is None or target.is_kept or target in memories
                if arrives and all(memory in memories for memory, _ in keys):
                    self.facts.returned[flight] = None
                    self._end_of_source(flight, None, memories, state)
                else:
                    self.facts.dropped[Dropped(flight, _deciding(flight, state, outcomes))] = None
            for flight, done in state.finished.items():
                self._end_of_source(flight, done, memories, state)

    def _end_of_source(self, flight: Flight, done: Call | None, memories: set[Memory], state: State) -> None:
        source = flight.source
        is_reading = done is not None or state.is_reading(flight)
        if source is None or source.is_kept or source in memories or flight in state.kept or not is_reading:
            return
        use, is_written = state.uses.get(flight, (None, False))
        self.facts.released[Released(flight, done, use, is_written)] = None


class _Roles:
    """The memory behind a kernel's operands and results."""

    def __init__(
        self, constants: list[Value], scalars: list[Value], inputs: list[Value], outputs: list[Memory]
    ):
        self._kinds = {
            "constant": [v.memory for v in constants], "scalar": [v.memory for v in scalars],
            "input": [v.memory for v in inputs], "output": outputs,
        }  # fmt: skip

    def memory(self, role: Any) -> Memory | None:
        """The memory in a role."""
        return self._kinds[role[0]][role[1]] if role is not None else None

    def key(self, semaphore: Any) -> Key | None:
        """The identity of a semaphore."""
        return (
            (self._kinds[semaphore.role[0]][semaphore.role[1]], semaphore.index)
            if semaphore is not None
            else None
        )


_END = Call("the end of the program", ())

_RUN: dict[type, Callable[..., list[_Outcome]]] = {
    ho.Call: _Walk.call, ho.ShardMap: _Walk.call, ho.Branch: _Walk.branch, ho.Scan: _Walk.scan,
    ho.While: _Walk.while_loop, ho.Kernel: _Walk.kernel, ho.RunState: _Walk.run_state,
}  # fmt: skip

_PASSES_ON = {
    x for x in (p.optimization_barrier, p.with_memory_space_constraint, p.new_ref, p.freeze) if x is not None
}
_UPDATES = {
    lax.scatter_p, lax.scatter_add_p, lax.scatter_mul_p, lax.scatter_min_p, lax.scatter_max_p,
    lax.dynamic_update_slice_p,
}  # fmt: skip


def _joined(outcomes: list[_Outcome], before: State) -> list[_Outcome]:
    """One path behind a branch that changes nothing of what is in flight and returns none of it."""
    for results, state in outcomes:
        moving = {m for f, keys in before.open.items() for m in (*f.memories, *(key[0] for key in keys))}
        if state.open != before.open or any(v.memory in moving for v in results):
            return outcomes
    joined = before.joined([state for _, state in outcomes])
    columns = zip(*(results for results, _ in outcomes), strict=True)
    return [([_either(values) for values in columns], joined)]


def _either(values: Sequence[Value]) -> Value:
    if all(v is values[0] for v in values):
        return values[0]
    is_kept = all(v.memory is values[0].memory for v in values)
    after = frozenset[Flight].intersection(*(v.after for v in values))
    return Value(values[0].memory if is_kept else Memory(), after)


def _may_be_same(a: Key, b: Key) -> bool:
    return a[0] is b[0] and (a[1] is None or b[1] is None or a[1] == b[1])


def call_of(eqn: Any) -> Call:
    """The equation as the user sees it."""
    form = ho.normal_form(eqn)
    name = form.form.name if isinstance(form, ho.Kernel) else eqn.primitive.name
    return Call(name, location_of(eqn)[1])


def _names(atoms: Sequence[Any]) -> list[int]:
    """Literals of a jaxpr cannot be told apart by value: atoms are known by identity."""
    return [id(a) for a in atoms]


def _literal_branch(form: ho.Branch) -> int | None:
    if not isinstance(form.index, jaxprs.Literal):
        return None
    return min(max(int(form.index.val), 0), len(form.branches) - 1)


def _is_pinned(static: ho.KernelForm, role: Any) -> bool:
    """True where the compiler cannot move the array behind a role: a result with a memory space of its own."""
    kind, position = role or ("scratch", 0)
    if kind == "input" and position in static.aliases:
        kind, position = "output", static.aliases[position]
    if kind != "output":
        return True
    return memory_space(getattr(static.out_avals[position], "memory_space", None)) in _FIXED


def _deciding(flight: Flight, state: State, outcomes: Sequence[_Outcome]) -> Call | None:
    """The branch on whose other side the copy is waited for; None where it is on no path."""
    others = [at for _, at in outcomes if all(f.call.stack != flight.call.stack for f in at.open)]
    for call, side, starts in state.decided_since(flight):
        sides = {i for at in others for other, i, n in at.decisions if (other, n) == (call, starts)}
        if sides - {side}:
            return call
    return None
