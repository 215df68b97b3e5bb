"""Files: how they are named in reports, and whose they are."""

from __future__ import annotations

import os

import asyncops
import stateful

_LIBRARIES = tuple(
    os.path.dirname(os.path.abspath(str(m.__file__))) + os.sep for m in (asyncops, stateful, os)
)


def is_library(file: str) -> bool:
    """True for files of Python, of installed packages, and of this one: not the user's."""
    path = os.path.abspath(file)
    return file.startswith("<") or "site-packages" in path.split(os.sep) or path.startswith(_LIBRARIES)


def shown(file: str) -> str:
    """``file`` as a person in the current folder would write it; with forward slashes."""
    if not os.path.isabs(file):
        return file.replace(os.sep, "/")
    relative = os.path.relpath(file) if _same_drive(file) else file
    return (file if relative.startswith("..") else relative).replace(os.sep, "/")


def _same_drive(file: str) -> bool:
    return os.path.splitdrive(file)[0] == os.path.splitdrive(os.getcwd())[0]
