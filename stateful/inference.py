"""The effects of a function on Refs: which memory it reads, writes, copies and signals, and where.

The walker goes through every higher-order primitive once, with loop counters and grid indices as symbols, and
binds the Refs of each body to the memory they stand for. So it sees what JAX's own effect sets lose: a
``pallas_call`` in a loop that touches Refs it closes over.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import jax

from stateful import arithmetic, signatures, terms
from stateful import effects as fx
from stateful import higher_order as ho
from stateful._jax import jaxprs
from stateful._jax import primitives as p
from stateful.memories import Memory, Namer
from stateful.recipes import Recipe
from stateful.types import RefType, View, ref_type

# -- the result ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Step:
    """One equation: its operations' effects, or why it has none that are known."""

    primitive: str
    effects: tuple[fx.Effect, ...] = ()
    unmodelled: str | None = None
    location: tuple[str, int, str] | None = None


@dataclass(slots=True)
class Block:
    """A body and what surrounds it; ``pure`` counts the equations without effects that are left out."""

    title: str
    location: tuple[str, int, str] | None = None
    children: list[Step | Block] = field(default_factory=list)
    pure: int = 0

    def walk(self, outer: tuple[str, ...] = ()) -> Iterator[tuple[Step, tuple[str, ...]]]:
        """Every step in program order, with the titles of the blocks around it."""
        for child in self.children:
            if isinstance(child, Block):
                yield from child.walk((*outer, child.title))
            else:
                yield child, outer


class InferredEffects:
    """What :func:`infer_effects` finds; ``str()`` lists it by memory, ``tree`` as the program goes."""

    def __init__(self, name: str, tree: Block):
        self.name, self.tree = name, tree

    @functools.cached_property
    def steps(self) -> tuple[tuple[Step, tuple[str, ...]], ...]:
        """Every effectful equation in program order, with the blocks it is in."""
        return tuple(self.tree.walk())

    @functools.cached_property
    def effects(self) -> tuple[fx.Effect, ...]:
        """Each effect once, in program order."""
        every = (e for step, _ in self.steps for e in step.effects)
        return tuple({(id(e.view.root), str(e)): e for e in every}.values())

    @property
    def unmodelled(self) -> tuple[Step, ...]:
        """The equations that have no model: what they do is not in ``effects``."""
        return tuple(step for step, _ in self.steps if step.unmodelled)

    @property
    def memories(self) -> tuple[Memory, ...]:
        """The memory that is touched, in the order of first touch."""
        return tuple({id(e.view.root): e.view.root for e in self.effects}.values())  # type: ignore[misc]

    def on(self, name: str) -> tuple[fx.Effect, ...]:
        """The effects on the memory of that name."""
        return tuple(e for e in self.effects if e.view.root.name == name)  # type: ignore[union-attr]

    def __str__(self) -> str:
        lines = [f"effects of {self.name}"]
        for memory in self.memories:
            lines.append(f"  {memory}: {memory.type}, {memory.kind}")
            seen = {}
            for step, _ in self.steps:
                for e in step.effects:
                    if e.view.root is memory:
                        seen.setdefault(str(e), step.location)
            lines += [f"    {text}{_place(location)}" for text, location in seen.items()]
        for step in self.unmodelled:
            lines.append(f"  not modelled: {step.unmodelled}{_place(step.location)}")
        return "\n".join(lines) if len(lines) > 1 else f"{lines[0]}: none"


def _place(location: tuple[str, int, str] | None) -> str:
    return "" if location is None else f"  ({location[0].rpartition('/')[2]}:{location[1]})"


def infer_effects(fn: Callable[..., Any]) -> Callable[..., InferredEffects]:
    """``infer_effects(fn)(*args)`` gives the effects of ``fn`` called with such arguments, without running
    it.

    Arguments are arrays, ``jax.ShapeDtypeStruct`` or Refs.
    """

    @functools.wraps(fn)
    def inferred(*args: Any, **kwargs: Any) -> InferredEffects:
        body = jaxprs.open_jaxpr(jax.make_jaxpr(fn)(*args, **kwargs))
        return infer_jaxpr_effects(body, getattr(fn, "__name__", "function"))

    return inferred


