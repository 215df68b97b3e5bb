"""Meshes of CPU devices, and programs as the TPU compiler schedules them."""

from __future__ import annotations

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


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "tpu_compile: needs libtpu, the TPU compiler (extra ``tpu``); no TPU")


def mesh(devices: int, axis: str = "x") -> Mesh:
    """So many CPU devices along one axis."""
    return Mesh(np.array(jax.devices()[:devices]), (axis,))


def sharded(fn: Callable[..., Any], devices: int, check_vma: bool = False) -> Callable[..., Any]:
    """``fn`` of shards, jitted, over so many CPU devices."""
    spec = P("x")
    mapped = jax.shard_map(fn, mesh=mesh(devices), in_specs=spec, out_specs=spec, check_vma=check_vma)
    return jax.jit(mapped)


@pytest.fixture(scope="session")
def scheduled() -> Callable[..., Program]:
    """``scheduled(fn, shape=(1024, 1024), topology="v5e:2x2")``: ``fn`` of a float32 shard, compiled for TPUs."""
    pytest.importorskip("libtpu", reason="the TPU compiler (libtpu, extra tpu) is not installed")

    def compiled(
        fn: Callable[..., Any], shape: tuple[int, ...] = (1024, 1024), topology: str = "v5e:2x2"
    ) -> Program:
        chips = Mesh(np.array(topology_devices(topology)).reshape(-1), ("x",))
        mapped = jax.shard_map(fn, mesh=chips, in_specs=P("x"), out_specs=P("x"), check_vma=False)
        argument = jax.ShapeDtypeStruct((chips.size * shape[0], *shape[1:]), np.float32)
        return Program(asyncops.compile_for(topology, mapped, argument).as_text())

    return compiled
