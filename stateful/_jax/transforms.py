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

# Transforms that change how an access is carried out, not which elements it touches.
_NEUTRAL = {"MemorySpaceCastTransform", "AccessAssumptionTransform", "IdentityTransform"}


def is_neutral(transform: object) -> bool:
    """True for transforms that leave the region of a view as it is (some exist in one JAX version only)."""
    return type(transform).__name__ in _NEUTRAL
