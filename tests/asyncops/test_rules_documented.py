"""Codes, names, pages, examples and the changelog agree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from asyncops.lint.explanations import explanation, index
from asyncops.lint.rulebook import (
    FOLDERS,
    HEADINGS,
    RulePage,
    find_page,
    read_page,
    rule_pages,
    split_sections,
)
from stateful.errors import LintUsageError

ROOT = Path(__file__).parents[2]
FILES = [f for folder in FOLDERS for f in sorted(folder.glob("[!_]*.py"))]
PAGES = [page for page in map(read_page, FILES) if page]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.code)
def test_a_page_is_complete(page: RulePage) -> None:
    assert re.fullmatch(r"AO[1-9]\d\d", page.code)
    assert page.file.stem.replace("_", "-") == page.name
    assert page.severity in ("error", "warning")
    assert page.summary.endswith(".")
    assert "\n" not in page.summary
    assert tuple(page.sections) == HEADINGS
    assert all(page.sections.values())


def test_codes_and_names_are_unique() -> None:
    rules = {(p.code, p.name, p.severity) for p in PAGES}
    assert len({p.code for p in PAGES}) == len({p.name for p in PAGES}) == len(rules) == len(rule_pages())
    assert len({(p.code, p.file.parent) for p in PAGES}) == len(PAGES)


def test_a_rule_on_programs_and_on_compiled_programs_has_one_page() -> None:
    cure = find_page("AO501").sections["Cure"]
    assert all(p.sections["Cure"] in cure for p in PAGES if p.code == "AO501")


def test_every_module_among_the_rules_is_a_rule() -> None:
    assert len(PAGES) == len(FILES)


def test_the_changelog_names_every_rule() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert [p.code for p in PAGES if p.code not in text] == []


def test_the_index_names_every_rule_once() -> None:
    rules = sorted([p.code, p.name] for p in rule_pages().values())
    assert [line.split()[:2] for line in index().splitlines()] == rules


def test_a_page_as_markdown() -> None:
    text = explanation(find_page("read-before-arrival"))
    assert text.startswith("# AO201 read-before-arrival\n\n*error*\n\n")
    assert text.index("## Example") < text.index("## Cure")


def test_rules_are_found_by_code_or_name_in_any_case() -> None:
    assert find_page("ao201") is find_page("Read-Before-Arrival")
    with pytest.raises(LintUsageError, match=r"no rule 'read-before' \(did you mean"):
        find_page("read-before")


@pytest.mark.parametrize("line", ["\n----", ":", ""])
def test_headings_may_be_written_in_three_ways(line: str) -> None:
    summary, sections = split_sections(f"A sentence.\n\nCure{line}\n\nWait.\n\nKnown limits{line}\nNone.\n")
    assert summary == "A sentence."
    assert sections == {"Cure": "Wait.", "Known limits": "None."}
