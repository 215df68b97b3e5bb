"""A run as the command line asks for it: options over configuration, the baseline, the exit status."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from asyncops.lint.baseline import DEFAULT_NAME, Baseline, baseline_of, read_baseline, write_baseline
from asyncops.lint.checks import Wanted
from asyncops.lint.configuration import (
    Configuration,
    default_configuration,
    find_configuration,
    read_configuration,
)
from asyncops.lint.discovery import Source, find_sources
from asyncops.lint.fixes.fixing import Fix, certain_fixes, summary
from asyncops.lint.linting import Progress, Settings, lint, silent
from asyncops.lint.overlays import edited
from asyncops.lint.results import LintResult
from asyncops.lint.rulebook import matching_codes
from asyncops.lint.selection import Selection
from stateful.errors import LintUsageError

CACHE_FOLDER = ".asyncops_cache"
CLEAN, FINDINGS, FAILED, UNKNOWN = 0, 1, 2, 3


@dataclass(frozen=True)
class Options:
    """The options of the command line. An empty one leaves the say to the configuration file."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    strict: bool = False
    exit_zero: bool = False
    jobs: int = 1
    no_cache: bool = False
    cache_dir: Path | None = None
    config: Path | None = None
    isolated: bool = False
    baseline: Path | None = None
    write_baseline: bool = False
    prune_baseline: bool = False
    compile: tuple[str, ...] = ()
    timelines: bool = False
    fix: bool = False
    diff: bool = False


@dataclass(frozen=True)
class Session:
    """Options and configuration together. Files that are missing or wrong have been refused."""

    options: Options
    configuration: Configuration
    settings: Settings
    baseline_file: Path | None

    @staticmethod
    def open(options: Options) -> Session:
        """Reads the files that the options name."""
        configuration = _configuration(options)
        file = options.baseline or configuration.baseline
        if file is None and (options.write_baseline or options.prune_baseline):
            file = configuration.root / DEFAULT_NAME
        known = read_baseline(file) if file and not options.write_baseline else Baseline()
        selection = _selection(options, configuration.selection)
        jobs = options.jobs or os.cpu_count() or 1
        topologies = _split(options.compile) or configuration.topologies
        wanted = Wanted(_cache(options, configuration), options.timelines, topologies, configuration.chip)
        settings = Settings(selection, jobs, wanted, known, str(configuration.root))
        return Session(options, configuration, settings, file)

    def lint(self, names: Sequence[str], progress: Progress = silent) -> LintResult:
        """Checks ``names``, else what the configuration lists; writes the baseline if asked to."""
        examples = self.configuration.examples
        wanted = names or self.configuration.targets or tuple(dict.fromkeys(e.file for e in examples))
        if not wanted:
            raise LintUsageError(
                "say what to lint: a file, a folder, a module, or module:function; "
                'or list it in pyproject.toml: [tool.asyncops] targets = ["kernels"]'
            )
        sources = find_sources(wanted, examples)
        result = lint(sources, self.settings, progress)
        if self.options.fix or self.options.diff:
            result = self._fixed(sources, result)
        return self._with_baseline(result)

    def _fixed(self, sources: Sequence[Source], result: LintResult) -> LintResult:
        """The result with the certain cures; with ``fix`` they are written, and what is left is found anew."""
        fixes = certain_fixes(sources, self.settings, result)
        if self.options.fix and fixes:
            for fix in fixes:
                fix.after.write()
            with edited({}):
                result = lint(sources, self.settings)
        return replace(
            result, diff="".join(fix.diff() for fix in fixes), notes=(*result.notes, *self._told(fixes))
        )

    def _told(self, fixes: Sequence[Fix]) -> Iterator[str]:
        done = "fixed" if self.options.fix else "can be fixed with --fix"
        yield from (f"{done}: {line}" for line in summary(fixes))
        if not fixes:
            yield "no finding has a cure that is certain"

    def exit_code(self, result: LintResult) -> int:
        """The contract of exit codes; ``exit_zero`` forgives findings and unknowns, never failures."""
        strict = self.options.strict or self.configuration.strict
        codes = {
            "failed": FAILED,
            "findings": FINDINGS,
            "unknown": UNKNOWN if strict else CLEAN,
            "clean": CLEAN,
        }
        status = codes[result.verdict]
        forgiven = self.options.exit_zero or self.options.write_baseline
        return CLEAN if forgiven and status != FAILED else status

    def _with_baseline(self, result: LintResult) -> LintResult:
        file = self.baseline_file
        if file is None:
            return result
        if self.options.write_baseline:
            written = baseline_of(result.findings, self.settings.root)
            write_baseline(written, file)
            return replace(result, notes=(*result.notes, f"{file}: {len(written.entries)} findings written"))
        if self.options.prune_baseline and result.stale:
            write_baseline(self.settings.baseline.without(result.stale), file)
            return replace(
                result, stale=(), notes=(*result.notes, f"{file}: {len(result.stale)} entries dropped")
            )
        return result


def _cache(options: Options, configuration: Configuration) -> Path | None:
    return None if options.no_cache else options.cache_dir or configuration.root / CACHE_FOLDER


def _configuration(options: Options) -> Configuration:
    folder = Path.cwd()
    if options.isolated:
        return default_configuration(folder)
    return read_configuration(options.config) if options.config else find_configuration(folder)


def _selection(options: Options, configured: Selection) -> Selection:
    select, ignore = _split(options.select), _split(options.ignore)
    for name in (*select, *ignore):
        matching_codes(name)
    return replace(configured, select=select or configured.select, ignore=ignore or configured.ignore)


def _split(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part.strip() for value in values for part in value.split(",") if part.strip())
