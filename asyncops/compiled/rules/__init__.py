"""Rules on compiled programs: one module each, its documentation inside. ``ALL`` holds them by precedence.

A rule has ``CODE``, ``NAME``, ``SEVERITY`` and ``find(facts)``, which yields
:class:`~asyncops.compiled.findings.Finding` values.
"""

from asyncops.compiled.rules import (
    defensive_copy,
    future_dropped,
    future_reused,
    inflight_copied,
    loop_carried_alias,
    not_overlapped,
    source_lifetime,
)

# Of several findings about one copy the first is the primary one.
ALL = (
    future_dropped,
    future_reused,
    inflight_copied,
    source_lifetime,
    not_overlapped,
    defensive_copy,
    loop_carried_alias,
)

__all__ = ["ALL"]
