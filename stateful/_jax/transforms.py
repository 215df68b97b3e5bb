"""Ref types and the transforms a view of a Ref goes through.

JAX exports Refs (``jax.Ref``, ``jax.new_ref``) but neither their abstract type nor the transform classes that equations
carry inside their ``tree`` parameters; the regions of accesses cannot be computed without them.
"""

from __future__ import annotations

from typing import Any

from jax._src import core as _core
from jax._src.pallas import core as _pallas_core
from jax._src.state import indexing as _indexing
from jax._src.state import types as _state_types

AbstractRef = _state_types.AbstractRef
TransformedRef = _state_types.TransformedRef
NDIndexer = _indexing.NDIndexer
Slice: Any = _indexing.Slice  # pyright: ignore[reportPrivateImportUsage]
BitcastTransform = _state_types.BitcastTransform
ReshapeTransform = _state_types.ReshapeTransform
TransposeTransform = _state_types.TransposeTransform
SelectTransform = _state_types.SelectTransform
CoreMemorySpace = _pallas_core.CoreMemorySpace
ShapedArray = _core.ShapedArray


def core_of(memory_space: object) -> str | None:
    """The kind of core that a memory space of JAX's is bound to, such as ``"sc_vector_subcore"``; None for others."""
    if not isinstance(memory_space, CoreMemorySpace):
        return None
    kind = getattr(memory_space.mesh, "core_type", None)
    return str(getattr(kind, "value", kind) or "tc")


# Transforms that change how an access is carried out, not which elements it touches.
_NEUTRAL = {"MemorySpaceCastTransform", "AccessAssumptionTransform", "IdentityTransform"}
# A slice whose place depends on the core that takes it.
_OF_THE_CORE = {"SharedMemRefSliceTransform"}


def depends_on_core(transform: object) -> bool:
    """True for a transform that gives each core a different part of the Ref."""
    return type(transform).__name__ in _OF_THE_CORE


def index_refs(ref: object) -> list[Any]:
    """The Refs that a Ref is indexed with, as in SparseCore gathers: ``x.at[indices_ref]``."""
    found: list[Any] = []
    while isinstance(ref, TransformedRef):
        for transform in ref.transforms:
            if isinstance(transform, NDIndexer):
                found += [r for r in map(_indexing_ref, transform.indices) if r is not None]
        ref = ref.ref
    return found


def _indexing_ref(index: Any) -> Any:
    index = getattr(index, "values", index)  # plsc.Indices
    is_ref = isinstance(index, TransformedRef) or isinstance(getattr(index, "aval", None), AbstractRef)
    return index if is_ref else None


def is_neutral(transform: object) -> bool:
    """True for transforms that leave the region of a view as it is (some exist in one JAX version only)."""
    return type(transform).__name__ in _NEUTRAL
