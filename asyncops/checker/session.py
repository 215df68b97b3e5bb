"""``asyncops.check``: traces a function, runs it on every device and path, and applies the rules."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import time
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import jax

from asyncops.checker import blocks, events, findings, footprints, loops, paths, program, recording, tracking
from asyncops.checker.analysis import Analysis, Finding, name_of
from asyncops.checker.cores import are_independent, most_cores, number_of
from asyncops.checker.devices import ProgramInterpreter, Topology
from asyncops.checker.events import Location
from asyncops.checker.memory import Cells, Memory
from asyncops.checker.operations import findings_of_operations
from asyncops.checker.report import KernelSummary, Report
from asyncops.checker.skeleton import COUNT, Compiler, OutOfBudget, Place, State, Unmodelled, bodies_of
from asyncops.checker.tables import COUNTER
from stateful import higher_order as ho
from stateful import terms
from stateful._jax import chips, jaxprs
from stateful.errors import InvalidArgumentError, UnmodelledError
from stateful.terms import Conditions

MOST_COMBINATIONS = 64
DRAWN = 20_000  # events of one core, in a run that is recorded to be looked at
MOST_WORK = 200_000
"""Work for following conditions on unknown values (see :class:`~asyncops.checker.paths.Patience`)."""
WORK_TO_DECIDE = MOST_WORK // 4
"""Work after that in which values are still looked for."""
MOST_THREADS = 128  # cores of all devices that are followed together
MOST_MEETINGS = 4  # pairs of cores that are looked at before all of them are
LARGEST_ENTRY = 16
"""A finding rests on small values of what is read from memory: flags, counts, first indices. Where only larger ones
show it (a length, say), no caller may pass them, since the arrays could not hold so much: then it is said which."""
LONGEST_RERUN = 20_000
"""Events up to which the run that a suspect's values make is followed from its start."""


@dataclass
class Run:
    """One path of one device."""

    trace: recording.Trace
    conditions: Conditions
    narrowed: list[str]


def check(
    fn: Any, *args: Any, values: bool = False, calls: int = 1, target: str | None = None, requires: Any = None
) -> Report:
    """Checks every kernel in a program, and the program around them.

    Args:
      fn: anything ``jax.make_jaxpr`` can trace; kernels may be under ``jit``, ``shard_map``, ``scan``, ...
      args: example arguments, arrays or ``jax.ShapeDtypeStruct``. They are shapes, unless ``values``.
      values: rely on concrete integer and boolean arguments being what they are.
      calls: how many times in a row the whole program runs.
      target: the chip ("v5e", "v6e", ...) for kernels that ask which one they run on.
      requires: a function of the same arguments that returns what the kernel's contract promises of the integer ones,
        such as ``lambda x, n: n >= 1`` (see :mod:`asyncops.checker.contracts`).

    Returns:
      A :class:`Report`; ``report.verdict`` is "findings", "unknown" or "clean".

    Raises:
      InvalidArgumentError: ``calls`` is not a positive integer, or ``target`` is no chip.
    """
    started = time.perf_counter()
    closed = _opened(fn, args, calls, target)
    contract = None if requires is None else (requires, jax.tree.structure(args))
    return check_jaxpr(
        closed, jax.tree.leaves(args), values=values, calls=calls, started=started, contract=contract
    )


def record_run(
    fn: Any, *args: Any, values: bool = False, calls: int = 1, target: str | None = None, requires: Any = None
) -> events.Program:
    """One run of the kernels in a program: of the paths tried, one on which the most happens. Arguments as for
    :func:`check`.

    Raises:
      InvalidArgumentError: there is no kernel in the function.
      UnmodelledError: no run could be followed to its end; the message says what was met, and where.
    """
    closed = _opened(fn, args, calls, target)
    contract = None if requires is None else (requires, jax.tree.structure(args))
    session = _Session(closed, jax.tree.leaves(args), values, calls, contract)
    if not has_kernels(closed.jaxpr):
        raise InvalidArgumentError(f"fn: there is no Pallas kernel in {getattr(fn, '__name__', fn)}")
    program = session.fullest_run()
    if program is None:
        reasons = "; ".join(session.unknowns) or "its conditions contradict each other"
        raise UnmodelledError(
            f"no run could be followed to its end, or within {DRAWN} events a core ({reasons}); try smaller shapes"
        )
    return program


