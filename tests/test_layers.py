"""Imports point downwards, private JAX is used in one place, and what claims to need no JAX needs none."""

from __future__ import annotations

import ast
import functools
import graphlib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# The modules of ``stateful``: each imports only those above it.
STATEFUL = [
    "_jax",
    "errors",
    "terms",
    "types",
    "arithmetic",
    "effects",
    "operations",
    "semaphores",
    "recipes",
    "signatures",
    "kernel_forms",
    "higher_order",
    "memories",
    "inference",
    "stores",
    "grids",
    "discharging",
    "printing",
    "refs",
]

# The parts of ``asyncops``, lowest first. "library" is every module that lies directly in the package.
ASYNCOPS = ["library", "checker", "compiled", "explorer", "bench", "lint", "__main__"]

WITHOUT_JAX = [
    "asyncops.checker.events",
    "asyncops.checker.order",
    "asyncops.checker.pictures.svg",
    "asyncops.checker.replay",
    "asyncops.checker.report",
    "asyncops.compiled.parser",
    "asyncops.explorer.exploration",
    "asyncops.lint.results",
    "stateful.errors",
    "stateful.terms",
]


def modules() -> dict[str, Path]:
    """Every module of the distribution by its dotted name."""
    found = {}
    for package in ("stateful", "asyncops"):
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imported_names(path: Path) -> Iterator[str]:
    """What a file imports, inside functions too; imports for type checkers alone do not count."""
    waiting: list[ast.AST] = [ast.parse(path.read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        else:
            waiting += ast.iter_child_nodes(node)


@functools.cache
def imports(module: str) -> frozenset[str]:
    """The modules of the distribution, and the top-level packages besides, that a module imports."""
    found = set()
    for name in imported_names(MODULES[module]):
        while name not in MODULES and "." in name:
            name = name.rpartition(".")[0]
        found.add(name)
    return frozenset(found - {module})


def part(module: str) -> str:
    """The layer of a module within its package."""
    package, _, rest = module.partition(".")
    head = rest.partition(".")[0]
    if package == "stateful":
        return head
    return head if head in ASYNCOPS else "library"


def edges(package: str) -> Iterator[tuple[str, str]]:
    """Who imports whom inside a package; its ``__init__`` only re-exports."""
    for module in MODULES:
        if module.startswith(package + "."):
            yield from ((module, other) for other in imports(module) if other.startswith(package + "."))


def test_every_module_of_stateful_has_its_layer():
    assert {part(m) for m in MODULES if m.startswith("stateful.")} == set(STATEFUL)


@pytest.mark.parametrize(("package", "layers"), [("stateful", STATEFUL), ("asyncops", ASYNCOPS)])
def test_imports_point_downwards(package, layers):
    upward = [f"{a} imports {b}" for a, b in edges(package) if layers.index(part(b)) > layers.index(part(a))]
    assert not upward


def test_no_two_modules_need_each_other():
    graph = {m: {o for o in imports(m) if o in MODULES} for m in MODULES}
    graphlib.TopologicalSorter(graph).prepare()


def test_stateful_does_not_know_asyncops():
    assert not [m for m in MODULES if m.startswith("stateful") and any("asyncops" in i for i in imports(m))]


def test_private_jax_is_used_in_one_place():
    users = {m for m, path in MODULES.items() if any("jax._src" in n for n in imported_names(path))}
    assert {m for m in users if not m.startswith("stateful._jax.")} == set()


def closure(module: str) -> set[str]:
    """Everything that importing a module imports, by what the files say."""
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += imports(name) if name in MODULES else ()
    return seen


@pytest.mark.parametrize("module", WITHOUT_JAX)
def test_what_needs_no_jax_imports_none(module):
    assert module in MODULES
    assert not {name for name in closure(module) if name.partition(".")[0] in ("jax", "jaxlib")}


def test_the_explorer_is_independent_of_the_order():
    """``asyncops.explorer.comparing`` compares the two; the exploration itself must not know the order."""
    assert "asyncops.checker.order" not in closure("asyncops.explorer.exploration")


def test_the_check_would_see_an_upward_import(tmp_path):
    """The detector itself: imports in functions count, imports for type checkers do not."""
    file = tmp_path / "example.py"
    file.write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    import stateful.refs\n"
        "def f():\n    from stateful import discharging\n"
    )
    assert set(imported_names(file)) == {"typing.TYPE_CHECKING", "stateful.discharging"}
