"""Hypothesis strategies for event programs. Needs ``hypothesis``; nothing else here does."""

from __future__ import annotations

from hypothesis import strategies as st

from asyncops.checker.events import Program
from asyncops.explorer.generating import draw_program


class _Drawn:
    """Choices that hypothesis makes, remembers and shrinks."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def integer(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Programs like those of ``generating.random_program``; they shrink to few events."""
    return draw_program(_Drawn(draw))
