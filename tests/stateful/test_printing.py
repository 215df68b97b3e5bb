"""Effect-annotated programs: nested as the program is, and short."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import stateful

X = jax.ShapeDtypeStruct((4, 8, 128), jnp.float32)


def copies(x_hbm, o_ref, buf, sem):
    def body(i, _):
        copy = pltpu.make_async_copy(x_hbm.at[i], buf, sem)
        copy.start()

        @pl.when(i > 1)
        def _():
            o_ref[...] = buf[...]

        copy.wait()

    lax.fori_loop(0, 4, body, None)


def program(x):
    return pl.pallas_call(
        copies,
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        out_shape=jax.ShapeDtypeStruct((8, 128), jnp.float32),
        scratch_shapes=[pltpu.VMEM((8, 128), jnp.float32), pltpu.SemaphoreType.DMA],
    )(jnp.sin(x))


EXPECTED = """\
program
  kernel copies
    loop of 4
      dma_start    dma read x_hbm[i]; dma write buf[...]; signal sem[...] 4096
      cond of 2
        branch 1
          get          read buf[...]
          swap         write o_ref[...]
      dma_wait     wait sem[...] 4096
"""


def test_the_text_follows_the_program():
    text = stateful.effect_jaxpr(program)(X)
    lines = [line.partition("  # ")[0].rstrip() for line in text.splitlines()]
    assert lines[:-1] == EXPECTED.splitlines()
    assert lines[-1].startswith("  ...")


def test_every_effect_has_its_line():
    rows = [r for r in stateful.effect_jaxpr(program)(X).splitlines() if "dma_start" in r]
    assert all(f"# test_printing.py:{copies.__code__.co_firstlineno + 3}" in r for r in rows)


def test_equations_without_effects_are_counted_only():
    text = stateful.effect_jaxpr(lambda x: jnp.sin(jnp.cos(x)))(1.0)
    assert "2 equations without effects" in text
    assert "sin" not in text
