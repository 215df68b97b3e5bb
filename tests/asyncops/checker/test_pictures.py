"""Timelines: what causes something stands before it, what matters survives shortening, and programs can read them."""

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

sys.path.insert(0, str(Path(__file__).parent))

from tiny_programs import program, programs, slot, start

import asyncops
from asyncops.checker.displays import html_of
from asyncops.checker.events import Access, Mark, Program, Signal, Wait
from asyncops.checker.order import must_happen_before
from asyncops.checker.pictures.late_run import late_run
from asyncops.checker.pictures.shortening import shortened
from asyncops.checker.pictures.svg import DARK, LIGHT
from asyncops.checker.pictures.timelines import Timeline, timeline_of_program
from asyncops.checker.pictures.tracks import Tracks
from asyncops.checker.replay import Schedule, find_early_touch, find_overlap, find_stuck
from asyncops.checker.report import Report
from stateful.errors import InvalidArgumentError, UnmodelledError

SVG = "{http://www.w3.org/2000/svg}"
SHAPE = jax.ShapeDtypeStruct((8, 128), jnp.float32)
RACE = program([start("s", 4, writes=slot("m")), Access(slot("m"), False), Wait("s", 4)])


def race_of(race: Program) -> Schedule:
    (found, *_) = must_happen_before(race).races()
    schedule = find_overlap(race, found)
    assert schedule is not None
    return schedule


def deeds(tracks: Tracks, core: int = 0) -> list[tuple[int, str]]:
    return [(deed.column, deed.kind) for deed in tracks.cores[core].deeds]


def test_a_copy_is_under_way_until_the_wait_for_it():
    one = program([start("s", 4), Access(slot("m"), True), Wait("s", 4), Access(slot("m"), False)])
    (core,) = timeline_of_program(one).tracks.cores
    assert deeds(timeline_of_program(one).tracks) == [(0, "start"), (1, "write"), (2, "wait"), (3, "read")]
    assert [(f.begin, f.end) for f in core.flights] == [(0.5, 2)]
    assert [(at.at, at.count) for at in core.semaphores[0].levels] == [(0, 0), (2, 4), (2.5, 0)]


def test_a_wait_stands_after_the_signal_of_another_core():
    two = program([Wait("s", 1)], [Access(slot("m"), True), Access(slot("m", 1), True), Signal("s", 1)])
    assert deeds(timeline_of_program(two).tracks) == [(3, "wait")]


def test_events_alike_are_one_box():
    tracks = timeline_of_program(program([Access(slot("m"), False)] * 5)).tracks
    assert [(d.times, d.column) for d in tracks.cores[0].deeds] == [(5, 0)]


def test_the_racing_pair_is_marked_in_the_last_column():
    tracks = race_of(RACE).timeline().tracks
    (core,) = tracks.cores
    assert [d.kind for d in core.deeds if d.accused] == ["start", "read"]
    assert core.deeds[-1].column == tracks.columns - 1
    assert [(f.accused, f.end) for f in core.flights] == [(True, None)]
    assert tracks.clash
    assert "may still be writing its destination" in tracks.caption


def test_a_core_that_waits_for_ever_is_marked():
    schedule = find_stuck(program([Signal("s", 1), Wait("s", 2)], [Signal("t", 1)]))
    assert schedule is not None
    tracks = schedule.timeline().tracks
    assert [(d.verb, d.accused) for d in tracks.cores[0].deeds] == [
        ("signals", False),
        ("waits for ever", True),
    ]
    assert [(s.name, s.is_lacking) for s in tracks.cores[0].semaphores] == [("s", True)]


def test_a_touch_outside_a_lifetime_is_marked():
    late = program([start("s", 2, writes=slot("m")), Mark("exit", "kernel", (slot("m"),))])
    (touch, *_) = must_happen_before(late).touches()
    schedule = find_early_touch(late, touch.point, touch.mark)
    assert schedule is not None
    (core,) = schedule.timeline().tracks.cores
    assert [(d.verb, d.accused) for d in core.deeds] == [("starts", True), ("leaves", True)]
    assert [f.end for f in core.flights] == [None]


@given(programs())
def test_any_program_can_be_drawn(tiny: Program):
    timeline = timeline_of_program(tiny)
    for core in timeline.tracks.cores:
        columns = [deed.column for deed in core.deeds]
        assert columns == sorted(set(columns))
        assert all(level.count >= 0 for track in core.semaphores for level in track.levels)
        assert all(flight.end is None or flight.begin < flight.end for flight in core.flights)
    ET.fromstring(timeline.to_svg())
    check_trace(timeline.to_chrome_trace())


