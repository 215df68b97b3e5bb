"""How operands become views: decoded once, then filled with values each time the equation runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax

from stateful._jax.jaxprs import Literal, Var
from stateful._jax.transforms import SelectTransform, TransformedRef, depends_on_core
from stateful.terms import Term
from stateful.types import View

Atom = Any
Value = Callable[[Atom], Any]

_REMEMBERED = 256


class UndecidedRef(Exception):
    """An operand is one of several Refs, and which one depends on a value that is not known."""


def scalar(atom: Atom) -> Callable[[Value], Term | None]:
    """A function that gives the term of a scalar operand; Python and literal numbers are read at once."""
    if isinstance(atom, Literal):
        atom = atom.val
    if not isinstance(atom, Var):
        number = int(atom)
        return lambda value: number
    return lambda value: value(atom)


class Recipe:
    """A Ref operand seen through transforms.

    ``recipe(value)`` is its view: what ``value`` gives for the Ref, transformed. (Discharge puts objects of
    its own in the place of views; all they need is ``transformed`` and ``nbytes``.) The view of a base and
    the values of the indices is computed once: kernels run the same equation thousands of times over few
    slots.
    """

    __slots__ = ("_base", "_bytes", "_exact", "_indices", "_transforms", "_views")

    def __init__(self, base: Callable[[Value], View], transforms: tuple[Any, ...], exact: bool = True):
        self._base, self._transforms, self._exact = base, transforms, exact
        leaves = [a for a in jax.tree.leaves(transforms) if isinstance(a, (Var, Literal))]
        self._indices = [a for a in leaves if isinstance(a, Var) and not getattr(a.aval, "shape", ())]
        self._views: dict[tuple[Any, ...], tuple[View, View]] = {}
        self._bytes: dict[int, tuple[View, Term]] = {}

    @staticmethod
    def of(ref: Any, transforms: Any = (), exact: bool = True) -> Recipe:
        """The recipe of a Ref atom, or of a ``TransformedRef`` of one, with further transforms."""
        steps = tuple(transforms or ())
        if any(depends_on_core(t) for t in steps):
            return Recipe(_of_the_core, (), exact)
        if not isinstance(ref, TransformedRef):
            return Recipe(lambda value: value(ref), steps, exact)
        if ref.multiref:
            return Recipe(_selected(ref), steps, exact)
        return Recipe(Recipe.of(ref.ref), (*ref.transforms, *steps), exact)

    @staticmethod
    def maybe(ref: Any) -> Recipe | None:
        """The recipe of an optional operand."""
        return None if ref is None else Recipe.of(ref)

    def __call__(self, value: Value) -> View:
        base = self._base(value)
        if not self._transforms and self._exact:
            return base
        if type(base) is not View:
            return base.transformed(self._transforms, value)
        terms = [value(a) for a in self._indices]
        key = (id(base), *terms)
        found = self._views.get(key)
        if found is not None:
            return found[1]
        known = dict(zip(self._indices, terms, strict=True))
        view = base.transformed(self._transforms, lambda atom: _read(atom, known))
        if not self._exact:
            view = dataclasses.replace(view, exact=False)
        if len(self._views) >= _REMEMBERED:
            self._views.clear()
        self._views[key] = (base, view)  # the base is kept alive: it is known by identity
        return view

    def nbytes(self, view: View) -> Term:
        """``view.nbytes`` of a view that this recipe made."""
        found = self._bytes.get(id(view))
        if found is None:
            if len(self._bytes) >= _REMEMBERED:
                self._bytes.clear()
            found = self._bytes[id(view)] = (view, view.nbytes)
        return found[1]


def _read(atom: Atom, known: dict[Atom, Term | None]) -> Term | None:
    if isinstance(atom, Literal):
        return int(atom.val) if not getattr(atom.val, "shape", ()) else None
    return known.get(atom)


def _of_the_core(value: Value) -> View:
    raise UndecidedRef("a slice of shared memory that depends on the subcore has no model")


def _selected(ref: Any) -> Callable[[Value], View]:
    transform = ref.transforms[0]
    if not isinstance(transform, SelectTransform):
        raise UndecidedRef(f"several Refs seen through {type(transform).__name__} have no model")
    options = [Recipe.of(r) for r in ref.ref]
    index = scalar(transform.idx)

    def choose(value: Value) -> View:
        number = index(value)
        if not isinstance(number, int):
            raise UndecidedRef("one of several Refs is chosen by an index that is not known")
        return options[min(max(number, 0), len(options) - 1)](value)

    return choose
