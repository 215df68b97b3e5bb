"""Stored notebooks are those of their plain-text twins, were run, and say nothing of the machine that ran them.

Running them is `make notebooks-check`.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).resolve().parent.parent / "notebooks"
TWINS = sorted(HERE.glob("[0-9]*.py"))
FOLDERS = re.compile(r"/(?:home|root|tmp|work|usr|opt)/[\w.\-]+/")


@pytest.fixture(scope="module")
def build() -> ModuleType:
    """The script that makes them."""
    for package in ("jupytext", "nbformat", "nbclient"):
        pytest.importorskip(package, reason=f"{package} is not installed (extra notebooks)")
    spec = importlib.util.spec_from_file_location("notebooks_build", HERE / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("twin", TWINS, ids=lambda path: path.stem)
def test_the_stored_notebook_is_fresh(twin, build):
    assert build.is_fresh(twin), f"run: make notebooks NOTEBOOKS={twin.stem}"


@pytest.mark.parametrize("twin", TWINS, ids=lambda path: path.stem)
def test_outputs_name_no_folders_and_no_errors(twin, build):
    stored = build.nbformat.read(twin.with_suffix(".ipynb"), as_version=4)
    outputs = [o for cell in stored.cells if cell.cell_type == "code" for o in cell.outputs]
    assert outputs
    assert not [o for o in outputs if o.output_type == "error"]
    for output in outputs:
        shown = [output.get("text", ""), *map(str, output.get("data", {}).values())]
        assert not [found for text in shown for found in FOLDERS.findall(text)]


@pytest.mark.parametrize("twin", TWINS, ids=lambda path: path.stem)
def test_each_begins_with_a_title_and_the_helper(twin, build):
    first, *rest = build.read(twin).cells
    assert first.cell_type == "markdown"
    assert first.source.startswith("# ")
    code = next(c for c in rest if c.cell_type == "code")
    assert code.source.startswith("import showing")
