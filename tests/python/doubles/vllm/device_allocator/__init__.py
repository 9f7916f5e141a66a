# SPDX-License-Identifier: MIT
"""A test double: modules that the played version does not have are not found."""

import sys

from vllm import __version__

if __version__ == "9.0":
    sys.modules["vllm.device_allocator.cumem"] = None
if __version__ == "0.20":
    sys.modules["vllm.device_allocator.sleep_mode_backend"] = None
