"""TPU topologies that exist only as a description: what the compiler compiles for when there is no TPU."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import AbstractMesh, Mesh

from stateful.errors import CompilerError, InvalidArgumentError

EXAMPLES = ("v4:2x2x1", "v5e:2x2", "v5e:2x4", "v5p:2x2x1", "v6e:2x2", "v6e:2x4", "tpu7x:2x2x1")
# What libtpu asks a cloud machine's metadata server for; answered here, it starts at once on any machine. The
# accelerator type is a formality: the topology that is compiled for is named separately. And several processes may
# load libtpu at once, since none of them drives a TPU.
ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}


def prepare_environment() -> None:
    """Answers libtpu's questions in the environment; what the user has set stays, and a machine with TPUs is left
    alone.

    JAX loads libtpu when a topology is first asked for, so this also works after another backend has started.
    """
    if any(Path("/dev").glob("accel[0-9]*")) or any(Path("/dev").glob("vfio/[0-9]*")):
        return
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def topology_devices(topology: str) -> tuple[Any, ...]:
    """The compile-only devices of ``topology``, such as ``"v5e:2x2"``."""
    if not isinstance(topology, str):
        raise InvalidArgumentError(f"topology is a name such as {EXAMPLES[1]!r}, got {topology!r}")
    if importlib.util.find_spec("libtpu") is None:
        raise CompilerError(
            "compile_for needs the TPU compiler, which is the package libtpu (no TPU needed): "
            "pip install 'asyncops[tpu]', or pip install libtpu"
        )
    prepare_environment()
    try:
        return tuple(topologies.get_topology_desc(topology, platform="tpu").devices)
    except jax.errors.JaxRuntimeError as error:
        kind, _, reason = str(error).partition(": ")
        if kind != "INVALID_ARGUMENT":
            raise CompilerError(f"the TPU compiler does not start: {reason or kind}") from error
        raise InvalidArgumentError(
            f"topology {topology!r} is not one the compiler knows, as {', '.join(EXAMPLES)} are: {reason}"
        ) from error


def place(mesh: Mesh | AbstractMesh, devices: tuple[Any, ...], topology: str) -> Mesh:
    """``mesh`` on the first devices of the topology, in order, with the same axes.

    A mesh that is already made of TPU devices stays as it is.
    """
    if isinstance(mesh, Mesh) and mesh.devices.flat[0].platform == "tpu":
        return mesh
    if mesh.size > len(devices):
        axes = ", ".join(f"{name}={size}" for name, size in mesh.shape.items())
        raise InvalidArgumentError(
            f"the mesh ({axes}) has {mesh.size} devices, topology {topology!r} has {len(devices)}: "
            "name a larger topology, or make the mesh smaller"
        )
    grid = np.array(devices[: mesh.size], dtype=object).reshape(mesh.axis_sizes)
    return Mesh(grid, mesh.axis_names, axis_types=mesh.axis_types)
