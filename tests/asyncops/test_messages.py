"""What every rule says, word for word: ``messages.txt``. A change of wording is a change of that file, to be read.

``python -m tests.asyncops.test_messages`` writes the file anew.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from asyncops.checker.report import Diagnostic, Report
from asyncops.lint.environment import prepare_environment
from asyncops.lint.rulebook import rule_pages
from asyncops.lint.rules import invalid_suppression, unused_suppression

HERE = Path(__file__).parent
FILE = HERE / "messages.txt"
# Rules on the program as the compiler scheduled it.
COMPILED = {"AO505": "unordered"}
_LINE = re.compile(r"(?:/[^\s:]*/)?(\w+\.py):\d+")


def load(name: str) -> ModuleType:
    """A module that lies beside other tests; it imports JAX."""
    prepare_environment(os.environ)
    file = HERE / f"{name}.py"
    sys.path.insert(0, str(file.parent))
    try:
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(file.parent))
    return module


def wrong_programs() -> dict[str, Callable[[], Report]]:
    """For each rule a program that breaks it, to be checked."""
    from asyncops.checker.session import check

    found: dict[str, Callable[[], Report]] = {}
    for name in ("checker/kernels_local", "checker/kernels_remote"):
        for code, (build, *_) in load(name).CASES.items():
            found[code] = lambda build=build: (lambda program: check(program[0], *program[1]))(build(True))
    for case in load("checker/test_program").WRONG:
        fn, args, code = getattr(case, "values", case)  # a pytest.param has marks around them
        found.setdefault(code, lambda fn=fn, args=args: check(fn, *args))
    return found


def compiled_report(name: str) -> Report:
    import asyncops

    fn, *args = load("compiled/programs").programs()[name]
    return asyncops.check_compiled(asyncops.compile_for("v5e:2x2", fn, *args))


def told(code: str, report: Report) -> str:
    """The finding of a rule in full, without what a change elsewhere in the file would move."""
    every = [d for top in report.diagnostics for d in (top, *top.secondary)]
    found = next(d for d in every if d.code == code)
    return _LINE.sub(r"\1:N", "\n".join(_lines(found)))


def _lines(d: Diagnostic) -> Iterator[str]:
    yield f"{d.severity} {d.code} {d.rule}"
    yield f"  {d.message}"
    yield from (f"  - {label}" for label, _ in d.related)
    if d.witness is not None:
        *_, last = str(d.witness).splitlines()
        yield f"  ... {last}"
    yield f"  cure: {d.help}"


def own_messages() -> dict[str, str]:
    """What the linter says about its own comments."""
    place: Any = None
    idle = unused_suppression.diagnostic(place, "AO201")
    wrong = invalid_suppression.diagnostic(place, "the comment names no rule and suppresses nothing")
    return {d.code: told(d.code, Report((d,))) for d in (idle, wrong)}


def pinned() -> dict[str, str]:
    """Code to text, as the file has them."""
    sections = FILE.read_text().strip().split("\n\n")
    return {section.split()[1]: section for section in sections}


PROGRAMS = wrong_programs()


@pytest.mark.parametrize("code", PROGRAMS)
def test_the_message_of_a_rule(code: str) -> None:
    assert told(code, PROGRAMS[code]()) == pinned()[code]


def test_the_messages_about_comments() -> None:
    own = own_messages()
    assert own == {code: pinned()[code] for code in own}


@pytest.mark.tpu_compile
@pytest.mark.parametrize(("code", "name"), COMPILED.items())
def test_the_message_of_a_rule_on_compiled_programs(code: str, name: str) -> None:
    pytest.importorskip("libtpu", reason="the TPU compiler (libtpu, extra tpu) is not installed")
    assert told(code, compiled_report(name)) == pinned()[code]


def test_every_rule_has_its_message() -> None:
    assert set(pinned()) == set(rule_pages())
    assert {*PROGRAMS, *COMPILED, *own_messages()} == set(rule_pages())


@pytest.mark.parametrize("code", pinned() if FILE.exists() else ())
def test_a_message_says_what_and_the_cure_what_to_do(code: str) -> None:
    """Short enough to read, no jargon of ours, a cure that begins with a verb in the imperative."""
    lines = pinned()[code].splitlines()
    message, cure = lines[1].strip(), lines[-1].removeprefix("  cure: ")
    assert 20 < len(message) < 260
    assert not re.search(r"\b(None|Location|Point|SemaphoreKey|Half|event \d+)\b", pinned()[code])
    assert re.match(
        r"(wait|start|give|store|mark|carry|declare|guard|initialise|reorder|copy|make|let|exchange|consume|return|"
        r"read|use|unroll|delete|name|wrap|move|chain|put|keep|pass|finish|order|bind) ",
        cure,
    ), cure


if __name__ == "__main__":
    texts = {code: told(code, run()) for code, run in PROGRAMS.items()} | own_messages()
    texts |= {code: told(code, compiled_report(name)) for code, name in COMPILED.items()}
    FILE.write_text("\n\n".join(text for _, text in sorted(texts.items())) + "\n")
