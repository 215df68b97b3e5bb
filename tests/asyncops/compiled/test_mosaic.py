"""What kernels do with their arguments, read from their bodies; and bodies that cannot be read."""

from __future__ import annotations

import base64
import dataclasses
import json
import random

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import asyncops
from asyncops.compiled.bytecode import BytecodeError, read_bytecode
from asyncops.compiled.hlo import Instruction
from asyncops.compiled.mosaic import TARGET, KernelCopy, KernelWait, Slot, kernel_of
from asyncops.compiled.parser import parse_hlo

ARRAY = jax.ShapeDtypeStruct((64, 128), jnp.float32)
ANY = pl.BlockSpec(memory_space=pl.ANY)
SEMAPHORE = pl.BlockSpec(memory_space=pltpu.SEMAPHORE)
DMA = pltpu.SemaphoreType.DMA
BITS = 1024 * 1024 * 32


def kernels(text: str) -> dict[str, Instruction]:
    found = [i for module in parse_hlo(text) for i in module.instructions() if i.target == TARGET]
    return {i.name.partition(".")[0]: i for i in found}


def body_of(instruction: Instruction) -> bytes:
    config = json.loads(instruction.attributes["backend_config"])
    return base64.b64decode(config["custom_call_config"]["body"])


@pytest.fixture
def bodies(dump):
    return [body_of(i) for i in kernels(dump.read_text()).values()]


def compiled_kernel(kernel, **params):
    call = pl.pallas_call(kernel, name="probe", **params)
    program = asyncops.compile_for("v5e:2x2", lambda x: jax.tree.leaves(call(x))[0], ARRAY)
    (probe,) = kernels(program.as_text()).values()
    return kernel_of(probe)


@pytest.mark.tpu_compile
def test_start_and_done(compiled):
    found = kernels(compiled("staggered_loop").as_text())
    start, done = kernel_of(found["ring_start"]), kernel_of(found["ring_done"])
    out = [Slot("result", n) for n in range(4)]
    assert start.left == (KernelCopy(out[2], out[3], out[0], out[1], remote=True, amount=BITS),)
    assert not start.waits
    assert done.waits == (KernelWait(Slot("operand", 2), BITS), KernelWait(Slot("operand", 3), BITS))
    assert not done.left
    assert not done.reads | done.writes


@pytest.mark.tpu_compile
def test_a_copy_within_a_kernel_is_an_access():
    def kernel(x_ref, o_ref, sem):
        copy = pltpu.make_async_copy(x_ref, o_ref, sem)
        copy.start()
        copy.wait()

    found = compiled_kernel(kernel, out_shape=ARRAY, in_specs=[ANY], out_specs=ANY, scratch_shapes=[DMA])
    assert not found.left
    assert not found.waits
    assert found.reads == {Slot("operand", 0)}
    assert found.writes == {Slot("result", 0)}


@pytest.mark.tpu_compile
def test_blocks_in_a_grid_are_accesses():
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] * 2

    block = pl.BlockSpec((8, 128), lambda i: (i, 0))
    found = compiled_kernel(kernel, out_shape=ARRAY, grid=(8,), in_specs=[block], out_specs=block)
    assert Slot("operand", 0) in found.reads
    assert found.writes == {Slot("result", 0)}


@pytest.mark.tpu_compile
def test_views_loops_and_branches_are_looked_through():
    def kernel(x_ref, o_ref, sem):
        def step(i, _):
            @pl.when(i > 0)
            def _():
                pltpu.make_async_copy(x_ref.at[pl.ds(i * 8, 8)], o_ref.at[pl.ds(i * 8, 8)], sem).start()

            return 0

        lax.fori_loop(0, 8, step, 0)

    shape = (ARRAY, DMA(()))
    found = compiled_kernel(kernel, out_shape=shape, in_specs=[ANY], out_specs=(ANY, SEMAPHORE))
    copy = KernelCopy(Slot("operand", 0), Slot("result", 0), None, Slot("result", 1))
    assert found.left == (copy,)


def test_a_damaged_body_is_told(bodies):
    seed = random.Random(0)
    for body in bodies:
        read_bytecode(body)
        for _ in range(200):
            damaged = bytearray(body)
            for _ in range(seed.randint(1, 3)):
                damaged[seed.randrange(len(damaged))] = seed.randrange(256)
            try:
                read_bytecode(bytes(damaged[: seed.randint(1, len(damaged))]))
            except BytecodeError:
                continue


@pytest.mark.tpu_compile
def test_a_kernel_without_a_body_is_inferred_and_said_so(compiled):
    text = compiled("staggered_loop").as_text()
    start = dataclasses.replace(
        kernels(text)["ring_start"], attribute_text="output_to_operand_aliasing={{2}: (0, {})}"
    )
    found = kernel_of(start)
    assert found.inferred == "it carries no Mosaic module"
    assert found.left == (
        KernelCopy(Slot("operand", 0), Slot("result", 3), Slot("result", 0), Slot("result", 1)),
    )


@pytest.mark.tpu_compile
def test_guessed_kernels_are_an_assumption_and_findings_unconfirmed(compiled):
    import re

    text = re.sub(r'"body":"[^"]*"', '"body":"AAAA"', compiled("destination_read_early").as_text())
    report = asyncops.check_compiled(text)
    assert [d.code for d in report.diagnostics] == ["AO504"]
    assert not report.diagnostics[0].confirmed
    assert any("could not be read" in a for a in report.assumptions)
