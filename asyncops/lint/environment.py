"""The environment that checking needs, set before JAX starts."""

from __future__ import annotations

from collections.abc import MutableMapping

DEVICE_COUNT = 8
_FLAG = "--xla_force_host_platform_device_count"


def prepare_environment(environ: MutableMapping[str, str]) -> None:
    """Gives JAX a CPU with several devices, so that programs over a mesh can be traced.

    Only what the user has not set is set. Has no effect once JAX has started its backend.
    """
    environ.setdefault("JAX_PLATFORMS", "cpu")
    flags = environ.get("XLA_FLAGS", "")
    if _FLAG not in flags:
        environ["XLA_FLAGS"] = f"{flags} {_FLAG}={DEVICE_COUNT}".strip()
