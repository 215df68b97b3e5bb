"""``asyncops mutants``: right kernels broken on purpose, and how many of the mistakes the checker sees."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click
import jax
import numpy as np

from asyncops.bench.cases import Draft, all_pairs
from asyncops.checker.session import check_jaxpr
from asyncops.explorer.killing import Tally, try_mutants
from asyncops.lint.discovery import load_module
from asyncops.lint.targets import targets_of
from stateful._jax.jaxprs import open_jaxpr
from stateful.errors import LintUsageError, StatefulError

# Lengths and table entries that most kernels take.
_NUMBERS = (40, 1)


@dataclass(frozen=True)
class Original:
    """A program to break: its jaxpr and its flat arguments, of which ``values`` says whether they are relied on."""

    name: str
    jaxpr: Any
    args: list[Any]
    values: bool = False


def run_mutants(files: Sequence[str], only: Sequence[str], most: int) -> Tally:
    """Breaks the right kernels of the benchmark or, if there are any, of ``files``; says what is worth a look.

    Args:
      files: Python files with lint targets, or with a list ``KERNELS`` of (name, function that gives a function and its
        arguments).
      only: substrings of the names; empty: all.
      most: mutants of one operator in one program, evenly spread; 0: all.
    """
    tally = Tally()
    for original in _originals(files):
        if only and not any(text in original.name for text in only):
            continue
        click.echo(original.name, err=True)
        original = next(filter(_is_clean, _versions(original)), None)
        if original is None:
            click.echo("  left out, since it is not clean itself", err=True)
            continue
        for verdict in try_mutants(
            original.name, original.jaxpr, original.args, values=original.values, most=most
        ):
            tally.add(verdict)
        for verdict in tally.take_shown():
            where = f"{verdict.name}: {verdict.mutant.operator}, {verdict.mutant.where}"
            click.echo(f"{verdict.fate}: {where}\n    {verdict.text.splitlines()[-1]}", err=True)
    return tally


def _originals(files: Sequence[str]) -> Iterator[Original]:
    if not files:
        for pair in all_pairs():
            program = pair.build(Draft(wrong=False))
            yield _traced(pair.name, program.fn, program.args, program.values)
    for file in files:
        module = load_module(file)
        kernels: Any = getattr(module, "KERNELS", None)
        targets = targets_of(file)
        if kernels is None and not targets:
            raise LintUsageError(f"{file}: has neither a list KERNELS of (name, build) nor lint targets")
        for name, build in kernels or ():
            yield _traced(name, *build())
        for target in targets:
            yield _traced(target.name, target.fn, target.args, bool(target.options.get("values")))


def _traced(name: str, fn: Any, args: Any, values: bool = False) -> Original:
    traced: Any = jax.make_jaxpr(fn)(*args)  # pyright: ignore[reportUnknownMemberType]
    return Original(name, traced, jax.tree.leaves(args), values)


def _versions(original: Original) -> Iterator[Original]:
    """The program with its arguments as shapes, then with numbers for integers of which only the shape is known."""
    yield original
    if original.values or not any(map(_is_open, original.args)):
        return
    for number in _NUMBERS:
        args = [np.full(a.shape, number, a.dtype) if _is_open(a) else a for a in original.args]
        yield replace(original, name=f"{original.name} (integers: {number})", args=args, values=True)


def _is_open(argument: Any) -> bool:
    return isinstance(argument, jax.ShapeDtypeStruct) and argument.dtype in (np.int32, np.uint32)  # pyright: ignore


def _is_clean(original: Original) -> bool:
    try:
        opened = open_jaxpr(original.jaxpr)
        return check_jaxpr(opened, original.args, values=original.values, calls=1, started=0.0).ok
    except StatefulError as error:
        print(f"{original.name}: {error}", file=sys.stderr)
        return False
