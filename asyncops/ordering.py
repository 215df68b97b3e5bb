"""``@program_order``: what is written between a start and its done stays between them in the compiled program.

A compiler schedules by data dependence, and a start and its done depend on nothing between them. So while a future is
running, barriers tie what is computed to it: after each start or done, the inputs of what follows; before each, the
results of what precedes. The rewrite goes into loops, branches, ``jit``, ``shard_map``, ``remat`` and custom
derivatives; where nothing is in flight it changes nothing.

It is also where futures are checked (`asyncops.linearity`) and where loops that carry them get their two buffers
(`asyncops.pairing`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import jax
import numpy as np

from asyncops import linearity
from asyncops.barriers import tie
from asyncops.branching import run_branches
from asyncops.landing import Landed, futures_among, held_results
from asyncops.ops import done_p, stack_p
from asyncops.pairing import handles_arrays, run_scan, run_while
from asyncops.placing import in_hbm
from asyncops.regions import Region, is_dropped, is_ref, touches_futures
from asyncops.sharing import private, private_starts, shared
from stateful._jax.calls import call, new_call
from stateful._jax.inflight import is_handle, is_in_flight
from stateful._jax.jaxprs import Literal
from stateful._jax.rewriting import Environment, at_source_of, changed_bodies, retrace, trace
from stateful.errors import InFlightMovedError
from stateful.higher_order import Branch, Scan, While, normal_form, register_call

F = TypeVar("F", bound=Callable[..., Any])


def program_order(fn: F) -> F:
    """Keeps, in the compiled program, what ``fn`` does between a start and its done between them.

    Also checks that each future is consumed exactly once, and gives loops that carry futures the two buffers they
    need. Values and derivatives are unchanged.

    Args:
        fn: function of arrays, futures, Refs and pytrees of them; other arguments are passed on as they are.

    Returns:
        A function with the same arguments and results, to be called anywhere ``fn`` can be.

    Raises:
        FutureError: from the returned function, if a future is dropped, consumed twice or mixed with another.
    """

    @functools.wraps(fn)
    def ordered(*args: Any, **kwargs: Any) -> Any:
        leaves, tree = jax.tree.flatten((args, kwargs))
        dynamic = [n for n, leaf in enumerate(leaves) if _is_dynamic(leaf)]

        def of_arrays(*arrays: Any) -> Any:
            given = list(leaves)
            for n, array in zip(dynamic, arrays, strict=True):
                given[n] = array
            args, kwargs = jax.tree.unflatten(tree, given)
            return fn(*args, **kwargs)

        arrays = [leaves[n] for n in dynamic]
        jaxpr, consts, results = trace(of_arrays, *arrays)
        linearity.check(jaxpr)
        return jax.tree.unflatten(results, call(ordered_p, jaxpr, consts, arrays))

    return ordered  # type: ignore[return-value]


def _is_dynamic(leaf: Any) -> bool:
    return isinstance(leaf, (jax.Array, np.ndarray, np.generic, jax.Ref))


def _rewrite(jaxpr: Any) -> Any:
    return retrace(jaxpr, order)


# The rewrite happens when the program is lowered: derivatives and vmap see the program as it was written, and get
# their own order, derivatives of loops their own buffers.
ordered_p = new_call("async_program_order", _rewrite)
register_call(ordered_p, "program_order", "call_jaxpr")


def order(
    jaxpr: Any,
    consts: Sequence[Any],
    args: Sequence[Any],
    fixed: Sequence[Any] = (),
    copied_back: Sequence[int] = (),
) -> list[Any]:
    """Runs a jaxpr with barriers around what it starts and finishes.

    Args:
        jaxpr: an open jaxpr, such as the body of a loop.
        consts: values of its constants.
        args: values of its arguments.
        fixed: those of its variables that an enclosing loop holds in every iteration.
        copied_back: positions of the results that need a buffer of their own.

    Returns:
        Its results.
    """
    results = _Ordered(jaxpr, consts, args, fixed).run()
    return [private(x) if n in copied_back else x for n, x in enumerate(results)]


class _Ordered:
    """One jaxpr, run between barriers."""

    def __init__(self, jaxpr: Any, consts: Sequence[Any], args: Sequence[Any], fixed: Sequence[Any]) -> None:
        self._region = Region(jaxpr)
        self._jaxpr = jaxpr
        self._env = Environment(jaxpr, consts, args)
        self._private = private_starts(jaxpr, fixed)

    def run(self) -> list[Any]:
        region = self._region
        inputs = (*self._jaxpr.constvars, *self._jaxpr.invars)
        self._after(0, [v for v in inputs if is_handle(v.aval)])
        for position, eqn in enumerate(self._jaxpr.eqns):
            if eqn.primitive is stack_p and isinstance(self._env[eqn.invars[0]], Landed):
                self._env.define(eqn, [self._env[v] for v in eqn.invars])
                continue
            if not touches_futures(eqn) or eqn.primitive is ordered_p:
                self._env.run(eqn)
                continue
            if self._lands(eqn):
                continue
            if running := region.running_before(position):
                self._tie((*region.produced_before(position), *running), _tokens(eqn.invars))
            self._run(eqn)
            if region.running_before(position + 1):
                self._after(position + 1, _tokens(eqn.outvars) or _tokens(filter(is_ref, eqn.invars)))
        self._resume(self._jaxpr.outvars)
        end = len(self._jaxpr.eqns)
        self._tie(region.produced_before(end), [v for v in self._jaxpr.outvars if is_handle(v.aval)])
        return [self._env[v] for v in self._jaxpr.outvars]

    # -- equations that start or finish something, or call what does ----------------------------------

    def _run(self, eqn: Any) -> None:
        env, form = self._env, normal_form(eqn)
        values = [env[v] for v in eqn.invars]
        if isinstance(form, (Scan, While)):
            values = in_hbm(values, form)
        if isinstance(form, (Scan, While)) and handles_arrays(form):
            env.define(eqn, self._loop(eqn, form, values))
        elif isinstance(form, Branch) and futures_among(eqn.outvars):
            env.define(eqn, run_branches(form, values, held_results(self._jaxpr, eqn), order))
        elif eqn in self._private:
            env.run(eqn, operands=[private(x) for x in values])
        else:
            env.run(eqn, operands=values, **changed_bodies(eqn, order))

    def _loop(self, eqn: Any, form: Scan | While, values: Sequence[Any]) -> list[Any]:
        n = len(form.carry)
        known = held_results(self._jaxpr, eqn)
        futures = [held for held in known if held.first < n]
        stacked = [replace(held, first=held.first - n) for held in known if held.first >= n]
        held_twice = shared(self._jaxpr, form, futures)
        body = form.jaxpr if isinstance(form, Scan) else form.body
        consts = form.consts if isinstance(form, Scan) else form.body_consts
        fixed = body.inputs[: len(consts)]
        run = functools.partial(order, fixed=fixed, copied_back=held_twice.copied_back)
        with at_source_of(eqn, values):
            if isinstance(form, Scan):
                return run_scan(form, values, eqn.params["unroll"], stacked, held_twice, run)
            return run_while(form, values, futures, held_twice, run)

    def _lands(self, eqn: Any) -> bool:
        """Defines the result of a done whose future was finished early; resumes such futures for other equations."""
        first = self._env[eqn.invars[0]] if eqn.invars else None
        if eqn.primitive is done_p and isinstance(first, Landed):
            self._env.define(eqn, [first.array])
            return True
        form = normal_form(eqn)
        scanned = len(form.xs) if isinstance(form, Scan) else 0
        self._resume(eqn.invars[: len(eqn.invars) - scanned])
        return False

    def _resume(self, atoms: Iterable[Any]) -> None:
        resumed: dict[int, list[Any]] = {}
        for var in atoms:
            value = None if isinstance(var, Literal) else self._env[var]
            if isinstance(value, Landed):
                _require_single(value)
                leaves = resumed.setdefault(id(value.array), []) or value.leaves()
                resumed[id(value.array)] = leaves
                self._env[var] = leaves[value.leaf]

    # -- barriers -------------------------------------------------------------------------------------

    def _after(self, position: int, tokens: Sequence[Any]) -> None:
        """What follows ``position``, up to the next start or done, waits for ``tokens``."""
        known = [v for v in self._region.needed_after(position) if v in self._env]
        self._tie(known, tokens)

    def _tie(self, variables: Iterable[Any], tokens: Iterable[Any]) -> None:
        tokens = [v for v in tokens if not isinstance(self._env[v], Landed)]
        variables = [v for v in variables if not isinstance(self._env[v], Landed)]
        tied = list(dict.fromkeys((*variables, *tokens)))
        if not tokens or len(tied) < 2:
            return
        values = iter(tie([self._env[v] for v in tied]))
        for var in tied:
            if not is_ref(var):
                self._env[var] = next(values)


def _require_single(landed: Landed) -> None:
    if landed.stacked:
        raise InFlightMovedError(
            "a stack of futures that a scan gave is used by something else than a scan over it; its futures would be "
            "moved while their operations run"
        )


def _tokens(atoms: Iterable[Any]) -> list[Any]:
    """Variables that stand for the moment at which an equation happens: a future's semaphores; else a Ref or array."""
    variables = [v for v in atoms if not isinstance(v, Literal) and not is_dropped(v)]
    handles = [v for v in variables if is_handle(v.aval)]
    if handles:
        return handles
    refs = [v for v in variables if is_ref(v)]
    return refs[:1] or [v for v in variables if not is_in_flight(v.aval)][:1]
