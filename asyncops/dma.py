"""The kernels that start and finish a transfer on a TPU, and the lowering of ``start`` and ``done`` to them.

The start programs the DMA engines and returns while they run; the done waits. Between them XLA sees three values:

* the source, which the start does not give back under a new name. The done takes the source as an operand, so it
  lives; nothing claims that the start changed it, so whoever reads it meanwhile makes XLA copy nothing;
* the destination, a result of the start, which the done gives back as its own result: same buffer, new name;
* two semaphores.

All buffers are pinned to one memory at both ends (a block spec alone does not do that), so XLA's memory-space
assignment, which moves values between HBM and VMEM, leaves them alone. The compiler lets no kernel that communicates
begin before all devices have entered it, so the receiver's buffer is there when the first byte arrives.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from asyncops.ops import SEMAPHORES, done_p, in_memory, out_of_memory, resume_p, start_p
from asyncops.origins import Origin
from asyncops.placing import SECOND_RESULT, pin
from asyncops.transfers import Copy, Exchange, Gather, Own, Permute, Shape, Transfer
from stateful._jax import ops as _jax
from stateful.errors import InFlightMovedError, InvalidArgumentError

SENT, ARRIVED = 0, 1  # positions of the two semaphores

# -- devices ------------------------------------------------------------------------------------------


def device(axes: Sequence[str], index: Any) -> dict[str, Any]:
    """The coordinates along ``axes`` (major first) of device ``index``, for ``device_id``."""
    coordinates = {}
    for axis in reversed(axes):
        size = lax.axis_size(axis)
        coordinates[axis] = lax.rem(index, size)
        index = lax.div(index, size)
    return coordinates


def partner(perm: Sequence[tuple[int, int]], index: Any) -> Any:
    """Where ``perm`` sends ``index``, or -1; an int32 scalar."""
    found = jnp.int32(-1)
    for s, d in perm:
        found = jnp.where(index == s, jnp.int32(d), found)
    return found


def target(transfer: Permute, index: Any) -> Any:
    """Whom ``index`` sends to, or -1; an int32 scalar."""
    if transfer.shift is None:
        return partner(transfer.perm, index)
    return lax.rem(index + jnp.int32(transfer.shift), jnp.int32(transfer.size))


def remote_copy(source: Any, destination: Any, semaphores: Any, to: Any) -> Any:
    """The descriptor of a copy to another device's ``destination``."""
    return pltpu.make_async_remote_copy(
        source,
        destination,
        semaphores.at[0, SENT],
        semaphores.at[0, ARRIVED],
        device_id=to,
    )


def local_copy(source: Any, destination: Any, semaphores: Any) -> Any:
    """The descriptor of a copy on the device, counted where arrivals are."""
    return pltpu.make_async_copy(source, destination, semaphores.at[0, ARRIVED])


def await_bytes(buffer: Any, semaphore: Any) -> None:
    """Waits for as many bytes as ``buffer`` has; a wait needs no more of the copies than that."""
    pltpu.make_async_copy(buffer, buffer, semaphore).wait()


# -- kernels: one pair for each transfer --------------------------------------------------------------


def _part(ref: Any, batch: int, index: Any) -> Any:
    """Part ``index`` of a buffer of parts, in all batches."""
    return ref.at[(*[slice(None)] * batch, slice(None), index)]


def _start_copy(transfer: Copy, batch: int, source: Any, destination: Any, semaphores: Any) -> None:
    local_copy(source, destination, semaphores).start()


def _start_own(transfer: Own, batch: int, source: Any, destination: Any, semaphores: Any) -> None:
    own = _part(source, batch, lax.axis_index(transfer.axes))
    local_copy(own, destination, semaphores).start()


def _start_permute(transfer: Permute, batch: int, source: Any, destination: Any, semaphores: Any) -> None:
    to = target(transfer, lax.axis_index(transfer.axes))
    copy = remote_copy(source, destination, semaphores, device(transfer.axes, to))
    _when(to >= 0, transfer.complete, copy.start)


