"""What to lint: functions with example arguments, registered where they are written."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, TypeVar

from stateful.errors import InvalidArgumentError

Fn = TypeVar("Fn", bound=Callable[..., Any])


@dataclass(frozen=True)
class LintTarget:
    """One function with the arguments and options it is checked with.

    ``file`` is the module that was being executed when the target was registered, ``line`` the call of
    ``lint_target`` there; ``options`` are the keyword arguments of ``asyncops.check``.
    """

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    name: str
    file: str
    line: int
    options: dict[str, Any] = field(default_factory=dict[str, Any])


_registered: list[LintTarget] = []


def lint_target(
    *args: Any,
    values: bool = False,
    calls: int = 1,
    target: str | None = None,
    requires: Any = None,
    name: str | None = None,
) -> Callable[[Fn], Fn]:
    """Registers a function and its example arguments for ``asyncops lint``; returns the function unchanged.

    Stack it to check a function with several arguments. It also takes callables that no ``def`` makes::

        @asyncops.lint_target(jax.ShapeDtypeStruct((1024, 128), jnp.float32))
        @asyncops.lint_target(jax.ShapeDtypeStruct((512, 128), jnp.float32), name="short")
        def scale(x): ...

        asyncops.lint_target(x)(pl.pallas_call(kernel, out_shape=x))

    Args:
      *args: arrays, ``jax.ShapeDtypeStruct``s or pytrees of them; only their shapes count unless ``values``.
      values, calls, target, requires: as for ``asyncops.check``.
      name: what reports call the target; the function's name if not given.
    """
    if calls < 1:
        raise InvalidArgumentError(f"lint_target: calls must be 1 or more, not {calls}")
    place = _registering_module(sys._getframe(1))  # pyright: ignore[reportPrivateUsage]
    options = {"values": values, "calls": calls, "target": target, "requires": requires}

    def register(fn: Fn) -> Fn:
        if not callable(fn):
            raise InvalidArgumentError(
                f"lint_target: expected a function to check, not {type(fn).__name__}; write "
                "@asyncops.lint_target(*example_arguments) above a function"
            )
        label = name or getattr(fn, "__qualname__", None) or type(fn).__name__
        _registered.append(LintTarget(fn, args, label, *place, options))
        return fn

    return register


def targets_of(file: str) -> tuple[LintTarget, ...]:
    """The targets that the module in ``file`` has registered, in source order."""
    return tuple(sorted((t for t in _registered if t.file == file), key=lambda t: t.line))


def replace_targets(registered: tuple[LintTarget, ...]) -> tuple[LintTarget, ...]:
    """Makes these the registered targets; returns those that were."""
    before = tuple(_registered)
    _registered[:] = registered
    return before


def forget_targets(file: str) -> None:
    """Drops what ``file`` has registered, so that executing it again registers it once."""
    _registered[:] = [t for t in _registered if t.file != file]


def _registering_module(caller: FrameType) -> tuple[str, int]:
    """File and line of the innermost module body on the stack: helpers register for their callers."""
    frame: FrameType | None = caller
    while frame is not None:
        if frame.f_code.co_name == "<module>":
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return caller.f_code.co_filename, caller.f_lineno
