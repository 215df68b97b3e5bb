"""``asyncops lsp``: shows the findings of a file's registered targets in an editor, on opening and saving it.

Each check runs in a process of its own: the user's modules are loaded anew, and not into the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any, cast

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.uris import from_fs_path, to_fs_path

from asyncops.checker.events import Location
from asyncops.lint.source import at_characters, read_source
from asyncops.version import __version__

_SEVERITIES = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "info": types.DiagnosticSeverity.Information,
}


class KernelServer(LanguageServer):
    """Lints files; ``published`` maps each linted file to the URIs that its findings were shown under."""

    def __init__(self) -> None:
        super().__init__("asyncops", __version__)  # pyright: ignore[reportUnknownMemberType]
        self.published: dict[str, set[str]] = {}
        self._running: dict[str, asyncio.Task[None]] = {}

    async def lint(self, uri: str) -> None:
        """Checks the file and shows what is found; a newer request for a file replaces an older one."""
        earlier = self._running.pop(uri, None)
        if earlier:
            earlier.cancel()
        task = self._running[uri] = asyncio.create_task(self._lint(uri))
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def _lint(self, uri: str) -> None:
        file = to_fs_path(uri)
        if file is None or not file.endswith(".py"):
            return
        folder = self.workspace.root_path or os.path.dirname(file)
        document = await _checked(file, folder)
        if document is not None:
            self._publish(uri, diagnostics_by_uri(document, Path(folder), uri))

    def _publish(self, uri: str, found: dict[str, list[types.Diagnostic]]) -> None:
        before = self.published.get(uri, set())
        self.published[uri] = set(found)
        for shown in before | set(found):
            params = types.PublishDiagnosticsParams(shown, found.get(shown, []))
            self.text_document_publish_diagnostics(params)


def start() -> None:
    """Serves one editor over stdin and stdout."""
    server = KernelServer()

    async def opened(params: types.DidOpenTextDocumentParams) -> None:
        await server.lint(params.text_document.uri)

    async def saved(params: types.DidSaveTextDocumentParams) -> None:
        await server.lint(params.text_document.uri)

    server.feature(types.TEXT_DOCUMENT_DID_OPEN)(opened)
    server.feature(types.TEXT_DOCUMENT_DID_SAVE)(saved)
    server.start_io()


async def _checked(file: str, folder: str) -> dict[str, Any] | None:
    """The JSON report about the file, or None where there is nothing to report about."""
    command = (sys.executable, "-m", "asyncops", "lint", file, "--format", "json", "--pass-with-no-targets")
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        output, _ = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        raise
    try:
        return cast("dict[str, Any]", json.loads(output))
    except ValueError:
        return None


def diagnostics_by_uri(
    document: dict[str, Any], folder: Path, linted: str
) -> dict[str, list[types.Diagnostic]]:
    """The live findings and failures of a JSON report by the file they are in, paths below ``folder``."""
    found: dict[str, list[types.Diagnostic]] = {linted: []}
    for finding in document["findings"]:
        if finding["suppressed_by"] is None and finding["location"]:
            place = _place(finding["location"], folder)
            found.setdefault(_uri(place), []).append(_diagnostic(finding, place, folder))
    for target in document["targets"]:
        if target["failure"]:
            place = _place(target["failure"]["location"] or target["location"], folder)
            text = f"{target['name']} {target['failure']['message']}"
            problem = types.Diagnostic(_range(place), text, types.DiagnosticSeverity.Error, source="asyncops")
            found.setdefault(_uri(place), []).append(problem)
    return found


def _diagnostic(finding: dict[str, Any], place: Location, folder: Path) -> types.Diagnostic:
    steps = [f"{number}. {step['text']}" for number, step in enumerate(finding["witness"], 1)]
    cure = [f"cure: {finding['help']}"] if finding["help"] else []
    placed = [(f"{n}. {step['text']}", step["location"]) for n, step in enumerate(finding["witness"], 1)]
    told = [*((r["label"], r["location"]) for r in finding["related"]), *placed]
    related = [_related(label, _place(location, folder)) for label, location in told if location]
    return types.Diagnostic(
        range=_range(place),
        message="\n".join([finding["message"], *steps, *cure]),
        severity=_SEVERITIES[finding["severity"]],
        code=finding["code"],
        source="asyncops",
        related_information=related,
    )


def _related(label: str, place: Location) -> types.DiagnosticRelatedInformation:
    return types.DiagnosticRelatedInformation(types.Location(_uri(place), _range(place)), label)


def _place(location: dict[str, Any], folder: Path) -> Location:
    column, end = location.get("column"), location.get("end_column")
    place = Location(str(folder / location["file"]), location["line"])
    return at_characters(place, column - 1, end - 1) if column and end else place


def _uri(place: Location) -> str:
    return from_fs_path(place.file) or ""


def _range(place: Location) -> types.Range:
    source = read_source(place.file)
    text = source.line(place.line) or ""
    start, end = source.span(place) or (0, len(text))
    line = place.line - 1
    return types.Range(types.Position(line, _utf16(text[:start])), types.Position(line, _utf16(text[:end])))


def _utf16(text: str) -> int:
    """The length in UTF-16 code units, the protocol's unit of columns."""
    return len(text.encode("utf-16-le")) // 2
