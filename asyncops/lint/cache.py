"""What was found about a program before, kept on disk under the keys of ``program_keys.py``."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path

from asyncops.lint.codec import from_plain, to_plain
from asyncops.lint.results import Outcome
from asyncops.writing import write_whole

_UNUSED_AFTER = 30 * 24 * 3600.0


class Cache:
    """Entries in one folder, a file each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, key: str) -> Outcome | None:
        """The outcome under ``key``; a damaged entry is as none."""
        file = self._file(key)
        try:
            outcome = from_plain(json.loads(file.read_text(encoding="utf-8")))
            os.utime(file)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        return outcome

    def put(self, key: str, outcome: Outcome) -> None:
        """Keeps an outcome. A folder that cannot be written is no reason to fail."""
        with contextlib.suppress(OSError):
            self._prepare()
            # Another process may be reading or writing the same entry: files appear whole.
            write_whole(self._file(key), json.dumps(to_plain(outcome)))

    def _file(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    def _prepare(self) -> None:
        if self.folder.exists():
            return
        self.folder.mkdir(parents=True)
        (self.folder / ".gitignore").write_text("*\n")
        # The mark by which backup programs know a cache.
        (self.folder / "CACHEDIR.TAG").write_text("Signature: 8a477f597d28d172789f06886806bc55\n")

    def drop_unused(self) -> None:
        """Removes the entries that no run has used for a month."""
        with contextlib.suppress(OSError):
            for file in self.folder.glob("*.json"):
                if time.time() - file.stat().st_mtime > _UNUSED_AFTER:
                    file.unlink()
