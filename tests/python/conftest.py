# SPDX-License-Identifier: MIT
"""Shared by the tests of the package: cases that are equal in every run, and a check that no test leaves memory behind."""

import gc

import loch
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
    """Every test ends what it began: no buffer waits, and the thread has no tag."""
    yield
    if loch.collect():
        gc.collect()
    assert loch.collect() == 0
    assert loch._core.thread_tag() is None
