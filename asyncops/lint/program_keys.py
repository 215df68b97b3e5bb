"""The key of a target's program in the cache.

It is made of the traced program itself with all its source lines, the arguments that are relied on, and the
versions of Python, JAX and this package, its own source included. So an entry cannot be stale; a program that
has no faithful text has no key.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np

import asyncops
import stateful
from asyncops.lint.targets import LintTarget
from stateful._jax.identity import Unnameable, program_text


def target_key(target: LintTarget, detail: str = "") -> str | None:
    """The key of a target's program; None if it cannot be cached. Raises what tracing it raises.

    ``detail`` tells apart the checks that are made of one program.
    """
    if target.options.get("requires") is not None:
        return None
    closed = cast("Any", jax).make_jaxpr(target.fn)(*target.args)
    digest = hashlib.sha256()
    try:
        for piece in (detail, *_versions(), *_options(target), *program_text(closed)):
            digest.update(piece.encode())
            digest.update(b"\0")
    except Unnameable:
        return None
    return digest.hexdigest()


def _options(target: LintTarget) -> Iterator[str]:
    yield repr(sorted(target.options.items()))
    if target.options.get("values"):
        for leaf in jax.tree.leaves(target.args):
            concrete = not isinstance(leaf, jax.ShapeDtypeStruct)
            yield hashlib.sha256(np.asarray(leaf).tobytes()).hexdigest() if concrete else "shape"


@functools.cache
def _versions() -> tuple[str, ...]:
    return (sys.version, version("jax"), version("jaxlib"), *_own_source())


def _own_source() -> Iterator[str]:
    """The content of our own files: whoever works on the checker must not see yesterday's findings."""
    for package in (stateful, asyncops):
        folder = Path(str(package.__file__)).parent
        for file in sorted(folder.rglob("*.py")):
            yield hashlib.sha256(file.read_bytes()).hexdigest()
