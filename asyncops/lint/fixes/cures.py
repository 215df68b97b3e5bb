"""Cures that may be right, as edits; which of them are is for the checker to say.

A cure is made only where it is one of a kind: of all places for a missing wait, exactly one must satisfy it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from asyncops.checker.report import Diagnostic
from asyncops.lint.fixes.text import Edit, SourceFile, Tree

_MOST_PLACES = 12
_COPIES = ("make_async_copy", "make_async_remote_copy", "async_copy", "async_remote_copy")
_SEMAPHORES = {"sem": 2, "send_sem": 2, "recv_sem": 3}


@dataclass(frozen=True)
class Cure:
    """Edits of one file, and what they do in words."""

    what: str
    edits: tuple[Edit, ...]


def cures_of(diagnostic: Diagnostic, source: SourceFile) -> list[Cure]:
    """What may cure a finding; the file is the one that it is in."""
    make = _MAKERS.get(diagnostic.code)
    return list(make(diagnostic, Tree(source))) if make else []


def _missing_wait(d: Diagnostic, tree: Tree) -> Iterator[Cure]:
    """A wait below the start, after each statement of its block, where none stands there."""
    line = _start_line(d)
    found = tree.block(line) if line else None
    if found is None:
        return
    block, number = found
    wait = _wait_for(block[number], tree)
    if wait is None or not all(tree.has_own_lines(s) for s in block[number:]):
        return
    if any(isinstance(s, ast.Expr) and tree.text(s) == wait for s in block[number + 1 :]):
        return
    for place in [s for s in block[number:] if not isinstance(s, (ast.Return, ast.Raise))][:_MOST_PLACES]:
        yield Cure("adds a wait", (tree.insertion(place, wait),))


def _late_wait(d: Diagnostic, tree: Tree) -> Iterator[Cure]:
    """A wait that stands below the use which is too early, right above it. Further up it would cost overlap."""
    found = tree.block(d.location.line) if d.location else None
    if found is None:
        return
    block, number = found
    use = block[number]
    for late in block[number + 1 :][:_MOST_PLACES]:
        if _is_wait(late) and tree.has_own_lines(late) and tree.has_own_lines(use):
            removed = Edit(tree.line_start(late), tree.line_end(late), "")
            at, moved = tree.line_start(use), tree.source.text[removed.start : removed.end]
            ended = moved if moved.endswith("\n") else f"{moved}{tree.source.newline}"
            yield Cure("moves the wait", (Edit(at, at, ended), removed))


def _is_wait(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="wait" | "wait_send" | "wait_recv"))):
            return True
        case _:
            return False


def _too_early(d: Diagnostic, tree: Tree) -> Iterator[Cure]:
    yield from _late_wait(d, tree)
    yield from _missing_wait(d, tree)


def _start_line(d: Diagnostic) -> int | None:
    """The line of the finding's file on which the copy starts."""
    place = d.location if d.code == "AO101" else next((p for label, p in d.related if "start" in label), None)
    return place.line if place and d.location and place.file == d.location.file else None


def _wait_for(start: ast.stmt, tree: Tree) -> str | None:
    """The statement that waits for what ``start`` starts."""
    match start:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=copy, attr="start"))):
            return f"{tree.text(copy)}.wait()"
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=function)) if _name(function) in (
            "async_copy",
            "async_remote_copy",
        ):
            return f"{name}.wait()"
        case _:
            return None


def _wrong_semaphore(d: Diagnostic, tree: Tree) -> Iterator[Cure]:
    """The semaphore of the start in the wait, where that is all in which their descriptors differ."""
    started = next((p for label, p in d.related if "start" in label), None)
    if d.location is None or started is None or started.file != d.location.file:
        return
    wait, start = _descriptor(d.location.line, tree), _descriptor(started.line, tree)
    if wait is None or start is None or wait is start:
        return
    mine, theirs = _arguments(wait), _arguments(start)
    different = [key for key in mine if key not in theirs or ast.dump(mine[key]) != ast.dump(theirs[key])]
    if set(mine) == set(theirs) and len(different) == 1 and different[0] in _SEMAPHORES.values():
        (key,) = different
        yield Cure(
            "names the semaphore that the copy signals",
            (Edit(*tree.span(mine[key]), tree.text(theirs[key])),),
        )