def _start_parts(
    transfer: Gather | Exchange, batch: int, source: Any, destination: Any, semaphores: Any
) -> None:
    """Sends a part to everyone, beginning with the next device so that not all send to the same one."""
    own = lax.axis_index(transfer.axes)
    exchanged = isinstance(transfer, Exchange)
    slot = _part(destination, batch, own)
    kept = _part(source, batch, own) if exchanged else source
    local_copy(kept, slot, semaphores).start()

    def send(step: Any, _: None) -> None:
        to = lax.rem(own + step, jnp.int32(transfer.size))
        sent = _part(source, batch, to) if exchanged else source
        remote_copy(sent, slot, semaphores, device(transfer.axes, to)).start()

    lax.fori_loop(jnp.int32(1), jnp.int32(transfer.size), send, None)


def _wait_copy(transfer: Copy | Own, batch: int, source: Any, destination: Any, semaphores: Any) -> None:
    await_bytes(destination, semaphores.at[0, ARRIVED])


def _wait_permute(transfer: Permute, batch: int, source: Any, destination: Any, semaphores: Any) -> None:
    index = lax.axis_index(transfer.axes)
    sends = partner(transfer.perm, index) >= 0
    receives = partner(transfer.transposed.perm, index) >= 0
    _when(sends, transfer.complete, functools.partial(await_bytes, source, semaphores.at[0, SENT]))
    _when(receives, transfer.complete, functools.partial(await_bytes, destination, semaphores.at[0, ARRIVED]))


def _wait_parts(
    transfer: Gather | Exchange, batch: int, source: Any, destination: Any, semaphores: Any
) -> None:
    part = _part(destination, batch, 0)

    def sent(_: Any, carry: None) -> None:
        await_bytes(part, semaphores.at[0, SENT])

    lax.fori_loop(jnp.int32(1), jnp.int32(transfer.size), sent, None)
    await_bytes(destination, semaphores.at[0, ARRIVED])


def _when(condition: Any, always: bool, do: Callable[[], None]) -> None:
    if always:
        do()
    else:
        pl.when(condition)(do)


Kernel = Callable[..., None]

# One row for each transfer: how it starts, how it is waited for. Subclasses share the row of their base.
_KERNELS: dict[type[Transfer], tuple[Kernel, Kernel]] = {
    Copy: (_start_copy, _wait_copy),
    Own: (_start_own, _wait_copy),
    Permute: (_start_permute, _wait_permute),
    Gather: (_start_parts, _wait_parts),
    Exchange: (_start_parts, _wait_parts),
}


def kernels(transfer: Transfer) -> tuple[Kernel, Kernel]:
    """The kernels ``(transfer, batch, source, destination, semaphores)`` that start and await a transfer."""
    return next(row for cls, row in _KERNELS.items() if isinstance(transfer, cls))


def _resume(transfer: Transfer, batch: int, _: Any, source: Any, destination: Any, semaphores: Any) -> None:
    """Starts copies that count on both semaphores what `kernels` will wait for.

    The destination holds already what arrived and is only read; the source, which is of no interest any more, is
    written with whatever has its shape. A copy that a device sends to itself counts on both semaphores.
    """

    def sent_and_arrived(what: Any, to: Any) -> None:
        own = device(transfer.axes, lax.axis_index(transfer.axes))
        remote_copy(what, to, semaphores, own).start()

    def arrived(what: Any, to: Any) -> None:
        local_copy(what, to, semaphores).start()

    def sent(what: Any, to: Any) -> None:
        pltpu.make_async_copy(what, to, semaphores.at[0, SENT]).start()

    if isinstance(transfer, Permute):
        index = lax.axis_index(transfer.axes)
        sends, receives = partner(transfer.perm, index) >= 0, partner(transfer.transposed.perm, index) >= 0
        whole = functools.partial(sent_and_arrived, destination, source)
        _when(sends & receives, transfer.complete, whole)
        if not transfer.complete:
            pl.when(sends & ~receives)(functools.partial(sent, destination, source))
            pl.when(receives & ~sends)(functools.partial(arrived, destination, source))
    elif isinstance(transfer, (Gather, Exchange)):
        for n in range(transfer.size):
            to = _part(source, batch, n) if isinstance(transfer, Exchange) else source
            (sent_and_arrived if n else arrived)(_part(destination, batch, n), to)
    else:
        arrived(destination, _part(source, batch, 0) if isinstance(transfer, Own) else source)