def infer_jaxpr_effects(body: jaxprs.Body, name: str = "jaxpr") -> InferredEffects:
    """The effects of an opened jaxpr; its inputs are named after the traced function's parameters."""
    walker = _Walker()
    known: list[Any] = []
    names = dict(zip(body.inputs, body.names, strict=True))
    for var in (*body.jaxpr.constvars, *body.inputs) if body.consts else body.inputs:
        kind = "argument" if var in names else "closed over"
        known.append(
            walker.outside(var.aval, names.get(var) or ("ref" if var not in names else "argument"), kind)
        )
    tree = Block(name)
    inputs = known[len(known) - len(body.inputs) :]
    walker.run(body, inputs, tree, consts=known[: len(known) - len(body.inputs)])
    return InferredEffects(name, tree)


# -- the walker ----------------------------------------------------------------------------------------------

# A value is a View (Refs), a Term or Predicate (followed scalars), a Memory (an array that a kernel left in a
# buffer of its own, semaphores mostly), or None.
Env = dict[Any, Any]


class _Walker:
    def __init__(self) -> None:
        self.names = Namer()
        self.grid: tuple[tuple[Any, Any], ...] = ()  # (index, size) of each grid axis that program_id sees
        self.axes: dict[str, tuple[Any, int]] = {}

    def memory(self, name: str, kind: str, type_: RefType) -> View:
        """A new memory, seen whole."""
        return View.whole(Memory(self.names.unique(name), kind, type_), type_)

    def symbol(self, name: str, aval: Any, low: int | None = None, high: int | None = None) -> Any:
        """A new symbol, None for what is not followed."""
        return (
            arithmetic.symbol(self.names.unique(name), aval, low, high)
            if arithmetic.is_scalar(aval)
            else None
        )

    def outside(self, aval: Any, name: str, kind: str) -> Any:
        """The value of an argument."""
        if jaxprs.is_ref(aval):
            return self.memory(name, kind, ref_type(aval))
        return self.symbol(name, aval)

    def run(
        self, body: jaxprs.Body, inputs: list[Any], block: Block, consts: list[Any] | None = None
    ) -> list[Any]:
        """Walks a body; the values of its results."""
        env: Env = {}
        if body.consts:
            given = consts or [arithmetic.literal(c) for c in body.consts]
            env.update(zip(body.jaxpr.constvars, given, strict=True))
        env.update(zip(body.inputs, inputs, strict=True))

        def value(atom: Any) -> Any:
            return arithmetic.literal(atom.val) if isinstance(atom, jaxprs.Literal) else env.get(atom)

        for eqn in body.jaxpr.eqns:
            form = ho.normal_form(eqn)
            results = (
                self.first_order(eqn, value, block) if form is None else self.enter(eqn, form, value, block)
            )
            env.update(zip(eqn.outvars, results, strict=True))
        return [value(v) for v in body.outputs]

    # -- first-order equations --

    def first_order(self, eqn: Any, value: Callable[[Any], Any], block: Block) -> list[Any]:
        """What the equation does, into the block; its results."""
        context = self.from_context(eqn)
        if context is not None:
            return [context]
        if signatures.is_known_pure(eqn.primitive):
            block.pure += 1
            if eqn.primitive is p.optimization_barrier:
                return [value(a) for a in eqn.invars]
            return [self.scalar(eqn, value), *[None] * len(eqn.outvars)][: len(eqn.outvars)]
        location = jaxprs.user_location(eqn) or block.location
        results: list[Any] = [None] * len(eqn.outvars)
        for operation in signatures.operations(eqn, value):
            results[:1] = [self.carry_out(operation, eqn, value, block, location)][: len(results)]
        return [
            self.memory(eqn.primitive.name, "not modelled", ref_type(v.aval))
            if r is None and jaxprs.is_ref(v.aval)
            else r
            for v, r in zip(eqn.outvars, results, strict=True)
        ]

    def carry_out(
        self, operation: Any, eqn: Any, value: Callable[[Any], Any], block: Block, location: Any
    ) -> Any:
        """Notes one operation; what it gives as result."""
        name = eqn.primitive.name
        if isinstance(operation, signatures.Pure):
            block.pure += 1
            return None
        if isinstance(operation, signatures.Unmodelled):
            block.children.append(Step(name, (), operation.reason, location))
            return None
        if isinstance(operation, signatures.Allocate):
            view = self.memory(self.names.assigned(location) or "ref", "made inside", operation.type)
            start: tuple[fx.Effect, ...] = (fx.Allocate(view),)
            block.children.append(
                Step(name, start + ((fx.Write(view),) if operation.value is not None else ()), None, location)
            )
            return view
        if isinstance(operation, signatures.BarrierSemaphore):
            return self.memory("barrier semaphore", "barrier", ref_type(eqn.outvars[0].aval))
        block.children.append(Step(name, operation.effects, None, location))
        if isinstance(operation, (signatures.Load, signatures.ReadSemaphore)):
            return self.symbol(str(operation.effects[0].view), eqn.outvars[0].aval)
        return None

    def scalar(self, eqn: Any, value: Callable[[Any], Any]) -> Any:
        """The first result of a pure equation, as far as it is followed."""
        if not eqn.outvars or not arithmetic.is_scalar(eqn.outvars[0].aval):
            return None
        found = arithmetic.evaluate(eqn, [value(a) for a in eqn.invars])
        return found if found is not None else self.symbol(eqn.primitive.name, eqn.outvars[0].aval)

    def from_context(self, eqn: Any) -> Any:
        """Results that depend on where the equation runs: grid and mesh indices."""
        if eqn.primitive is p.axis_index:
            found = self.axes.get(str(eqn.params["axis_name"]))
            return found[0] if found else None
        if eqn.primitive is p.program_id or eqn.primitive is p.num_programs:
            axis = eqn.params["axis"]
            return self.grid[axis][eqn.primitive is p.num_programs] if axis < len(self.grid) else None
        return None

    # -- higher-order equations --

    def enter(self, eqn: Any, form: ho.HigherOrder, value: Callable[[Any], Any], block: Block) -> list[Any]:
        """Walks the bodies of a higher-order equation into a block of their own; its results."""
        title = _TITLES[type(form)](form)
        inner = block if title is None else Block(title, jaxprs.user_location(eqn) or block.location)
        results = _RULES[type(form)](self, eqn, form, value, inner)
        if title is not None:
            if inner.children:
                block.children.append(inner)
            else:
                block.pure += 1
        return results

    def call(self, eqn: Any, form: ho.Call, value: Callable[[Any], Any], block: Block) -> list[Any]:
        """A body run once, in the caller's block."""
        return self.run(form.jaxpr, [value(a) for a in form.operands], block)

    def shard_map(self, eqn: Any, form: ho.ShardMap, value: Callable[[Any], Any], block: Block) -> list[Any]:
        """A body on each device: its axis indices are symbols; a Ref is seen with the shape of its shard."""
        outer = self.axes
        self.axes = {**outer, **{n: (self._index(n, size), size) for n, size in form.mesh.items()}}
        inputs = [
            self._local(value(a), v.aval) for a, v in zip(form.operands, form.jaxpr.inputs, strict=True)
        ]
        self.run(form.jaxpr, inputs, block)
        self.axes = outer
        return [None] * len(eqn.outvars)

    def _index(self, name: str, size: Any) -> Any:
        return terms.symbol(self.names.unique(name), 0, size - 1 if isinstance(size, int) else None)

    @staticmethod
    def _local(x: Any, aval: Any) -> Any:
        return View.whole(x.root, ref_type(aval)) if isinstance(x, View) else x

    def branch(self, eqn: Any, form: ho.Branch, value: Callable[[Any], Any], block: Block) -> list[Any]:
        """The branch that is taken where the index is known, else all."""
        index, inputs = value(form.index), [value(a) for a in form.operands]
        if isinstance(index, int):
            chosen = min(max(int(index), 0), len(form.branches) - 1)
            return self.run(form.branches[chosen], inputs, block)
        outcomes = []
        for number, branch in enumerate(form.branches):
            arm = Block(f"branch {number}")
            outcomes.append(self.run(branch, inputs, arm))
            if arm.children:
                block.children.append(arm)
        joined = zip(eqn.outvars, zip(*outcomes, strict=True), strict=False)
        return [xs[0] if all(x == xs[0] for x in xs) else self.symbol("chosen", v.aval) for v, xs in joined]

    def loop(self, eqn: Any, form: ho.While, value: Callable[[Any], Any], block: Block) -> list[Any]:
        """Condition and body once, the carry unknown."""
        body_names = form.body.names[len(form.body_consts) :]
        carry = [self.symbol(n or "carry", a.aval) for n, a in zip(body_names, form.carry, strict=True)]
        self.run(form.cond, [*map(value, form.cond_consts), *carry], block)
        self.run(form.body, [*map(value, form.body_consts), *carry], block)
        return [self.symbol("after", v.aval) for v in eqn.outvars]

    def scan(self, eqn: Any, form: ho.Scan, value: Callable[[Any], Any], block: Block) -> list[Any]:
        """The body once; a carry that counts is a symbol with its range."""
        steps = _counters(form)
        names = form.jaxpr.names
        inputs = [value(a) for a in form.consts]
        for k, atom in enumerate(form.carry):
            start = value(atom)
            low = high = None
            if steps.get(k) and isinstance(start, int):
                ends = (start, start + steps[k] * (form.length - 1))
                low, high = min(ends), max(ends)
            inputs.append(self.symbol(names[len(form.consts) + k] or "i", atom.aval, low, high))
        inputs += [self.symbol("x", v.aval) for v in form.jaxpr.inputs[len(inputs) :]]
        self.run(form.jaxpr, inputs, block)
        return [self.symbol("after", v.aval) for v in eqn.outvars]

    def parallel_loop(
        self, eqn: Any, form: ho.ParallelLoop, value: Callable[[Any], Any], block: Block
    ) -> list[Any]:
        """The body once; index and carry unknown."""
        inputs = [value(a) for a in form.consts]
        names = form.jaxpr.names[len(inputs) :]
        variables = form.jaxpr.inputs[len(inputs) :]
        inputs += [self.symbol(n or "i", v.aval) for n, v in zip(names, variables, strict=True)]
        self.run(form.jaxpr, inputs, block)
        return [self.symbol("after", v.aval) for v in eqn.outvars]

    def scoped(self, eqn: Any, form: ho.Scoped, value: Callable[[Any], Any], block: Block) -> list[Any]:
        """Fresh memory around the body."""
        names = form.jaxpr.names[len(form.operands) :]
        fresh = [
            self.memory(n or "scoped", "scoped", t) for n, t in zip(names, form.allocations, strict=True)
        ]
        block.children.append(Step("run_scoped", tuple(map(fx.Allocate, fresh)), None, block.location))
        results = self.run(form.jaxpr, [*map(value, form.operands), *fresh], block)
        block.children.append(Step("run_scoped", tuple(map(fx.Free, fresh)), None, block.location))
        return results

    def run_state(self, eqn: Any, form: ho.RunState, value: Callable[[Any], Any], block: Block) -> list[Any]:
        """Memory for each operand around the body."""
        inputs: list[Any] = []
        for name, type_, atom in zip(form.jaxpr.names, form.types, form.operands, strict=True):
            known = value(atom)
            inputs.append(
                known if isinstance(known, View) else self.memory(name or "state", "run_state", type_)
            )
        self.run(form.jaxpr, inputs, block)
        return [None] * len(eqn.outvars)

    def kernel(self, eqn: Any, form: ho.Kernel, value: Callable[[Any], Any], block: Block) -> list[Any]:
        """Each program once, for any grid step, on memory of the kernel and Refs from around it."""
        outer_grid, outer_axes = self.grid, self.axes
        k = form.form
        sizes = [value(g) if not isinstance(g, int) else g for g in form.grid]
        axes = [
            (self._index(n or f"pid{d}", s), s)
            for d, (n, s) in enumerate(zip(k.grid_names, sizes, strict=True))
        ]
        self.grid = tuple(axes[d] for d in k.program_axes)
        self.axes = {**outer_axes, **{n: a for n, a in zip(k.grid_names, axes, strict=True) if n}}
        results: list[Any] = []
        for program in k.programs:
            self.axes.update((n, (self._index(n, size), size)) for n, size in program.axes)
            results = self._program(form, program, value, block)
        self.grid, self.axes = outer_grid, outer_axes
        return results

    def _program(
        self, form: ho.Kernel, program: ho.Program, value: Callable[[Any], Any], block: Block
    ) -> list[Any]:
        roles = form.form.split_inputs(program)
        names = dict(zip(program.body.inputs, program.body.names, strict=True))
        inputs = [value(a) for a in form.constants]
        for var, atom in zip(roles["scalars"], form.scalars, strict=True):
            inputs.append(self._window(value(atom), names[var] or "scalars", ref_type(var.aval), var))
        for var, atom, type_ in zip(roles["inputs"], form.inputs, form.form.inputs, strict=True):
            inputs.append(self._window(value(atom), names[var] or "input", type_, var))
        first_input = form.form.constants + form.form.scalar_prefetch
        outputs = []
        for o, var in enumerate(roles["outputs"]):
            source = next((i for i, out in form.form.aliases.items() if out == o), None)
            shared = (
                inputs[first_input + source] if source is not None and _is_whole(form, source, o) else None
            )
            fresh = (
                self.memory(names[var] or "output", "output", form.form.outputs[o])
                if shared is None
                else shared
            )
            outputs.append(fresh)
        scratch = [self.memory(names[v] or "scratch", "scratch", ref_type(v.aval)) for v in roles["scratch"]]
        self.run(program.body, [*inputs, *outputs, *scratch], block)
        return [view.root if view.type.semaphore else None for view in outputs]

    def _window(self, known: Any, name: str, type_: RefType, var: Any) -> Any:
        if isinstance(known, View):
            return known
        if isinstance(known, Memory):
            return View.whole(known, type_)
        return self.memory(name, "input", type_) if jaxprs.is_ref(var.aval) else known

    def pipeline(self, eqn: Any, form: ho.Pipeline, value: Callable[[Any], Any], block: Block) -> list[Any]:
        """The copies of the windows, then the body once on the windows."""
        outer_grid = self.grid
        sizes = [value(g) if not isinstance(g, int) else g for g in form.grid]
        self.grid = (
            tuple((self._index(f"step{d}", s), s) for d, s in enumerate(sizes)) + outer_grid[len(sizes) :]
        )
        body = form.form.body
        skipped = len(form.constants) + form.form.steps
        copies: list[fx.Effect] = []
        windows = []
        for number, (ref, var, name) in enumerate(
            zip(form.refs, body.inputs[skipped:], body.names[skipped:], strict=True)
        ):
            window = self.memory(name or "window", "window", ref_type(var.aval))
            array = Recipe.of(ref, exact=False)(value)
            pair = (array, window) if number < form.form.n_inputs else (window, array)
            copies += [fx.DmaRead(pair[0]), fx.DmaWrite(pair[1])]
            windows.append(window)
        block.children.append(Step("emit_pipeline", tuple(copies), None, block.location))
        steps = [self.symbol("step", v.aval) for v in body.inputs[len(form.constants) : skipped]]
        self.run(body, [*map(value, form.constants), *steps, *windows], block)
        self.grid = outer_grid
        return []


