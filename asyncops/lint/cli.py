"""The command line. Imports little at the top: ``--help`` and ``--explain`` must not wait for JAX."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, TextIO

import click

from asyncops.lint.environment import DEVICE_COUNT, prepare_environment
from asyncops.lint.formats.registry import FORMATS, Page, render
from asyncops.version import __version__
from asyncops.writing import write_whole
from stateful.errors import LintUsageError

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
_FOLDER = click.Path(file_okay=False, path_type=Path)
_FILE = click.Path(dir_okay=False, path_type=Path)


def _explain(context: click.Context, _: click.Parameter, name: str | None) -> None:
    if not name or context.resilient_parsing:
        return
    from asyncops.lint.explanations import explanation, index
    from asyncops.lint.rulebook import find_page

    with _clear_errors():
        click.echo(index() if name.lower() == "all" else explanation(find_page(name)), nl=False)
    context.exit()


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


def output_options(command: Callable[..., None]) -> Callable[..., None]:
    """What every command that checks kernels takes."""
    for option in reversed(
        (
            click.option(
                "--format", "format_", type=click.Choice(FORMATS), default="text", help="Default: text."
            ),
            click.option("--output-file", "-o", type=_FILE, help="Write the report there."),
            click.option("--select", metavar="RULES", multiple=True, help='Rules: codes, "AO2", names, ALL.'),
            click.option(
                "--ignore", metavar="RULES", multiple=True, help="Rules to leave out; comma-separated."
            ),
            click.option("--strict", is_flag=True, help="Exit with 3 when something is not modelled."),
            click.option("--exit-zero", is_flag=True, help="Exit with 0 though there are findings."),
            click.option("--statistics", is_flag=True, help="Count the findings of each rule."),
            click.option("--config", type=_FILE, help="The pyproject.toml to read; default: the nearest."),
            click.option("--isolated", is_flag=True, help="Read no configuration file."),
            click.option("--baseline", type=_FILE, help="Findings listed there do not count."),
        )
    ):
        command = option(command)
    return command


@cli.command(epilog=f"{_EXIT_CODES}\n{_ENVIRONMENT}")
@click.argument("targets", nargs=-1, metavar="[TARGET...]")
@output_options
@click.option(
    "--jobs", "-j", type=click.IntRange(0), default=1, help="Processes, 0: one per core; default: 1."
)
@click.option("--no-cache", is_flag=True, help="Check everything anew.")
@click.option("--cache-dir", type=_FOLDER, help="Default: .asyncops_cache beside pyproject.toml.")
@click.option("--pass-with-no-targets", is_flag=True, help="Exit with 0 though no target was found.")
@click.option("--write-baseline", is_flag=True, help="List all findings in the baseline; exit with 0.")
@click.option("--prune-baseline", is_flag=True, help="Drop the entries that match nothing any more.")
@click.option(
    "--compile",
    metavar="TOPOLOGY",
    multiple=True,
    help='Also compile each target for these TPUs ("v5e:2x2,v6e:2x2"; no TPU needed) and check the result.',
)
@click.option("--diff", is_flag=True, help="Show the cures that are certain, as a diff; write nothing.")
@click.option("--fix", is_flag=True, help="Make the cures that are certain, and show the diff.")
@click.option("--trace-dir", type=_FOLDER, help="Write a trace of each run there, for ui.perfetto.dev.")
@explain_option
def lint(
    targets: tuple[str, ...],
    format_: str,
    output_file: Path | None,
    statistics: bool,
    pass_with_no_targets: bool,
    trace_dir: Path | None,
    **flags: Any,
) -> None:
    """Check the registered kernels of each TARGET: a file, a folder, a module, or module:function.

    A function is registered with its example arguments, of which only the shapes count:

    \b
      @asyncops.lint_target(jax.ShapeDtypeStruct((1024, 128), jnp.float32))
      def scale(x): ...

    Without a TARGET those of the configuration file are checked.
    """
    prepare_environment(os.environ)
    # Imported here: --help and --explain need none of it.
    from asyncops.lint.progress import progress_line
    from asyncops.lint.session import Options, Session
    from asyncops.lint.traces import write_traces

    with _clear_errors():
        timelines = format_ == "html" or trace_dir is not None
        session = Session.open(Options(**flags, timelines=timelines))
        with progress_line() as progress:
            result = session.lint(targets, progress)
    if not result.outcomes and not pass_with_no_targets:
        raise click.UsageError(
            f"no lint target in {', '.join(targets)}: "
            "put @asyncops.lint_target(*example_arguments) above a function, or let a program or a test suite call "
            "the kernels: asyncops run script.py, pytest --asyncops"
        )
    if trace_dir is not None:
        result = write_traces(result, trace_dir)
    # Other formats are read by programs, which a diff in between would confuse.
    click.echo(result.diff, nl=False, err=format_ != "text" or output_file is not None)
    _write(render(format_, result, _page(output_file, statistics, sys.stdout)), output_file)
    sys.exit(session.exit_code(result))


@cli.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog=_EXIT_CODES,
)
@output_options
@click.option("-m", "module", is_flag=True, help="PROGRAM is a module, as for python -m.")
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(
    program: str,
    arguments: tuple[str, ...],
    module: bool,
    format_: str,
    output_file: Path | None,
    statistics: bool,
    **flags: Any,
) -> None:
    """Run PROGRAM with its ARGUMENTS and check every kernel it traces, each once.

    The program runs as under python: on its own devices, in its own environment. The report follows on
    stderr when it ends.
    """
    from asyncops.lint.running import run_program
    from asyncops.lint.session import Options, Session

    with _clear_errors():
        session = Session.open(Options(**flags))
        result = run_program(program, arguments, module=module, settings=session.settings)
    text = render(format_, result, _page(output_file, statistics, sys.stderr))
    _write(text, output_file, to_stderr=True)
    sys.exit(session.exit_code(result))


@cli.command(epilog=_ENVIRONMENT)
@click.option("--only", metavar="TEXT", multiple=True, help="Kernels with this in their name or kind.")
@click.option("--list", "list_", is_flag=True, help="Print the kernels, and run nothing.")
@click.option(
    "--peers", is_flag=True, help="Run JAX's detector too, for an hour; else show its stored answers."
)
@click.option(
    "--limit", type=click.FloatRange(0, min_open=True), default=10.0, help="Its seconds for one program."
)
@click.option("--save", type=_FILE, help="Update this file of results.")
@click.option("--format", "format_", type=click.Choice(("text", "json", "markdown")), default="text")
def bench(
    only: tuple[str, ...], list_: bool, peers: bool, limit: float, save: Path | None, format_: str
) -> None:
    """Run the checker on labelled kernels, each wrong one with its clean twin, and print how well it tells them.

    Beside it stands JAX's own race detector (TPU interpret mode), in both DMA modes, with its default vector clocks and
    with large ones. Exits with 1 if an answer of the checker is not the label's.
    """
    prepare_environment(os.environ)
    from asyncops.lint import bench as benchmark

    if list_:
        benchmark.print_kernels()
        return
    width = _page(None, False, sys.stdout).width
    with _clear_errors():
        text, is_right = benchmark.bench(only, peers, limit, save, format_, width)
    click.echo(text, nl=False)
    sys.exit(0 if is_right else 1)


@cli.command(epilog=_ENVIRONMENT)
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, resolve_path=True))
@click.option("--only", metavar="TEXT", multiple=True, help="Kernels with this in their name.")
@click.option("--most", type=click.IntRange(0), default=0, help="Of each operator in each kernel; 0: all.")
def mutants(files: tuple[str, ...], only: tuple[str, ...], most: int) -> None:
    """Break right kernels on purpose, one operation at a time, and count what the checker sees of it.

    The kernels are those of the benchmark, or the lint targets of FILES (or their lists KERNELS of (name, build)). An
    exact exploration of each mutant says whether it really is wrong. Exits with 1 if a wrong one was not reported.
    """
    prepare_environment(os.environ)
    from asyncops.lint.mutants import run_mutants

    with _clear_errors():
        tally = run_mutants(files, only, most)
    click.echo(tally.table())
    sys.exit(0 if tally.rate() == 1 else 1)


@cli.command()
def lsp() -> None:
    """Serve an editor: findings of registered targets when a file is opened or saved.

    Speaks the Language Server Protocol over stdin and stdout; needs the extra: pip install 'asyncops[lsp]'.
    """
    try:
        from asyncops.lint.language_server import start
    except ImportError as error:
        raise click.UsageError(f"{error}; install the extra: pip install 'asyncops[lsp]'") from None
    start()


def main() -> None:
    """The console script. An error that nobody foresaw exits with 2, as 1 means findings."""
    try:
        cli(prog_name="asyncops")
    except Exception:
        traceback.print_exc()
        click.echo("asyncops: internal error; please report it with the lines above", err=True)
        sys.exit(2)


def _page(output_file: Path | None, statistics: bool, stream: TextIO) -> Page:
    to_terminal = output_file is None and stream.isatty()
    color = to_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    width = shutil.get_terminal_size().columns if to_terminal else 100
    return Page(color, width, statistics)


def _write(text: str, output_file: Path | None, *, to_stderr: bool = False) -> None:
    if output_file is None:
        click.echo(text, nl=False, err=to_stderr, color=True)
        return
    output_file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(output_file, text)


@contextlib.contextmanager
def _clear_errors() -> Generator[None]:
    """Turns refused input into click's one-line usage error."""
    try:
        yield
    except LintUsageError as error:
        raise click.UsageError(str(error)) from error