# -- calls --------------------------------------------------------------------------------------------


def _space(transfer: Transfer) -> Any:
    return pltpu.VMEM if isinstance(transfer, Copy) and transfer.space == "vmem" else pltpu.HBM


def pinned(x: jax.Array, space: Any = pltpu.HBM) -> jax.Array:
    """``x`` as an operand that XLA may not move to another memory."""
    return pltpu.with_memory_space_constraint(x, space)


_SEMAPHORES = pl.BlockSpec(memory_space=pltpu.SEMAPHORE)
_PARAMS = pltpu.CompilerParams(has_side_effects=True)


def start_call(source: jax.Array, transfer: Transfer, batch: int) -> tuple[jax.Array, jax.Array]:
    """Starts ``transfer`` of a buffer as it lies in memory; gives the destination and the semaphores."""
    space = _space(transfer)
    landing = (*source.shape[: batch + 1], *transfer.landing(source.shape[batch + 1 :]))
    return pl.pallas_call(
        functools.partial(kernels(transfer)[0], transfer, batch),
        out_shape=(space(landing, source.dtype), pltpu.SemaphoreType.DMA((1, SEMAPHORES))),
        in_specs=[pl.BlockSpec(memory_space=pltpu.HBM)],
        out_specs=(pl.BlockSpec(memory_space=space), _SEMAPHORES),
        compiler_params=_PARAMS,
        name=f"{type(transfer).__name__.lower()}_start",
    )(pinned(source))


def done_call(
    source: jax.Array,
    destination: jax.Array,
    semaphores: jax.Array,
    transfer: Transfer,
    batch: int,
    placed: bool = False,
) -> jax.Array:
    """Waits for a transfer; gives the destination, to stay in its memory if ``placed``."""
    space = _space(transfer)
    landed, spec = space(destination.shape, destination.dtype), pl.BlockSpec(memory_space=space)

    def kernel(source: Any, destination: Any, semaphores: Any, *_: Any) -> None:
        kernels(transfer)[1](transfer, batch, source, destination, semaphores)

    return pl.pallas_call(
        kernel,
        out_shape=(landed, SECOND_RESULT) if placed else (landed,),
        in_specs=[pl.BlockSpec(memory_space=pltpu.HBM), spec, _SEMAPHORES],
        out_specs=(spec, _SEMAPHORES) if placed else (spec,),
        input_output_aliases={1: 0},
        compiler_params=_PARAMS,
        name=f"{type(transfer).__name__.lower()}_done",
    )(pinned(source), pinned(destination, space), semaphores)[0]


def resume_call(arrived: jax.Array, transfer: Transfer, batch: int, source: Shape) -> Any:
    """Source, destination and semaphores of a transfer from which ``arrived`` will arrive."""
    space = _space(transfer)
    spec = pl.BlockSpec(memory_space=space)
    return pl.pallas_call(
        functools.partial(_resume, transfer, batch),
        out_shape=(
            pltpu.HBM((*arrived.shape[: batch + 1], *source), arrived.dtype),
            space(arrived.shape, arrived.dtype),
            pltpu.SemaphoreType.DMA((1, SEMAPHORES)),
        ),
        in_specs=[spec],
        out_specs=(pl.BlockSpec(memory_space=pltpu.HBM), spec, _SEMAPHORES),
        input_output_aliases={0: 1},
        compiler_params=_PARAMS,
        name=f"{type(transfer).__name__.lower()}_resume",
    )(pinned(arrived, space))


