"""Writing files whole."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def write_whole(file: Path, text: str, encoding: str = "utf-8") -> None:
    """Replaces the contents of ``file`` at once: an interrupt leaves the old ones, never half of the new ones.

    What is no regular file (``/dev/stdout``, a pipe) is written to as it stands; a link stays a link.
    """
    if file.exists() and not file.is_file():
        file.write_text(text, encoding=encoding, newline="")
        return
    target = Path(os.path.realpath(file))
    draft = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        draft.write_text(text, encoding=encoding, newline="")
        if target.exists():
            shutil.copymode(target, draft)
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)
