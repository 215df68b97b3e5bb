"""The rewrite behind ``@program_order``: a program, run again with barriers around what it starts and finishes.

A compiler schedules by data dependence, and a start and its done depend on nothing between them. So while a future is
running, barriers tie what is computed to it: after each start or done, the inputs of what follows; before each, the
results of what precedes. The rewrite goes into loops, branches, ``jit``, ``shard_map``, ``remat`` and custom
derivatives; where nothing is in flight it changes nothing.

On the way, loops that carry futures get their two buffers (`asyncops.pairing`), and no future leaves a branch
(`asyncops.branching`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from asyncops.alternating import Alternation
from asyncops.barriers import tie
from asyncops.branching import run_branches
from asyncops.landing import Landed, as_landed, futures_among, held_results
from asyncops.loops import Loop, counting
from asyncops.ops import done_p, stack_p, start_p
from asyncops.pairing import handles_arrays, run_scan, run_while
from asyncops.placing import (
    carried_in_hbm,
    constants_to_place,
    in_hbm,
    movable,
    placed_by_done,
    placed_in_body,
    results_in_hbm,
    to_place,
)
from asyncops.regions import Region, is_dropped, is_ref, touches_futures
from asyncops.sharing import Roots, private, private_starts, shared
from stateful._jax.calls import new_call
from stateful._jax.inflight import is_handle, is_in_flight
from stateful._jax.jaxprs import Literal
from stateful._jax.rewriting import Environment, at_source_of, changed_bodies, retrace
from stateful.errors import InFlightMovedError
from stateful.higher_order import Branch, Scan, ShardMap, While, normal_form, register_call


def order(
    jaxpr: Any,
    consts: Sequence[Any],
    args: Sequence[Any],
    fixed: Sequence[Any] = (),
    copied_back: Sequence[int] = (),
    placed: Iterable[Any] = (),
) -> list[Any]:
    """Runs a jaxpr with barriers around what it starts and finishes.

    Args:
        jaxpr: an open jaxpr, such as the body of a loop.
        consts: values of its constants.
        args: values of its arguments.
        fixed: those of its variables that an enclosing loop holds in every iteration.
        copied_back: positions of the results that need a buffer of their own.
        placed: those of its variables that lie in HBM already (`asyncops.placing`).

    Returns:
        Its results.
    """
    results = _Sequence(jaxpr, consts, args, fixed, placed).run()
    return [private(x) if n in copied_back else x for n, x in enumerate(results)]


def order_branch(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    """The same for a branch: what it gives, the compiler may move."""
    results = order_called(jaxpr, consts, args)
    return [movable(x) if n in results_in_hbm(jaxpr) else x for n, x in enumerate(results)]


def order_called(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    """The same for a body that is called: whoever calls it has placed what it sends."""
    return order(jaxpr, consts, args, placed=(*jaxpr.constvars, *jaxpr.invars))


# The rewrite happens when the program is lowered: derivatives and vmap see the program as it was written, and get an
# order, and buffers for their loops, of their own.
ordered_p = new_call("async_program_order", lambda jaxpr: retrace(jaxpr, order))
register_call(ordered_p, "program_order", "call_jaxpr")


_CALLED = {ShardMap: order, Branch: order_branch}


class _Sequence:
    """One jaxpr, run between barriers."""

    def __init__(
        self,
        jaxpr: Any,
        consts: Sequence[Any],
        args: Sequence[Any],
        fixed: Sequence[Any],
        placed: Iterable[Any],
    ) -> None:
        self._jaxpr = jaxpr
        self._region = Region(jaxpr)
        self._env = Environment(jaxpr, consts, args)
        self._private = private_starts(jaxpr, fixed)
        self._roots = Roots(jaxpr)
        self._placed = {*placed, *placed_by_done(jaxpr)}

    def run(self) -> list[Any]:
        jaxpr = self._jaxpr
        self._after(0, [v for v in (*jaxpr.constvars, *jaxpr.invars) if is_handle(v.aval)])
        for position, eqn in enumerate(jaxpr.eqns):
            if self._is_renaming(eqn):
                self._env.define(eqn, [self._env[v] for v in eqn.invars])
            elif not touches_futures(eqn) or eqn.primitive is ordered_p:
                self._env.run(eqn)
            elif not self._has_landed(eqn):
                self._between_barriers(position, eqn)
        self._resume(jaxpr.outvars)
        behind = self._region.produced_before(len(jaxpr.eqns))
        self._tie(behind, [v for v in jaxpr.outvars if is_handle(v.aval)])
        return [self._env[v] for v in jaxpr.outvars]

    # -- futures that were finished early -------------------------------------------------------------

    def _is_renaming(self, eqn: Any) -> bool:
        """True for what gives the leaves of futures that have landed other names."""
        return eqn.primitive is stack_p and isinstance(self._env[eqn.invars[0]], Landed)

    def _has_landed(self, eqn: Any) -> bool:
        """Defines the result of a done whose future has landed; for any other equation, resumes such futures."""
        first = self._env[eqn.invars[0]] if eqn.invars else None
        if eqn.primitive is done_p and isinstance(first, Landed):
            self._env.define(eqn, [first.array])
            return True
        form = normal_form(eqn)
        scanned = len(form.xs) if isinstance(form, Scan) else 0
        self._resume(eqn.invars[: len(eqn.invars) - scanned])
        return False

    def _resume(self, atoms: Iterable[Any]) -> None:
        leaves: dict[int, list[Any]] = {}
        for var in atoms:
            value = None if isinstance(var, Literal) else self._env[var]
            if isinstance(value, Landed):
                _require_single(value)
                if id(value.array) not in leaves:
                    leaves[id(value.array)] = value.leaves()
                self._env[var] = leaves[id(value.array)][value.leaf]

    # -- equations that start or finish something, or call what does ----------------------------------

    def _between_barriers(self, position: int, eqn: Any) -> None:
        if running := self._region.running_before(position):
            self._tie((*self._region.produced_before(position), *running), _tokens(eqn.invars))
        self._run(eqn)
        if self._region.running_before(position + 1):
            self._after(position + 1, _tokens(eqn.outvars) or _tokens(filter(is_ref, eqn.invars)))

    def _run(self, eqn: Any) -> None:
        form = normal_form(eqn)
        is_loop = isinstance(form, (Scan, While))
        if eqn not in self._private:
            self._place(eqn, constants_to_place(form) if is_loop else to_place(eqn))
        values = [self._env[v] for v in eqn.invars]
        with at_source_of(eqn, [v for v in values if not isinstance(v, Landed)]):
            if is_loop:
                values = carried_in_hbm(values, form)
            if isinstance(form, (Scan, While)) and handles_arrays(form):
                self._env.define(eqn, self._loop(eqn, form, values))
            elif isinstance(form, Branch) and futures_among(eqn.outvars):
                futures = held_results(self._jaxpr, eqn)
                self._env.define(eqn, run_branches(form, values, futures, order_branch))
            elif eqn.primitive is start_p:
                sent = [private(x) for x in values] if eqn in self._private else values
                self._env.run(eqn, operands=sent, ordered=True)
            elif eqn.primitive is done_p:
                self._env.run(eqn, operands=values, ordered=True, placed=eqn.outvars[0] in self._placed)
            else:
                run = self._in_loop(form) if is_loop else _CALLED.get(type(form), order_called)
                self._env.run(eqn, operands=values, **changed_bodies(eqn, run))

    def _place(self, eqn: Any, atoms: Iterable[Any]) -> None:
        """What will be sent gets its place, and is read there from now on."""
        for atom in atoms:
            root = self._roots.of(atom)
            if root is None or root in self._placed:
                continue
            self._placed.add(root)
            value = self._env[root]
            with at_source_of(eqn, [value]):
                placed = in_hbm(value)
                for view in self._roots.views(root):
                    if view in self._env:
                        self._env[view] = placed.reshape(view.aval.shape)

    def _loop(self, eqn: Any, form: Scan | While, values: Sequence[Any]) -> list[Any]:
        carried = len(form.carry)
        known = held_results(self._jaxpr, eqn)
        futures = [held for held in known if held.first < carried]
        twice = shared(self._jaxpr, form, futures)
        if isinstance(form, While) and counting(form) is None:
            twice = twice.apart(form)
            run = functools.partial(self._in_loop(form), copied_back=twice.copied_back)
            return as_landed(Alternation(Loop(form, values, twice, run), futures).run(), futures)
        run = functools.partial(self._in_loop(form), copied_back=twice.copied_back)
        if isinstance(form, While):
            return run_while(form, values, futures, twice, run)
        stacked = [replace(held, first=held.first - carried) for held in known if held.first >= carried]
        return run_scan(form, values, eqn.params["unroll"], futures, stacked, twice, run)

    def _in_loop(self, form: Scan | While) -> Any:
        """How the body of a loop is run."""
        body, consts = (form.jaxpr, form.consts) if isinstance(form, Scan) else (form.body, form.body_consts)
        return functools.partial(order, fixed=body.inputs[: len(consts)], placed=placed_in_body(form))

    # -- barriers -------------------------------------------------------------------------------------

    def _after(self, position: int, tokens: Sequence[Any]) -> None:
        """What follows ``position``, up to the next start or done, waits for ``tokens``."""
        known = [v for v in self._region.needed_after(position) if v in self._env]
        self._tie(known, tokens)

    def _tie(self, variables: Iterable[Any], tokens: Iterable[Any]) -> None:
        """Gives the variables values that come after all of them, and after the tokens."""
        tokens = [v for v in tokens if not isinstance(self._env[v], Landed)]
        others = [v for v in variables if not isinstance(self._env[v], Landed)]
        tied = list(dict.fromkeys((*others, *tokens)))
        if not tokens or len(tied) < 2:
            return
        values = iter(tie([self._env[v] for v in tied]))
        for var in tied:
            if not is_ref(var):
                self._env[var] = next(values)


def _require_single(landed: Landed) -> None:
    if landed.stacked:
        raise InFlightMovedError(
            "a stack of futures that a scan gave is used by something else than a scan over it; that would move what "
            "is in flight"
        )


def _tokens(atoms: Iterable[Any]) -> list[Any]:
    """Variables that stand for the moment of an equation: a future's semaphores; else a Ref, or an array."""
    variables = [v for v in atoms if not isinstance(v, Literal) and not is_dropped(v)]
    handles = [v for v in variables if is_handle(v.aval)]
    if handles:
        return handles
    refs = [v for v in variables if is_ref(v)]
    return refs[:1] or [v for v in variables if not is_in_flight(v.aval)][:1]
