"""Meshes of CPU devices, and programs as the TPU compiler schedules them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import asyncops
from asyncops.compiled.topology import topology_devices
from tests.asyncops.scheduled import Program


def mesh(devices: int, axis: str = "x") -> Mesh:
    """So many CPU devices along one axis."""
    return Mesh(np.array(jax.devices()[:devices]), (axis,))


def sharded(fn: Callable[..., Any], devices: int, check_vma: bool = False) -> Callable[..., Any]:
    """``fn`` of shards, jitted, over so many CPU devices."""
    spec = P("x")
    mapped = jax.shard_map(fn, mesh=mesh(devices), in_specs=spec, out_specs=spec, check_vma=check_vma)
    return jax.jit(mapped)


@functools.cache
def _scheduled(
    fn: Callable[..., Any], shape: tuple[int, ...], topology: str, ordered: bool, check_vma: bool
) -> Program:
    chips = Mesh(np.array(topology_devices(topology)).reshape(-1), ("x",))
    program = asyncops.program_order(fn) if ordered else fn
    mapped = jax.shard_map(program, mesh=chips, in_specs=P("x"), out_specs=P("x"), check_vma=check_vma)
    argument = jax.ShapeDtypeStruct((chips.size * shape[0], *shape[1:]), np.float32)
    return Program(asyncops.compile_for(topology, mapped, argument).as_text())


@pytest.fixture(scope="session")
def scheduled() -> Callable[..., Program]:
    """``scheduled(fn)``: ``fn`` of a float32 shard, in program order unless ``ordered=False``, compiled for TPUs.

    More arguments: ``shape=(1024, 1024)`` of the shard, ``topology="v5e:2x2"``. Each program is compiled once.
    """

    def compiled(fn, shape=(1024, 1024), topology="v5e:2x2", ordered=True, check_vma=False):
        return _scheduled(fn, shape, topology, ordered, check_vma)

    return compiled
