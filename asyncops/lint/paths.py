"""How files are named in reports: relative to the current folder where they lie under it."""

from __future__ import annotations

import os


def shown(file: str) -> str:
    """``file`` as a person in the current folder would write it; with forward slashes."""
    if not os.path.isabs(file):
        return file.replace(os.sep, "/")
    relative = os.path.relpath(file) if _same_drive(file) else file
    return (file if relative.startswith("..") else relative).replace(os.sep, "/")


def _same_drive(file: str) -> bool:
    return os.path.splitdrive(file)[0] == os.path.splitdrive(os.getcwd())[0]
