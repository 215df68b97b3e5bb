"""Verifying compiled programs: is the overlap there, and does nothing touch what is in flight."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

import jax

from asyncops.checker.report import Diagnostic, KernelSummary, Report
from asyncops.compiled import rules
from asyncops.compiled.compiling import origin_of
from asyncops.compiled.facts import Trace
from asyncops.compiled.findings import Facts, Finding
from asyncops.compiled.following import follow
from asyncops.compiled.hlo import Module
from asyncops.compiled.parser import parse_hlo
from asyncops.compiled.schedule import ScheduleReport, schedule_report
from stateful.errors import InvalidArgumentError

_ORDER = {"error": 0, "warning": 1, "info": 2}


@dataclass(frozen=True)
class CompiledReport(Report):
    """A `Report` with the schedules of the modules that were checked, findings or not."""

    schedules: tuple[ScheduleReport, ...] = field(default=(), compare=False)

    @property
    def schedule(self) -> ScheduleReport:
        """The schedule of the first (usually the only) module."""
        return self.schedules[0]


def check_compiled(compiled: jax.stages.Compiled | str) -> CompiledReport:
    """What XLA made of the asynchronous operations of a program, and whether it is still right.

    Args:
      compiled: what `compile_for` returned, any other `jax.stages.Compiled`, or HLO text (of ``.as_text()``
        or of
        ``--xla_dump_to``). Text is data: nothing in it is run, no path in it is opened. Of a program from
        `compile_for` it is also known what the compiler was given, so that a start which it removed has a
        line.

    Returns:
      A `Report` with ``.schedule``, which also without findings shows what overlaps each copy.

    Raises:
      HloError: the text is no HLO module, or cut before its entry computation.
      InvalidArgumentError: ``compiled`` is something else.
    """
    if isinstance(compiled, jax.stages.Compiled):
        text, origin = compiled.as_text(), origin_of(compiled)
    elif isinstance(compiled, str):
        text, origin = compiled, None
    else:
        raise InvalidArgumentError(
            f"compiled is a jax.stages.Compiled (from compile_for or .lower().compile()) or HLO text, "
            f"got {type(compiled).__name__}"
        )
    before = follow(parse_hlo(origin)[0]) if origin is not None else None
    return _report([_check(module, before) for module in parse_hlo(text or "")])


def _check(module: Module, origin: Trace | None) -> tuple[Facts, float]:
    begin = time.perf_counter()
    facts = Facts(follow(module), origin)
    return facts, time.perf_counter() - begin


def _report(checked: list[tuple[Facts, float]]) -> CompiledReport:
    diagnostics: list[Diagnostic] = []
    unknowns: list[str] = []
    assumptions: list[str] = []
    for facts, _ in checked:
        diagnostics += _defects([f for rule in rules.ALL for f in rule.find(facts)])
        unknowns += _unknowns(facts)
        assumptions += facts.trace.assumptions
    kernels = tuple(
        KernelSummary(facts.module.name, len(facts.trace.log), _devices(facts.module), seconds)
        for facts, seconds in checked
    )
    return CompiledReport(
        tuple(sorted(diagnostics, key=_rank)),
        tuple(dict.fromkeys(assumptions)),
        tuple(dict.fromkeys(unknowns)),
        kernels,
        tuple(schedule_report(facts) for facts, _ in checked),
    )


def _defects(findings: list[Finding]) -> list[Diagnostic]:
    """One primary diagnostic for each defect: further errors about the same copy hang below the first."""
    primary: dict[object, Diagnostic] = {}
    for finding in findings:
        diagnostic = finding.diagnostic
        key = finding.subject if diagnostic.severity == "error" and finding.subject is not None else finding
        first = primary.get(key)
        primary[key] = (
            diagnostic
            if first is None
            else first.with_secondary(replace(diagnostic, secondary=()), *diagnostic.secondary)
        )
    return list(primary.values())


def _rank(diagnostic: Diagnostic) -> tuple[int, str, int]:
    place = diagnostic.location
    return (_ORDER[diagnostic.severity], place.file if place else "", place.line if place else 0)


def _unknowns(facts: Facts) -> list[str]:
    module = facts.module
    notes = [*module.notes, *facts.trace.unknowns]
    if not module.is_scheduled and facts.trace.flights:
        notes.append(
            f"module {module.name} is not scheduled (no is_scheduled=true): the order of its instructions "
            f"is not the "
            "one in which they run; give the text after optimization"
        )
    return notes


def _devices(module: Module) -> int:
    text = module.attributes.get("num_partitions", "1")
    return int(text) if text.isdecimal() and len(text) < 10 else 1
