"""What the signature table says of each kind of equation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.extend.core import Primitive

import stateful
from stateful import effects as fx
from stateful import higher_order as ho
from stateful import signatures as sg
from stateful import terms
from stateful._jax import jaxprs
from stateful.errors import InvalidArgumentError
from stateful.types import View, ref_type

X = jax.ShapeDtypeStruct((16, 128), jnp.float32)
ANY = pl.BlockSpec(memory_space=pl.ANY)


def kernel_operations(kernel, *scratch, inputs=(X,), **kwargs):
    """The operations of the equations at the top of a kernel, its Refs named after the parameters."""
    call = pl.pallas_call(
        kernel, out_shape=X, in_specs=[ANY] * len(inputs), out_specs=ANY, scratch_shapes=scratch, **kwargs
    )
    body = jaxprs.open_jaxpr(jax.make_jaxpr(call)(*inputs))
    (form,) = [f for f in map(ho.normal_form, body.jaxpr.eqns) if isinstance(f, ho.Kernel)]
    return operations_of(form.form.jaxpr)


def operations_of(body):
    names = dict(zip(body.inputs, body.names, strict=True))
    views = {}

    def value(atom):
        if isinstance(atom, jaxprs.Literal):
            return int(atom.val)
        if jaxprs.is_ref(atom.aval):
            return views.setdefault(atom, View.whole(names.get(atom, "barrier"), ref_type(atom.aval)))
        return terms.symbol(f"v{len(views)}") if atom.aval.shape == () else None

    found = []
    for eqn in body.jaxpr.eqns:
        if not sg.is_known_pure(eqn.primitive):
            found += sg.operations(eqn, value)
    return found


def texts(operations):
    return [str(e) for op in operations for e in op.effects]


def test_loads_and_stores():
    def kernel(x_ref, o_ref):
        o_ref[0:8] = x_ref[8:16]

    load, store = kernel_operations(kernel)
    assert texts([load, store]) == ["read x_ref[8:16]", "write o_ref[0:8]"]
    assert not load.masked
    assert isinstance(store.value, jaxprs.Var)


def test_a_swap_whose_result_is_used_reads_and_writes():
    def kernel(x_ref, o_ref):
        o_ref[0:8] = pltpu_swap(x_ref, jnp.zeros((8, 128)))

    def pltpu_swap(ref, new):
        return jax.ref.swap(ref, slice(0, 8), new)

    assert texts(kernel_operations(kernel)) == [
        "read x_ref[0:8]", "write x_ref[0:8]", "write o_ref[0:8]",
    ]  # fmt: skip


def test_accumulation():
    def kernel(x_ref, o_ref):
        jax.ref.addupdate(o_ref, slice(0, 8), x_ref[0:8])

    assert texts(kernel_operations(kernel)) == ["read x_ref[0:8]", "accumulate o_ref[0:8]"]


def test_masked_accesses_touch_some_elements_only():
    def kernel(x_ref, o_ref):
        mask = lax.broadcasted_iota(jnp.int32, (16, 128), 0) < 3
        pltpu.store(o_ref, pltpu.load(x_ref, mask=mask), mask=mask)

    load, store = kernel_operations(kernel)
    assert load.masked
    assert store.masked
    assert store.effects == (fx.Write(store.view, partial=True),)


def test_a_local_copy_counts_bytes_on_its_semaphore():
    def kernel(x_ref, o_ref, buf, sems):
        pltpu.make_async_copy(x_ref.at[pl.ds(0, 8)], buf, sems.at[1]).start()
        pltpu.make_async_copy(x_ref.at[pl.ds(8, 8)], buf, sems.at[1]).wait()

    start, wait = kernel_operations(kernel, pltpu.VMEM((8, 128), jnp.float32), pltpu.SemaphoreType.DMA((2,)))
    assert isinstance(start, sg.StartCopy)
    assert texts([start]) == ["dma read x_ref[0:8]", "dma write buf[...]", "signal sems[1] 4096"]
    assert (start.source_semaphore, start.device, start.add) == (None, None, False)
    assert isinstance(wait, sg.WaitCopy)
    assert (str(wait.semaphore), wait.amount, wait.direction) == ("sems[1]", 4096, "receive")


def test_a_remote_copy_has_a_device_and_two_semaphores():
    def kernel(x_ref, o_ref, send, recv):
        copy = pltpu.make_async_remote_copy(x_ref.at[pl.ds(0, 8)], o_ref.at[pl.ds(8, 8)], send, recv, (1,))
        copy.start()
        copy.wait_send()
        copy.wait_recv()

    dma = pltpu.SemaphoreType.DMA
    start, sent, received = kernel_operations(kernel, dma, dma)
    assert start.device == fx.DeviceId("mesh", (1,))
    assert texts([start])[1:] == [
        "dma write o_ref[8:16] on device (1,)",
        "signal send[...] 4096",
        "signal recv[...] 4096 on device (1,)",
    ]
    assert (str(sent.semaphore), str(sent.view), sent.direction) == ("send[...]", "x_ref[0:8]", "send")
    assert (str(received.semaphore), str(received.view)) == ("recv[...]", "o_ref[8:16]")
    assert (sent.amount, received.amount) == (4096, 4096)


def test_a_device_may_be_named_by_axes():
    def kernel(x_ref, o_ref, sem):
        pl.semaphore_signal(sem, 2, device_id={"a": 1, "b": 3})

    (signal,) = kernel_operations(kernel, pltpu.SemaphoreType.REGULAR)
    assert signal.device == fx.DeviceId("mesh", {"a": 1, "b": 3})
    assert signal.amount == 2


def test_semaphores_by_hand():
    def kernel(x_ref, o_ref, sem):
        pl.semaphore_signal(sem, 3)
        pl.semaphore_wait(sem, 2, decrement=False)
        pl.semaphore_wait(sem, 1)
        o_ref[0, 0] = pl.semaphore_read(sem).astype(jnp.float32)

    operations = kernel_operations(kernel, pltpu.SemaphoreType.REGULAR)
    assert texts(operations[:3]) == ["signal sem[...] 3", "wait sem[...] 2 (count kept)", "wait sem[...] 1"]
    assert isinstance(operations[3], sg.ReadSemaphore)


def test_the_barrier_semaphore():
    def kernel(x_ref, o_ref):
        pl.semaphore_wait(pltpu.get_barrier_semaphore(), 1)

    barrier, wait = kernel_operations(kernel, compiler_params=pltpu.CompilerParams(collective_id=0))
    assert isinstance(barrier, sg.BarrierSemaphore)
    assert texts([wait]) == ["wait barrier[...] 1"]


def test_bytes_are_those_of_the_padded_layout():
    def kernel(x_ref, o_ref, narrow, wide, sem):
        pltpu.make_async_copy(narrow, narrow, sem).start()
        pltpu.make_async_copy(wide, wide, sem).start()

    f32 = jnp.float32
    starts = kernel_operations(
        kernel, pltpu.VMEM((8, 64), f32), pltpu.VMEM((8, 200), f32), pltpu.SemaphoreType.DMA
    )
    assert [s.destination_amount for s in starts] == [4096, 8192]


def test_refs_made_in_a_function():
    def fn(x):
        return jax.freeze(jax.new_ref(x))

    allocate, free = operations_of(jaxprs.open_jaxpr(jax.make_jaxpr(fn)(X)))
    assert isinstance(allocate, sg.Allocate)
    assert allocate.type.shape == (16, 128)
    assert isinstance(free, sg.Free)
    assert free.read


def made_primitive(name):
    primitive = Primitive(name)
    primitive.def_abstract_eval(lambda *avals, **params: jax.core.ShapedArray((), jnp.float32))
    return primitive


def with_primitive(primitive):
    def kernel(x_ref, o_ref):
        o_ref[0, 0] = primitive.bind(x_ref)

    *operations, _store = kernel_operations(kernel)
    return operations


def test_an_unknown_primitive_that_touches_a_ref_is_reported():
    (operation,) = with_primitive(made_primitive("mystery"))
    assert isinstance(operation, sg.Unmodelled)
    assert "mystery" in operation.reason
    assert "register_effects" in operation.reason


def test_register_effects_gives_it_a_model():
    primitive = made_primitive("my_read")
    stateful.register_effects(primitive, lambda eqn, value: [stateful.Read(value(eqn.invars[0]))])
    (operation,) = with_primitive(primitive)
    assert operation.effects == (fx.Read(operation.view),)
    stateful.register_effects(primitive, lambda eqn, value: [])
    assert with_primitive(primitive) == [sg.Pure()]


@pytest.mark.parametrize(
    ("primitive", "rule", "named"),
    [("name", lambda eqn, value: [], "primitive"), (made_primitive("p"), None, "rule")],
)
def test_bad_registrations_name_the_argument(primitive, rule, named):
    with pytest.raises(InvalidArgumentError, match=named):
        stateful.register_effects(primitive, rule)


def test_a_rule_that_returns_nonsense_is_told_what_is_allowed():
    primitive = made_primitive("nonsense")
    stateful.register_effects(primitive, lambda eqn, value: ["read"])
    with pytest.raises(InvalidArgumentError, match="Read, Write, Accumulate, Signal and Wait"):
        with_primitive(primitive)


def test_arithmetic_is_known_pure_and_unknown_primitives_are_not():
    assert sg.is_known_pure(lax.add_p)
    assert not sg.is_known_pure(made_primitive("unknown"))


def test_asking_twice_decodes_once():
    def kernel(x_ref, o_ref, sems):
        pltpu.make_async_copy(x_ref, o_ref, sems.at[1]).start()

    first, second = (kernel_operations(kernel, pltpu.SemaphoreType.DMA((2,))) for _ in range(2))
    assert texts(first) == texts(second)
