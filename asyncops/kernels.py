"""Asynchronous copies inside Pallas TPU kernels, and a loop over buffers whose slots cannot be mixed up.

The copies are `pltpu.make_async_copy` and `pltpu.make_async_remote_copy` split in two, with the types of their operands
checked and a future in between: they trace to the same operations as the descriptor that one would keep by hand. A
future that is waited for twice in one function raises there; what happens on other paths is for `asyncops.check`.

`multi_buffered_loop` is for kernels that fetch, compute and write back block by block: it owns the buffers, the
semaphores and the arithmetic of slots.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.extend.core
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from asyncops import origins
from asyncops.origins import Origin
from stateful._jax import ops as _jax
from stateful.errors import FutureReusedError, InvalidArgumentError

# A Ref of a kernel, or a view of one; Pallas has no public type for them.
Ref = Any
DeviceId = dict[Any, Any] | tuple[Any, ...]

# -- futures ------------------------------------------------------------------------------------------


@dataclass(eq=False)
class CopyFuture:
    """A copy that is running.

    Args:
        descriptor: Pallas' own.
        name: for error messages.
        origin: the line that started it.
    """

    descriptor: Any
    name: str
    origin: Origin

    def __post_init__(self) -> None:
        self._waited: dict[str, tuple[Origin, Any]] = {}

    def waits(self, what: str) -> Any:
        """The descriptor, to wait for ``what``: once in each function that is traced.

        Raises:
            FutureReusedError: it was waited for before.
        """
        here, trace = origins.here(), jax.extend.core.get_opaque_trace_state()
        before = self._waited.get(what)
        if before is not None and before[1] == trace:
            raise FutureReusedError(
                f"{here}: the copy {self.name} started at {self.origin} was already waited for ({what}) at {before[0]}"
            )
        self._waited[what] = (here, trace)
        return self.descriptor


# -- checks -------------------------------------------------------------------------------------------


def _check_semaphore(function: str, argument: str, semaphore: Ref) -> None:
    dtype = getattr(semaphore, "dtype", None)
    if dtype is None or not jnp.issubdtype(dtype, pltpu.dma_semaphore):
        what = (
            "a regular or barrier semaphore" if dtype is not None and _is_semaphore(dtype) else "no semaphore"
        )
        raise InvalidArgumentError(
            f"{function}: {argument} must be a DMA semaphore (pltpu.SemaphoreType.DMA), and is {what}"
        )
    if tuple(semaphore.shape):
        raise InvalidArgumentError(
            f"{function}: {argument} is an array of semaphores of shape {tuple(semaphore.shape)}; choose one of them "
            f"with {argument}.at[i]"
        )


def _is_semaphore(dtype: Any) -> bool:
    return jnp.issubdtype(dtype, pl.semaphore) or "sem" in str(dtype)


def _check_buffers(function: str, source: Ref, destination: Ref) -> None:
    for argument, ref in (("src", source), ("dst", destination)):
        if not _is_ref(ref):
            raise InvalidArgumentError(
                f"{function}: {argument} must be a Ref of the kernel, or a view of one, not {type(ref).__name__}"
            )
        if _is_semaphore(ref.dtype):
            raise InvalidArgumentError(f"{function}: {argument} is a semaphore, which cannot be copied")
    if source.dtype != destination.dtype:
        raise InvalidArgumentError(
            f"{function}: src is of dtype {source.dtype} and dst of {destination.dtype}; a DMA does not convert"
        )
    if tuple(source.shape) != tuple(destination.shape):
        raise InvalidArgumentError(
            f"{function}: src has the shape {tuple(source.shape)} and dst {tuple(destination.shape)}; they must be "
            "equal"
        )
    spaces = [_jax.kernel_memory(ref) for ref in (source, destination)]
    if spaces == ["smem", "smem"]:
        raise InvalidArgumentError(
            f"{function}: src and dst are both in SMEM; a DMA needs one side elsewhere"
        )


def _is_ref(x: Any) -> bool:
    return _jax.is_ref_view(x) or isinstance(x, jax.Ref)


# -- copies -------------------------------------------------------------------------------------------


def async_copy_start(src: Ref, dst: Ref, sem: Ref, *, name: str = "") -> CopyFuture:
    """Starts a DMA from ``src`` to ``dst`` on this device.

    Args:
        src: Ref, or view, in any memory but semaphores; must not be written until the wait.
        dst: Ref, or view, of the same shape and dtype; must not be used until the wait.
        sem: DMA semaphore, one, that counts the bytes.
        name: for error messages.

    Returns:
        A future for `async_copy_wait`.

    Raises:
        InvalidArgumentError: an operand is of the wrong type.
    """
    function = "async_copy_start"
    _check_buffers(function, src, dst)
    _check_semaphore(function, "sem", sem)
    descriptor = pltpu.make_async_copy(src, dst, sem)
    descriptor.start()
    return CopyFuture(descriptor, name, origins.here())


def async_copy(src: Ref, dst: Ref, sem: Ref, *, name: str = "") -> CopyFuture:
    """The future of a copy that another iteration, or another part of the kernel, has started with these operands."""
    _check_buffers("async_copy", src, dst)
    _check_semaphore("async_copy", "sem", sem)
    return CopyFuture(pltpu.make_async_copy(src, dst, sem), name, origins.here())


def async_copy_wait(fut: CopyFuture) -> None:
    """Waits for `async_copy_start`: ``dst`` holds the copy, ``src`` may be written."""
    descriptor = _copy_future("async_copy_wait", fut).waits("copy")
    descriptor.wait()


def async_remote_copy_start(
    src: Ref,
    dst: Ref,
    send_sem: Ref,
    recv_sem: Ref,
    device_id: DeviceId,
    *,
    name: str = "",
) -> CopyFuture:
    """Starts a DMA from ``src`` to ``dst`` on another device.

    Args:
        src: Ref, or view, in any memory but semaphores; must not be written until `async_remote_copy_wait_send`.
        dst: Ref, or view, of the same shape and dtype: the one of that name on the device ``device_id``.
        send_sem: DMA semaphore, one, that counts here what has been sent.
        recv_sem: DMA semaphore, one, that counts on that device what has arrived.
        device_id: coordinates in the mesh: a dictionary of axis names (axes left out: one's own), or a tuple of all.
        name: for error messages.

    Returns:
        A future for `async_remote_copy_wait_send` and `async_remote_copy_wait_recv`.

    Raises:
        InvalidArgumentError: an operand is of the wrong type.
    """
    descriptor = _remote("async_remote_copy_start", src, dst, send_sem, recv_sem, device_id)
    descriptor.start()
    return CopyFuture(descriptor, name, origins.here())


def async_remote_copy(
    src: Ref,
    dst: Ref,
    send_sem: Ref,
    recv_sem: Ref,
    device_id: DeviceId,
    *,
    name: str = "",
) -> CopyFuture:
    """The future of a remote copy that another part of the kernel has started with these operands."""
    descriptor = _remote("async_remote_copy", src, dst, send_sem, recv_sem, device_id)
    return CopyFuture(descriptor, name, origins.here())


def _remote(function: str, src: Ref, dst: Ref, send_sem: Ref, recv_sem: Ref, device_id: DeviceId) -> Any:
    _check_buffers(function, src, dst)
    _check_semaphore(function, "send_sem", send_sem)
    _check_semaphore(function, "recv_sem", recv_sem)
    if not isinstance(device_id, (tuple, dict)):
        raise InvalidArgumentError(
            f"{function}: device_id={device_id!r}: expected coordinates, such as {{'x': index}}, or a tuple of all"
        )
    return pltpu.make_async_remote_copy(src, dst, send_sem, recv_sem, device_id=device_id)


def async_remote_copy_wait_send(fut: CopyFuture) -> None:
    """Waits until all of ``src`` has been sent: it may be written."""
    descriptor = _copy_future("async_remote_copy_wait_send", fut).waits("send")
    descriptor.wait_send()


def async_remote_copy_wait_recv(fut: CopyFuture) -> None:
    """Waits until as much as ``dst`` holds has arrived here (from whoever sends to this device)."""
    descriptor = _copy_future("async_remote_copy_wait_recv", fut).waits("recv")
    descriptor.wait_recv()


def _copy_future(function: str, fut: Any) -> CopyFuture:
    if not isinstance(fut, CopyFuture):
        raise InvalidArgumentError(
            f"{function}: fut must be what async_copy_start or async_remote_copy_start returned, not "
            f"{type(fut).__name__}"
        )
    return fut


# -- a loop over buffers ------------------------------------------------------------------------------

View = Callable[[Any], Ref]


@dataclass(frozen=True)
class _Stream:
    """The buffers of one block per step: slots in VMEM, a semaphore for each, and where block ``i`` lies outside."""

    view: View
    buffer: Ref
    semaphores: Ref
    slots: int

    def slot(self, i: Any) -> Any:
        """The buffer of step ``i``."""
        return self.buffer.at[lax.rem(i, jnp.int32(self.slots))]

    def fetch(self, i: Any) -> CopyFuture:
        """The copy into the buffer of step ``i``."""
        return async_copy(self.view(i), self.slot(i), self._semaphore(i), name="fetch")

    def write_back(self, i: Any) -> CopyFuture:
        """The copy out of the buffer of step ``i``."""
        return async_copy(self.slot(i), self.view(i), self._semaphore(i), name="write_back")

    def _semaphore(self, i: Any) -> Any:
        return self.semaphores.at[lax.rem(i, jnp.int32(self.slots))]


def multi_buffered_loop(
    steps: int | jax.Array,
    body: Callable[..., None],
    *,
    reads: Sequence[View] = (),
    writes: Sequence[View] = (),
    slots: int = 2,
    distance: int | None = None,
) -> None:
    """Runs ``body`` for each step on blocks in VMEM, while the next are fetched and the last are written back.

    For the body of a Pallas TPU kernel. Example, with ``x_hbm`` and ``y_hbm`` in HBM::

        def body(i, x, y):
            y[...] = x[...] * 2

        rows = lambda ref: lambda i: ref.at[pl.ds(i * 8, 8)]
        multi_buffered_loop(n, body, reads=[rows(x_hbm)], writes=[rows(y_hbm)], slots=3)

    Args:
        steps: how many; may be a traced int32 scalar.
        body: ``body(i, *blocks)`` with a VMEM Ref for each of ``reads`` (holding that step's block), then for each of
            ``writes`` (to be filled). It may not keep them, nor touch what ``reads`` and ``writes`` view.
        reads: each gives the view of step ``i``'s block outside, all of one shape; no two steps may write a block
            that another reads.
        writes: likewise, where step ``i``'s block goes; different blocks for different steps.
        slots: buffers for each block; memory for so many is held.
        distance: how many steps ahead blocks are fetched; at most, and by default, ``slots - 1``.

    Raises:
        InvalidArgumentError: ``slots`` or ``distance`` leaves no buffer free to fetch into.
    """
    distance = slots - 1 if distance is None else distance
    if slots < 1 or not 0 <= distance < slots:
        raise InvalidArgumentError(
            f"multi_buffered_loop: distance={distance}, slots={slots}: a block may be fetched at most slots - 1 steps "
            "ahead, else it would land in a buffer in use; slots must be at least 1"
        )

    views = {
        f"{kind}{i}": v for kind, all_ in (("read", reads), ("write", writes)) for i, v in enumerate(all_)
    }

    def allocated(**memory: Ref) -> None:
        streams = [_Stream(v, memory[name], memory[f"{name}_sems"], slots) for name, v in views.items()]
        _run(steps, body, streams[: len(reads)], streams[len(reads) :], distance)

    # What the memory is called here, it is called in messages and pictures.
    buffers = {name: buffer for n, v in views.items() for name, buffer in _buffers(n, v, slots).items()}
    pl.run_scoped(allocated, **buffers)


def _buffers(name: str, view: View, slots: int) -> dict[str, Any]:
    block = view(jnp.int32(0))
    return {
        name: pltpu.VMEM((slots, *block.shape), block.dtype),
        f"{name}_sems": pltpu.SemaphoreType.DMA((slots,)),
    }


def _run(
    steps: Any, body: Callable[..., None], reads: list[_Stream], writes: list[_Stream], distance: int
) -> None:
    steps = jnp.asarray(steps, jnp.int32)

    def fetch(i: Any) -> None:
        for stream in reads:
            stream.fetch(i).descriptor.start()

    def finish(i: Any) -> None:
        for stream in writes:
            async_copy_wait(stream.write_back(i))

    def step(i: Any, _: None) -> None:
        pl.when(i + distance < steps)(lambda: fetch(i + distance))
        for stream in reads:
            async_copy_wait(stream.fetch(i))
        if writes:
            # The buffer of this step is that of `slots` steps ago: what went out of it must be gone.
            pl.when(i >= writes[0].slots)(lambda: finish(i - writes[0].slots))
        body(i, *(stream.slot(i) for stream in (*reads, *writes)))
        for stream in writes:
            stream.write_back(i).descriptor.start()

    for i in range(distance):
        pl.when(i < steps)(functools.partial(fetch, jnp.int32(i)))
    lax.fori_loop(jnp.int32(0), steps, step, None)
    if writes:
        first = lax.max(steps - writes[0].slots, jnp.int32(0))
        lax.fori_loop(first, steps, lambda i, _: finish(i), None)
