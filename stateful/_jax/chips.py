"""Tracing as if the program ran on a TPU.

Kernels ask ``pltpu.get_tpu_info()`` for sizes; on a CPU it raises, and there is no public way to say which chip is
meant. Only the questions about the device's kind and number of cores are answered here; everything else is JAX's.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import jax

# Short names to what a device of that kind says of itself, and its cores as JAX counts them.
KINDS: dict[str, tuple[str, int]] = {
    "v2": ("TPU v2", 1),
    "v3": ("TPU v3", 1),
    "v4": ("TPU v4", 1),
    "v5e": ("TPU v5 lite", 1),
    "v5p": ("TPU v5p", 1),
    "v6e": ("TPU v6 lite", 1),
    "tpu7x": ("TPU7x", 1),
}


def _modules() -> list[ModuleType]:
    """0.12 moved the functions and left their old home as a re-export."""
    names = ("jax._src.tpu_info", "jax._src.pallas.mosaic.tpu_info")
    return [importlib.import_module(n) for n in names if importlib.util.find_spec(n) is not None]


@contextmanager
def pretend(chip: str) -> Iterator[None]:
    """Answers questions about the chip as ``chip`` (a key of :data:`KINDS`) would, and traces nothing from caches."""
    kind, cores = KINDS[chip]
    modules = _modules()
    answers = {
        "get_device_kind": lambda: kind,
        "get_num_device_cores": lambda: cores,
        "is_tpu_device": lambda: True,
    }
    saved = [(m, name, getattr(m, name)) for m in modules for name in answers if hasattr(m, name)]
    _forget(modules)
    try:
        for module, name, _ in saved:
            setattr(module, name, answers[name])
        yield
    finally:
        for module, name, old in saved:
            setattr(module, name, old)
        _forget(modules)


def _forget(modules: list[ModuleType]) -> None:
    """What was traced or looked up for another chip says nothing about this one."""
    jax.clear_caches()
    for module in modules:
        getattr(module.get_tpu_info, "cache_clear", lambda: None)()
