"""Touches outside the life of memory and semaphores, told apart by what they mean to the user."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from asyncops.checker.analysis import (
    Analysis,
    Finding,
    copy_subjects,
    copy_text,
    lines,
    name_of,
    semaphore_subjects,
)
from asyncops.checker.events import Copy, Half, Mark, Point, Start
from asyncops.checker.memory import Buffer
from asyncops.checker.order import Touch
from asyncops.checker.recording import SemaphoreKey

_OUTLIVES = ("result", "operand")


@dataclass(frozen=True)
class Late:
    """A copy that can outlive what it uses. ``is_own``: the memory is the starting device's."""

    touch: Touch
    start: Point
    copy: Copy
    mark: Mark
    half: Half
    what: str
    is_own: bool
    is_never_waited: bool

    @property
    def half_text(self) -> str:
        """What nobody waits for."""
        if self.copy.kind == "remote":
            return "its departure" if self.half is Half.READ_DONE else "its arrival"
        return "it"

    @property
    def wait_text(self) -> str:
        """The call that waits for it."""
        if self.copy.kind == "remote":
            return "wait_send()" if self.half is Half.READ_DONE else "wait_recv()"
        return "wait()"


def _owner(what: Any) -> Buffer:
    return what.buffer


def leaves_as_future(copy: Copy, half: Half) -> bool:
    """True when the semaphore of a half leaves the kernel, so that somebody else may wait."""
    key = copy.source_semaphore if half is Half.READ_DONE else copy.destination_semaphore
    keys = (key,) if key is not None else (copy.source_semaphore, copy.destination_semaphore)
    return any(isinstance(k, SemaphoreKey) and k.buffer.role in _OUTLIVES for k in keys)


def late_copies(analysis: Analysis) -> Iterator[Late]:
    """Copies that nothing keeps within the life of what they use; one per copy and mark."""
    seen: set[Any] = set()
    for touch in analysis.touches:
        start = Point(touch.point.core, touch.point.index)
        event, mark = analysis.event(start), analysis.event(touch.mark)
        if touch.early or not isinstance(event, Start) or touch.point.half is None:
            continue
        if event.copy.kind == "pipeline" or leaves_as_future(event.copy, touch.point.half):
            continue
        key = (start, touch.mark, touch.point.half)
        if key in seen:
            continue
        seen.add(key)
        own = _owner(touch.what).device == analysis.device(start)
        waits = analysis.order.completion_waits(touch.point)
        yield Late(touch, start, event.copy, mark, touch.point.half, _name(touch.what), own, not waits)


def _name(what: Any) -> str:
    return name_of(what) if isinstance(what, SemaphoreKey) else what.buffer.name


def late_remote_findings(analysis: Analysis, code: str) -> Iterator[Finding]:
    """Remote copies and signals that can reach a device after its exit."""
    for late in late_copies(analysis):
        if late.mark.kind != "exit" or late.is_own:
            continue
        yield Finding(
            code,
            f"device {analysis.device(late.touch.mark)} can leave the kernel while {copy_text(late.copy)} from device "
            f"{analysis.device(late.start)} into it is in flight{analysis.when(late.copy.site)}",
            late.copy.site,
            "let the target wait for it with wait_recv() before its kernel ends",
            lines(("the kernel", late.mark.site.location)),
            frozenset(copy_subjects(late.copy)),
            late.touch,
        )
    for touch in analysis.touches:
        if touch.early or touch.point.half is not None:
            continue
        signal = analysis.event(touch.point)
        if analysis.order.balances()[signal.semaphore].left > 0:
            continue  # nobody waits for it: AO301 says so
        yield Finding(
            code,
            f"device {analysis.device(touch.mark)} can leave the kernel before this signal of device "
            f"{analysis.device(touch.point)} on {name_of(touch.what)} reaches it{analysis.when(signal.site)}",
            signal.site,
            "let the target wait for the signal before its kernel ends",
            subjects=frozenset(semaphore_subjects(signal.semaphore)),
            evidence=touch,
        )


def early_touches(analysis: Analysis) -> Iterator[tuple[Touch, int]]:
    """Touches before the target's entry, with the number of the call that is entered."""
    for touch in analysis.touches:
        if touch.early and analysis.event(touch.mark).kind == "enter":
            entry = analysis.entry(touch.mark)
            yield touch, entry.what.number if entry.what is not None else 0


def early_findings(analysis: Analysis, code: str, is_reentry: bool) -> Iterator[Finding]:
    """Remote operations that can come before the target's entry: into its first call, or only into a later one."""
    alone = analysis.alone
    first_lines = {
        alone.event(Point(t.point.core, t.point.index)).site.location for t, _ in early_touches(alone)
    }
    for touch, number in early_touches(analysis):
        event = analysis.event(Point(touch.point.core, touch.point.index))
        if is_reentry == (event.site.location in first_lines):
            continue
        yield _early_finding(analysis, code, touch, event, number, is_reentry)


def _early_finding(
    analysis: Analysis, code: str, touch: Touch, event: Any, number: int, is_reentry: bool
) -> Finding:
    target, sender = analysis.device(touch.mark), analysis.device(touch.point)
    if isinstance(event, Start):
        what, subjects = copy_text(event.copy), copy_subjects(event.copy)
    else:
        what, subjects = f"the signal on {name_of(event.semaphore)}", semaphore_subjects(event.semaphore)
    if not is_reentry:
        rest = f"can reach device {target} before it has entered the kernel"
        cure = (
            f"exchange barrier signals with the target itself (here device {target}) before the first remote "
            "operation to it"
        )
    else:
        rest = (
            f"can reach device {target} before it has entered call {number}: a count of another call satisfies the "
            "barrier"
        )
        cure = (
            "exchange signals once more before the kernel ends, on another semaphore, so that no device is a call "
            "ahead of those that signal it"
        )
    return Finding(
        code,
        f"{what} of device {sender} {rest}{analysis.when(event.site)}",
        event.site,
        cure,
        analysis.may_let_go(touch.point),
        frozenset(subjects),
        touch,
    )
