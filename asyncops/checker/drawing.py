"""``asyncops.draw_timeline``: what the copies of a kernel overlap with, as a picture."""

from __future__ import annotations

from typing import Any

from asyncops.checker.events import Mark
from asyncops.checker.pictures.timelines import Timeline, timeline_of_program
from asyncops.checker.session import record_run


def draw_timeline(
    fn: Any, *args: Any, values: bool = False, calls: int = 1, target: str | None = None, requires: Any = None
) -> Timeline:
    """The timeline of one run of the kernels in a program, right or wrong: which copies overlap with what.

    Each copy is drawn for as long as it may take, until a wait for it returns; nothing is run, and nothing is measured.
    A notebook displays the result; ``.to_svg()`` and ``.to_chrome_trace()`` give it to other programs.

    Args:
      fn, args, values, calls, target, requires: as for :func:`asyncops.check`. Of the paths through conditions on
        unknown values, one on which the most happens is drawn.

    Returns:
      A :class:`Timeline`.

    Raises:
      InvalidArgumentError: there is no kernel in the function, or an option has no such value.
      UnmodelledError: no run could be followed to its end.
    """
    program = record_run(fn, *args, values=values, calls=calls, target=target, requires=requires)
    marks = (e for core in program.cores for e in core.events if isinstance(e, Mark) and e.kind == "enter")
    names = dict.fromkeys(getattr(mark.what, "name", "") for mark in marks)
    return timeline_of_program(program, title=f"one run of {', '.join(filter(None, names)) or 'the kernel'}")