def _opened(fn: Any, args: tuple[Any, ...], calls: int, target: str | None) -> Any:
    """The function traced, with its inner jaxprs in one form."""
    if not isinstance(calls, int) or calls < 1:
        raise InvalidArgumentError(f"calls must be a positive integer, got {calls!r}")
    if target is not None and target not in chips.KINDS:
        raise InvalidArgumentError(f"target must be one of {', '.join(chips.KINDS)}, got {target!r}")
    with contextlib.nullcontext() if target is None else chips.pretend(target):
        try:
            return jaxprs.open_jaxpr(jax.make_jaxpr(fn)(*args))
        except RecursionError:
            raise UnmodelledError(
                "fn: is nested too deeply to be traced; use a loop, or raise sys.setrecursionlimit"
            ) from None


def check_jaxpr(
    closed: Any, args: Sequence[Any], *, values: bool, calls: int, started: float, contract: Any = None
) -> Report:
    """Checks an opened jaxpr. ``contract``: ``requires`` and the tree of its arguments."""
    try:
        session = _Session(closed, args, values, calls, contract)
        session.run()
        if session.devices > 1 and calls == 1 and not session.seen and not session.unknowns:
            session.notes = _only_repeated(closed, args, values, contract)
        return session.report(time.perf_counter() - started)
    except RecursionError:
        return Report(unknowns=("the program is nested too deeply to be followed",))


def _only_repeated(closed: Any, args: Sequence[Any], values: bool, contract: Any) -> list[findings.Seen]:
    """What a second run of the whole program right after the first would show: notes, not findings."""
    twice = _Session(closed, args, values, 2, contract)
    twice.run()
    return [dataclasses.replace(seen, finding=_as_note(seen.finding)) for seen in twice.seen]


def _as_note(finding: Finding) -> Finding:
    message = f"if the program runs twice in a row: {finding.message}"
    return dataclasses.replace(finding, message=message, severity="info")


