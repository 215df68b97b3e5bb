"""The schedule report as text, as data and as a picture; what `check_compiled` takes; the rules' own pages."""

from __future__ import annotations

import json
import random
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import asyncops
from asyncops.compiled import rules
from asyncops.lint.rulebook import HEADINGS, read_page
from stateful.errors import HloError, InvalidArgumentError

HERE = Path(__file__).parent
SVG = "{http://www.w3.org/2000/svg}"


def report_of(name: str, version: str = "jax-0.10.2"):
    return asyncops.check_compiled((HERE / "dumps" / version / f"{name}.hlo.txt").read_text())


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("staggered_loop", ["AO504"]),
        ("through_a_conditional", ["AO504"]),
        ("source_rewritten", ["AO504"]),
        ("equal_starts", ["AO501"]),
        ("read_through_the_future", []),
        ("permuted_by_jax_in_a_loop", []),
        ("cpu_loop", []),
    ],
)
@pytest.mark.parametrize("version", ["jax-0.10.2", "jax-0.12.0.1"])
def test_stored_dumps_of_both_ends(name, codes, version):
    report = report_of(name, version)
    assert [d.code for d in report.diagnostics] == codes
    assert not report.unknowns
    assert not report.assumptions
    for finding in report.diagnostics:
        assert finding.location is not None
        assert finding.location.file == "tests/asyncops/compiled/programs.py"


def test_text():
    text = str(report_of("permuted_by_jax_in_a_loop").schedule)
    assert "collective-permute by XLA, 4,194,304 bytes to VMEM, 8 times" in text
    assert "computation %" in text
    assert "cycles" in text
    assert "copies made by the compiler" in text


def test_text_of_a_copy_that_nothing_overlaps():
    assert "nothing runs meanwhile" in str(report_of("through_a_conditional").schedule)


def test_json():
    schedule = report_of("read_through_the_future").schedule
    data = json.loads(schedule.to_json())
    (pair,) = [p for p in data["pairs"] if p["by"] == "Pallas"]
    assert pair["what"] == "kernel ring_start"
    assert pair["nbytes"] == 4 << 20
    assert [item["what"] for item in pair["overlapped"]] == ["computation"]
    assert pair["cycles"] > 0
    assert pair["start_line"]["line"] < pair["overlapped"][0]["line"]["line"] < pair["done_line"]["line"]


def test_picture():
    schedule = report_of("read_through_the_future").schedule
    drawing = ElementTree.fromstring(schedule.to_svg())
    kinds = [rect.get("class") for rect in drawing.iter(f"{SVG}rect")]
    assert kinds == ["copy", "work"]
    hints = [title.text for title in drawing.iter(f"{SVG}title")]
    assert any("4,194,304 bytes in flight" in (hint or "") for hint in hints)
    assert "href" not in schedule.to_svg()


def test_picture_of_names_that_need_escaping():
    text = 'HloModule a<b>&"c", is_scheduled=true\n\nENTRY e {\n  ROOT %p = f32[] parameter(0)\n}\n'
    drawing = ElementTree.fromstring(asyncops.check_compiled(text).schedule.to_svg())
    assert drawing.get("class") == "asyncops"


def test_the_same_program_gives_the_same_bytes():
    first, second = report_of("staggered_loop"), report_of("staggered_loop")
    assert str(first) == str(second)
    assert first.schedule.to_json() == second.schedule.to_json()
    assert first.schedule.to_svg() == second.schedule.to_svg()


def test_any_compiled_program_is_taken():
    compiled = jax.jit(lambda x: jnp.sin(x) * 2).lower(jax.ShapeDtypeStruct((8, 128), jnp.float32)).compile()
    report = asyncops.check_compiled(compiled)
    assert report.ok
    assert report.schedule.pairs == ()


def test_what_is_not_taken():
    with pytest.raises(
        InvalidArgumentError, match=r"compiled is a jax.stages.Compiled .* or HLO text, got int"
    ):
        asyncops.check_compiled(3)  # type: ignore[arg-type]
    with pytest.raises(HloError):
        asyncops.check_compiled("text of something else")


def test_damaged_dumps_raise_nothing_else(dump):
    seed = random.Random(0)
    text = dump.read_text()
    for _ in range(15):
        lines = text.split("\n")
        for _ in range(seed.randint(1, 4)):
            at = seed.randrange(len(lines))
            lines[at : at + seed.randint(0, 2)] = [seed.choice(lines)[seed.randint(0, 40) :]]
        try:
            asyncops.check_compiled("\n".join(lines))
        except HloError:
            continue


def test_the_work_of_a_check_is_linear(calls_made):
    head, entry = (HERE / "dumps/jax-0.10.2/source_rewritten.hlo.txt").read_text().split("ENTRY")
    lines = entry.split("\n")
    at = next(n for n, line in enumerate(lines) if "dynamic-update-slice(" in line)
    kind = "f32[8,128]{1,0:T(8,128)S(1)}"

    def check(count: int) -> None:
        more = [f"  %m.0 = {kind} constant({{...}})"]
        more += [
            f"  %m.{n} = {kind} add(%m.{n - 1}, %m.0), metadata={{stack_frame_id=3}}" for n in range(1, count)
        ]
        text = head + "ENTRY" + "\n".join([*lines[:at], *more, *lines[at:]])
        assert [d.code for d in asyncops.check_compiled(text).diagnostics] == ["AO504"]

    check(10)
    few, more, most = (calls_made(lambda n=n: check(n)) for n in (10, 1010, 4010))
    assert 2.5 < (most - few) / (more - few) < 5


@pytest.mark.parametrize("rule", rules.ALL, ids=lambda rule: rule.CODE)
def test_each_rule_has_its_page(rule):
    page = read_page(Path(rule.__file__))
    assert page is not None
    assert (page.code, page.name, page.severity) == (rule.CODE, rule.NAME, rule.SEVERITY)
    assert page.summary.endswith(".")
    assert tuple(page.sections) == HEADINGS
    assert all(page.sections.values())
