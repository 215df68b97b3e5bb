"""The two primitives behind every asynchronous operation on Refs.

``start_ref`` reads its source and writes its destination, ``done_ref`` reads and writes them again, and JAX
knows: so no
loop, branch or ``jit`` loses them, and the source lives until the done. When JAX turns Refs into values, they become
``start_into`` and ``finish_into``, which take the destination's buffer and give it back: in place.

The operands are the Refs (one, if source and destination are slots of the same), then the indices of slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import lax

from asyncops.ops import SEMAPHORES
from asyncops.origins import Origin
from asyncops.places import Place
from asyncops.transfers import Shape, Transfer
from stateful._jax import ops as _jax
from stateful._jax.inflight import InFlight

HANDLE = InFlight((SEMAPHORES,), jnp.int32, True)


@dataclass(frozen=True)
class Layout:
    """How the operands stand for source and destination.

    Args:
        same: source and destination are slots of one Ref.
        from_slot: the source is a slot.
        to_slot: the destination is a slot.
        source: shape of the buffer that is sent.
        landing: shape of the buffer that receives; that of the destination, apart from how dimensions are split.
    """

    same: bool
    from_slot: bool
    to_slot: bool
    source: Shape
    landing: Shape

    @property
    def destination(self) -> int:
        """Position of the destination among the operands."""
        return 0 if self.same else 1

    def unpack(self, operands: Sequence[Any]) -> tuple[Any, Any, Any, Any]:
        """Source, its slot, destination, its slot; None for the slots of whole Refs."""
        refs, indices = operands[: self.destination + 1], iter(operands[self.destination + 1 :])
        from_slot = next(indices) if self.from_slot else None
        to_slot = next(indices) if self.to_slot else None
        return refs[0], from_slot, refs[-1], to_slot


def layout_of(source: Place, destination: Place, sent: Shape, landing: Shape) -> Layout:
    """The layout of the operands that `operands_of` gives."""
    same = source.ref is destination.ref
    return Layout(same, source.index is not None, destination.index is not None, sent, landing)


def operands_of(source: Place, destination: Place) -> list[Any]:
    """The operands for an operation from ``source`` to ``destination``."""
    refs = [source.ref] if source.ref is destination.ref else [source.ref, destination.ref]
    return [*refs, *(i for i in (source.index, destination.index) if i is not None)]


# -- on Refs ------------------------------------------------------------------------------------------


def _start_ref_type(*avals: Any, transfer: Transfer, layout: Layout, origin: Origin) -> Any:
    effects = {_jax.async_effect, *_jax.axis_effects(transfer.axes)}
    effects |= {_jax.reads(0), _jax.writes(layout.destination)}
    return [_jax.in_flight_type(avals[0].inner_aval, (), HANDLE)], effects


def _done_ref_type(semaphores: Any, *avals: Any, transfer: Transfer, layout: Layout, origin: Origin) -> Any:
    effects = {_jax.async_effect, *_jax.axis_effects(transfer.axes)}
    return [], effects | {_jax.reads(1), _jax.writes(1 + layout.destination)}


start_ref_p = _jax.new_primitive("async_start_ref", _start_ref_type)
done_ref_p = _jax.new_primitive("async_done_ref", _done_ref_type)

# -- on values ----------------------------------------------------------------------------------------


def _start_into_type(*avals: Any, transfer: Transfer, layout: Layout, origin: Origin) -> Any:
    effects = {_jax.async_effect, *_jax.axis_effects(transfer.axes)}
    sent = [] if layout.same else [avals[0]]
    return [avals[layout.destination], _jax.in_flight_type(avals[0], (), HANDLE), *sent], effects


def _finish_into_type(
    semaphores: Any, *avals: Any, transfer: Transfer, layout: Layout, origin: Origin
) -> Any:
    return [avals[layout.destination]], {_jax.async_effect, *_jax.axis_effects(transfer.axes)}


start_into_p = _jax.new_primitive("async_start_into", _start_into_type)
finish_into_p = _jax.new_primitive("async_finish_into", _finish_into_type)


def _new_values(operands: Sequence[Any], position: int, value: Any) -> list[Any]:
    return [value if n == position else None for n in range(len(operands))]


def _discharge_start(avals: Any, *operands: Any, layout: Layout, **params: Any) -> Any:
    """The source gets a new name, too: that of where the start has found it, and where it stays."""
    value, semaphores, *sent = start_into_p.bind(*operands, layout=layout, **params)
    values = _new_values(operands, layout.destination, value)
    return [*sent, *values[len(sent) :]], [semaphores]


def _discharge_done(avals: Any, *operands: Any, layout: Layout, **params: Any) -> Any:
    (value,) = finish_into_p.bind(*operands, layout=layout, **params)
    return _new_values(operands, 1 + layout.destination, value), []


_jax.register_discharge(start_ref_p, _discharge_start)
_jax.register_discharge(done_ref_p, _discharge_done)


def start_ref(source: Place, destination: Place, transfer: Transfer, origin: Origin) -> Any:
    """Starts ``transfer`` of what lies at ``source``; gives the semaphores.

    The transfer must give what arrives the size of ``destination``, which may split its dimensions otherwise.
    """
    layout = layout_of(source, destination, source.shape, transfer.landing(source.shape))
    operands = operands_of(source, destination)
    (semaphores,) = start_ref_p.bind(*operands, transfer=transfer, layout=layout, origin=origin)
    return semaphores


def done_ref(semaphores: Any, source: Place, destination: Place, transfer: Transfer, origin: Origin) -> None:
    """Waits for the operation that `start_ref` started from ``source`` to ``destination``."""
    layout = layout_of(source, destination, source.shape, transfer.landing(source.shape))
    operands = operands_of(source, destination)
    done_ref_p.bind(semaphores, *operands, transfer=transfer, layout=layout, origin=origin)


# -- lowering where there are no DMA engines to program -----------------------------------------------


def _start_into_at_once(
    site: Any, *operands: Any, transfer: Transfer, layout: Layout, origin: Origin
) -> list[Any]:
    source, from_slot, destination, to_slot = layout.unpack(operands)
    sent = source if from_slot is None else lax.dynamic_index_in_dim(source, from_slot, keepdims=False)
    landed = transfer.synchronous(sent.reshape(layout.source), 0)
    if to_slot is None:
        value = landed.reshape(destination.shape)
    else:
        slot = landed.reshape(destination.shape[1:])
        value = lax.dynamic_update_index_in_dim(destination, slot, to_slot, 0)
    return [value, jnp.zeros((1, SEMAPHORES), jnp.int32), *([] if layout.same else [source])]


def _finish_into_at_once(
    site: Any, semaphores: Any, *operands: Any, transfer: Transfer, layout: Layout, origin: Origin
) -> list[Any]:
    value, _ = lax.optimization_barrier((operands[layout.destination], semaphores))
    return [value]


_jax.register_lowering(start_into_p, _start_into_at_once)
_jax.register_lowering(finish_into_p, _finish_into_at_once)
