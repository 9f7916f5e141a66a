# SPDX-License-Identifier: MIT
"""Stands for the package torch_memory_saver in processes that loch.torch.memory_saver configured."""

import sys

import loch.torch
import loch.torch.memory_saver

if not loch.torch.is_enabled():
    loch.torch.enable()  # before the first use of CUDA: this import comes early in the programs that have it
sys.modules[__name__] = loch.torch.memory_saver
