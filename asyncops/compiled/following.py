"""Follows a scheduled module as it would run, and collects facts about its copies in flight.

Every instruction is run on abstract values (`values.Buffer`: which memory something lies in), in schedule
order. A loop body is run until the state at its head repeats, both branches of a conditional are run from
the same state and joined, calls are run in place. So a future is followed through tuples, loop carries,
branches and aliasing alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from asyncops.compiled import operations
from asyncops.compiled.facts import Flight, Mark, Scope, Trace
from asyncops.compiled.hlo import UNKNOWN_OPCODE, Computation, Instruction, Module, Path
from asyncops.compiled.inflight import Branch, InFlight, join
from asyncops.compiled.loops import runs_at_most_once, trip_count
from asyncops.compiled.mosaic import Kernel, KernelCopy, KernelWait, Slot, kernel_of
from asyncops.compiled.recording import Recorder
from asyncops.compiled.values import Buffer, TooLarge, Value, element, first, fresh, joined, leaves

# A loop whose state at the head has not repeated by then is given up (a rotation of n buffers needs n).
MAX_ITERATIONS = 64
MAX_DEPTH = 100
# Steps that may be run for each instruction of the module, and at least. Nested loops multiply.
STEPS_PER_INSTRUCTION, MIN_STEPS = 50, 1_000_000

Environment = dict[str, Value]


class _GiveUp(Exception):
    """The schedule cannot be followed to its end; the message says why."""


def follow(module: Module) -> Trace:
    """The facts about every asynchronous operation of ``module``."""
    trace = Trace(module)
    if not any(_is_asynchronous(i, module) for i in module.instructions()):
        return trace
    try:
        _Run(trace).entry()
    except (_GiveUp, TooLarge) as reason:
        trace.unknowns.append(f"the schedule was not followed to its end: {reason}")
    return trace


def _is_asynchronous(instruction: Instruction, module: Module) -> bool:
    return operations.is_kernel(instruction) or operations.is_start(instruction, module)


class _Run:
    """One run over a module."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._module = trace.module
        self._record = Recorder(trace)
        self._kernels: dict[Instruction, Kernel] = {}
        self._elements: dict[tuple[Buffer, tuple[int, ...]], Buffer] = {}
        self._budget = max(MIN_STEPS, STEPS_PER_INSTRUCTION * sum(1 for _ in self._module.instructions()))

    # The structure of the program

    def entry(self) -> None:
        """Runs the entry computation."""
        entry = self._module.entry
        arguments = [_parameter(i) for i in _parameters(entry)]
        result = self._computation(entry, arguments)
        self._record.use(result)
        self._lose_unreachable(list(self._record.state.open), result)

    def _lose_unreachable(self, flights: list[Flight], result: Value) -> None:
        for flight in self._record.state.unreachable(flights, set(leaves(result))):
            self._record.lose(flight)

    def _computation(self, computation: Computation, arguments: list[Value]) -> Value:
        if len(self._record.path) > MAX_DEPTH:
            raise _GiveUp(f"computations nest deeper than {MAX_DEPTH}")
        values: Environment = {}
        for instruction in computation.instructions:
            self._budget -= 1
            if self._budget < 0:
                raise _GiveUp("it runs too many instructions")
            values[instruction.name] = self._run(instruction, values, computation, arguments)
        root = computation.root
        return values[root.name] if root is not None else ()

    def _inside(self, scope: Scope, name: str, arguments: list[Value]) -> Value:
        """Runs the computation ``name`` within ``scope``; copies that it begins and forgets are lost."""
        callee = self._module.computations.get(name)
        if callee is None:
            self._trace.unknowns.append(f"{scope.instruction} calls %{name}, which the text does not have")
            return fresh(scope.instruction)
        begun = len(self._trace.flights)
        with self._record.inside(scope):
            result = self._computation(callee, arguments)
        self._lose_unreachable(self._trace.flights[begun:], result)
        return result

    def _while(self, loop: Instruction, values: Environment, home: Computation) -> Value:
        trips = trip_count(loop, home, self._module)
        body = loop.attributes.get("body", "").lstrip("%")
        condition = loop.attributes.get("condition", "").lstrip("%")
        scope = Scope(loop, "loop", trips)
        carry = self._operand(loop, 0, values)
        outside = self._record.state.buffers()
        self._record.log(Mark.ENTER, loop, trips=trips)
        heads = set()
        most = 1 if trips is None and runs_at_most_once(loop, self._module) else trips
        for _ in range(MAX_ITERATIONS if most is None else min(most, MAX_ITERATIONS)):
            head = self._head(carry, outside)
            if head in heads:
                break
            heads.add(head)
            self._record.log(Mark.ITERATION, loop)
            self._inside(scope, condition, [carry])
            carry = self._inside(scope, body, [carry])
            self._record.use(carry)
            self._trace.carried.update(leaves(carry))
        else:
            if most is None or most > MAX_ITERATIONS:
                self._trace.unknowns.append(
                    f"{loop}: its state did not repeat within {MAX_ITERATIONS} iterations"
                )
        self._record.log(Mark.EXIT, loop)
        return carry

    def _head(self, carry: Value, outside: set[Buffer]) -> tuple[object, ...]:
        """The state at a loop's head, up to the identity of memory that the loop itself makes.

        Memory is named by its first place in the carry, else by itself where a copy in flight involved it
        before the loop; what else there is cannot be reached any more.
        """
        names: dict[Buffer | None, object] = {buffer: id(buffer) for buffer in outside}
        for number, buffer in reversed(list(enumerate(leaves(carry)))):
            names[buffer] = number
        places = tuple(names[buffer] for buffer in leaves(carry))
        state = self._record.state

        def semaphore(key: Buffer) -> tuple[object, ...]:
            return (names.get(key.array), *key.index)

        flights = tuple(
            (f.start, names.get(f.source), names.get(f.destination), frozenset(map(semaphore, keys)))
            for f, keys in state.open.items()
        )
        ended = frozenset(semaphore(key) for key in state.ended if key.array in names)
        waited = frozenset((semaphore(key), n) for key, n in state.waited.items() if key.array in names)
        return (places, flights, ended, waited)

    def _conditional(self, instruction: Instruction, values: Environment) -> Value:
        names = instruction.callees
        index = first(self._operand(instruction, 0, values))
        on_predicate = "true_computation" in instruction.attributes or (
            index is not None and index.shape.dtype == "pred"
        )
        before = self._record.state
        results: list[Value] = []
        states: list[tuple[Branch, InFlight]] = []
        self._record.log(Mark.ENTER, instruction)
        for number, name in enumerate(names):
            label = _branch_label(number, len(names), on_predicate)
            self._record.state = before.copy()
            self._record.log(Mark.ENTER, instruction, label)
            operand = self._operand(instruction, number + 1, values)
            results.append(self._inside(Scope(instruction, "branch", label=label), name, [operand]))
            self._record.log(Mark.EXIT, instruction, label)
            states.append((Branch(instruction, label), self._record.state))
        self._record.log(Mark.EXIT, instruction)
        if not states:
            return fresh(instruction)
        self._record.state = join(before, states)
        return joined(instruction, results)

    def _call(self, instruction: Instruction, values: Environment) -> Value:
        if not instruction.callees:
            return fresh(instruction)
        operands = [self._operand(instruction, i, values) for i in range(len(instruction.operands))]
        self._record.log(Mark.ENTER, instruction)
        result = self._inside(Scope(instruction, "call"), instruction.callees[0], operands)
        self._record.log(Mark.EXIT, instruction)
        return result

    # One instruction

    def _run(
        self, instruction: Instruction, values: Environment, home: Computation, arguments: list[Value]
    ) -> Value:
        opcode = instruction.opcode
        if opcode == "parameter":
            known = 0 <= instruction.index < len(arguments)
            return arguments[instruction.index] if known else fresh(instruction)
        if opcode == "get-tuple-element":
            part = element(self._operand(instruction, 0, values), (instruction.index,))
            return part if part is not None else fresh(instruction)
        if opcode == "tuple":
            return tuple(self._operand(instruction, i, values) for i in range(len(instruction.operands)))
        if opcode in operations.PASS_THROUGH:
            return self._operand(instruction, 0, values)
        if opcode == "while":
            return self._while(instruction, values, home)
        if opcode == "conditional":
            return self._conditional(instruction, values)
        if opcode == "call":
            return self._call(instruction, values)
        if opcode in operations.PLUMBING:
            return fresh(instruction)
        return self._work(instruction, values)

    def _work(self, instruction: Instruction, values: Environment) -> Value:
        self._record.log(Mark.RUN, instruction)
        operands = [self._operand(instruction, i, values) for i in range(len(instruction.operands))]
        for operand in operands:
            self._record.use(operand)
        if instruction.opcode == UNKNOWN_OPCODE:
            self._trace.unknowns.append(
                f"{instruction} was not understood, so neither what it does to its operands"
            )
        return self._handler(instruction)(instruction, operands)

    def _handler(self, instruction: Instruction) -> Callable[[Instruction, list[Value]], Value]:
        if operations.is_kernel(instruction):
            return self._kernel
        if operations.is_start(instruction, self._module):
            return self._native_start
        if operations.is_done(instruction, self._module):
            return self._native_done
        if operations.is_update(instruction):
            return lambda _, operands: operands[0] if operands else ()
        return self._copy if instruction.opcode == "copy" else self._plain

    def _plain(self, instruction: Instruction, operands: list[Value]) -> Value:
        written = operations.updates(instruction, self._module)
        for number, operand in enumerate(operands):
            access = "write" if number in written else "read"
            self._record.touch(instruction, operand, access, operand=number)
        return self._result(instruction, operands)

    def _result(self, instruction: Instruction, operands: list[Value]) -> Value:
        """New memory, or an operand's where they share it."""
        shared: dict[tuple[int, ...], Value] = {}
        for path, (number, inner) in operations.aliases(instruction, self._module).items():
            part = element(operands[number], inner) if number < len(operands) else None
            if part is not None:
                shared[path] = part
        return fresh(instruction, shared)

    def _copy(self, instruction: Instruction, operands: list[Value]) -> Value:
        result = fresh(instruction)
        if operands and isinstance(operands[0], Buffer) and isinstance(result, Buffer):
            self._record.copied(instruction, operands[0], result)
        return result

    def _native_start(self, instruction: Instruction, operands: list[Value]) -> Value:
        at_source, at_destination = operations.source_and_destination(instruction)
        given = operands[0] if operands and instruction.opcode != "recv" else None
        shared = {at_source: given} if at_source is not None and given is not None else None
        result = fresh(instruction, shared)
        source = first(given) if given is not None else None
        destination = _part(result, at_destination)
        if instruction.opcode == "copy-start" and source is not None and destination is not None:
            self._record.copied(instruction, source, destination)
        else:
            for operand in operands:
                self._record.touch(instruction, operand, "read")
        key = destination or _part(result, (1,))
        now = (instruction, self._record.step, self._record.path)
        self._record.begin(Flight(*now, True, source, destination, None, key))
        return result

    def _native_done(self, instruction: Instruction, operands: list[Value]) -> Value:
        """Its result is the destination."""
        buffers = [b for operand in operands for b in leaves(operand)]
        keys = [b for b in buffers if self._record.state.waiting_on(b)] or buffers
        ended = [flight for key in keys for flight in self._record.wait(instruction, key)]
        destinations = dict.fromkeys(f.destination for f in ended if f.destination is not None)
        if len(destinations) != 1 or instruction.aliases:
            return self._result(instruction, operands)
        at = (0,) if instruction.shape_text.startswith("(") else ()
        return fresh(instruction, {at: next(iter(destinations))})

    # Pallas kernels

    def _kernel(self, instruction: Instruction, operands: list[Value]) -> Value:
        kernel = self._summary(instruction, operands)
        result = self._result(instruction, operands)
        buffers = _Arguments(operands, result)
        for wait in kernel.waits:
            self._wait(instruction, wait, buffers)
        self._accesses(instruction, kernel, buffers)
        for copy in kernel.left:
            self._launch(instruction, copy, buffers)
        if kernel.left or kernel.waits:
            for number, inner in instruction.aliases.values():
                part = element(operands[number], inner) if number < len(operands) else None
                for buffer in leaves(part) if part is not None else ():
                    self._trace.aliased.setdefault(buffer, instruction)
        return result

    def _summary(self, instruction: Instruction, operands: list[Value]) -> Kernel:
        if instruction not in self._kernels:
            semaphores = (n for n, x in enumerate(operands) if isinstance(x, Buffer) and x.shape.is_semaphore)
            kernel = self._kernels[instruction] = kernel_of(instruction, frozenset(semaphores))
            if kernel.inferred:
                self._trace.assumptions.append(
                    f"{operations.describe(instruction)} ({instruction}) could not be read ({kernel.inferred}): "
                    "a semaphore among its results is taken for a copy in flight, one among its operands for a wait"
                )
        return self._kernels[instruction]

    def _wait(self, instruction: Instruction, wait: KernelWait, buffers: _Arguments) -> None:
        """A semaphore that a conditional chose may be any of several: on each path it is one of them."""
        keys = self._semaphores(wait.semaphore, buffers)
        for key in keys:
            self._record.wait(instruction, key, wait.amount, chosen=len(keys) > 1)

    def _accesses(self, instruction: Instruction, kernel: Kernel, buffers: _Arguments) -> None:
        for slots, access in ((kernel.reads, "read"), (kernel.writes, "write")):
            for slot in sorted(slots):
                for buffer in buffers.all(slot):
                    self._record.touch(instruction, buffer, access)

    def _launch(self, instruction: Instruction, copy: KernelCopy, buffers: _Arguments) -> None:
        source, destination = buffers.one(copy.source), buffers.one(copy.destination)
        if destination is not None:
            self._record.touch(instruction, destination, "write")
        sent = next(iter(self._semaphores(copy.source_semaphore, buffers)), None)
        received = next(iter(self._semaphores(copy.destination_semaphore, buffers)), None)
        inferred = bool(self._kernels[instruction].inferred)
        now = (instruction, self._record.step, self._record.path)
        keys = (sent, received)
        flight = Flight(*now, False, source, destination, *keys, copy.remote, inferred, copy.amount)
        flight.destination_part = copy.destination_part
        self._record.begin(flight)

    def _semaphores(self, slot: Slot | None, buffers: _Arguments) -> list[Buffer]:
        """The semaphores that a kernel's argument may be; of one in an array, the same memory each time."""
        index = slot.element if slot is not None else None
        if index is None:
            return list(buffers.all(slot))
        elements = [Buffer(b.origin, b.path, whole=b, index=index) for b in buffers.all(slot)]
        return [self._elements.setdefault((e.array, index), e) for e in elements]

    def _operand(self, instruction: Instruction, number: int, values: Environment) -> Value:
        if number < len(instruction.operands):
            value = values.get(instruction.operands[number])
            if value is not None:
                return value
        return fresh(instruction)