@given(programs())
def test_any_witness_can_be_drawn(tiny: Program):
    for race in must_happen_before(tiny).races(limit=3):
        schedule = find_overlap(tiny, race)
        if schedule is not None:
            picture = ET.fromstring(schedule.to_svg())
            assert [e for e in picture.iter(f"{SVG}rect") if "bad" in (e.get("class") or "")]
            check_trace(schedule.to_chrome_trace())


@given(programs())
def test_the_late_run_goes_as_far_as_any(tiny: Program):
    last: dict[int, int] = {}
    for step in late_run(tiny):
        if hasattr(step, "stop"):
            last[step.core] = step.stop
    ends = [last.get(core, 0) for core in range(len(tiny.cores))]
    if find_stuck(tiny) is None:
        assert ends == [len(core.events) for core in tiny.cores]


LONG = program(
    [
        start("s", 4, writes=slot("m")),
        *(Access(slot("n", i), True) for i in range(300)),
        Access(slot("m"), False),
    ]
)


def test_a_long_run_keeps_what_matters_and_counts_the_rest():
    whole = race_of(LONG).timeline().tracks
    tracks = shortened(whole, 12, 4)
    (core,) = tracks.cores
    assert tracks.columns <= 12 + 3
    assert [d.kind for d in core.deeds if d.accused] == ["start", "read"]
    assert sum(d.times for d in core.deeds) == sum(d.times for d in whole.cores[0].deeds) == 302
    assert [d.verb for d in core.deeds if d.kind == "skipped"] == ["290 events"]
    assert core.deeds[-1].column == tracks.columns - 1


def test_a_long_run_without_a_defect_shows_how_it_begins_and_ends():
    tracks = shortened(timeline_of_program(LONG).tracks, 12, 4)
    assert [d.kind for d in tracks.cores[0].deeds][-3:] == ["skipped", "write", "read"]


def test_the_cores_of_a_defect_are_shown_first():
    idle = [[Signal(f"t{n}", 1)] for n in range(6)]
    tracks = race_of(program(*idle, list(RACE.cores[0].events))).timeline().tracks
    assert [core.device for core in shortened(tracks, 12, 2).cores][-1] == 6


def test_a_picture_stands_alone():
    text = race_of(RACE).to_svg()
    picture = ET.fromstring(text)
    assert picture.tag == f"{SVG}svg"
    assert not re.search(r"href|url\(|@import|<script|https?://(?!www\.w3\.org/2000/svg)", text)
    captions = [e.text for e in picture.iter(f"{SVG}text")]
    assert any("may still be writing" in (caption or "") for caption in captions)
    assert len([e for e in picture.iter(f"{SVG}rect") if "bad" in (e.get("class") or "")]) == 3


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(a: str, b: str) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("palette", [LIGHT, DARK])
def test_text_is_legible_on_every_ground(palette: dict[str, str]):
    """The contrast that WCAG 2 asks of text (AA) and of graphics."""
    for ground in ("ground", "band", "core", "wait", "signal", "copy", "count", "bad"):
        assert contrast(palette["ink"], palette[ground]) >= 4.5, ground
    for ground in ("ground", "core", "wait", "signal", "copy"):
        assert contrast(palette["faint"], palette[ground]) >= 3, ground
    for edge in ("core", "wait", "signal", "copy", "bad"):
        assert contrast(palette[f"{edge}-edge"], palette["ground"]) >= 3, edge


def check_trace(trace: dict[str, Any]) -> None:
    """What the Trace Event Format asks of each phase used, and that slices of one thread do not overlap."""
    trace = json.loads(json.dumps(trace))
    required = {
        "X": {"name", "cat", "pid", "tid", "ts", "dur"}, "M": {"name", "pid", "tid", "args"},
        "C": {"name", "pid", "ts", "args"}, "i": {"name", "ts", "s", "pid", "tid"},
        "s": {"name", "cat", "id", "pid", "tid", "ts"}, "f": {"name", "cat", "id", "pid", "tid", "ts"},
    }  # fmt: skip
    busy: dict[Any, int] = {}
    threads = {(e["pid"], e["tid"]) for e in trace["traceEvents"] if e["name"] == "thread_name"}
    for event in trace["traceEvents"]:
        assert required[event["ph"]] <= set(event), event
        if event["ph"] == "X":
            thread = event["pid"], event["tid"]
            assert thread in threads
            assert event["ts"] >= busy.get(thread, 0)
            assert event["dur"] > 0
            busy[thread] = event["ts"] + event["dur"]
        if event["ph"] == "C":
            assert all(type(count) is int for count in event["args"].values())
    assert all(type(e["id"]) is int for e in trace["traceEvents"] if e["ph"] in "sf")  # Perfetto drops others
    arrows = {phase: {e["id"] for e in trace["traceEvents"] if e["ph"] == phase} for phase in "sf"}
    assert arrows["s"] == arrows["f"]


