"""One name for each primitive that occurs in kernels or around them, to be matched by identity.

Names collide between families (``swap``, ``load``, ``semaphore_wait``, ``bitcast`` each belong to several
primitives), and none of these objects is public. A name is None where a JAX version lacks the primitive.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

from jax._src import ad_checkpoint as _checkpoint
from jax._src import ad_util as _ad_util
from jax._src import callback as _callback
from jax._src import compute_on as _compute_on
from jax._src import core as _core
from jax._src import custom_batching as _custom_batching
from jax._src import custom_derivatives as _custom_derivatives
from jax._src import custom_partitioning as _custom_partitioning
from jax._src import debugging as _debugging
from jax._src import pjit as _pjit
from jax._src import shard_map as _shard_map
from jax._src import xla_metadata as _xla_metadata
from jax._src.lax import lax as _lax
from jax._src.lax import parallel as _parallel
from jax._src.lax import slicing as _slicing
from jax._src.lax.control_flow import conditionals as _conditionals
from jax._src.lax.control_flow import loops as _loops
from jax._src.pallas import core as _pallas_core
from jax._src.pallas import mpmd as _mpmd
from jax._src.pallas import pallas_call as _pallas_call
from jax._src.pallas import primitives as _pallas
from jax._src.pallas.mosaic import pipeline as _pipeline
from jax._src.pallas.mosaic import primitives as _tpu
from jax._src.state import discharge as _discharge
from jax._src.state import primitives as _state


def _of(module: Any, name: str) -> Any:
    return getattr(module, name, None)


def _module(name: str) -> ModuleType | None:
    """A module that not every version has."""
    return importlib.import_module(name) if importlib.util.find_spec(name) else None


# state
get = _state.get_p
swap = _state.swap_p
addupdate = _state.addupdate_p
pin = _of(_state, "pin_p")
unpin = _of(_state, "unpin_p")
create_linear = _of(_state, "create_linear_p")
new_ref = _core.ref_p
empty_ref = _of(_core, "empty_ref_p")
free_ref = _of(_core, "free_ref_p")
freeze = _core.freeze_p
accum_grad_in_ref = _of(_core, "accum_grad_in_ref_p")
run_state = _discharge.run_state_p

# control flow and calls
cond = _conditionals.cond_p
scan = _loops.scan_p
while_loop = _loops.while_p
jit = _pjit.jit_p
closed_call = _of(_core, "closed_call_p")
core_call = _of(_core, "call_p")
eval_jaxpr = _of(_core, "eval_jaxpr_p") or _of(_module("jax._src.lax.eval_jaxpr"), "eval_jaxpr_p")
remat = _checkpoint.remat_p
custom_jvp_call = _custom_derivatives.custom_jvp_call_p
custom_vjp_call = _custom_derivatives.custom_vjp_call_p
custom_vmap_call = _custom_batching.custom_vmap_p
compute_on = _compute_on.compute_on_p
custom_partitioning = _custom_partitioning.custom_partitioning_p
program_order = _of(_module("jax._src.program_order"), "program_order_p")
xla_metadata_call = _of(_xla_metadata, "xla_metadata_call_p")
shard_map = _shard_map.shard_map_p

# lax, where the checker needs to tell one from another
optimization_barrier = _lax.optimization_barrier_p
axis_index = _parallel.axis_index_p
pure_callback = _callback.pure_callback_p
io_callback = _callback.io_callback_p
debug_callback = _debugging.debug_callback_p
debug_print = _of(_debugging, "debug_print_p")
gather = _slicing.gather_p
scatter_add = _slicing.scatter_add_p
add_any = _ad_util.add_jaxvals_p

# pallas
pallas_call = _pallas_call.pallas_call_p
mpmd_map = _mpmd.mpmd_map_p
core_map = _of(_pallas_core, "core_map_p")
with_memory_space_constraint = _of(_pallas_core, "with_memory_space_constraint_p") or _of(
    _state, "with_memory_space_constraint_p"
)
program_id = _pallas.program_id_p
num_programs = _pallas.num_programs_p
multiple_of = _pallas.multiple_of_p
masked_load = _pallas.load_p
masked_swap = _pallas.swap_p
reciprocal = _pallas.reciprocal_p
run_scoped = _pallas.run_scoped_p
get_global = _pallas.get_global_p
semaphore_read = _pallas.semaphore_read_p
semaphore_signal = _pallas.semaphore_signal_p
semaphore_wait = _pallas.semaphore_wait_p
delay = _pallas.delay_p
jaxpr_call = _of(_pallas, "jaxpr_call_p")

# pallas for TPUs
dma_start = _tpu.dma_start_p
dma_wait = _tpu.dma_wait_p
get_barrier_semaphore = _tpu.get_barrier_semaphore_p
prng_seed = _tpu.prng_seed_p
prng_random_bits = _tpu.prng_random_bits_p
touch = _of(_tpu, "touch_p")
trace_value = _of(_tpu, "trace_value_p")
matmul_push_rhs = _of(_tpu, "matmul_push_rhs_p")
matmul_acc_lhs = _of(_tpu, "matmul_acc_lhs_p")
matmul_pop = _of(_tpu, "matmul_pop_p")
matmul_lhs_fifo = _of(_tpu, "matmul_lhs_fifo_p")
matmul_pop_fifo = _of(_tpu, "matmul_pop_fifo_p")
emit_pipeline = _pipeline.emit_pipeline_p
pipeline_body = _pipeline.pipeline_body_p

_SPARSE_CORE = "jax._src.pallas.mosaic.sc_primitives"
_MOSAIC_GPU = "jax._src.pallas.mosaic_gpu.primitives"
_MOSAIC_GPU_CORE = "jax._src.pallas.mosaic_gpu.core"
_TRITON = "jax._src.pallas.triton.primitives"


def sparse_core(name: str) -> Any:
    """A primitive of the SparseCore kernels by its attribute name, such as ``"gather_p"``.

    None while nothing has imported the module: no jaxpr can hold the primitive then. (Importing it, and more
    so Mosaic GPU, which needs absl, costs every start a quarter of a second.)
    """
    return _of(sys.modules.get(_SPARSE_CORE), name)


def mosaic_gpu(name: str) -> Any:
    """A primitive of Mosaic GPU kernels by its attribute name; None while nothing has imported it."""
    found = _of(sys.modules.get(_MOSAIC_GPU), name)
    return found if found is not None else _of(sys.modules.get(_MOSAIC_GPU_CORE), name)


_FAMILIES = {
    _SPARSE_CORE: "SparseCore",
    _MOSAIC_GPU: "Mosaic GPU",
    _MOSAIC_GPU_CORE: "Mosaic GPU",
    _TRITON: "Triton",
}


def family(primitive: Any) -> str | None:
    """Which kernel language other than the TPU's a primitive belongs to, in the user's words; else None."""
    for module_name, words in _FAMILIES.items():
        module = sys.modules.get(module_name)
        if module is not None and _holds(module, primitive):
            return words
    return None


def _holds(module: ModuleType, primitive: Any) -> bool:
    return any(value is primitive for value in vars(module).values())


def loaded_families() -> tuple[str, ...]:
    """The modules of other kernel languages that are imported now."""
    return tuple(name for name in _FAMILIES if name in sys.modules)


_jax_primitives: dict[int, Any] = {}


def is_jax_primitive(primitive: Any) -> bool:
    """True for a primitive that some loaded module of JAX defines."""
    if id(primitive) not in _jax_primitives:
        _index_jax_primitives()
    return _jax_primitives.get(id(primitive)) is primitive


def _index_jax_primitives() -> None:
    for name, module in list(sys.modules.items()):
        if module is not None and name.startswith("jax."):
            for value in list(vars(module).values()):
                if isinstance(value, _core.Primitive):
                    _jax_primitives[id(value)] = value