def _is_whole(form: ho.Kernel, source: int, output: int) -> bool:
    windows = form.form.windows
    return not windows[source].pipelined and not windows[len(form.form.inputs) + output].pipelined


def _counters(form: ho.Scan) -> dict[int, int]:
    """The carries that only count: position to step."""
    producers = {
        v: eqn for eqn in form.jaxpr.jaxpr.eqns if eqn.primitive is jax.lax.add_p for v in eqn.outvars
    }
    found = {}
    for k, out in enumerate(form.jaxpr.outputs[: len(form.carry)]):
        eqn = producers.get(out) if isinstance(out, jaxprs.Var) else None
        if eqn is not None and eqn.invars[0] is form.jaxpr.inputs[len(form.consts) + k]:
            step = (
                arithmetic.literal(eqn.invars[1].val) if isinstance(eqn.invars[1], jaxprs.Literal) else None
            )
            if isinstance(step, int):
                found[k] = step
    return found


_RULES: dict[type, Callable[..., list[Any]]] = {
    ho.Call: _Walker.call,
    ho.ShardMap: _Walker.shard_map,
    ho.Branch: _Walker.branch,
    ho.While: _Walker.loop,
    ho.Scan: _Walker.scan,
    ho.ParallelLoop: _Walker.parallel_loop,
    ho.Scoped: _Walker.scoped,
    ho.RunState: _Walker.run_state,
    ho.Kernel: _Walker.kernel,
    ho.Pipeline: _Walker.pipeline,
}


def _kernel_title(form: ho.Kernel) -> str:
    grid = ", ".join("?" if g is None else str(g) for g in form.form.grid)
    return f"kernel {form.form.name}" + (f", grid ({grid})" if grid else "")


# What a block is called; None: the body belongs to the block around it.
_TITLES: dict[type, Callable[[Any], str | None]] = {
    ho.Call: lambda form: None,
    ho.ShardMap: lambda form: "shard_map over " + ", ".join(f"{n}={size}" for n, size in form.mesh.items()),
    ho.Branch: lambda form: f"cond of {len(form.branches)}",
    ho.While: lambda form: "while",
    ho.Scan: lambda form: f"loop of {form.length}",
    ho.ParallelLoop: lambda form: "parallel loop",
    ho.Scoped: lambda form: "run_scoped",
    ho.RunState: lambda form: "run_state",
    ho.Kernel: _kernel_title,
    ho.Pipeline: lambda form: "emit_pipeline, grid (" + ", ".join(
        str(g) if isinstance(g, int) else "?" for g in form.grid) + ")",
}  # fmt: skip
