"""A state effect system on JAX: typed Refs and semaphores, their effects, inference, discharge, printing.

A name is imported on first use: ``stateful.errors`` and what needs only that starts without JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stateful.discharging import discharge as discharge
    from stateful.effects import Accumulate as Accumulate
    from stateful.effects import Allocate as Allocate
    from stateful.effects import DeviceId as DeviceId
    from stateful.effects import DmaRead as DmaRead
    from stateful.effects import DmaWrite as DmaWrite
    from stateful.effects import Free as Free
    from stateful.effects import Read as Read
    from stateful.effects import Signal as Signal
    from stateful.effects import Wait as Wait
    from stateful.effects import Write as Write
    from stateful.effects import conflicts as conflicts
    from stateful.errors import InvalidArgumentError as InvalidArgumentError
    from stateful.errors import SemaphoreTypeError as SemaphoreTypeError
    from stateful.errors import StatefulError as StatefulError
    from stateful.errors import UnmodelledError as UnmodelledError
    from stateful.errors import UnsatisfiedWaitError as UnsatisfiedWaitError
    from stateful.inference import InferredEffects as InferredEffects
    from stateful.inference import infer_effects as infer_effects
    from stateful.printing import effect_jaxpr as effect_jaxpr
    from stateful.refs import freeze as freeze
    from stateful.refs import make_ref as make_ref
    from stateful.refs import opt_barrier as opt_barrier
    from stateful.refs import run_scoped as run_scoped
    from stateful.refs import run_state as run_state
    from stateful.signatures import register_effects as register_effects
    from stateful.types import MemorySpace as MemorySpace
    from stateful.types import RefType as RefType
    from stateful.types import Region as Region
    from stateful.types import SemaphoreKind as SemaphoreKind
    from stateful.types import View as View
    from stateful.types import ref_type as ref_type

# Where each public name lives; the imports above say the same to type checkers.
_HOMES = {
    "Accumulate": "stateful.effects",
    "Allocate": "stateful.effects",
    "DeviceId": "stateful.effects",
    "DmaRead": "stateful.effects",
    "DmaWrite": "stateful.effects",
    "Free": "stateful.effects",
    "InferredEffects": "stateful.inference",
    "InvalidArgumentError": "stateful.errors",
    "MemorySpace": "stateful.types",
    "Read": "stateful.effects",
    "RefType": "stateful.types",
    "Region": "stateful.types",
    "SemaphoreKind": "stateful.types",
    "SemaphoreTypeError": "stateful.errors",
    "Signal": "stateful.effects",
    "StatefulError": "stateful.errors",
    "UnmodelledError": "stateful.errors",
    "UnsatisfiedWaitError": "stateful.errors",
    "View": "stateful.types",
    "Wait": "stateful.effects",
    "Write": "stateful.effects",
    "conflicts": "stateful.effects",
    "discharge": "stateful.discharging",
    "effect_jaxpr": "stateful.printing",
    "freeze": "stateful.refs",
    "infer_effects": "stateful.inference",
    "make_ref": "stateful.refs",
    "opt_barrier": "stateful.refs",
    "ref_type": "stateful.types",
    "register_effects": "stateful.signatures",
    "run_scoped": "stateful.refs",
    "run_state": "stateful.refs",
}

__all__ = [
    "Accumulate",
    "Allocate",
    "DeviceId",
    "DmaRead",
    "DmaWrite",
    "Free",
    "InferredEffects",
    "InvalidArgumentError",
    "MemorySpace",
    "Read",
    "RefType",
    "Region",
    "SemaphoreKind",
    "SemaphoreTypeError",
    "Signal",
    "StatefulError",
    "UnmodelledError",
    "UnsatisfiedWaitError",
    "View",
    "Wait",
    "Write",
    "conflicts",
    "discharge",
    "effect_jaxpr",
    "freeze",
    "infer_effects",
    "make_ref",
    "opt_barrier",
    "ref_type",
    "register_effects",
    "run_scoped",
    "run_state",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'stateful' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
