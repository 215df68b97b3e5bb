"""JUnit XML: a test case per target; its findings are failures, what could not be checked is an error."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from asyncops.lint.formats import wording
from asyncops.lint.formats.registry import Page
from asyncops.lint.results import Finding, LintResult, Outcome

# Characters that XML 1.0 cannot hold, even escaped.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(result: LintResult, page: Page) -> str:
    """One suite. A finding about no target (a comment) makes a case of its own."""
    suite = ET.Element("testsuite", name="asyncops")
    for outcome in result.outcomes:
        _add_target(suite, outcome, [f for f in result.live if outcome.target in f.targets])
    for finding in result.live:
        if not finding.targets:
            case = _case(suite, wording.place(finding.location), finding.code, 0.0)
            _add_finding(case, finding)
    kinds = {kind: len(suite.findall(f".//{kind}")) for kind in ("failure", "error", "skipped")}
    suite.set("tests", str(len(suite)))
    for kind, number in kinds.items():
        suite.set({"failure": "failures", "error": "errors"}.get(kind, kind), str(number))
    suite.set("time", f"{result.seconds:.3f}")
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _add_target(suite: ET.Element, outcome: Outcome, findings: list[Finding]) -> None:
    file, _, name = outcome.target.partition(":")
    case = _case(suite, file, name or file, outcome.seconds)
    if outcome.failure:
        error = ET.SubElement(case, "error", message=_text(outcome.failure.message), type="check-failed")
        error.text = _text(outcome.failure.traceback)
    for finding in findings:
        _add_finding(case, finding)
    if outcome.unknowns and not outcome.failure:
        skipped = ET.SubElement(case, "skipped", message="something is not modelled")
        skipped.text = _text("\n".join(outcome.unknowns))


def _case(suite: ET.Element, classname: str, name: str, seconds: float) -> ET.Element:
    return ET.SubElement(
        suite, "testcase", classname=_text(classname), name=_text(name), time=f"{seconds:.3f}"
    )


def _add_finding(case: ET.Element, finding: Finding) -> None:
    d = finding.diagnostic
    lines = [f"{wording.place(d.location)}: {wording.message(d)}".removeprefix(": ")]
    lines += [f"{label}: {wording.place(place)}" for label, place in d.related]
    lines += [f"{n}. {step}" for n, step in enumerate(finding.steps, 1)]
    lines += [f"cure: {d.help}"] if d.help else []
    body = _text("\n".join(lines))
    if d.severity == "info":
        ET.SubElement(case, "system-out").text = body
    else:
        ET.SubElement(case, "failure", message=_text(d.message), type=f"{d.code} {d.rule}").text = body


def _text(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
