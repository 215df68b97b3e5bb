"""The command line. Imports little at the top: ``--help`` and ``--explain`` must not wait for JAX."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import traceback
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from asyncops.lint.environment import DEVICE_COUNT, prepare_environment
from asyncops.lint.formats.registry import FORMATS, Page, render
from asyncops.version import __version__
from stateful.errors import LintUsageError

if TYPE_CHECKING:
    from asyncops.lint.results import LintResult

CLEAN, FINDINGS, FAILED, UNKNOWN = 0, 1, 2, 3

_EXIT_CODES = """\b
Exit status:
  0  clean
  1  findings (errors or warnings)
  2  wrong usage, a target that could not be checked, or an internal error
  3  nothing found, but something is not modelled, with --strict
"""
_ENVIRONMENT = f"""Checking needs no accelerator: JAX_PLATFORMS=cpu and, for programs over a mesh,
XLA_FLAGS=--xla_force_host_platform_device_count={DEVICE_COUNT} are set before JAX starts,
each unless you have set it.
Linting a file executes it, as importing it does: lint only code that you would run."""
_FILE = click.Path(dir_okay=False, path_type=Path)


def _explain(context: click.Context, _: click.Parameter, name: str | None) -> None:
    if not name or context.resilient_parsing:
        return
    from asyncops.lint.explanations import explanation, index
    from asyncops.lint.rulebook import find_page

    with _clear_errors():
        click.echo(index() if name.lower() == "all" else explanation(find_page(name)), nl=False)
    context.exit(CLEAN)


explain_option = click.option(
    "--explain",
    metavar="CODE",
    callback=_explain,
    expose_value=False,
    is_eager=True,
    help='Show the page of a rule ("AO201" or its name), or of "all" the list; then exit.',
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="asyncops")
@explain_option
def cli() -> None:
    """Checks that Pallas kernels overlap copies with computation without races, leaks or deadlocks."""


@cli.command(epilog=f"{_EXIT_CODES}\n{_ENVIRONMENT}")
@click.argument("targets", nargs=-1, metavar="TARGET...")
@click.option(
    "--format",
    "format_",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="Output format.",
)
@click.option(
    "--output-file", "-o", type=click.Path(dir_okay=False, path_type=Path), help="Write there, not to stdout."
)
@click.option(
    "--select", metavar="RULES", multiple=True, help='Rules to show: codes, prefixes ("AO2"), names, ALL.'
)
@click.option(
    "--ignore", metavar="RULES", multiple=True, help="Rules not to show; comma-separated or repeated."
)
@click.option("--strict", is_flag=True, help="Exit with 3 when something is not modelled.")
@click.option("--exit-zero", is_flag=True, help="Exit with 0 though there are findings.")
@click.option("--statistics", is_flag=True, help="Count the findings of each rule.")
@click.option(
    "--jobs", "-j", type=click.IntRange(0), default=1, help="Processes, 0: one per core; default: 1."
)
@click.option("--pass-with-no-targets", is_flag=True, help="Exit with 0 though no target was found.")
@explain_option
def lint(targets: tuple[str, ...], format_: str, output_file: Path | None, **flags: Any) -> None:
    """Check the registered kernels of each TARGET: a file, a folder, a module, or module:function.

    A function is registered with its example arguments, of which only the shapes count:

    \b
      @asyncops.lint_target(jax.ShapeDtypeStruct((1024, 128), jnp.float32))
      def scale(x): ...
    """
    if not targets:
        raise click.UsageError("say what to lint: a file, a folder, a module, or module:function")
    prepare_environment(os.environ)
    with _clear_errors():
        result = _lint(targets, flags)
    if not result.outcomes and not flags["pass_with_no_targets"]:
        raise click.UsageError(
            f"no lint target in {', '.join(targets)}: "
            "put @asyncops.lint_target(*example_arguments) above a function"
        )
    _write(render(format_, result, _page(output_file, flags["statistics"])), output_file)
    sys.exit(exit_code(result, strict=flags["strict"], exit_zero=flags["exit_zero"]))


def exit_code(result: LintResult, *, strict: bool, exit_zero: bool) -> int:
    """The contract of exit codes; ``exit_zero`` forgives findings and unknowns, never failures."""
    code = {"failed": FAILED, "findings": FINDINGS, "unknown": UNKNOWN if strict else CLEAN, "clean": CLEAN}
    status = code[result.verdict]
    return CLEAN if exit_zero and status != FAILED else status


def main() -> None:
    """The console script. An error that nobody foresaw exits with 2, as 1 means findings."""
    try:
        cli(prog_name="asyncops")
    except Exception:
        traceback.print_exc()
        click.echo("asyncops: internal error; please report it with the lines above", err=True)
        sys.exit(FAILED)


def _lint(names: tuple[str, ...], flags: dict[str, Any]) -> LintResult:
    from asyncops.lint.discovery import find_sources
    from asyncops.lint.linting import Settings, lint
    from asyncops.lint.selection import Selection

    selection = Selection(select=_split(flags["select"]) or ("ALL",), ignore=_split(flags["ignore"]))
    selection.apply(())
    return lint(find_sources(names), Settings(selection, flags["jobs"] or os.cpu_count() or 1))


def _split(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part.strip() for value in values for part in value.split(",") if part.strip())


def _page(output_file: Path | None, statistics: bool) -> Page:
    to_terminal = output_file is None and sys.stdout.isatty()
    color = to_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    width = shutil.get_terminal_size().columns if to_terminal else 100
    return Page(color, width, statistics)


def _write(text: str, output_file: Path | None) -> None:
    if output_file is None:
        click.echo(text, nl=False, color=True)
        return
    output_file.parent.mkdir(parents=True, exist_ok=True)
    output_file.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def _clear_errors() -> Generator[None]:
    """Turns refused input into click's one-line usage error."""
    try:
        yield
    except LintUsageError as error:
        raise click.UsageError(str(error)) from error
