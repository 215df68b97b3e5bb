"""Set-up for every test: JAX on a CPU with eight devices, and Hypothesis' profiles."""

from __future__ import annotations

import importlib.util
import os

import pytest
from hypothesis import HealthCheck, settings

from asyncops.lint.environment import prepare_environment

# Before any test module imports JAX.
prepare_environment(os.environ)

# The first example of a property often pays for JAX's tracing, so no deadline per example.
settings.register_profile("default", max_examples=25, deadline=None, derandomize=True)
settings.register_profile(
    "nightly", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests that need the TPU compiler are skipped where it is not installed; the extra ``test`` installs it."""
    if item.get_closest_marker("tpu_compile") and importlib.util.find_spec("libtpu") is None:
        pytest.skip("the TPU compiler (libtpu, extra tpu) is not installed")
