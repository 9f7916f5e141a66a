# SPDX-License-Identifier: MIT
"""Shared by the tests of the exchange: cases that are equal in every run."""

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
