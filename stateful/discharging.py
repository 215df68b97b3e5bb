"""Discharge: a function on Refs as a pure function with the same results.

The interpreter goes through the program with the contents of every memory in a store, and threads what a
loop, branch or kernel may touch through it. Copies are carried out at their start (a copy is done at its wait
at the latest, so a program without races cannot tell), semaphores are counts, and a wait for more than its
semaphore holds is an error: nothing that comes later could bring it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec

from stateful import grids, semaphores, signatures
from stateful import higher_order as ho
from stateful._jax import jaxprs
from stateful._jax import primitives as p
from stateful._jax.evaluation import evaluate
from stateful.errors import InvalidArgumentError, UnmodelledError, UnsatisfiedWaitError
from stateful.recipes import Recipe
from stateful.stores import Cell, Store, Window
from stateful.types import ref_type


def discharge(fn: Callable[..., Any], refs: Sequence[int] = ()) -> Callable[..., Any]:
    """A pure function with the results of ``fn``: no Refs, no kernels, no copies in flight.

    ``refs`` numbers the arguments of ``fn`` that are Refs. The pure function takes arrays in their place and
    returns the results together with a tuple of what these Refs hold in the end::

        def increment(x_ref):
            x_ref[...] += 1

        _, (x,) = stateful.discharge(increment, refs=[0])(jnp.zeros(8))

    Raises :class:`~stateful.errors.UnsatisfiedWaitError` where a wait could never return (under ``jit``: when
    the compiled function runs), and :class:`~stateful.errors.UnmodelledError` for what has no pure
    counterpart, such as copies to other devices.
    """

    @functools.wraps(fn)
    def pure(*args: Any, **kwargs: Any) -> Any:
        body, out_tree = _traced(_with_refs_inside(fn, tuple(refs)), args, kwargs)
        machine, store = _Machine(), Store()
        given = [
            jnp.asarray(x, v.aval.dtype)
            for x, v in zip(jax.tree.leaves((args, kwargs)), body.inputs, strict=True)
        ]
        results = machine.run(body, given, store)
        _raise_if_failed(store.failed, tuple(machine.waits))
        return jax.tree.unflatten(out_tree, results)

    return pure


def _with_refs_inside(fn: Callable[..., Any], refs: tuple[int, ...]) -> Callable[..., Any]:
    if not refs:
        return fn

    def whole(*args: Any, **kwargs: Any) -> Any:
        wrong = [i for i in refs if not 0 <= i < len(args)]
        if wrong:
            raise InvalidArgumentError(
                f"refs names argument {wrong[0]}, but there are {len(args)} positional arguments"
            )
        inside = {i: jax.new_ref(args[i]) for i in refs}
        results = fn(*(inside.get(i, a) for i, a in enumerate(args)), **kwargs)
        return results, tuple(jax.freeze(inside[i]) for i in refs)

    return whole


def _traced(fn: Callable[..., Any], args: Any, kwargs: Any) -> tuple[jaxprs.Body, Any]:
    closed, shapes = jax.make_jaxpr(fn, return_shape=True)(*args, **kwargs)
    body = jaxprs.open_jaxpr(closed)
    if any(jaxprs.is_ref(v.aval) for v in (*body.jaxpr.constvars, *body.inputs)):
        raise InvalidArgumentError(
            "the function uses a Ref from outside, which a pure function cannot change: make it an argument "
            "and name it in `refs`, with an array in its place"
        )
    return body, jax.tree.structure(shapes)


def _raise_if_failed(failed: Any, waits: tuple[str, ...]) -> None:
    """Raises now where the outcome is known, else when the compiled program runs."""
    if not waits:
        return

    def check(number: Any) -> None:
        if int(number):
            raise UnsatisfiedWaitError(waits[int(number) - 1])

    if isinstance(failed, jaxprs.Tracer):
        jax.debug.callback(check, failed)
    else:
        check(failed)


# -- the interpreter -----------------------------------------------------------------------------------------


class _Machine:
    def __init__(self) -> None:
        self.grid: tuple[tuple[Any, Any], ...] = ()
        self.axes: dict[str, Any] = {}
        self.barrier: Window | None = None
        self.waits: list[str] = []
        self._stateful: dict[int, tuple[Any, bool]] = {}

    def run(
        self, body: jaxprs.Body, inputs: list[Any], store: Store, consts: list[Any] | None = None
    ) -> list[Any]:
        """The results of a body; the store is changed as the body changes it."""
        env: dict[Any, Any] = {}
        constants = list(body.consts) if consts is None else consts
        if constants:  # else the operands bind the constvars, too
            env.update(zip(body.jaxpr.constvars, constants, strict=True))
        env.update(zip(body.inputs, inputs, strict=True))

        def value(atom: Any) -> Any:
            return atom.val if isinstance(atom, jaxprs.Literal) else env[atom]

        for eqn in body.jaxpr.eqns:
            env.update(zip(eqn.outvars, self.step(eqn, value, store), strict=True))
        return [value(v) for v in body.outputs]

    def step(self, eqn: Any, value: Callable[[Any], Any], store: Store) -> list[Any]:
        """The results of one equation."""
        if eqn.primitive in _NOTHING_LEFT:
            return []
        form = ho.normal_form(eqn)
        if form is None:
            context = self.context(eqn)
            if context is not None:
                return [jnp.asarray(context, jnp.int32)]
            if self.is_stateful(eqn):
                return self.first_order(eqn, value, store)
        elif self.is_stateful(eqn):
            return _HIGHER_ORDER[type(form)](self, eqn, form, value, store)
        return evaluate(eqn, [value(a) for a in eqn.invars])

    def is_stateful(self, eqn: Any) -> bool:
        """True where the equation, or one in it, touches memory, is a kernel or asks for a grid index."""
        known = self._stateful.get(id(eqn))
        if known is None:
            known = self._stateful[id(eqn)] = (eqn, self._is_stateful(eqn))
        return known[1]

    def _is_stateful(self, eqn: Any) -> bool:
        form = ho.normal_form(eqn)
        if isinstance(form, (ho.Kernel, ho.Pipeline)) or any(
            jaxprs.is_ref(v.aval) for v in (*eqn.invars, *eqn.outvars)
        ):
            return True
        if form is None:
            asks = eqn.primitive in (p.program_id, p.num_programs, p.axis_index)
            return asks or not signatures.is_known_pure(eqn.primitive)
        return any(self.is_stateful(e) for body in ho.bodies(form) for e in body.jaxpr.eqns)

    def context(self, eqn: Any) -> Any:
        """Grid and core indices; None for other equations."""
        if eqn.primitive is p.axis_index:
            return self.axes.get(str(eqn.params["axis_name"]))
        if eqn.primitive is p.program_id or eqn.primitive is p.num_programs:
            return self.grid[eqn.params["axis"]][eqn.primitive is p.num_programs]
        return None

    # -- first-order equations --

    def first_order(self, eqn: Any, value: Callable[[Any], Any], store: Store) -> list[Any]:
        """What the signature table says the equation does, done to the store."""
        results: list[Any] = []
        for operation in signatures.operations(eqn, value):
            if isinstance(operation, signatures.Pure):
                given = [value(a) for a in eqn.invars]
                return (
                    evaluate(eqn, given)
                    if not any(isinstance(x, Window) for x in given)
                    else [None] * len(eqn.outvars)
                )
            rule = _OPERATIONS.get(type(operation))
            if rule is None:
                raise UnmodelledError(f"{getattr(operation, 'reason', eqn.primitive.name)}{_where(eqn)}")
            semaphores.check(operation)
            result = rule(self, operation, eqn, value, store)
            if result is not None:
                results.append(result)
        if len(results) < len(eqn.outvars):  # the old value of a swap that nothing uses
            return [None] * len(eqn.outvars)
        return results

    def load(self, op: Any, eqn: Any, value: Callable[[Any], Any], store: Store) -> Any:
        """Reads; what a mask leaves out is ``other``, or zero."""
        seen = store.read(op.view)
        if not op.masked:
            return seen
        other = jnp.zeros_like(seen) if op.other is None else value(op.other)
        return jnp.where(_mask(op, eqn, value), seen, other)

    def store(self, op: Any, eqn: Any, value: Callable[[Any], Any], store: Store) -> None:
        """Writes where the mask allows it."""
        new = value(op.value)
        store.write(op.view, jnp.where(_mask(op, eqn, value), new, store.read(op.view)) if op.masked else new)

    def accumulate(self, op: Any, eqn: Any, value: Callable[[Any], Any], store: Store) -> None:
        """Adds."""
        store.write(op.view, store.read(op.view) + value(op.value))

    def allocate(self, op: Any, eqn: Any, value: Callable[[Any], Any], store: Store) -> Window:
        """A fresh memory."""
        return store.new("ref", op.type, None if op.value is None else value(op.value))

    def free(self, op: Any, eqn: Any, value: Callable[[Any], Any], store: Store) -> Any:
        """The last contents, for ``freeze``."""
        return store.read(op.view) if op.read else None

    def start_copy(self, op: Any, eqn: Any, value: Callable[[Any], Any], store: Store) -> None:
        """The whole copy, and its counts."""
        _refuse_remote(op, eqn)
        moved = store.read(op.source)
        store.write(op.destination, store.read(op.destination) + moved if op.add else moved)
        for semaphore, amount in (
            (op.source_semaphore, op.source_amount),
            (op.destination_semaphore, op.destination_amount),
        ):
            if semaphore is not None:
                store.write(semaphore, store.read(semaphore) + _number(amount, eqn))

    def wait(self, op: Any, eqn: Any, value: Callable[[Any], Any], store: Store) -> None:
        """Takes counts off; notes the first wait for more than there is."""
        if op.semaphore is None:
            return
        amount = _number(op.amount, eqn)
        held = store.read(op.semaphore)
        self.waits.append(
            f"a wait for {amount} on {op.semaphore}{_where(eqn)} can never return: nothing that starts "
            "before it brings enough"
        )
        fails = jnp.reshape(held < amount, ()) & (jnp.asarray(store.failed) == 0)
        store.failed = jnp.where(fails, len(self.waits), store.failed)
        if getattr(op, "decrement", True):
            store.write(op.semaphore, held - amount)

    def signal(self, op: Any, eqn: Any, value: Callable[[Any], Any], store: Store) -> None:
        """Adds counts."""
        _refuse_remote(op, eqn)
        store.write(op.semaphore, store.read(op.semaphore) + _number(op.amount, eqn))

    def read_semaphore(self, op: Any, eqn: Any, value: Callable[[Any], Any], store: Store) -> Any:
        """The count."""
        return store.read(op.semaphore)

    def barrier_semaphore(self, op: Any, eqn: Any, value: Callable[[Any], Any], store: Store) -> Any:
        """The barrier semaphore of the kernel that runs."""
        if self.barrier is None:
            raise UnmodelledError(f"`get_barrier_semaphore` outside a kernel{_where(eqn)}")
        return self.barrier

    # -- higher-order equations --

    def threaded(
        self, body: jaxprs.Body, store: Store, cells: list[Cell], consts: list[Any] | None = None
    ) -> Callable[[list[Any], Any], tuple[list[Any], Any]]:
        """A body as a pure function of its inputs and the contents of ``cells``."""

        def function(inputs: list[Any], contents: Any) -> tuple[list[Any], Any]:
            inner = Store(store.contents)
            inner.restore(cells, contents)
            results = self.run(body, inputs, inner, consts)
            return results, inner.snapshot(cells)

        return function

    def cells(self, values: list[Any]) -> list[Cell]:
        """The memory that a body with these inputs can touch."""
        return grids.cells([*values, self.barrier])

    def call(self, eqn: Any, form: ho.Call, value: Callable[[Any], Any], store: Store) -> list[Any]:
        """A body run once."""
        return self.run(form.jaxpr, [value(a) for a in form.operands], store)

    def branch(self, eqn: Any, form: ho.Branch, value: Callable[[Any], Any], store: Store) -> list[Any]:
        """``cond`` over results and memory."""
        operands = [value(a) for a in form.operands]
        cells = self.cells(operands)
        arms = [functools.partial(self.threaded(b, store, cells), operands) for b in form.branches]
        index = jnp.asarray(value(form.index), jnp.int32)
        results, contents = lax.switch(
            index, [lambda c, arm=arm: _as_tuple(arm(c)) for arm in arms], store.snapshot(cells)
        )
        store.restore(cells, contents)
        return list(results)

    def loop(self, eqn: Any, form: ho.While, value: Callable[[Any], Any], store: Store) -> list[Any]:
        """``while`` with the memory in the carry."""
        cond_consts, body_consts = [value(a) for a in form.cond_consts], [value(a) for a in form.body_consts]
        cells = self.cells([*cond_consts, *body_consts])
        test, body = self.threaded(form.cond, store, cells), self.threaded(form.body, store, cells)
        carry = tuple(value(a) for a in form.carry)
        carry, contents = lax.while_loop(
            lambda c: test([*cond_consts, *c[0]], c[1])[0][0],
            lambda c: _as_tuple(body([*body_consts, *c[0]], c[1])),
            (carry, store.snapshot(cells)),
        )
        store.restore(cells, contents)
        return list(carry)

    def scan(self, eqn: Any, form: ho.Scan, value: Callable[[Any], Any], store: Store) -> list[Any]:
        """``scan`` with the memory in the carry."""
        consts = [value(a) for a in form.consts]
        cells = self.cells(consts)
        body, n = self.threaded(form.jaxpr, store, cells), len(form.carry)

        def step(c: Any, xs: Any) -> Any:
            results, contents = body([*consts, *c[0], *xs], c[1])
            return (tuple(results[:n]), contents), tuple(results[n:])

        start = tuple(value(a) for a in form.carry), store.snapshot(cells)
        xs = tuple(value(a) for a in form.xs)
        (carry, contents), ys = lax.scan(step, start, xs, length=form.length, reverse=form.reverse)
        store.restore(cells, contents)
        return [*carry, *ys]

    def parallel_loop(
        self, eqn: Any, form: ho.ParallelLoop, value: Callable[[Any], Any], store: Store
    ) -> list[Any]:
        """The iterations one after the other, which is one of the orders they may have."""
        consts = [value(a) for a in form.consts]
        cells = self.cells(consts)
        body = self.threaded(form.jaxpr, store, cells)
        upper, by = value(form.upper), value(form.step)

        def step(c: Any) -> Any:
            i, carry, contents = c
            results, contents = body([*consts, i, *carry], contents)
            return i + by, tuple(results), contents

        start = (
            jnp.asarray(value(form.lower), jnp.int32),
            tuple(value(a) for a in form.carry),
            store.snapshot(cells),
        )
        _, carry, contents = lax.while_loop(lambda c: c[0] < upper, step, start)
        store.restore(cells, contents)
        return list(carry)

    def scoped(self, eqn: Any, form: ho.Scoped, value: Callable[[Any], Any], store: Store) -> list[Any]:
        """A body with fresh memory."""
        fresh = [
            store.new(n or "scoped", t)
            for n, t in zip(form.jaxpr.names[len(form.operands) :], form.allocations, strict=True)
        ]
        return self.run(form.jaxpr, [*(value(a) for a in form.operands), *fresh], store)

    def run_state(self, eqn: Any, form: ho.RunState, value: Callable[[Any], Any], store: Store) -> list[Any]:
        """A body on memory that holds the operands; its last contents are the results."""
        given = iter(form.operands)
        held = []
        for type_, initialized in zip(form.types, form.is_initialized, strict=True):
            start = value(next(given)) if initialized else None
            held.append(start if isinstance(start, Window) else store.new("state", type_, start))
        self.run(form.jaxpr, held, store)
        return [store.read(w) for w in held]

    def shard_map(self, eqn: Any, form: ho.ShardMap, value: Callable[[Any], Any], store: Store) -> list[Any]:
        """``shard_map`` of the discharged body; a Ref operand is cut up like an array."""
        operands = [value(a) for a in form.operands]
        windows = [(i, w) for i, w in enumerate(operands) if isinstance(w, Window)]
        outer = self.barrier, self.axes

        def on_shard(*arrays: Any) -> Any:
            inner = Store({}, jnp.zeros((), jnp.int32))
            inputs: list[Any] = list(arrays)
            for i, _ in windows:
                inputs[i] = inner.new("shard", ref_type(form.jaxpr.inputs[i].aval), arrays[i])
            results = self.run(form.jaxpr, inputs, inner)
            failed = lax.pmax(jnp.asarray(inner.failed), tuple(form.mesh)) if form.mesh else inner.failed
            return tuple(results), tuple(inner.read(inputs[i]) for i, _ in windows), failed

        held = [store.read(x) if isinstance(x, Window) else x for x in operands]
        specs = (form.out_specs, tuple(form.in_specs[i] for i, _ in windows), PartitionSpec())
        mapped = jax.shard_map(
            on_shard,
            mesh=form.jax_mesh,
            in_specs=form.in_specs,
            out_specs=specs,
            axis_names=form.manual_axes,
            check_vma=False,
        )
        results, contents, failed = mapped(*held)
        self.barrier, self.axes = outer
        for (_, window), array in zip(windows, contents, strict=True):
            store.write(window, array)
        store.failed = jnp.where(jnp.asarray(store.failed) == 0, failed, store.failed)
        return list(results)

    def kernel(self, eqn: Any, form: ho.Kernel, value: Callable[[Any], Any], store: Store) -> list[Any]:
        """A kernel call, without the kernel."""
        return grids.run_kernel(self, form, value, store)

    def pipeline(self, eqn: Any, form: ho.Pipeline, value: Callable[[Any], Any], store: Store) -> list[Any]:
        """``emit_pipeline`` as one equation."""
        refs: list[Any] = [Recipe.of(r)(value) for r in form.refs]
        cells = self.cells([value(a) for a in form.operands])
        grids.run_pipeline(self, form, value, refs, store, cells)
        return []


def _as_tuple(pair: tuple[list[Any], Any]) -> tuple[tuple[Any, ...], Any]:
    return tuple(pair[0]), pair[1]


def _mask(op: Any, eqn: Any, value: Callable[[Any], Any]) -> Any:
    if op.mask is None:
        raise UnmodelledError(
            f"`{eqn.primitive.name}` through indices that vary by element cannot be discharged{_where(eqn)}"
        )
    return value(op.mask)


def _number(amount: Any, eqn: Any) -> Any:
    """An amount: known, or a value of the program; a copy of dynamic size has neither."""
    if amount is None or not (isinstance(amount, int) or hasattr(amount, "dtype")):
        raise UnmodelledError(f"an amount that depends on a dynamic size cannot be discharged{_where(eqn)}")
    return amount


def _refuse_remote(op: Any, eqn: Any) -> None:
    if op.device is not None or getattr(op, "core", None) is not None:
        raise UnmodelledError(
            f"`{eqn.primitive.name}` to another device or core cannot be discharged{_where(eqn)}"
        )


def _where(eqn: Any) -> str:
    location = jaxprs.user_location(eqn)
    return "" if location is None else f" ({location[0]}:{location[1]})"


# Without a result, and without a meaning outside a TPU kernel.
_NOTHING_LEFT = {p.delay, p.trace_value, p.touch}

_OPERATIONS: dict[type, Callable[..., Any]] = {
    signatures.Load: _Machine.load,
    signatures.Store: _Machine.store,
    signatures.Accumulate: _Machine.accumulate,
    signatures.Allocate: _Machine.allocate,
    signatures.Free: _Machine.free,
    signatures.StartCopy: _Machine.start_copy,
    signatures.WaitCopy: _Machine.wait,
    signatures.Wait: _Machine.wait,
    signatures.Signal: _Machine.signal,
    signatures.ReadSemaphore: _Machine.read_semaphore,
    signatures.BarrierSemaphore: _Machine.barrier_semaphore,
}

_HIGHER_ORDER: dict[type, Callable[..., list[Any]]] = {
    ho.Call: _Machine.call,
    ho.ShardMap: _Machine.shard_map,
    ho.Branch: _Machine.branch,
    ho.While: _Machine.loop,
    ho.Scan: _Machine.scan,
    ho.ParallelLoop: _Machine.parallel_loop,
    ho.Scoped: _Machine.scoped,
    ho.RunState: _Machine.run_state,
    ho.Kernel: _Machine.kernel,
    ho.Pipeline: _Machine.pipeline,
}
