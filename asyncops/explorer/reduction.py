"""Partial-order reduction: which of the enabled steps are enough to explore.

In each state the explorer follows only a *persistent* set of the enabled steps: a set P such that whatever is
executed without touching P, no step of it conflicts with a step of P. (P. Godefroid, "Partial-Order Methods
for the Verification of Concurrent Systems", 1996, chapter 4.)

Why nothing is lost. Steps that do not conflict (``conflicts.py``) and are both enabled stay enabled and
commute. The state graph has no cycles. By induction on the steps that are left, for every schedule w from a
state s on:

* *w ends where nothing is enabled.* It contains a step of P, else that step would still be enabled at the
  end. All before the first one, p, are outside P, so p commutes to the front: an equivalent schedule goes
  through s -p->, which is explored. So every stuck or final state is visited, and each schedule is explored
  up to the order of steps that do not conflict: whatever such swaps leave alone (counts found by a mark, a
  touch outside a lifetime) is seen.
* *w ends where conflicting a and b are both enabled* (a race). If w contains a step of P, its first one
  commutes to the front as above. If not, and a is in P, so is b: else w, b executes a step that conflicts
  with P without P. Then w commutes with both, and both are enabled in s itself. If neither is in P, any p of
  P can be executed first: it conflicts neither with w nor, as w, a and w, b avoid P, with a or b, so both are
  still enabled after p, w.

Visited states are not explored again; without cycles that postpones nothing for ever.
"""

from __future__ import annotations

from functools import cached_property

from asyncops.explorer.steps import Machine, State, as_set, bits


class Reduction:
    """Chooses persistent sets for the states of one machine; ``conflicts`` has one set per step."""

    def __init__(self, machine: Machine, conflicts: tuple[int, ...]) -> None:
        self._machine = machine
        self._conflicts = conflicts

    @cached_property
    def _before(self) -> list[int]:
        return _predecessors(self._machine)

    def choose(self, state: State, enabled: list[int]) -> list[int]:
        """A persistent subset of ``enabled``: a single step if one is found, empty only if ``enabled`` is."""
        for n in enabled:
            if not self._conflicts[n] & ~state.executed:
                return [n]
        best, both = enabled, as_set(enabled)
        for n in sorted(
            enabled, key=lambda n: self._conflicts[n] & both != 0
        ):  # first those that may do alone
            chosen = self._grow(state, enabled, n)
            if len(chosen) < len(best):
                best = chosen
            if len(best) == 1:
                break
        return best

    def _grow(self, state: State, enabled: list[int], first: int) -> list[int]:
        """The smallest persistent set found around ``first``.

        Where a step outside could conflict, something that has to come before it joins the set and so delays
        it.
        """
        chosen, conflicting = 1 << first, self._conflicts[first]
        while dangers := conflicting & self._reachable(state, chosen):
            danger = dangers.bit_length() - 1
            delaying = [n for n in enabled if (self._before[danger] | 1 << danger) >> n & 1]
            if not delaying:  # it is behind a wait whose count may come from anywhere
                return enabled
            chosen |= 1 << delaying[0]
            conflicting |= self._conflicts[delaying[0]]
        return [n for n in enabled if chosen >> n & 1]

    def _reachable(self, state: State, frozen: int) -> int:
        """At least the steps that can be executed from ``state`` while those in ``frozen`` are not.

        What other cores take off a semaphore is ignored, which can only let more be reached.
        """
        steps, following = self._machine.steps, self._machine.following
        executed, counts = state.executed, list(state.counts)
        taken: dict[tuple[int, int], int] = {}
        todo, blocked = [n for n in state.ready if not frozen >> n & 1], list[int]()
        while todo:
            n = todo.pop()
            step = steps[n]
            if step.guard >= 0:
                account = step.point.core, step.guard
                if counts[step.guard] - taken.get(account, 0) < step.needs:
                    blocked.append(n)
                    continue
                taken[account] = taken.get(account, 0) + step.takes
            executed |= 1 << n
            todo += [m for m in following[n] if not steps[m].after & ~executed and not frozen >> m & 1]
            if step.adds:
                for semaphore, amount in step.adds:
                    counts[semaphore] += amount
                todo += blocked
                blocked.clear()
        return executed & ~state.executed


def _predecessors(machine: Machine) -> list[int]:
    """Per step, all steps that come before it in every schedule because of ``after`` alone."""
    before = [step.after for step in machine.steps]
    changed = True
    while changed:  # a barrier may point to higher numbers, so one pass is not always enough
        changed = False
        for n, step in enumerate(machine.steps):
            known = before[n]
            for m in bits(step.after):
                known |= before[m]
            changed |= known != before[n]
            before[n] = known
    return before
