# SPDX-License-Identifier: MIT
"""Loch as the memory of vLLM, and as its sleep-mode backend.

    LOCH_VLLM=1 vllm serve MODEL --enable-sleep-mode                     # vLLM 0.20 and later
    vllm serve MODEL --enable-sleep-mode --sleep-mode-backend loch       # vLLM 0.33 and later

vLLM loads register() through the entry point "vllm.general_plugins" in each of its processes. It makes the backend
known, and enables Loch in workers that were told to use it. Other runs of vLLM are left alone.

LOCH_VLLM_CONTENTS says where kept contents go: pinned (default), host or file. LOCH_TORCH_LIMIT limits the pool.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["LochAllocator", "register"]

# Contents that every sleep keeps; weights are kept at level 1 only. Everything else can be computed again.
KEPT = ("runtime", "cudagraph")
# A wake of selected tags leaves only these asleep; it wakes every other tag.
DEFERRABLE = ("weights", "kv_cache")
_NAME = "loch"


def _get_contents() -> str:
    return os.environ.get("LOCH_VLLM_CONTENTS", "pinned")


class LochAllocator:
    """vLLM's MemAllocator on regions of loch.torch. One object serves the process (get_instance).

    Memory outside of regions (buffers of the runner, pools of CUDA graphs) sleeps with its contents at every sleep().
    """

    instance: LochAllocator | None = None
    default_tag = "default"

    @classmethod
    def get_instance(cls) -> LochAllocator:
        """Returns the object of the process."""
        if cls.instance is None:
            cls.instance = cls()
        return cls.instance

    def __init__(self) -> None:
        import loch.torch

        self._memory = loch.torch
        if not loch.torch.is_enabled():
            loch.torch.enable()

    @contextlib.contextmanager
    def use_memory_pool(self, tag: str | None = None) -> Iterator[None]:
        """Gives allocations of this thread a tag. The key/value cache, which NIXL registers, has a handle a block."""
        tag = self.default_tag if tag is None else tag
        with self._memory.region(tag, one_handle=tag == "kv_cache"):
            yield

    @contextlib.contextmanager
    def cudagraph_pool(self) -> Iterator[tuple[int, int]]:
        """Gives CUDA graphs that are captured in this block a pool of tag "cudagraph". Yields the id of the pool."""
        import torch

        with self._memory.region("cudagraph"):
            if not hasattr(self, "_graph_pool"):
                self._graph_pool = torch.cuda.MemPool()
            yield self._graph_pool.id

    def sleep(self, offload_tags: tuple[str, ...] | str | None = None) -> None:
        """Puts all tags to sleep. Keeps the contents of `offload_tags` and drops those of other tags.

        All or nothing. Memory outside of regions keeps its contents.
        """
        if offload_tags is None:
            offload_tags = (self.default_tag,)
        elif isinstance(offload_tags, str):
            offload_tags = (offload_tags,)
        awake = [name for name, is_asleep in self._memory.tags().items() if not is_asleep]
        kept = ("", *offload_tags)
        parts = {name: _get_contents() if name in kept else "drop" for name in awake}
        if parts:
            self._memory.sleep(parts)

    def discard(self, tags: tuple[str, ...] | str) -> None:
        """Puts some tags to sleep and drops their contents. Tags that sleep already keep what they have."""
        chosen = (tags,) if isinstance(tags, str) else tuple(tags)
        awake = [name for name, is_asleep in self._memory.tags().items() if not is_asleep and name in chosen]
        if awake:
            self._memory.sleep(awake, contents="drop")

    def wake_up(self, tags: Iterable[str] | None = None) -> None:
        """Wakes everything, or everything except those of weights and kv_cache that `tags` does not name."""
        asleep = self._memory.asleep()
        if tags is not None:
            asleep = [name for name in asleep if name in tags or name not in DEFERRABLE]
        if asleep:
            self._memory.wake(asleep)

    def get_current_usage(self) -> int:
        """Returns the bytes in blocks of all tags, asleep or not."""
        figures = self._memory.stats().values()
        return sum(int(pool["used_bytes"]) for device in figures for pool in device["pools"] if pool["tag"])

    def release_pools(self) -> None:
        """Drops the pool of CUDA graphs."""
        self.__dict__.pop("_graph_pool", None)

    close = release_pools


def _is_asked() -> bool:
    """Tells whether LOCH_VLLM asks for Loch in every engine that starts here."""
    word = os.environ.get("LOCH_VLLM", "")
    if word.lower() not in ("", "0", "off", "1", "on"):
        raise ValueError(f"LOCH_VLLM is {word!r}: it is 1 or on, for Loch in every engine of vLLM, or 0 or off")
    return word.lower() in ("1", "on")


def _is_chosen(config: Any) -> bool:
    return _is_asked() or getattr(config.model_config, "sleep_mode_backend", None) == _NAME


def _install(config: Any) -> None:
    """Enables Loch in a worker, and makes vLLM allocate from it. Versions without backends sleep by this object alone."""
    from vllm.device_allocator.cumem import CuMemAllocator

    CuMemAllocator.instance = LochAllocator.get_instance()
    if getattr(config.model_config, "sleep_mode_backend", None) == "cumem":  # what vLLM chooses where nobody did
        config.model_config.sleep_mode_backend = _NAME


def _wrap_worker() -> None:
    """Installs Loch before a worker opens its device, the last moment before the first use of CUDA."""
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    original = WorkerWrapperBase.init_device
    if getattr(original, "is_loch", False):
        return

    @functools.wraps(original)
    def init_device(self: Any, *arguments: Any, **keywords: Any) -> Any:
        if _is_chosen(self.vllm_config):
            _install(self.vllm_config)
        return original(self, *arguments, **keywords)

    init_device.is_loch = True  # type: ignore[attr-defined]
    WorkerWrapperBase.init_device = init_device


def _register_backend() -> None:
    try:
        from vllm.device_allocator.sleep_mode_backend import SleepModeBackendFactory
    except ModuleNotFoundError:  # vLLM before 0.25: sleep is CuMemAllocator's
        return
    if _NAME not in SleepModeBackendFactory._registry:
        SleepModeBackendFactory.register_backend(_NAME, "loch.vllm.backend", "LochBackend")


def register() -> None:
    """Makes the backend "loch" known to vLLM. May be called several times.

    Where vLLM has other doors than these, LOCH_VLLM=1 raises a RuntimeError, and other runs get a warning.
    """
    is_asked = _is_asked()
    try:
        if not importlib.util.find_spec("vllm.device_allocator.cumem"):  # found, not imported: it opens CUDA's runtime
            raise ModuleNotFoundError("there is no vllm.device_allocator.cumem")
        _register_backend()
        _wrap_worker()
    except (ImportError, AttributeError) as error:
        import vllm

        text = (
            f"Loch does not fit vLLM {getattr(vllm, '__version__', 'of this environment')}: {error}. "
            "It was checked with 0.20 to 0.33 (docs/vllm-sglang.md); loch.torch.enable() works with any version"
        )
        if is_asked:
            raise RuntimeError(text) from error
        warnings.warn(text, RuntimeWarning, stacklevel=2)
