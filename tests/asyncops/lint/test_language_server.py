"""The language server, driven by a real client over a pipe."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from lsprotocol import types
from pygls.lsp.client import LanguageClient

from asyncops.lint.language_server import diagnostics_by_uri
from tests.asyncops.lint.conftest import PRELUDE, RACE, Write

# The server checks in a process of its own, so the stand-in for the checker comes with the file.
PLAYED = "import asyncops\nasyncops.check = lambda fn, *args, **options: fn(*args)\n"
CLEAN = "@lint_target()\ndef clean():\n    return Report()\n"


class Editor:
    """An editor with one server."""

    def __init__(self) -> None:
        self.client = LanguageClient("test", "1")
        self.published: asyncio.Queue[types.PublishDiagnosticsParams] = asyncio.Queue()

        @self.client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def publish(params: types.PublishDiagnosticsParams) -> None:
            self.published.put_nowait(params)

    async def start(self, folder: Path) -> None:
        root = Path(__file__).parents[3]
        environment = {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
        await self.client.start_io(sys.executable, "-m", "asyncops", "lsp", env=environment)
        await self.client.initialize_async(
            types.InitializeParams(types.ClientCapabilities(), root_uri=folder.as_uri())
        )
        self.client.initialized(types.InitializedParams())

    def open(self, file: Path) -> None:
        item = types.TextDocumentItem(file.as_uri(), "python", 1, file.read_text())
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))

    def save(self, file: Path) -> None:
        name = types.TextDocumentIdentifier(file.as_uri())
        self.client.text_document_did_save(types.DidSaveTextDocumentParams(name))

    async def shown(self) -> types.PublishDiagnosticsParams:
        return await asyncio.wait_for(self.published.get(), 90)

    async def stop(self) -> None:
        await self.client.shutdown_async(None)
        self.client.exit(None)
        await self.client.stop()


@pytest.mark.slow
def test_findings_appear_on_opening_and_go_when_the_file_is_mended(write: Write, tmp_path: Path) -> None:
    file = write("kernels.py", PLAYED + PRELUDE + RACE)

    async def session() -> tuple[types.PublishDiagnosticsParams, types.PublishDiagnosticsParams]:
        editor = Editor()
        await editor.start(tmp_path)
        try:
            editor.open(file)
            before = await editor.shown()
            file.write_text(PLAYED + PRELUDE + CLEAN)
            editor.save(file)
            return before, await editor.shown()
        finally:
            await editor.stop()

    before, after = asyncio.run(session())
    (finding,) = before.diagnostics
    line = (PLAYED + PRELUDE).count("\n") + 3
    assert before.uri == after.uri == file.as_uri()
    assert finding.range == types.Range(types.Position(line, 4), types.Position(line, 16))
    assert (finding.code, finding.severity) == ("AO201", types.DiagnosticSeverity.Error)
    assert finding.message.splitlines()[2] == "2. the core reads buf[0]"
    related = [r.message for r in finding.related_information or ()]
    assert related == ["the copy was started here", "it should have been waited for before"]
    assert not after.diagnostics


@pytest.mark.parametrize("text", ["x = '\N{GRINNING FACE}'; y = 1\n"])
def test_columns_are_utf16(write: Write, tmp_path: Path, text: str) -> None:
    write("kernels.py", text)
    location = {"file": "kernels.py", "line": 1, "function": "", "column": 10, "end_column": 15}
    finding = {
        "suppressed_by": None, "location": location, "witness": [], "help": "", "related": [],
        "message": "m", "severity": "error", "code": "AO201",
    }  # fmt: skip
    (found,) = diagnostics_by_uri({"findings": [finding], "targets": []}, tmp_path, "x").get(
        (tmp_path / "kernels.py").as_uri(), []
    )
    assert (found.range.start.character, found.range.end.character) == (10, 15)


def test_steps_of_the_witness_can_be_followed(write: Write, tmp_path: Path) -> None:
    write("kernels.py", "start()\nread()\n")
    place = {"file": "kernels.py", "line": 2, "function": ""}
    witness = [{"text": "starts", "location": {**place, "line": 1}}, {"text": "reads", "location": None}]
    finding = {
        "suppressed_by": None, "location": place, "witness": witness, "help": "", "related": [],
        "message": "m", "severity": "error", "code": "AO201",
    }  # fmt: skip
    found = diagnostics_by_uri({"findings": [finding], "targets": []}, tmp_path, "x")
    (shown,) = found[(tmp_path / "kernels.py").as_uri()]
    assert [(r.message, r.location.range.start.line) for r in shown.related_information or ()] == [
        ("1. starts", 0)
    ]


def test_a_failure_is_shown_where_it_happened(write: Write, tmp_path: Path) -> None:
    write("kernels.py", "raise TypeError\n")
    failure = {"message": "could not be loaded", "location": None, "traceback": ""}
    target = {"name": "kernels.py", "failure": failure, "location": {"file": "kernels.py", "line": 1}}
    found = diagnostics_by_uri({"findings": [], "targets": [target]}, tmp_path, "x")
    (problem,) = found[(tmp_path / "kernels.py").as_uri()]
    assert problem.message == "kernels.py could not be loaded"
