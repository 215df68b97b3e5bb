"""Every format for programs is read by a program of the kind that it is for."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import junitparser
import pytest
from fluidattacks_core.sarif import SarifLog

from asyncops.lint.formats.sarif import FINGERPRINT
from tests.asyncops.lint.conftest import PRELUDE, Run, Write

LINE = PRELUDE.count("\n") + 4
MIXED = """\
def awkward(): pass

@lint_target()
def clean():
    return Report()

@lint_target()
def unknown():
    return Report(unknowns=("sort at kernels.py:3",))

@lint_target()
def noted():
    return Report((finding("AO401", "def awkward", "info"),))

@lint_target()
def awkward_text():
    message = "50% of a,b: <&> \\x1b \\u2264\\nsecond line"
    return Report((Diagnostic("AO505", "not-overlapped", "warning", message, at("def awkward")),))

@lint_target()
def broken():
    raise TypeError("<no> such shape")
"""


@pytest.fixture
def mixed(targets: Write) -> Path:
    """A file with every kind of outcome."""
    return targets("kernels.py", MIXED)


def sarif_of(run: Run, *arguments: object) -> dict[str, Any]:
    text = run("lint", *arguments, "--format", "sarif").stdout
    SarifLog.model_validate_json(text)
    return json.loads(text)["runs"][0]


def test_json_holds_all(run: Run, race: Path) -> None:
    document = json.loads(run("lint", race, "--format", "json").stdout)
    (finding,) = document["findings"]
    assert document["verdict"] == "findings"
    assert finding["location"] == {"file": "kernels.py", "line": LINE, "function": "kernel"}
    assert [r["location"]["line"] for r in finding["related"]] == [LINE - 2, LINE + 1]
    assert [s["text"] for s in finding["witness"]][1] == "the core reads buf[0]"
    assert finding["secondary"][0]["code"] == "AO302"
    assert document["targets"][0]["assumptions"] == ["the mesh is a ring"]
    assert document["targets"][0]["kernels"][0]["events"] == 9


def test_json_of_every_outcome(run: Run, mixed: Path) -> None:
    document = json.loads(run("lint", mixed, "--format", "json").stdout)
    verdicts = {t["name"].partition(":")[2]: t["verdict"] for t in document["targets"]}
    assert document["verdict"] == "failed"
    assert verdicts == {
        "clean": "clean",
        "unknown": "unknown",
        "noted": "clean",
        "awkward_text": "findings",
        "broken": "failed",
    }


def test_concise_is_one_line_each(run: Run, race: Path) -> None:
    lines = run("lint", race, "--format", "concise").stdout.splitlines()
    assert lines == [
        f"kernels.py:{LINE}: AO201 error: buf[0] is read while the copy into it may still be writing",
        f"kernels.py:{LINE - 1}: AO302 error: sem serves two copies (follows from AO201)",
        "1 error in 1 target, 1 kernel",
    ]


def test_concise_keeps_a_message_on_its_line(run: Run, mixed: Path) -> None:
    lines = run("lint", mixed, "--format", "concise").stdout.splitlines()
    assert all(re.match(r"kernels\.py:|1 warning in", line) for line in lines), lines


def test_sarif_fits_the_schema_and_tells_the_story(run: Run, race: Path) -> None:
    sarif = sarif_of(run, race)
    (result,) = sarif["results"]
    rule = sarif["tool"]["driver"]["rules"][result["ruleIndex"]]
    region = result["locations"][0]["physicalLocation"]["region"]
    (flow,) = result["codeFlows"]
    steps = flow["threadFlows"][0]["locations"]
    assert rule["id"] == result["ruleId"] == "AO201"
    assert (region["startLine"], region["startColumn"], region["endColumn"]) == (LINE, 5, 17)
    assert [s["location"]["message"]["text"] for s in steps][-1] == "the copy writes buf[0]"
    assert [r["message"]["text"] for r in result["relatedLocations"]][:1] == ["the copy was started here"]


def test_steps_that_name_a_line_are_linked_to_it(run: Run, targets: Write) -> None:
    file = targets(
        "kernels.py",
        """\
        def kernel(): pass

        @lint_target()
        def target():
            witness = "1. starts (kernels.py:16, grid step 2)\\n2. reads (other.py:3)\\n3. ends"
            return Report((finding("AO201", "def kernel", witness=witness),))
        """,
    )
    (result,) = sarif_of(run, file)["results"]
    steps = [s["location"] for s in result["codeFlows"][0]["threadFlows"][0]["locations"]]
    assert [s["message"]["text"] for s in steps][1:] == ["reads (other.py:3)", "ends"]
    assert steps[0]["physicalLocation"]["region"]["startLine"] == 16
    assert ["physicalLocation" in s for s in steps] == [True, False, False]


def test_sarif_of_every_outcome(run: Run, mixed: Path) -> None:
    sarif = sarif_of(run, mixed)
    levels = [n["level"] for n in sarif["invocations"][0]["toolExecutionNotifications"]]
    assert not sarif["invocations"][0]["executionSuccessful"]
    assert levels == ["error", "warning"]
    assert sorted(r["level"] for r in sarif["results"]) == ["note", "warning"]


def test_sarif_fingerprints_survive_edits_elsewhere(run: Run, race: Path) -> None:
    def fingerprint() -> str:
        return sarif_of(run, race)["results"][0]["partialFingerprints"][FINGERPRINT]

    before = fingerprint()
    race.write_text("# one more line\n" + race.read_text())
    assert fingerprint() == before
    race.write_text(race.read_text().replace("buf[0]  # a", "buf[1]  # a"))
    assert fingerprint() != before


def test_sarif_marks_suppressed_findings(run: Run, race: Path) -> None:
    race.write_text(race.read_text().replace("# a comment", "# asyncops: ignore[AO201] known"))
    sarif = sarif_of(run, race)
    assert sarif["results"][0]["suppressions"] == [{"kind": "inSource"}]


COMMAND = re.compile(r"::(?P<name>\w+) (?P<properties>[^:]*)::(?P<message>.*)")


def unescaped(text: str) -> str:
    for code, character in (("%0A", "\n"), ("%0D", "\r"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(code, character)
    return text


def parsed_commands(text: str) -> list[tuple[str, dict[str, str], str]]:
    """As GitHub's runner reads workflow commands: one a line, properties split at commas."""
    commands: list[tuple[str, dict[str, str], str]] = []
    for line in text.splitlines():
        match = COMMAND.fullmatch(line)
        assert match, line
        pairs = (pair.partition("=") for pair in match["properties"].split(","))
        properties = {key: unescaped(value) for key, _, value in pairs}
        commands.append((match["name"], properties, unescaped(match["message"])))
    return commands


