"""Makes the notebooks from their plain-text twins: runs ``NN_name.py`` and stores its outputs in ``NN_name.ipynb``.

    python notebooks/build.py [--check] [--jobs N] [NAME ...]

``--check`` writes nothing: it runs each notebook and fails where a cell raises, or where the stored notebook has
other cells than its twin. Each notebook runs in a process of its own, as many at a time as there are cores.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

HERE = Path(__file__).resolve().parent
SECONDS_FOR_A_CELL = 300


def twins(names: list[str]) -> list[Path]:
    """The sources, all or those whose name begins with one of ``names``."""
    return [p for p in sorted(HERE.glob("[0-9]*.py")) if not names or p.name.startswith(tuple(names))]


def read(source: Path) -> Any:
    """The notebook of a twin, without outputs; the same bytes for the same twin."""
    notebook = jupytext.read(source)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata.clear()
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )
    return notebook


def cells(notebook: Any) -> list[tuple[str, str]]:
    """Kind and source of each cell: what a notebook and its twin share."""
    return [(cell.cell_type, cell.source) for cell in notebook.cells]


def is_fresh(source: Path) -> bool:
    """Whether the stored notebook has the cells of its twin, and has been run."""
    stored = source.with_suffix(".ipynb")
    if not stored.exists():
        return False
    notebook = nbformat.read(stored, as_version=4)
    ran = all(c.execution_count for c in notebook.cells if c.cell_type == "code")
    return ran and cells(notebook) == cells(read(source))


def run(source: Path) -> Any:
    """The notebook with its outputs. Raises where a cell does."""
    notebook = read(source)
    resources = {"metadata": {"path": str(HERE)}}
    NotebookClient(notebook, timeout=SECONDS_FOR_A_CELL, kernel_name="python3", resources=resources).execute()
    for cell in notebook.cells:
        cell.metadata.clear()  # when it was run
    notebook.metadata["language_info"] = {"name": "python"}  # the version that ran it is of no interest
    return notebook


def build(source: Path, check: bool) -> bool:
    """Runs one notebook and stores it, or sees that the stored one is fresh; False where that fails."""
    begin = time.monotonic()
    stored = source.with_suffix(".ipynb")
    try:
        notebook = run(source)
    except CellExecutionError as error:
        print(f"{source.name}: {error}", file=sys.stderr)
        return False
    print(f"{source.name}: {time.monotonic() - begin:.0f} s", flush=True)
    if not check:
        nbformat.write(notebook, stored)
    elif not is_fresh(source):
        print(f"{stored.name} is stale: run make notebooks", file=sys.stderr)
        return False
    return True


def main() -> int:
    """Builds or checks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="beginnings of names, such as 01; all where there is none")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail on errors and stale notebooks"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="notebooks that run at a time")
    options = parser.parse_args()
    with ThreadPoolExecutor(max_workers=max(1, options.jobs)) as pool:
        done = list(pool.map(lambda source: build(source, options.check), twins(options.names)))
    return int(not all(done))


if __name__ == "__main__":
    sys.exit(main())
