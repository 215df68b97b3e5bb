"""The user's names: of a jaxpr's arguments, and of the function it was traced from.

``jaxpr.debug_info`` is where JAX keeps both; its fields are private and its location is text.
"""

from __future__ import annotations

import re
from typing import Any

_SOURCE = re.compile(r"^(?P<name>.*) at (?P<file>.*):(?P<line>\d+)$")


def variable_names(jaxpr: Any) -> list[str]:
    """The argument names of a jaxpr, those of ``constvars`` first; empty strings where JAX recorded none."""
    recorded = getattr(jaxpr.debug_info, "arg_names", None) or ()
    names = [str(n or "") for n in recorded][: len(jaxpr.invars)]
    names = names + [""] * (len(jaxpr.invars) - len(names))
    return [""] * len(jaxpr.constvars) + names


def function_location(jaxpr: Any) -> tuple[str, int, str] | None:
    """(file, line, name) of the function a jaxpr was traced from."""
    found = _SOURCE.match(jaxpr.debug_info.func_src_info or "")
    return (found["file"], int(found["line"]), found["name"]) if found else None
