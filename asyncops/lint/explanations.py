"""The page that ``--explain`` shows."""

from __future__ import annotations

from asyncops.lint.rulebook import HEADINGS, RulePage, rule_pages


def explanation(page: RulePage) -> str:
    """The rule's page as Markdown, sections in the order of the headings."""
    parts = [f"# {page.code} {page.name}", f"*{page.severity}*", page.summary]
    for heading in HEADINGS:
        if heading in page.sections:
            parts.append(f"## {heading}\n\n{page.sections[heading]}")
    return "\n\n".join(filter(None, parts)) + "\n"


def index() -> str:
    """All rules, one a line."""
    return "".join(
        f"{p.code}  {p.name:<24}  {p.severity:<7}  {_first_line(p.summary)}\n" for p in rule_pages().values()
    )


def _first_line(text: str) -> str:
    return text.splitlines()[0] if text else ""
