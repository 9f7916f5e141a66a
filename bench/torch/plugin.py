# SPDX-License-Identifier: MIT
"""Makes Loch PyTorch's CUDA allocator. docs/pytorch.md explains each step."""
import ctypes
import json
import os

import torch

BUILT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "build", "lib", "libloch_torch.so")


class Loch:
    """The plug-in in use. Keep it as long as tensors exist."""

    def __init__(self, library=BUILT):
        """Installs the plug-in. Call it before the first CUDA allocation of the process."""
        library = os.path.realpath(library)
        self.functions = ctypes.CDLL(library)
        self.functions.loch_torch_stats_json.restype = ctypes.c_char_p
        self.allocator = torch.cuda.memory.CUDAPluggableAllocator(
            library, "loch_torch_malloc_or_raise", "loch_torch_free")
        hooks = self.allocator.allocator()
        hooks.set_record_stream_fn(self._address("loch_torch_record_stream"))
        hooks.set_reset_fn(self._address("loch_torch_empty_cache"))
        torch.cuda.memory.change_current_allocator(self.allocator)

    def _address(self, name):
        return ctypes.cast(getattr(self.functions, name), ctypes.c_void_p).value

    def stats(self):
        """Returns the statistics, in place of torch.cuda.memory_stats."""
        return json.loads(self.functions.loch_torch_stats_json())

    def reset_peaks(self):
        """Resets the peaks, in place of torch.cuda.reset_peak_memory_stats."""
        self.functions.loch_torch_reset_peaks()
