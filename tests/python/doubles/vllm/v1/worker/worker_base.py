# SPDX-License-Identifier: MIT
"""A test double of vLLM's worker: opens the device, allocates weights and a key/value cache, sleeps, wakes."""

from types import SimpleNamespace

import torch
from vllm import __version__


class WorkerWrapperBase:
    def __init__(self, backend="cumem"):
        model = {} if __version__ == "0.20" else {"sleep_mode_backend": backend}
        self.vllm_config = SimpleNamespace(model_config=SimpleNamespace(**model))
        self.backend = None

    def init_device(self):
        from vllm.device_allocator.cumem import CuMemAllocator

        self.allocator = CuMemAllocator.get_instance()

    def allocate(self, tag, size):
        with self.allocator.use_memory_pool(tag=tag):
            return torch._C._cuda_cudaCachingAllocator_raw_alloc(size, 0)

    def sleep(self, level):
        if __version__ == "0.20":
            self.allocator.sleep(offload_tags=("weights",) if level == 1 else ())
            return
        if self.backend is None:
            from vllm.device_allocator.sleep_mode_backend import SleepModeBackendFactory

            self.backend = SleepModeBackendFactory.create_backend(self.vllm_config.model_config)
        self.backend.suspend(level)

    def wake_up(self, tags=None):
        (self.allocator.wake_up if __version__ == "0.20" else self.backend.resume)(tags)