def test_a_trace_holds_the_whole_schedule():
    trace = race_of(LONG).to_chrome_trace()
    check_trace(trace)
    kinds = [e["cat"] for e in trace["traceEvents"] if e["ph"] == "X"]
    assert (kinds.count("write"), kinds.count("copy")) == (300, 1)
    assert [e["name"] for e in trace["traceEvents"] if e["ph"] == "i"] == [trace["otherData"]["caption"]]


class Text(HTMLParser):
    """The text of a page, and its elements in order; refuses what is active or not closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text, self.tags, self._open = "", [], []
        self.feed(page)
        assert not self._open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag != "script"
        self.tags.append(tag)
        if tag != "br":
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def doubled(wrong: bool) -> Any:
    def double(x_hbm, o_ref, buf, sem):
        copy = pltpu.make_async_copy(x_hbm, buf, sem)
        copy.start()
        if not wrong:
            copy.wait()
        o_ref[...] = buf[...] * 2.0
        if wrong:
            copy.wait()

    return pl.pallas_call(
        double, out_shape=SHAPE, in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        scratch_shapes=[pltpu.VMEM(SHAPE.shape, SHAPE.dtype), pltpu.SemaphoreType.DMA(())],
    )  # fmt: skip


def test_a_notebook_shows_the_finding_its_picture_and_the_cure():
    report = asyncops.check(doubled(True), SHAPE)
    page = Text(report._repr_html_())
    assert "AO201" in page.text
    assert "wait for the copy into buf[...] before this read" in page.text
    assert "svg" in page.tags
    assert not re.search(r"(src|href)=|@import|url\(", report._repr_html_())


def test_a_notebook_shows_a_clean_report():
    page = Text(asyncops.check(doubled(False), SHAPE)._repr_html_())
    assert page.text.startswith("clean in double")
    assert "unknown" in Text(html_of(Report(unknowns=("<sort> at x.py:3",)))).text


def test_a_defect_without_a_schedule_shows_the_run_it_was_seen_in():
    def leaves_one(o_ref, sem):
        pl.semaphore_signal(sem, 2)
        pl.semaphore_wait(sem, 1)
        o_ref[...] = jnp.zeros((8, 128))

    kernel = pl.pallas_call(leaves_one, out_shape=SHAPE, scratch_shapes=[pltpu.SemaphoreType.REGULAR(())])
    (finding,) = asyncops.check(kernel).diagnostics
    assert finding.code == "AO301"
    assert [d.verb for d in finding.witness.timeline().tracks.cores[0].deeds][1:3] == ["signals", "waits"]


def test_the_run_of_a_right_kernel_can_be_drawn():
    timeline = asyncops.draw_timeline(doubled(False), SHAPE)
    assert isinstance(timeline, Timeline)
    assert timeline.title == "one run of double"
    assert [kind for _, kind in deeds(timeline.tracks)][1:4] == ["start", "wait", "read"]
    assert timeline._repr_svg_() == timeline.to_svg()
    assert "1 copy" in str(timeline)
    check_trace(timeline.to_chrome_trace())


def test_of_several_paths_the_one_with_most_events_is_drawn():
    def guarded(flag_ref, x_hbm, o_ref, sem):
        @pl.when(flag_ref[0] > 3)
        def _():
            copy = pltpu.make_async_copy(x_hbm, o_ref, sem)
            copy.start()
            copy.wait()

    kernel = pl.pallas_call(
        guarded, out_shape=SHAPE,
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec(memory_space=pl.ANY)],
        scratch_shapes=[pltpu.SemaphoreType.DMA(())],
    )  # fmt: skip
    timeline = asyncops.draw_timeline(kernel, jax.ShapeDtypeStruct((1,), jnp.int32), SHAPE)
    assert len(timeline.tracks.cores[0].flights) == 1


def test_a_program_without_kernels_has_no_timeline():
    with pytest.raises(InvalidArgumentError, match="no Pallas kernel in sin"):
        asyncops.draw_timeline(jnp.sin, SHAPE)


def test_a_run_of_very_many_events_is_refused():
    def long(x_hbm, o_ref, sem):
        def body(i, carry):
            pltpu.make_async_copy(x_hbm, o_ref, sem).start()
            pltpu.make_async_copy(x_hbm, o_ref, sem).wait()
            return carry

        jax.lax.fori_loop(0, 100_000, body, 0)

    kernel = pl.pallas_call(
        long, out_shape=SHAPE, in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        scratch_shapes=[pltpu.SemaphoreType.DMA(())],
    )  # fmt: skip
    with pytest.raises(UnmodelledError, match=r"within 20000 events a core .*; try smaller shapes"):
        asyncops.draw_timeline(kernel, SHAPE)
