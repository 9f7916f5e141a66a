# SPDX-License-Identifier: MIT
"""A test double of vLLM (README.md beside this package): the names that Loch's plug-in uses."""

import os

__version__ = os.environ.get("LOCH_TEST_VLLM", "0.33")
