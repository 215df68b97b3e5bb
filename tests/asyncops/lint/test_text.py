"""The text that people read: source lines with carets, steps, cure."""

from __future__ import annotations

from pathlib import Path

from asyncops.lint.formats.registry import Page, render
from asyncops.lint.formats.wording import printable
from asyncops.lint.linting import Settings, lint
from asyncops.lint.results import LintResult
from tests.asyncops.lint.conftest import PRELUDE, Run, Write

FIRST = PRELUDE.count("\n") + 1


def result_of(*files: Path) -> LintResult:
    from asyncops.lint.discovery import find_sources

    return lint(find_sources(map(str, files)), Settings())


def test_a_finding_is_read_at_a_glance(race: Path) -> None:
    text = render("text", result_of(race), Page())
    a, b, c, d = range(FIRST + 1, FIRST + 5)
    assert (
        text
        == f"""\
error[AO201] read-before-arrival: buf[0] is read while the copy into it may still be writing
  --> kernels.py:{c} in kernel
   |
{a} |     first.start()
   |     ------------- the copy was started here
{b} |     second.start()
{c} |     out = buf[0]  # a comment
   |     ^^^^^^^^^^^^
{d} |     first.wait()
   |     ------------ it should have been waited for before
   |
   = how it happens:
       1. the copy into buf[0] starts
       2. the core reads buf[0]
       3. the copy writes buf[0]
   = follows from it, AO302 at kernels.py:{b}: sem serves two copies
   = cure: wait for the copy before the read
   = more: asyncops --explain AO201

assumed: the mesh is a ring
1 error in 1 target, 1 kernel
"""
    )


def test_far_lines_are_elided_and_other_files_have_their_own_block(targets: Write, write: Write) -> None:
    other = write("helper.py", "def start(copy):\n    copy.start()\n")
    file = targets(
        "kernels.py",
        f"""\
        first = 1


        last = 2

        @lint_target()
        def target():
            related = (("first", at("first =")), ("started", Location({str(other)!r}, 2, "start")))
            return Report((finding("AO201", "last =", related=related),))
        """,
    )
    lines = render("text", result_of(file), Page()).splitlines()
    assert lines[2:8] == [
        "   |",
        f"{FIRST} | first = 1",
        "   | --------- first",
        "...",
        f"{FIRST + 3} | last = 2",
        "   | ^^^^^^^^",
    ]
    start = lines.index("  ::: helper.py:2 in start")
    assert lines[start + 2 : start + 4] == [" 2 |     copy.start()", "   |     ------------ started"]


def test_columns_that_are_known_are_underlined(targets: Write) -> None:
    file = targets(
        "kernels.py",
        """\
        def kernel(out, buf):
        \tout[...] = buf[0]

        @lint_target()
        def target():
            place = at("out[...]", 12, 18)
            return Report((Diagnostic("AO201", "r", "error", "m", place, confirmed=True),))
        """,
    )
    lines = render("text", result_of(file), Page()).splitlines()
    assert lines[1].endswith(f"kernels.py:{FIRST + 1}:13 in kernel")
    assert lines[3:5] == [f"{FIRST + 1} |     out[...] = buf[0]", "   |                ^^^^^^"]


def test_a_missing_source_file_still_gives_the_place(targets: Write) -> None:
    file = targets(
        "kernels.py",
        """\
        @lint_target()
        def target():
            return Report((Diagnostic("AO201", "r", "error", "m", Location("/gone.py", 7)),))
        """,
    )
    text = render("text", result_of(file), Page())
    assert " --> /gone.py:7\n" in text
    assert "m (unconfirmed)" in text


def test_a_finding_without_a_place(targets: Write) -> None:
    report = 'Report((Diagnostic("AO201", "r", "error", "m"),))'
    file = targets("kernels.py", f"@lint_target()\ndef target():\n    return {report}\n")
    assert render("text", result_of(file), Page()).startswith("error[AO201] r: m (unconfirmed)\n")


def test_colour_only_on_request(race: Path) -> None:
    result = result_of(race)
    assert "\x1b[1;31merror[AO201]\x1b[0m" in render("text", result, Page(color=True))
    assert "\x1b" not in render("text", result, Page(color=False))


def test_control_characters_of_the_program_do_not_reach_the_terminal() -> None:
    assert printable("a\x1b[31mb\tc") == "a\\x1b[31mb\tc"


def test_one_defect_seen_through_two_targets_is_one_finding(targets: Write) -> None:
    file = targets(
        "kernels.py",
        """\
        def body():
            pass

        @lint_target(name="short")
        @lint_target(name="long")
        def target():
            return Report((finding("AO201", "def body"),))
        """,
    )
    text = render("text", result_of(file), Page())
    assert text.count("error[AO201]") == 1
    assert "seen in: kernels.py:short, kernels.py:long" in text
    assert text.endswith("1 error in 2 targets, 0 kernels\n")


def test_unknowns_are_listed_once_with_their_targets(run: Run, targets: Write) -> None:
    text = "".join(
        f"@lint_target()\ndef {name}():\n    return Report(unknowns=('sort at k.py:3',))\n" for name in "ab"
    )
    output = run("lint", targets("kernels.py", text)).stdout
    assert "unknown: sort at k.py:3 (kernels.py:a, kernels.py:b)\n" in output
    assert output.endswith("no findings in 2 targets, 0 kernels; 2 not modelled\n")
