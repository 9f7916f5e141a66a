# SPDX-License-Identifier: MIT
"""Shared by the tests of the exchange: the same cases in every run, and nothing left of Loch's after a test."""

import gc

import loch_dlpack
import pytest

try:
    from hypothesis import HealthCheck, settings
except ImportError:  # the tests with PyTorch do without
    settings = None

if settings:
    settings.register_profile(
        "loch",
        derandomize=True,
        database=None,
        deadline=None,
        max_examples=200,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    )
    settings.load_profile("loch")


@pytest.fixture(autouse=True)
def nothing_waits():
    """Every test ends what it began."""
    yield
    if loch_dlpack.collect() or loch_dlpack._handed_out:
        gc.collect()
    assert loch_dlpack.collect() == 0
    assert not loch_dlpack._handed_out