class _Arguments:
    """The memories behind a kernel's arguments."""

    def __init__(self, operands: list[Value], result: Value) -> None:
        self._operands = operands
        self._results = list(result) if isinstance(result, tuple) else [result]

    def all(self, slot: Slot | None) -> tuple[Buffer, ...]:
        """The memories that the argument may be (several only after a conditional)."""
        if slot is None:
            return ()
        values = self._operands if slot.kind == "operand" else self._results
        return tuple(leaves(values[slot.number])) if slot.number < len(values) else ()

    def one(self, slot: Slot | None) -> Buffer | None:
        """The memory of the argument, as one."""
        return next(iter(self.all(slot)), None)


def _part(value: Value, path: Path | None) -> Buffer | None:
    part = element(value, path) if path is not None else None
    return first(part) if part is not None else None


def _parameters(computation: Computation) -> Iterable[Instruction]:
    found = {i.index: i for i in computation.instructions if i.opcode == "parameter" and i.index >= 0}
    return [found[n] for n in sorted(found)] if sorted(found) == list(range(len(found))) else ()


def _parameter(instruction: Instruction) -> Value:
    value = fresh(instruction)
    for buffer in leaves(value):
        buffer.parameter = instruction.index
    return value


def _branch_label(number: int, count: int, on_predicate: bool) -> str:
    """JAX turns a predicate into an index, so that branch 0 is what runs when it is false."""
    if count != 2:
        return f"branch {number}"
    return "the true branch" if (number == 0) == on_predicate else "the false branch"