def test_github_annotations(run: Run, race: Path) -> None:
    ((name, properties, message),) = parsed_commands(run("lint", race, "--format", "github").stdout)
    assert name == "error"
    assert properties == {
        "file": "kernels.py",
        "line": str(LINE),
        "col": "5",
        "endColumn": "17",
        "title": "AO201 read-before-arrival",
    }
    assert message.splitlines()[0].startswith("buf[0] is read")
    assert f"the copy was started here: kernels.py:{LINE - 2}" in message
    assert "2. the core reads buf[0]" in message


def test_github_escapes_what_its_syntax_uses(run: Run, mixed: Path) -> None:
    commands = parsed_commands(run("lint", mixed, "--format", "github").stdout)
    warning = next(message for name, p, message in commands if p["title"] == "AO505 not-overlapped")
    assert warning.startswith("50% of a,b: <&> \\x1b \u2264\nsecond line")
    assert sorted(name for name, _, _ in commands) == ["error", "notice", "warning", "warning"]


def test_junit_has_a_case_per_target(run: Run, mixed: Path) -> None:
    xml = junitparser.JUnitXml.fromstring(run("lint", mixed, "--format", "junit").stdout.encode())
    (suite,) = xml
    cases = {case.name: case for case in suite}
    assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (5, 1, 1, 1)
    assert {case.classname for case in suite} == {"kernels.py"}
    assert isinstance(cases["awkward_text"].result[0], junitparser.Failure)
    assert cases["awkward_text"].result[0].type == "AO505 not-overlapped"
    assert isinstance(cases["broken"].result[0], junitparser.Error)
    assert isinstance(cases["unknown"].result[0], junitparser.Skipped)
    assert not cases["clean"].result


class Reader(HTMLParser):
    """Collects the text inside chosen elements, and refuses unbalanced or active content."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: dict[str, list[str]] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag != "script"
        assert not {"src", "href", "onclick"} & {name for name, _ in attrs}
        if tag != "meta":
            self.open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in self.open:
            self.texts[tag][-1] += data


def read_html(text: str) -> dict[str, list[str]]:
    reader = Reader()
    reader.feed(text)
    assert not reader.open
    return reader.texts


def test_html_shows_the_line_the_steps_and_the_cure(run: Run, race: Path) -> None:
    texts = read_html(run("lint", race, "--format", "html").stdout)
    assert texts["h2"] == [
        "AO201 read-before-arrival: buf[0] is read while the copy into it may still be writing"
    ]
    assert texts["mark"] == ["first.start()", "out = buf[0]", "first.wait()"]
    assert texts["ol"] == ["the copy into buf[0] startsthe core reads buf[0]the copy writes buf[0]"]
    assert "wait for the copy before the read" in texts["article"][0]


def test_html_of_every_outcome(run: Run, mixed: Path) -> None:
    texts = read_html(run("lint", mixed, "--format", "html").stdout)
    assert any("<&>" in text for text in texts["h2"])
    assert any("<no> such shape" in text for text in texts["h2"])
    assert "kernels.py:unknown: sort at kernels.py:3" in texts["li"]
