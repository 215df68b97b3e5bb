"""What a labelled kernel of the benchmark is, and how to find all of them.

A module of :mod:`asyncops.bench.kernels` holds one kind of defect. Each of its :class:`Pair` objects builds two
programs that differ in one place: the wrong one, where a finding should point at the line marked ``# BUG``, and its
clean twin.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import AbstractMesh, AxisType, Mesh, PartitionSpec

from asyncops.bench import kernels
from stateful.errors import InvalidArgumentError

MARK = "# BUG"

ROWS = jax.ShapeDtypeStruct((8, 128), jnp.float32)
"""The tile that most kernels work on."""
BUFFER = pltpu.VMEM((8, 128), jnp.float32)
PAIR = pltpu.VMEM((2, 8, 128), jnp.float32)
DMA = pltpu.SemaphoreType.DMA(())
COUNTER = pltpu.SemaphoreType.REGULAR(())
HBM = pl.BlockSpec(memory_space=pl.ANY)
VMEM = pl.BlockSpec(memory_space=pltpu.VMEM)
SMEM = pl.BlockSpec(memory_space=pltpu.SMEM)


def stack(*lengths: int) -> jax.ShapeDtypeStruct:
    """An array of tiles."""
    return jax.ShapeDtypeStruct((*lengths, 8, 128), jnp.float32)


def slots(*lengths: int) -> Any:
    """A scratch buffer of as many tiles."""
    return pltpu.VMEM((*lengths, 8, 128), jnp.float32)


def dmas(*lengths: int) -> Any:
    """An array of DMA semaphores."""
    return pltpu.SemaphoreType.DMA(lengths)


def ints(*values: int) -> np.ndarray[Any, Any]:
    """A flag or a table: the checker is told its shape alone, a tool that runs the kernel uses the values."""
    return np.array(values, np.int32)


def zeros(*like: Any) -> None:
    """Fills Refs, so that no kernel reads what it has not written."""
    for ref in like:
        ref[...] = jnp.zeros(ref.shape, ref.dtype)


@dataclass(frozen=True)
class Program:
    """A function to trace and its arguments; ``values``: integer arguments are part of the contract."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    values: bool = False


@dataclass(frozen=True)
class Draft:
    """What a pair is asked to build.

    Attributes:
      wrong: with the defect, or the clean twin.
      interpret: what ``pl.pallas_call`` gets as ``interpret``; False for tools that only trace.
      abstract: a mesh without devices is enough; a tool that runs the program needs a real one.
    """

    wrong: bool
    interpret: Any = False
    abstract: bool = True

    def call(
        self, kernel: Callable[..., Any], args: Sequence[Any], scratch: Sequence[Any] = (), *,
        out: Any = ROWS, ins: Sequence[Any] | None = None, outs: Any = VMEM, grid: tuple[int, ...] = (),
        prefetched: int = 0, values: bool = False, aliases: dict[int, int] | None = None, **params: Any,
    ) -> Program:  # fmt: skip
        """The kernel over its arguments, in HBM (integers in SMEM) unless ``ins`` says otherwise.

        ``prefetched``: so many first arguments are scalars that index maps may read. ``params`` are those of
        ``pltpu.CompilerParams``.
        """
        specs = list(ins) if ins is not None else [SMEM if isinstance(a, np.ndarray) else HBM for a in args]
        layout = pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=prefetched,
            grid=grid,
            in_specs=specs,
            out_specs=outs,
            scratch_shapes=list(scratch),
        )
        fn = pl.pallas_call(
            kernel, out_shape=out, grid_spec=layout, input_output_aliases=aliases or {},
            compiler_params=pltpu.CompilerParams(**params), interpret=self.interpret,
        )  # fmt: skip
        return Program(fn, tuple(args), values)

    def mesh(self, shape: tuple[int, ...], names: tuple[str, ...]) -> Any:
        """Devices in a grid of the axes ``names``."""
        if self.abstract:
            return AbstractMesh(shape, names, axis_types=(AxisType.Auto,) * len(shape))
        devices = np.array(jax.devices()[: int(np.prod(shape))])
        return Mesh(devices.reshape(shape), names)

    def on_mesh(
        self, kernel: Callable[..., Any], args: Sequence[Any], scratch: Sequence[Any] = (), *,
        shape: tuple[int, ...] = (4,), barrier: bool = False, out: Any = ROWS, **more: Any,
    ) -> Program:  # fmt: skip
        """The kernel on every device of a mesh of the axes "x", "y"; ``args`` are those of one device.

        Integer arguments are the same everywhere. ``barrier``: the kernel has a barrier semaphore.
        """
        names = ("x", "y")[: len(shape)]
        call = self.call(kernel, args, scratch, out=out, **({"collective_id": 0} if barrier else {}), **more)
        split = PartitionSpec(names)
        specs = tuple(PartitionSpec() if isinstance(a, np.ndarray) else split for a in args)
        mapped = jax.shard_map(
            call.fn, mesh=self.mesh(shape, names), in_specs=specs, out_specs=split, check_vma=False
        )
        count = int(np.prod(shape))
        full = tuple(
            a
            if isinstance(a, np.ndarray)
            else jax.ShapeDtypeStruct((a.shape[0] * count, *a.shape[1:]), a.dtype)
            for a in args
        )
        return Program(mapped, full, call.values)


@dataclass(frozen=True)
class Pair:
    """A wrong kernel and its clean twin.

    Attributes:
      build: makes either of them.
      rules: codes that name the defect, the most fitting first.
      kind: the kind of defect, the module's.
      cores: of each device that the program is meant for.
    """

    build: Callable[[Draft], Program]
    rules: tuple[str, ...]
    kind: str
    cores: int = 1

    @property
    def name(self) -> str:
        """The name of the function that builds it."""
        return self.build.__name__

    @property
    def file(self) -> str:
        """The file that holds it."""
        return inspect.getsourcefile(self.build) or ""

    def marked_lines(self) -> frozenset[int]:
        """The lines of the file that a finding should point at."""
        lines, first = inspect.getsourcelines(self.build)
        return frozenset(first + i for i, line in enumerate(lines) if MARK in line)


def pair(*rules: str, cores: int = 1) -> Callable[[Callable[[Draft], Program]], Pair]:
    """Makes a :class:`Pair` of a function that builds its programs; its module says the kind, as ``KIND``."""

    def decorate(build: Callable[[Draft], Program]) -> Pair:
        return Pair(build, rules, build.__globals__["KIND"], cores)

    return decorate


def kernel_modules() -> list[ModuleType]:
    """The modules that hold the pairs, in the order of their names."""
    names = sorted(m.name for m in pkgutil.iter_modules(kernels.__path__))
    return [importlib.import_module(f"{kernels.__name__}.{name}") for name in names]


def all_pairs() -> list[Pair]:
    """Every pair of the benchmark, file by file, in the order in which they are written."""
    return [v for module in kernel_modules() for v in vars(module).values() if isinstance(v, Pair)]


def find_pair(name: str) -> Pair:
    """The pair of that name.

    Raises:
      InvalidArgumentError: there is none.
    """
    for found in all_pairs():
        if found.name == name:
            return found
    raise InvalidArgumentError(f"name={name!r}: no such kernel; `asyncops bench --list` prints them")
