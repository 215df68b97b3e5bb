"""A run as something to look at: what a notebook displays, what is saved as a picture or opened in Perfetto."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from asyncops.checker.events import Program
from asyncops.checker.machine import Step
from asyncops.checker.outcomes import Claim
from asyncops.checker.pictures.chrome import trace_of
from asyncops.checker.pictures.late_run import late_run
from asyncops.checker.pictures.layout import lay_out
from asyncops.checker.pictures.shortening import shortened
from asyncops.checker.pictures.svg import draw
from asyncops.checker.pictures.tracks import Tracks

MOST_COLUMNS, MOST_CORES = 16, 4
_LATE = "Every copy is drawn for as long as it may take: until a wait for it returns."


@dataclass(frozen=True, slots=True)
class Timeline:
    """Cores, copies in flight and semaphores over the logical time of one run. A notebook displays it as a picture.

    Time has no unit: what causes something stands to the left of it, and how long anything takes is not known.
    """

    tracks: Tracks
    title: str = ""

    def to_svg(self, columns: int = MOST_COLUMNS, cores: int = MOST_CORES) -> str:
        """The picture as SVG text that stands alone, legible on light and dark pages.

        Args:
          columns: about how many steps to show; a longer run is shortened where the least happens that matters.
          cores: how many cores to show, those of the defect first.
        """
        return draw(shortened(self.tracks, columns, cores), self.title)

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def to_chrome_trace(self) -> dict[str, Any]:
        """The whole run in the Trace Event Format: ``json.dump`` it, and open the file in ui.perfetto.dev."""
        return trace_of(self.tracks)

    def __str__(self) -> str:
        deeds = sum(deed.times for core in self.tracks.cores for deed in core.deeds)
        copies = sum(len(core.flights) for core in self.tracks.cores)
        counts = (
            (len(self.tracks.cores), "core", "cores"),
            (deeds, "event", "events"),
            (copies, "copy", "copies"),
        )
        told = ", ".join(f"{n} {one if n == 1 else many}" for n, one, many in counts)
        return f"timeline of {told}. {self.tracks.caption}"


def timeline_of_schedule(
    program: Program, steps: Sequence[Step], claim: Claim, caption: str, title: str = ""
) -> Timeline:
    """The timeline of a schedule; ``caption`` says what it shows, and is marked in the last column."""
    return Timeline(lay_out(program, steps, claim, caption), title)


def timeline_of_program(program: Program, caption: str = _LATE, title: str = "") -> Timeline:
    """The timeline of the run of a program in which every copy takes as long as it may."""
    return Timeline(lay_out(program, late_run(program), None, caption), title)