class _Session:
    """One check: the runs of every device and path, and what they show."""

    def __init__(self, closed: Any, args: Sequence[Any], values: bool, calls: int, contract: Any = None):
        self.requires, self.structure = contract or (None, None)
        self.closed, self.args, self.values, self.calls = closed, args, values, calls
        self.compiler, self.memory = Compiler(), Memory()
        self.devices, self.cores = device_count(closed.jaxpr), most_cores(closed.jaxpr)
        self.live: dict[int, set[int]] = {}
        blocks.live_results(closed.jaxpr, [True] * len(closed.jaxpr.outvars), self.live)
        self.unknowns: dict[str, None] = {}
        self.needs_steps = False
        self.assumptions: dict[str, None] = {}
        self.seen: list[findings.Seen] = []
        self.notes: list[findings.Seen] = []
        self.events = 0
        self.kernels: dict[str, int] = {}
        self.footprints: dict[Any, footprints.Footprint] = {}
        self.stations_of: dict[int, Any] = {}
        self.decided: set[Any] = set()
        self.undecided: dict[Any, str] = {}
        self.patience = paths.Patience(MOST_WORK)

    def run(self) -> None:
        """The kernels, then the program around them."""
        if has_kernels(self.closed.jaxpr):
            self._run_kernels()
            self._look_around()
        self.seen += findings_of_operations(self.closed.jaxpr)

    def _run_kernels(self) -> None:
        """Every device and path, then the rules on every combination."""
        if self.devices == 1 and self.cores == 1:
            self._run_forking()
            self._run_blocks()
            if self._is_open() and not self.seen:
                self._run_steps()
            return
        if self.devices == 1 and are_independent(self.closed.jaxpr) and self._run_apart():
            return
        self._run_together([(d, c) for d in range(self.devices) for c in range(self.cores)])

    def _is_open(self) -> bool:
        """True where something was not followed or decided; what the program around kernels decides is not open."""
        return bool(self.unknowns) or any(key[0] != "dropped" for key in self.undecided)

    def _settle(self) -> None:
        """Forgets what was not decided: it is decided otherwise."""
        self.undecided = {key: why for key, why in self.undecided.items() if key[0] == "dropped"}

    def _run_steps(self) -> None:
        """Every path step by step, where that can be done: what loops left open is decided then."""
        before = dict(self.unknowns)
        self.unknowns.clear()
        runs, is_complete = self._paths(0, most=16, limit=60)
        if is_complete and runs:
            for run in runs:
                self._analyse((run,))
        if is_complete and not self.unknowns:
            self._settle()
        else:
            self.unknowns = before if not is_complete else {**before, **self.unknowns}

    def _run_apart(self) -> bool:
        """Cores that do not speak to each other: one run for all, or one for each where which it is decides too much;
        then those that touch common memory, step by step. True if that decides."""
        found = self._footprints([None])
        if found is None:
            found = self._footprints(range(self.cores))
        if found is None:
            return bool(self.seen)
        self._run_blocks()
        before = len(self.seen)
        for meeting in found[:MOST_MEETINGS]:
            self._run_together([(0, core) for core in meeting.cores])
        return not found or len(self.seen) > before

    def _footprints(self, cores: Iterable[int | None]) -> list[footprints.Meeting] | None:
        """Where cores may touch common memory; None where a run could not be followed or decided."""
        self.footprints.clear()
        for core in cores:
            self._run_forking(core)
            if self._is_open():
                self.unknowns.clear()
                self._settle()
                return None
        return footprints.meetings(list(self.footprints.values()))

    def _run_together(self, threads: list[tuple[int, int]]) -> None:
        """These cores of these devices, step by step, on all combinations of their paths."""
        if len(threads) > MOST_THREADS:
            self.unknowns[f"{len(threads)} cores that speak to each other are too many to be followed"] = None
            return
        runs: list[list[Run]] = []
        for device, core in threads:
            runs.append(self._paths(device, core)[0])
            if not runs[-1]:
                return  # nothing to combine the others' with
        for combination in self._combinations(runs):
            self._analyse(combination)

    def _look_around(self) -> None:
        """What becomes of the copies that kernels leave in flight."""
        ends = {key[1] for key in (*self.undecided, *self.decided) if key[0] == "dropped"}
        is_known = self.devices == 1 and not self.unknowns
        stuck = frozenset(
            s.finding.site.location for s in self.seen if s.finding.code in ("AO102", "AO103", "AO303")
        )
        follow = functools.partial(program.program_facts, self.closed, ends if is_known else None, stuck)
        facts = follow()
        if not facts.is_complete:
            self.unknowns["not every path of the program around the kernels was followed"] = None
        for seen in findings.findings_in_program(facts, follow):
            self.seen.append(seen)
            if seen.finding.code in ("AO501", "AO502"):
                for _, line in seen.finding.subjects:  # type: ignore[misc]
                    self.undecided.pop(("dropped", line), None)

        if facts.is_complete:
            self._trust_caller(facts)

    def _trust_caller(self, facts: program.ProgramFacts) -> None:
        """Copies whose futures the program returns are its caller's to wait for."""
        dropped = {d.flight.line for d in facts.dropped}
        for flight in facts.returned:
            where = f" (started at {flight.line})" if flight.line else ""
            self.assumptions[
                f"the caller waits for the copy that kernel {flight.call.name} leaves in flight{where}"
            ] = None
            if flight.line not in dropped:
                self.undecided.pop(("dropped", flight.line), None)

    # -- one device: every path, loops to their fixpoint --

    def _run_forking(self, core: int | None = None) -> None:
        """One core, or any core of a mesh where ``core`` is None."""
        policy = loops.ForkPolicy(patience=self.patience)
        topology = Topology(policy)
        kind = tracking.Tracker if self.cores == 1 else footprints.FootprintTracker
        tracker = kind(self.memory, policy, topology)
        topology.machine, tracker.is_alone = tracker, self.devices == self.cores == 1
        run = loops.ForkingInterpreter(policy, tracker, self.memory, self.compiler)
        run.cores_are_symbols = self.cores > 1 and core is None
        self._set_up(run)
        states = [State(Place(0, slot=core or 0), Cells(), Conditions(), tracking.Flight())]
        try:
            for _ in range(self.calls):
                states = [s for start in states for s in self._run_program(run, start)]
            for state in states:
                tracker.end(state)
        except (Unmodelled, OutOfBudget, terms.TermTooLargeError) as e:
            self.unknowns[str(e) or "a scalar expression grew too large to be followed"] = None
        except RecursionError:
            self.unknowns["control flow is nested too deeply to be followed"] = None
        self.events += tracker.events
        self.assumptions.update(tracker.assumptions)
        self.unknowns.update(tracker.doubts)
        self.needs_steps |= tracker.needs_steps
        self.kernels.update(dict.fromkeys(run.kernel_names, 0))
        self.stations_of = run.stations_of
        if isinstance(tracker, footprints.FootprintTracker):
            self.footprints.update({(core, *key): f for key, f in tracker.footprints.items()})
        for suspect in tracker.suspects:
            self._decide(suspect)
        tracker.suspects.clear()

    def _set_up(self, run: ProgramInterpreter) -> None:
        run.values_known, run.live_results = self.values, self.live
        run.requires, run.structure = self.requires, self.structure

    def _run_program(self, run: ProgramInterpreter, state: State) -> list[State]:
        arguments = run.arguments(self.closed, list(self.args), state)
        return [after for _, after in run.run(self.closed, arguments, state)]

    def _decide(self, suspect: tracking.Suspect) -> None:
        """The rules' word on something that looked wrong."""
        if suspect.key in self.decided:
            return
        sensible, doubted = self._without_negatives(suspect.conditions)
        if sensible is None:
            self.assumptions[doubted] = None
            return
        model = terms.find_model(sensible, budget=2000 if self.patience.left > -WORK_TO_DECIDE else 1)
        if model is None:
            self.undecided.setdefault(
                suspect.key, f"{_text(suspect)} depends on values that could be neither found nor excluded"
            )
            return
        analysis = self._rerun(model, recording.MAX_EVENTS if suspect.is_weakened else LONGEST_RERUN)
        if analysis is None and suspect.is_weakened:
            self.undecided.setdefault(
                suspect.key, f"{_text(suspect)} could not be decided: a run from the start would be too long"
            )
            return
        analysis = analysis or self._as_seen(suspect, model)
        found = findings.findings_of(analysis)
        if found and self._largest_read(model) > LARGEST_ENTRY:
            self.undecided[suspect.key] = _would_follow(found[0].finding, model)
        elif found:
            self.seen += found
            self.decided.add(suspect.key)
            self.undecided.pop(suspect.key, None)
        elif analysis.doubtful_races:
            self.undecided.setdefault(suspect.key, _doubt(analysis))
        elif analysis.promises:
            self.assumptions.update(dict.fromkeys(analysis.promises))
        else:
            self.undecided.setdefault(suspect.key, f"{_text(suspect)} could not be decided")

    def _as_seen(self, suspect: tracking.Suspect, model: Any) -> Analysis:
        """The events that led to a suspect, where running them from the start would take too long."""
        trace = suspect.trace()
        return Analysis(recording.finish([trace], [model]), [trace], 1, model)

    def _rerun(self, model: Any, most_events: int) -> Analysis | None:
        """The run that the program makes with these values: what was assumed on the way to a suspect may have been
        joined with other paths, a run is one path. None where it is long."""
        counters = {s: v for s, v in model.items() if s.text.startswith(COUNTER)}
        given = Conditions()
        for s, value in model.items():
            term = terms.substitute(terms.Linear(((s, 1),), 0), counters)
            given = given.assume(terms.eq(term, value)) or given
        try:
            numbers = (number_of(s, model) for s in self.stations_of.values())
            core = max(numbers, default=0) if self.cores > 1 else 0
            run = self._one(0, core, paths.PathPolicy(limit=most_events, model=model), given, most_events)
        except (Unmodelled, OutOfBudget, terms.TermTooLargeError, paths.PathTooLong, paths.PathExcluded):
            return None
        whole = _model_of((run,))
        if whole is None:
            return None
        return Analysis(recording.finish([run.trace], [whole]), [run.trace], 1, whole)

    def _without_negatives(self, conditions: Conditions) -> tuple[Conditions | None, str]:
        """The conditions where what comes from outside is not negative: no finding rests on a negative length or index.

        None where they say it is; then also what is taken for granted.
        """
        for fact in list(conditions.facts()):
            for s in sorted(terms.symbols(fact), key=lambda s: s.text):
                narrowed = conditions.assume(terms.le(0, terms.Linear(((s, 1),), 0)))
                if narrowed is None:
                    return None, f"{s.arguments[0] if s.arguments else s} is never negative"
                conditions = narrowed
        return conditions, ""

    # -- what depends on which step sees which block --

    def _run_blocks(self) -> None:
        if not self.needs_steps and not blocks.needs_steps(self.closed.jaxpr):
            return
        runs, is_complete = self._paths(0, most=16, limit=60)
        if is_complete:
            for run in runs:
                self._analyse((run,), only=blocks.CODES)

    # -- several devices: paths on each, combined --

    def _paths(
        self,
        device: int,
        slot: int = 0,
        most: int = 64,
        limit: int = 100,
        most_events: int = recording.MAX_EVENTS,
    ) -> tuple[list[Run], bool]:
        """The runs of a core of a device, and whether they are all there are."""
        patience = self.patience.share(self.devices - device)
        try:
            run = lambda policy: self._one(device, slot, policy, None, most_events)  # noqa: E731
            runs, complete = paths.explore_paths(run, most, limit, patience)
        except (Unmodelled, OutOfBudget, terms.TermTooLargeError) as e:
            self.unknowns[str(e) or "a scalar expression grew too large to be followed"] = None
            return [], False
        finally:
            self.patience.take_back(patience)
        if not complete:
            self.unknowns["not every path through conditions on unknown values was followed step by step"] = (
                None
            )
        return runs, complete

    def _one(
        self, device: int, slot: int, policy: paths.PathPolicy, given: Conditions | None = None,
        most_events: int = recording.MAX_EVENTS,
    ) -> Run:  # fmt: skip
        topology = Topology(policy)
        recorder = recording.Recorder(self.memory, policy, topology)
        recorder.events_left = most_events
        topology.machine, recorder.is_alone = recorder, self.devices == self.cores == 1
        run = ProgramInterpreter(policy, recorder, self.memory, self.compiler)
        self._set_up(run)
        trace = recording.Trace(device, slot)
        state = State(Place(device, slot=slot), Cells(), given or Conditions(), trace)
        for _ in range(self.calls):
            arguments = run.arguments(self.closed, list(self.args), state)
            outcomes = run.run(self.closed, arguments, state)
            if not outcomes:
                break
            state = outcomes[0][1]
        self.assumptions.update(recorder.assumptions)
        return Run(trace, state.path, policy.narrowed)

    def _combinations(self, per_device: list[list[Run]]) -> Iterable[tuple[Run, ...]]:
        if math.prod(len(runs) for runs in per_device) > MOST_COMBINATIONS:
            self.unknowns["not every combination of paths on the devices was followed"] = None
            longest = max(len(runs) for runs in per_device)
            yield from (tuple(runs[min(i, len(runs) - 1)] for runs in per_device) for i in range(longest))
            return
        stack: list[tuple[Run, ...]] = [()]
        for runs in per_device:
            stack = [(*chosen, run) for chosen in stack for run in runs]
        yield from stack

    def fullest_run(self) -> events.Program | None:
        """Of a few combinations of the devices' paths, the one that can happen in which the most happens."""
        per_device = [
            self._paths(d, c, most=8, limit=60, most_events=DRAWN)[0]
            for d in range(self.devices)
            for c in range(self.cores)
        ]
        if any(not runs for runs in per_device):
            return None
        for runs in per_device:
            runs.sort(key=lambda run: -len(run.trace.entries))
        for combination in islice(self._combinations(per_device), MOST_COMBINATIONS):
            model = _model_of(combination)
            if model is not None:
                return recording.finish([run.trace for run in combination], [model] * len(combination))
        return None

    def _analyse(self, combination: tuple[Run, ...], only: Container[str] | None = None) -> None:
        model = _model_of(combination)
        if model is None:
            return
        traces = [run.trace for run in combination]
        finished = recording.finish(traces, [model] * len(traces))
        self.events += sum(len(core.events) for core in finished.cores)
        for trace in traces:
            for entry in trace.entries:
                if entry.kind == "enter":
                    self.kernels.setdefault(entry.what.name, 0)
        analysis = Analysis(finished, traces, self.devices, model)
        found = [s for s in findings.findings_of(analysis) if only is None or s.finding.code in only]
        if found and self._largest_read(model) > LARGEST_ENTRY:
            self.unknowns[_would_follow(found[0].finding, model)] = None
        else:
            self.seen += found
        self.assumptions.update(dict.fromkeys(analysis.promises if only is None else ()))
        if only is None and analysis.doubtful_races:
            self.unknowns[_doubt(analysis)] = None

    def _largest_read(self, model: Any) -> int:
        """The largest value of something that is read from memory; counts of one core are in their range anyway."""
        other = (COUNTER, COUNT) if self.devices == self.cores == 1 else (COUNTER,)
        read = (v for s, v in model.items() if s.operation == "element" and not s.text.startswith(other))
        return max(read, default=0)

    def report(self, seconds: float) -> Report:
        """The report of what was seen."""
        found = [*findings.diagnose(self.seen), *findings.diagnose(self.notes)]
        self.unknowns.update(dict.fromkeys(self.undecided.values()))
        found.sort(key=lambda d: (d.severity != "error", d.severity != "warning", str(d.location), d.code))
        kernels = tuple(KernelSummary(name, self.events, self.devices, seconds) for name in self.kernels)
        return Report(tuple(found), tuple(self.assumptions), tuple(self.unknowns), kernels)


