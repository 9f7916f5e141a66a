# SPDX-License-Identifier: MIT
"""Loch's sleep under the names of torch_memory_saver 0.0.10, for programs that are written for that package.

    from loch.torch.memory_saver import torch_memory_saver

    with torch_memory_saver.region(tag="weights", enable_cpu_backup=True):
        model = Model().cuda()
    torch_memory_saver.pause("weights")
    torch_memory_saver.resume("weights")

Programs that import torch_memory_saver itself (SGLang, slime, verl) get this module with

    python -m loch.torch --memory-saver -m sglang.launch_server --enable-memory-saver ...

or by install_alias() before their import. No LD_PRELOAD is needed, CUDA graphs sleep in both hook modes, and
expandable_segments plays no role.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import sys
import threading
from typing import TYPE_CHECKING, Any

import torch

from .. import torch as loch_torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["TorchMemorySaver", "configure_subprocess", "install_alias", "torch_memory_saver"]

_TAG_DEFAULT = "default"
_ALIAS = pathlib.Path(__file__).resolve().parent / "_alias"  # a folder with a module torch_memory_saver


class TorchMemorySaver:
    """Memory that can be paused by tag. The methods are those of torch_memory_saver.TorchMemorySaver.

    A tag decides what happens to its contents: the first region with a tag sets it, and a region of another kind with
    the same tag has memory of its own.
    """

    def __init__(self) -> None:
        self._kinds: dict[str, tuple[str, str]] = {}  # name of a Loch tag -> (tag, contents)
        self._lock = threading.RLock()
        self._local = threading.local()
        self._hook_mode = "preload"
        self._margin = 0
        self._retain = False
        self._folder = os.environ.get("TMS_DISK_BACKUP_DIR")

    # --- regions ---

    @contextlib.contextmanager
    def region(
        self,
        tag: str = _TAG_DEFAULT,
        enable_cpu_backup: bool = False,
        enable_disk_backup: bool = False,
        cpu_backup_backend: str | None = None,
    ) -> Iterator[None]:
        """Allocations of this thread can be paused under `tag`.

        enable_cpu_backup: the contents are kept in host memory: "pinned" or "mmap" (plain memory), as
        cpu_backup_backend says. enable_disk_backup: in files. Otherwise they are lost.
        """
        contents = self._choose(enable_cpu_backup, enable_disk_backup, cpu_backup_backend)
        with self._enter(tag, contents):
            yield

    @contextlib.contextmanager
    def cuda_graph(
        self,
        cuda_graph: torch.cuda.CUDAGraph,
        pool: Any = None,
        stream: Any = None,
        capture_error_mode: str = "global",
        tag: str = _TAG_DEFAULT,
        enable_cpu_backup: bool = False,
        cpu_backup_backend: str | None = None,
    ) -> Iterator[None]:
        """Captures a CUDA graph as torch.cuda.graph does; its memory can be paused under `tag`.

        A pool that was made before keeps the tag that it was made with.
        """
        contents = self._choose(enable_cpu_backup, False, cpu_backup_backend)
        with self._enter(tag, contents):
            with torch.cuda.graph(cuda_graph, pool=pool, stream=stream, capture_error_mode=capture_error_mode):
                yield

    @contextlib.contextmanager
    def disable(self, dispose_mem_pool_after_use: bool = True) -> Iterator[None]:
        """Allocations in this block cannot be paused. To be used inside of a region."""
        assert dispose_mem_pool_after_use, "only dispose_mem_pool_after_use=True is supported"
        assert getattr(self._local, "depth", 0) > 0, "disable() is for use inside of a region"
        with loch_torch.region(None):
            yield

    # --- pause and resume ---

    def pause(self, tag: str | None = None) -> None:
        """Gives the memory of a tag, or of all tags, back to the GPU. Tags that are paused are left alone."""
        self._prepare()
        asleep = set(loch_torch.asleep())
        parts = {name: contents for name, contents in self._find(tag).items() if name not in asleep}
        if parts:
            loch_torch.sleep(parts, path=self._folder)

    def resume(self, tag: str | None = None) -> None:
        """Brings the memory of a tag, or of all tags, back to its addresses."""
        self._prepare()
        names = list(self._find(tag))
        self._check_margin(names)
        if names:
            loch_torch.wake(names, keep_host=self._retain)

    def get_cpu_backup(self, x: torch.Tensor, zero_copy: bool = False) -> torch.Tensor | None:
        """Returns a copy on the CPU of a tensor whose memory is paused; None if it is not paused or was not kept.

        Loch's saved contents are not laid out like tensors, so the tag is resumed for the copy and paused again. The copy
        is always a new tensor.
        """
        del zero_copy
        self._prepare()
        assert x.is_cuda, f"{x.device=}"
        assert x.is_contiguous(), f"{x.shape=} {x.stride()=} {x.dtype=}"
        name = self._find_tag_of(x)
        if name is None or name not in loch_torch.asleep() or self._kinds[name][1] == "drop":
            return None
        loch_torch.wake(name, keep_host=True)
        try:
            return x.cpu()
        finally:
            loch_torch.sleep({name: self._kinds[name][1]}, path=self._folder)

    # --- settings ---

    @property
    def enabled(self) -> bool:
        """Tells that memory can be paused."""
        return True

    @property
    def hook_mode(self) -> str:
        """Both modes work in the same way; programs set it, and cannot read it."""
        raise AttributeError("hook_mode can only be set")

    @hook_mode.setter
    def hook_mode(self, hook_mode: str) -> None:
        if hook_mode not in ("preload", "torch"):
            raise ValueError(f"hook_mode is 'preload' or 'torch', not {hook_mode!r}")
        self._hook_mode = hook_mode

    @property
    def memory_margin_bytes(self) -> int:
        """GPU memory that a resume must leave free; programs set it, and cannot read it."""
        raise NotImplementedError("memory_margin_bytes can only be set")

    @memory_margin_bytes.setter
    def memory_margin_bytes(self, value: int) -> None:
        self._margin = int(value)

    @property
    def retain_cpu_backup(self) -> bool:
        """Tells whether host memory for contents is kept after a resume, for the next pause."""
        return self._retain

    @retain_cpu_backup.setter
    def retain_cpu_backup(self, value: bool) -> None:
        self._retain = bool(value)

    def set_disk_backup_dir(self, path: str | os.PathLike[str]) -> None:
        """Sets the folder for the contents of regions with enable_disk_backup. Makes it if needed."""
        os.makedirs(path, exist_ok=True)
        self._folder = os.fspath(path)

    # --- inside ---

    def _prepare(self) -> None:
        """Enables Loch on first use, as the original package hooks CUDA on first use."""
        if not loch_torch.is_enabled():
            loch_torch.enable()

    def _choose(self, enable_cpu_backup: bool, enable_disk_backup: bool, backend: str | None) -> str:
        if backend is not None and not enable_cpu_backup:
            raise ValueError("cpu_backup_backend requires enable_cpu_backup=True")
        if backend not in (None, "pinned", "mmap"):
            raise ValueError(f"cpu_backup_backend is 'pinned' or 'mmap', not {backend!r}")
        assert not (enable_cpu_backup and enable_disk_backup), \
            "enable_cpu_backup and enable_disk_backup are mutually exclusive"
        if enable_cpu_backup:
            return "host" if backend == "mmap" else "pinned"
        return "file" if enable_disk_backup else "drop"

    @contextlib.contextmanager
    def _enter(self, tag: str, contents: str) -> Iterator[None]:
        self._prepare()
        name = f"{tag}/{contents}"
        with self._lock:
            self._kinds[name] = (tag, contents)
        self._local.depth = getattr(self._local, "depth", 0) + 1
        try:
            with loch_torch.region(name):
                yield
        finally:
            self._local.depth -= 1

    def _find(self, tag: str | None) -> dict[str, str]:
        """Returns the names of Loch's tags for one of the program's, with their contents."""
        with self._lock:
            return {name: kind[1] for name, kind in self._kinds.items() if tag is None or kind[0] == tag}

    def _find_tag_of(self, tensor: torch.Tensor) -> str | None:
        name = loch_torch.get_tag(tensor)
        return name if name in self._kinds else None

    def _check_margin(self, names: Iterable[str]) -> None:
        if not self._margin or not torch.cuda.is_initialized():
            return
        for number, figures in loch_torch.stats().items():
            needed = sum(pool["asleep_bytes"] for pool in figures["pools"] if pool["tag"] in names)
            free = torch.cuda.mem_get_info(number)[0]
            if needed and free < needed + self._margin:
                raise RuntimeError(
                    f"cuda:{number} has {free} bytes free; a resume of {needed} bytes must leave {self._margin} free")


torch_memory_saver = TorchMemorySaver()


@contextlib.contextmanager
def configure_subprocess() -> Iterator[None]:
    """Processes that are started in this block use Loch when they import torch_memory_saver."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([os.fspath(_ALIAS)] + ([before] if before else []))
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def install_alias(*, children: bool = True) -> None:
    """Makes `import torch_memory_saver` return this module, here and in processes that this one starts."""
    sys.modules["torch_memory_saver"] = sys.modules[__name__]
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if children and os.fspath(_ALIAS) not in path:
        os.environ["PYTHONPATH"] = os.pathsep.join([os.fspath(_ALIAS)] + [part for part in path if part])