# -- lowering -----------------------------------------------------------------------------------------

# What a kernel on a TPU cannot take as an operand (found by compiling), and what to send instead.
_INSTEAD = {
    "bool": "x.astype(jnp.int8)",
    "float16": "jax.lax.bitcast_convert_type(x, jnp.uint16)",
    "complex64": "its real and its imaginary part",
}


def require_kernel_dtype(dtype: Any, origin: Origin) -> None:
    """Refuses what no kernel can move.

    Raises:
        InvalidArgumentError: naming what to send instead.
    """
    if dtype.name in _INSTEAD:
        raise InvalidArgumentError(
            f"the operation started at {origin}: a TPU's kernels take no arrays of dtype {dtype.name}; send "
            f"{_INSTEAD[dtype.name]}"
        )


def _start_on_tpu(
    site: Any, x: jax.Array, *, transfer: Transfer, batch: int, origin: Origin, ordered: bool
) -> list[Any]:
    require_kernel_dtype(x.dtype, origin)
    source = in_memory(x if ordered or site.is_programs_argument(0) else pin(x), batch)
    return [source, *start_call(source, transfer, batch)]


def _done_on_tpu(
    site: Any,
    source: jax.Array,
    destination: jax.Array,
    semaphores: jax.Array,
    *,
    transfer: Transfer,
    batch: int,
    origin: Origin,
    ordered: bool,
    placed: bool,
) -> list[Any]:
    _require_unmoved(site, origin, ordered)
    landed = out_of_memory(done_call(source, destination, semaphores, transfer, batch, placed), batch)
    if isinstance(transfer, Permute) and not transfer.complete:
        receives = partner(transfer.transposed.perm, lax.axis_index(transfer.axes)) >= 0
        landed = jnp.where(receives, landed, jnp.zeros_like(landed))
    return [landed]


# What may stand between a start and a done in the compiled program: it renames buffers and moves none.
_RENAMES = {
    "func.call",
    "func.func",
    "sdy.manual_computation",
    "stablehlo.custom_call",
    "stablehlo.optimization_barrier",
}
# These may copy what they carry or return, unless program_order has arranged it.
_LOOPS_AND_BRANCHES = {"stablehlo.while", "stablehlo.case", "stablehlo.if"}


def _require_unmoved(site: Any, origin: Origin, ordered: bool) -> None:
    """Refuses a program in which anything but a start made the buffers of a done.

    Raises:
        InFlightMovedError: naming what would move them.
    """
    for position, what in ((1, "destination"), (2, "semaphores")):
        maker = site.maker(position)
        if maker in _RENAMES or (ordered and maker in _LOOPS_AND_BRANCHES):
            continue
        if maker in _LOOPS_AND_BRANCHES:
            raise InFlightMovedError(
                f"the future finished at {origin} was carried by a loop, or returned by a conditional, which may copy "
                f"its {what} while the copy runs. Put asyncops.program_order around the function, or use "
                "asyncops.fori_loop, while_loop or scan"
            )
        raise InFlightMovedError(
            f"the future finished at {origin}: {maker} would move its {what} while the copy runs. Futures are "
            "stacked and unstacked by asyncops.scan, not by jax.lax.scan or indexing, and a future that "
            "depends on a vmap's index must do so from its start"
        )


def _resume_on_tpu(site: Any, y: jax.Array, *, transfer: Transfer, batch: int, source: Shape) -> list[Any]:
    return list(resume_call(in_memory(y, batch), transfer, batch, source))


_jax.register_untracked_lowering(resume_p, _resume_on_tpu, "tpu")
_jax.register_untracked_lowering(start_p, _start_on_tpu, "tpu")
_jax.register_untracked_lowering(done_p, _done_on_tpu, "tpu")