def _model_of(combination: Iterable[Run]) -> Any:
    """Values with which the paths are all taken; None if there are none."""
    joint: Conditions | None = Conditions()
    for run in combination:
        for fact in run.conditions.facts():
            joint = joint.assume(fact) if joint is not None else None
    return terms.find_model(joint) if joint is not None else None


def _doubt(analysis: Analysis) -> str:
    """Why it is not known whether two uses race."""
    race = analysis.doubtful_races[0]
    places = " and ".join(str(use.event.site.location) for use in (race.first, race.second))
    first, second = name_of(race.first.box), name_of(race.second.box)
    return f"whether {first} and {second} share memory was not decided ({places})"


def _would_follow(finding: Finding, model: Any) -> str:
    """A finding that rests on values which no caller may pass."""
    values = ", ".join(f"{s} = {v}" for s, v in sorted(model.items(), key=lambda item: str(item[0])))
    return (
        f"{finding.code} at {finding.site.location} would follow from {values}: say in requires= whether these are "
        "possible, or give them and values=True"
    )


_WHAT = {
    "race": "whether {} may touch one place at the same time",
    "stuck": "whether the wait at {} always returns",
    "dropped": "whether the copy started at {} is always waited for",
    "late": "whether what the copy started at {} uses outlives it",
    "left": "whether a semaphore can be left with a count at {}",
}


def _text(suspect: tracking.Suspect) -> str:
    """What could not be decided, in words."""
    kind, *rest = suspect.key
    places = " and ".join(str(x) for x in rest if isinstance(x, Location)) or "the end of the kernel"
    return _WHAT.get(kind, f"whether {kind} is the case at {{}}").format(places)


def device_count(jaxpr: Any) -> int:
    """How many devices the largest mesh in the program has."""
    most = 1
    for eqn in jaxpr.eqns:
        form = ho.normal_form(eqn)
        if form is None:
            continue
        if isinstance(form, ho.ShardMap):
            most = max(most, math.prod(form.mesh.values()))
        if not isinstance(form, ho.Kernel):
            most = max([most, *(device_count(b.jaxpr) for b in bodies_of(form))])
    return most


def has_kernels(jaxpr: Any) -> bool:
    """True where the program holds a kernel call, however deep."""
    for eqn in jaxpr.eqns:
        form = ho.normal_form(eqn)
        if isinstance(form, ho.Kernel) or (
            form is not None and any(has_kernels(b.jaxpr) for b in bodies_of(form))
        ):
            return True
    return False