def _descriptor(line: int, tree: Tree) -> ast.Call | None:
    """The call that makes the descriptor used on a line: there, or where its name is given, if that is one place."""
    found = tree.block(line)
    if found is None:
        return None
    statement = found[0][found[1]]
    calls = [n for n in ast.walk(statement) if isinstance(n, ast.Call) and _name(n.func) in _COPIES]
    if calls:
        return calls[0] if len(calls) == 1 else None
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))):
            return _given(name, statement, tree)
        case _:
            return None


def _given(name: str, user: ast.stmt, tree: Tree) -> ast.Call | None:
    functions = [n for n in ast.walk(tree.module) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    around = [f for f in functions if f.lineno <= user.lineno <= (f.end_lineno or 0)]
    scope: ast.AST = around[-1] if around else tree.module
    given = [n for n in ast.walk(scope) if isinstance(n, ast.Assign) and _names(n) == [name]]
    value = given[0].value if len(given) == 1 else None
    return value if isinstance(value, ast.Call) and _name(value.func) in _COPIES else None


def _names(assignment: ast.Assign) -> list[str]:
    return [target.id for target in assignment.targets if isinstance(target, ast.Name)]


def _arguments(call: ast.Call) -> dict[int | str, ast.expr]:
    """The arguments by position; semaphores given by name have theirs."""
    named = {_SEMAPHORES.get(k.arg or "", k.arg or ""): k.value for k in call.keywords}
    return {**dict(enumerate(call.args)), **named}


def _unmarked(d: Diagnostic, tree: Tree) -> Iterator[Cure]:
    """``has_side_effects=True`` at the kernel's call."""
    if d.location is None or "side effects" not in d.message:
        return
    line = d.location.line
    calls = [n for n in ast.walk(tree.module) if isinstance(n, ast.Call) and _name(n.func) == "pallas_call"]
    around = [call for call in calls if call.lineno <= line <= (call.end_lineno or 0)]
    if len(around) != 1:
        return
    (call,) = around
    given = next((k.value for k in call.keywords if k.arg == "compiler_params"), None)
    alias = _alias_of_tpu(tree.module)
    if isinstance(given, ast.Call) and _name(given.func) == "CompilerParams":
        if not any(k.arg in ("has_side_effects", None) for k in given.keywords):
            yield Cure("marks the kernel", (_added(given, "has_side_effects=True", tree),))
    elif given is None and alias and not any(k.arg is None for k in call.keywords):
        params = f"compiler_params={alias}.CompilerParams(has_side_effects=True)"
        yield Cure("marks the kernel", (_added(call, params, tree),))


def _added(call: ast.Call, argument: str, tree: Tree) -> Edit:
    """One more argument at the end of a call, on a line of its own where the last one has one."""
    arguments = [*call.args, *call.keywords]
    if not arguments:
        at = tree.span(call)[1] - 1
        return Edit(at, at, argument)
    last = max(arguments, key=lambda node: tree.span(node)[1])
    start, end = tree.span(last)
    line = tree.source.text.rfind("\n", 0, start) + 1
    before = tree.source.text[line:start]
    apart = f",{tree.source.newline}{before}" if not before.strip() else ", "
    return Edit(end, end, f"{apart}{argument}")


def _alias_of_tpu(module: ast.Module) -> str | None:
    """What the file calls ``jax.experimental.pallas.tpu``."""
    for node in module.body:
        match node:
            case ast.ImportFrom(module="jax.experimental.pallas", names=names):
                for name in names:
                    if name.name == "tpu":
                        return name.asname or name.name
            case ast.Import(names=names):
                for name in names:
                    if name.name == "jax.experimental.pallas.tpu":
                        return name.asname or name.name
            case _:
                pass
    return None


def _name(function: ast.expr) -> str:
    """The last part of a function's name."""
    match function:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""


_MAKERS: dict[str, Callable[[Diagnostic, Tree], Iterator[Cure]]] = {
    "AO101": _missing_wait,
    "AO105": _wrong_semaphore,
    "AO201": _too_early,
    "AO202": _late_wait,
    "AO203": _late_wait,
    "AO507": _unmarked,
}
CURED = tuple(_MAKERS)
