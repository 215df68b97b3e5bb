"""Running equations, and reading and writing arrays through the transforms of a Ref.

``jax.core.eval_jaxpr`` evaluates whole jaxprs only, and JAX's array semantics of indexers, reshapes and
bitcasts of Refs has no public entry.
"""

from __future__ import annotations

from typing import Any

import jax
from jax._src import source_info_util as _source_info
from jax._src.state import discharge as _discharge

from stateful._jax.jaxprs import Literal, Var


def evaluate(eqn: Any, args: list[Any]) -> list[Any]:
    """The results of one equation, its primitive bound as it stands, with the source line it had."""
    params = eqn.primitive.get_bind_params(eqn.params)
    stack = _source_info.current_name_stack() + eqn.source_info.name_stack
    with _source_info.user_context(eqn.source_info.traceback, name_stack=stack), eqn.ctx.manager:
        results = eqn.primitive.bind(*args, **params)
    return list(results) if eqn.primitive.multiple_results else [results]


def fill(transforms: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    """Transforms with the values of their atoms in place."""
    return jax.tree.map(lambda a: value(a) if isinstance(a, (Var, Literal)) else a, transforms)


def read_through(array: Any, transforms: tuple[Any, ...]) -> Any:
    """What a load of the Ref holding ``array`` gives through the transforms."""
    return _discharge.transform_array(array, transforms)


def write_through(array: Any, transforms: tuple[Any, ...], new: Any) -> Any:
    """The contents after a store of ``new`` through the transforms."""
    return _discharge.transform_swap_array(array, transforms, new)[1]
