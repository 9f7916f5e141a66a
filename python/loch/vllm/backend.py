# SPDX-License-Identifier: MIT
"""The sleep-mode backend. Importing it needs vLLM."""

from __future__ import annotations

from vllm.device_allocator.sleep_mode_backend import SleepModeBackend

from . import KEPT, LochAllocator

__all__ = ["LochBackend"]


class LochBackend(SleepModeBackend):  # type: ignore[misc]
    """Sleep by Loch: all pools of the worker, those of its CUDA graphs too, give their memory back in place."""

    def suspend(self, level: int = 1) -> None:
        """Gives GPU memory back. Level 1 keeps the weights in host memory, level 2 drops them."""
        LochAllocator.get_instance().sleep(offload_tags=KEPT + (("weights",) if level == 1 else ()))
        self._state = "SUSPENDED"

    def resume(self, tags: list[str] | None = None) -> None:
        """Restores memory; all of it, or without those of weights and kv_cache that `tags` does not name."""
        before, self._state = self._state, "RESUMING"
        try:
            LochAllocator.get_instance().wake_up(tags)
        except BaseException:
            self._state = before
            raise
        self._state = "RUNNING"

    def discard(self, tags: tuple[str, ...]) -> None:
        """Gives the memory of some tags back and drops their contents."""
        LochAllocator.get_instance().discard(tags)
        self._state = "SUSPENDED"

    @classmethod
    def is_supported(cls) -> bool:
        """Tells whether PyTorch is built for CUDA."""
        import torch

        return torch.version.cuda is not None

    @classmethod
    def preserves_communicators(cls) -> bool:
        """Tells that communicators stay: their memory is not Loch's."""
        return True

    @classmethod
    def preserves_compiled_artifacts(cls) -> bool:
        """Tells that compiled kernels stay."""
        return True

    @classmethod
    def preserves_graphs_with_communicators(cls) -> bool:
        """Tells that CUDA graphs stay valid: all addresses stay."""
        return True
