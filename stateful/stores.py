"""Memory as values: the cells that Refs stand for when a program is discharged."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from stateful import terms
from stateful._jax import evaluation
from stateful._jax.jaxprs import Literal
from stateful.arithmetic import literal
from stateful.terms import Term
from stateful.types import RefType, View


@dataclass(frozen=True, eq=False, slots=True)
class Cell:
    """One memory, known by identity."""

    name: str
    type: RefType

    def __str__(self) -> str:
        return self.name

    @property
    def dtype(self) -> Any:
        """The dtype of the array that holds its contents: counts for semaphores."""
        return jnp.dtype("int32" if self.type.semaphore else self.type.dtype)


class Window:
    """A Ref in a discharged program: a cell, and the transforms it is seen through, filled with values.

    It takes the place of a View in ``signatures.operations``; ``view`` is what is known of it without
    running.
    """

    __slots__ = ("cell", "transforms", "view")

    def __init__(self, cell: Cell, transforms: tuple[Any, ...] = (), view: View | None = None):
        self.cell, self.transforms = cell, transforms
        self.view = View.whole(cell, cell.type) if view is None else view

    def transformed(self, transforms: tuple[Any, ...], value: Callable[[Any], Any]) -> Window:
        """The window through further transforms, given over atoms."""
        filled = evaluation.fill(transforms, value)
        return Window(self.cell, (*self.transforms, *filled), self.view.transformed(transforms, _static))

    @property
    def type(self) -> RefType:
        """The type of the whole memory."""
        return self.cell.type

    @property
    def shape(self) -> tuple[Term, ...]:
        """The shape seen."""
        return self.view.shape

    @property
    def nbytes(self) -> Term:
        """What a copy of the window counts, in bytes."""
        return self.view.nbytes

    def __str__(self) -> str:
        return str(self.view)


def _static(atom: Any) -> Term | None:
    if isinstance(atom, Literal):
        known = literal(atom.val)
        return int(known) if isinstance(known, int) else None
    return terms.symbol("?")


class Store:
    """The contents of cells, and the number of the first wait that could not be satisfied (0: none)."""

    __slots__ = ("contents", "failed")

    def __init__(self, contents: dict[Cell, Any] | None = None, failed: Any = 0):
        self.contents = dict(contents or {})
        self.failed = failed

    def read(self, window: Window) -> Any:
        """What a load gives."""
        return evaluation.read_through(self.contents[window.cell], window.transforms)

    def write(self, window: Window, new: Any) -> None:
        """Stores a whole window."""
        cell, old = window.cell, self.contents[window.cell]
        new = jnp.asarray(new, cell_dtype(window))
        self.contents[cell] = (
            evaluation.write_through(old, window.transforms, new) if window.transforms else new
        )

    def new(self, name: str, type_: RefType, value: Any = None) -> Window:
        """A fresh cell, holding ``value`` or nothing in particular."""
        cell = Cell(name, type_)
        self.contents[cell] = undefined(cell) if value is None else jnp.asarray(value, cell.dtype)
        return Window(cell)

    def snapshot(self, cells: Iterable[Cell]) -> tuple[Any, ...]:
        """The contents of some cells, and the failure, to be carried through control flow."""
        return (*(self.contents[c] for c in cells), jnp.asarray(self.failed, jnp.int32))

    def restore(self, cells: Iterable[Cell], values: Iterable[Any]) -> None:
        """Takes over what control flow carried."""
        *contents, self.failed = values
        self.contents.update(zip(cells, contents, strict=True))


def cell_dtype(window: Window) -> Any:
    """The dtype seen through the window; a bitcast changes it."""
    return window.cell.dtype if window.cell.type.semaphore else jnp.dtype(window.view.dtype)


def undefined(cell: Cell) -> Any:
    """Contents that nothing has written: zero counts, NaN and extreme numbers, so that a use shows."""
    shape, dtype = cell.type.shape, cell.dtype
    if cell.type.semaphore:
        return jnp.zeros(shape, dtype)
    if jnp.issubdtype(dtype, jnp.inexact):
        return jnp.full(shape, jnp.nan, dtype)
    if np.dtype(dtype).kind in "iu" or jnp.issubdtype(dtype, jnp.integer):
        return jnp.full(shape, jnp.iinfo(dtype).min, dtype)
    return jnp.zeros(shape, dtype)
