"""Whether a concrete program can go wrong: every schedule where that is possible, else many random ones."""

from __future__ import annotations

import random
from typing import Literal

from asyncops.checker.events import Program
from asyncops.explorer.conflicts import find_conflicts
from asyncops.explorer.exploration import explore
from asyncops.explorer.observing import Observer
from asyncops.explorer.steps import build_machine

Judgement = Literal["wrong", "right", "undecided"]
WALKS = 40


def judge(program: Program, *, limit: int = 3000, walks: int = WALKS) -> Judgement:
    """ "wrong" if some schedule shows a finding, "right" if none of all does, "undecided" if too many are left.

    Args:
      program: the program.
      limit: states that the exploration may visit.
      walks: random schedules to try where it could not visit all.
    """
    for seed in range(walks // 4):
        if _walk(program, seed):
            return "wrong"
    found = explore(program, limit=limit)
    if found.findings:
        return "wrong"
    if found.complete:
        return "right"
    return "wrong" if any(_walk(program, seed) for seed in range(walks // 4, walks)) else "undecided"


def _walk(program: Program, seed: int) -> bool:
    """Whether one random schedule shows a finding. Some prefer cores to copies, or one core to the others."""
    choose = random.Random(seed)
    machine = build_machine(program)
    observer = Observer(machine, find_conflicts(machine), lambda state: ())
    weights = [choose.choice((1, 1, 20)) for _ in machine.steps]
    cores = [choose.choice((1, 1, 50)) for _ in program.cores]
    state = machine.initial
    while True:
        enabled = machine.enabled(state)
        observer.state(state, enabled)
        if not enabled:
            break
        steps = [machine.steps[n].point for n in enabled]
        odds = [weights[n] if q.half else weights[n] * cores[q.core] for n, q in zip(enabled, steps)]
        n = choose.choices(enabled, odds)[0]
        observer.step(state, n)
        state = machine.execute(state, n)
    kinds = (observer.races, observer.deadlocks, observer.leaks, observer.unfinished, observer.strays)
    return any(kind.in_order() for kind in kinds)
