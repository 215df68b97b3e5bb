"""The pages of the rules, read from the rules' own files without importing them.

A rule is one module with the constants CODE, NAME and SEVERITY and a docstring: a sentence, then the sections
of :data:`HEADINGS`, each heading on a line of its own, underlined.
"""

from __future__ import annotations

import ast
import difflib
import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import asyncops
from stateful.errors import LintUsageError

HEADINGS = ("What it does", "Why it is bad", "Example", "Cure", "Known limits")
_PACKAGE = Path(asyncops.__file__).parent
# The rules of the checker, of compiled programs, and about the linter's own comments.
FOLDERS = tuple(_PACKAGE / part / "rules" for part in ("checker", "compiled", "lint"))


@dataclass(frozen=True)
class RulePage:
    """One rule's documentation: ``sections`` maps each heading to its text.

    A rule that is applied to the program and to the compiled program has a file, and a page, for each; its page has
    both texts under each heading.
    """

    code: str
    name: str
    severity: str
    summary: str
    sections: dict[str, str]
    file: Path


@functools.cache
def rule_pages() -> dict[str, RulePage]:
    """Code to page, in the order of the codes."""
    files = [f for folder in FOLDERS for f in sorted(folder.glob("[!_]*.py"))]
    pages: dict[str, RulePage] = {}
    for page in filter(None, map(read_page, files)):
        pages[page.code] = _joined(pages[page.code], page) if page.code in pages else page
    return dict(sorted(pages.items()))


def _joined(page: RulePage, other: RulePage) -> RulePage:
    texts = {t: "\n\n".join(filter(None, (page.sections.get(t), other.sections.get(t)))) for t in HEADINGS}
    return replace(page, sections=texts)


def read_page(file: Path) -> RulePage | None:
    """The page in ``file``; None if it holds no rule (no CODE)."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    constants = dict(_string_constants(tree))
    if "CODE" not in constants:
        return None
    summary, sections = split_sections(ast.get_docstring(tree) or "")
    return RulePage(
        constants["CODE"], constants.get("NAME", ""), constants.get("SEVERITY", ""), summary, sections, file
    )


def split_sections(docstring: str) -> tuple[str, dict[str, str]]:
    """The text before the first heading, and heading to text."""
    titles = "|".join(map(re.escape, HEADINGS))
    heading = re.compile(rf"^(?:#+ *)?({titles}):?[ ]*$(?:\n[-=~]+[ ]*$)?", re.MULTILINE)
    parts = heading.split(docstring)
    return parts[0].strip(), {
        t: body.strip("\n").rstrip() for t, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def find_page(name: str) -> RulePage:
    """The page of a rule's code or name, in any case."""
    pages = rule_pages()
    for page in pages.values():
        if name.lower() in (page.code.lower(), page.name.lower()):
            return page
    raise LintUsageError(f"no rule {name!r}{_did_you_mean(name, pages.values())}; known: {', '.join(pages)}")


def matching_codes(selector: str) -> frozenset[str]:
    """The codes that ``selector`` names: a code, a prefix such as "AO2", a rule's name, or "ALL"."""
    pages = rule_pages()
    wanted = selector.strip()
    if wanted.upper() == "ALL":
        return frozenset(pages)
    codes = {c for c, p in pages.items() if c.startswith(wanted.upper()) or p.name == wanted.lower()}
    if not wanted or not codes:
        hint = _did_you_mean(wanted, pages.values())
        raise LintUsageError(
            f'no rule matches {selector!r}{hint}; say a code, a prefix such as "AO2", a name, or ALL'
        )
    return frozenset(codes)


def _did_you_mean(name: str, pages: Iterable[RulePage]) -> str:
    names = [n for page in pages for n in (page.code, page.name)]
    close = difflib.get_close_matches(name, names, n=1) or difflib.get_close_matches(name.upper(), names, n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def _string_constants(tree: ast.Module) -> Iterable[tuple[str, str]]:
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text))):
                yield name, text
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=str(text))):
                yield name, text
            case _:
                pass
