"""Fixtures of the tests of the state effect system."""

from __future__ import annotations

import jax
import pytest


@pytest.fixture
def pipelines_kept():
    """``emit_pipeline`` traces to one equation."""
    jax.clear_caches()
    before = jax.config.jax_use_emit_pipeline_primitive
    jax.config.update("jax_use_emit_pipeline_primitive", True)
    yield
    jax.config.update("jax_use_emit_pipeline_primitive", before)
    jax.clear_caches()
