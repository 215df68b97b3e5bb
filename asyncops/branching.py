"""Conditionals that futures leave: what leaves is an array, because what a conditional returns may be copied.

Where every branch starts the same operation, the branches give what to send, and the start comes behind them. Else each
branch finishes its future, and what arrived leaves (`asyncops.landing`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from asyncops import ops
from asyncops.landing import Held, as_landed, choose, finish, shifted
from asyncops.placing import in_hbm
from stateful.higher_order import Body, Branch

Run = Callable[[Any, Sequence[Any], Sequence[Any]], list[Any]]


def run_branches(form: Branch, operands: Sequence[Any], futures: Sequence[Held], run: Run) -> list[Any]:
    """Runs a conditional; ``futures`` are those among its results, ``run`` evaluates bodies in order.

    Returns:
        The results; `asyncops.landing.Landed` in the place of futures that were finished early.
    """
    index, *values = operands
    started = [held for held in futures if _starts(form, held)]
    finished = [held for held in futures if held not in started]
    bodies = [_Branch(body, started) for body in form.branches]

    def branch(body: _Branch) -> Callable[[], list[Any]]:
        return lambda: body.run(values, finished, run)

    results = choose(index, [branch(body) for body in bodies])
    return _unpack(results, started, finished, bodies[0].origins)


def _start_of(body: Body, held: Held) -> Any:
    """The start, in the branch itself, of the future among its results; None if it is made otherwise."""
    handle = body.outputs[held.first + 2]
    for eqn in body.jaxpr.eqns:
        if eqn.primitive is ops.start_p and any(v is handle for v in eqn.outvars):
            return eqn
    return None


def _starts(form: Branch, held: Held) -> bool:
    return all(_start_of(body, held) is not None for body in form.branches)


class _Branch:
    """A branch without the starts of ``started``, which gives what they send in place of their futures."""

    def __init__(self, body: Body, started: Sequence[Held]) -> None:
        starts = {held.first: _start_of(body, held) for held in started}
        self.origins = [eqn.params["origin"] for eqn in starts.values()]
        skipped = {held.first + k for held in started for k in (1, 2)}
        outputs = [
            starts[n].invars[0] if n in starts else atom
            for n, atom in enumerate(body.outputs)
            if n not in skipped
        ]
        left_out = {id(eqn) for eqn in starts.values()}
        jaxpr = body.jaxpr
        eqns = [eqn for eqn in jaxpr.eqns if id(eqn) not in left_out]
        self._consts = body.consts
        self._jaxpr = SimpleNamespace(
            constvars=jaxpr.constvars, invars=jaxpr.invars, eqns=eqns, outvars=outputs
        )
        self._started = started

    def run(self, values: Sequence[Any], finished: Sequence[Held], run: Run) -> list[Any]:
        """The branch's results, futures of ``finished`` as what arrived."""
        n = 0 if self._consts else len(self._jaxpr.constvars)
        results = run(self._jaxpr, self._consts or values[:n], values[n:])
        return finish(results, shifted(finished, self._started))


def _unpack(
    results: Sequence[Any], started: Sequence[Held], finished: Sequence[Held], origins: Any
) -> list[Any]:
    """The conditional's results at their places again, with the operations of ``started`` started now."""
    unpacked: list[Any] = []
    starting = {held.first: (held, origin) for held, origin in zip(started, origins, strict=True)}
    landing = {held.first: held for held in finished}
    for value in results:
        n = len(unpacked)
        if n in starting:
            held, origin = starting[n]
            leaves = ops.start(in_hbm(value), held.transfer, origin, held.batch, ordered=True)
            unpacked += held.turn(leaves)
        elif n in landing:
            unpacked += as_landed([value], [replace(landing[n], first=0)])
        else:
            unpacked.append(value)
    return unpacked
