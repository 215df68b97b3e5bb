"""Writes the dumps beside the tests: some of `programs`, compiled by the JAX at hand.

    python tests/asyncops/compiled/make_dumps.py

Run it once with each end of the JAX range. Paths of this machine are left out, in the kernels' bodies, too.
"""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import programs

import asyncops

HERE = Path(__file__).resolve().parent
NAMES = (
    "staggered_loop",
    "through_a_conditional",
    "source_rewritten",
    "equal_starts",
    "read_through_the_future",
    "permuted_by_jax_in_a_loop",
)


def main() -> None:
    """Compiles and writes."""
    jax.config.update("jax_hlo_source_file_canonicalization_regex", f"{HERE.parents[2]}/")
    folder = HERE / "dumps" / f"jax-{jax.__version__}"
    folder.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        text = asyncops.compile_for("v5e:2x2", *programs.programs()[name]).as_text()
        (folder / f"{name}.hlo.txt").write_text(text or "")
    on_the_cpu = jax.jit(lambda x: jax.lax.fori_loop(0, 5, lambda i, x: jax.numpy.sin(x) * i, x))
    text = on_the_cpu.lower(programs.LOCAL).compile().as_text()
    (folder / "cpu_loop.hlo.txt").write_text(text or "")


if __name__ == "__main__":
    main()
