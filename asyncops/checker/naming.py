"""What the events of a program are called where people read about them: in a schedule's story and in its picture."""

from __future__ import annotations

from collections import Counter
from pathlib import PurePath

from asyncops.checker.events import Access, Event, Location, Mark, Program, Signal, Start, Wait

_MARKS = {
    "enter": "enters the kernel",
    "exit": "leaves the kernel",
    "allocate": "enters the scope",
    "free": "leaves the scope",
}
_ENDS = {"enter": "the beginning of the kernel", "exit": "the end of the kernel"}


def short(place: Location | None) -> str:
    """ "kernel.py:13": a place where the file is told in full elsewhere; "" where it is not known."""
    return f"{PurePath(place.file).name}:{place.line}" if place else ""


class Names:
    """The names in one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._cores_of = Counter(core.device for core in program.cores)

    def core(self, core: int) -> str:
        """A core's name."""
        it = self.program.cores[core]
        return it.name or (
            f"device {it.device}" + (f" core {it.index}" if self._cores_of[it.device] > 1 else "")
        )

    def doing(self, core: int, index: int) -> str:
        """ "reads buf[0]": what a core does in an event."""
        event = self.program.cores[core].events[index]
        if isinstance(event, Access):
            return f"{'writes' if event.write else 'reads'} {event.site.label or 'memory'}"
        if isinstance(event, Start):
            name = self.copy_name(core, index)
            return f"starts the copy {name}" if name else "starts a copy"
        if isinstance(event, Signal):
            return f"signals {event.amount} on {self.semaphore(event)}"
        if isinstance(event, Wait):
            return f"waits for {event.amount} on {self.semaphore(event)}"
        return _MARKS.get(event.kind, event.kind)

    def place(self, core: int, index: int) -> str:
        """Where and when an event stands."""
        events = self.program.cores[core].events
        if not 0 <= index < len(events):
            return "the end"
        event = events[index]
        line = self.line(event) or (_ENDS.get(event.kind, "") if isinstance(event, Mark) else "")
        return ", ".join(filter(None, (line, self.moment(event)))) or f"event {index}"

    def told(self, core: int, index: int) -> str:
        """ "reads buf[0] (kernel.py:13)"; entering and leaving a kernel have a moment at most."""
        event = self.program.cores[core].events[index]
        is_bare = isinstance(event, Mark) and not self.line(event)
        place = self.moment(event) if is_bare else self.place(core, index)
        return f"{self.doing(core, index)} ({place})" if place else self.doing(core, index)

    def line(self, event: Event) -> str:
        """ "kernel.py:13"; "" where it is not known."""
        return short(self.location(event))

    def location(self, event: Event) -> Location | None:
        """Where an event stands in the source."""
        return event.site.location or (event.copy.site.location if isinstance(event, Start) else None)

    def moment(self, event: Event) -> str:
        """ "grid step 2"; "" outside grids and loops."""
        return event.site.moment or (event.copy.site.moment if isinstance(event, Start) else "")

    def copy(self, core: int, index: int) -> str:
        """A copy, by its name or by where it was started."""
        name = self.copy_name(core, index)
        return f"the copy {name}" if name else f"the copy started {self.by(core, index)}"

    def whose_copy(self, core: int, index: int) -> str:
        """A copy and, where there are several cores, whose it is."""
        name = self.copy_name(core, index)
        if not name or len(self.program.cores) == 1:
            return self.copy(core, index)
        return f"{self.core(core)}'s copy {name}"

    def by(self, core: int, index: int) -> str:
        """Who did it, where and when."""
        who = f"by {self.core(core)} " if len(self.program.cores) > 1 else ""
        return f"{who}at {self.place(core, index)}"

    def copy_name(self, core: int, index: int) -> str:
        """ "x[0] -> buf[1]" of the copy that is started there; "" where it has no name."""
        event = self.program.cores[core].events[index]
        assert isinstance(event, Start)
        return event.copy.name or event.copy.site.label or event.site.label

    def semaphore(self, event: Wait | Signal) -> str:
        """A semaphore as the user wrote it."""
        return event.site.label or str(event.semaphore)
