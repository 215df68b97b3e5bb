"""Kernels to trace, and a stand-in for the checker that finds fault with those called ``racy``."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from asyncops.checker.events import Location
from asyncops.checker.report import Diagnostic, KernelSummary, Report

X = jax.ShapeDtypeStruct((8, 128), jnp.float32)


def racy(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...] * 2.0


def calm(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...] + 1.0


def call(kernel: Any, shape: tuple[int, ...] = X.shape) -> Any:
    """The kernel as a function of one array."""
    out_shape = jax.ShapeDtypeStruct(shape, jnp.float32)
    return pl.pallas_call(kernel, out_shape=out_shape, name=kernel.__name__, interpret=True)


def check_by_name(fn: Any, *args: Any, **options: Any) -> Report:
    """Traces the program again, as the checker does, and looks for the kernel's name in it."""
    text = str(jax.make_jaxpr(fn)(*args))
    names = [name for name in ("racy", "calm") if name in text]
    kernels = tuple(KernelSummary(name, 1, 1, 0.0) for name in names)
    if "racy" not in names:
        return Report(kernels=kernels)
    place = Location(racy.__code__.co_filename, racy.__code__.co_firstlineno + 1, "racy")
    race = Diagnostic("AO201", "read-before-arrival", "error", "the kernel is racy", place, confirmed=True)
    return Report((race,), kernels=kernels)
