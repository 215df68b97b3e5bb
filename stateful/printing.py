"""A program with its effects beside it: one line for each effectful equation, nested as the program is.

Equations without effects are counted, not shown; what remains is short enough to read.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from stateful.inference import Block, Step, infer_effects


def effect_jaxpr(fn: Callable[..., Any]) -> Callable[..., str]:
    """``print(effect_jaxpr(fn)(*args))`` shows what ``fn`` does to memory, in program order."""

    @functools.wraps(fn)
    def text(*args: Any, **kwargs: Any) -> str:
        return render(infer_effects(fn)(*args, **kwargs).tree)

    return text


def render(tree: Block, lines: bool = True) -> str:
    """A tree of inferred effects as text; with ``lines``, source lines at the right."""
    rows = list(_rows(tree, 0))
    width = min(max((len(left) for left, _ in rows), default=0), 100)
    return "\n".join(f"{left:<{width}}  {right}".rstrip() if lines else left for left, right in rows)


def _rows(block: Block, depth: int) -> list[tuple[str, str]]:
    rows = [("  " * depth + block.title, _line(block.location))]
    for child in block.children:
        rows += _rows(child, depth + 1) if isinstance(child, Block) else [_step(child, depth + 1)]
    if block.pure and depth == 0:
        rows.append(("  ...", f"{block.pure} equation{'s' if block.pure > 1 else ''} without effects"))
    return rows


def _step(step: Step, depth: int) -> tuple[str, str]:
    if step.unmodelled:
        what = f"not modelled: {step.unmodelled}"
    else:
        what = f"{step.primitive:<12} " + "; ".join(map(str, step.effects))
    return "  " * depth + what, _line(step.location)


def _line(location: tuple[str, int, str] | None) -> str:
    return "" if location is None else f"# {location[0].rpartition('/')[2]}:{location[1]}"
