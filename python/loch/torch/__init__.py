# SPDX-License-Identifier: MIT
"""Loch as PyTorch's allocator for CUDA.

    import loch.torch

    loch.torch.enable(limit="40GiB")  # before the first use of CUDA

Everything of torch.cuda works as before: statistics, snapshots, graphs, MemPool, sharing between processes. Memory can
also sleep, by tag and with its CUDA graphs:

    with loch.torch.region("weights"):
        model = Model().cuda()
    loch.torch.sleep("weights")
    loch.torch.wake("weights")

A training loop that repeats itself can be served by a plan:

    with loch.torch.plan() as plan:
        for batch in plan.steps(loader):
            train(batch)
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import warnings
from typing import TYPE_CHECKING, Any, TypedDict, overload

import torch

from .. import _core
from .._files import get_library
from .._process import record
from . import _shim
from ._plan import Plan, plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

__all__ = [
    "DeviceStats",
    "Plan",
    "PoolStats",
    "add_callbacks",
    "asleep",
    "enable",
    "get_tag",
    "is_enabled",
    "plan",
    "record",
    "region",
    "report",
    "sleep",
    "stats",
    "tags",
    "wake",
]

_lock = threading.RLock()
_settings: dict[str, Any] | None = None  # of the first enable
_plugin: Any = None  # the plug-in's allocator, if there is no shim
_callbacks: list[tuple[Callable[[], object] | None, Callable[[], object] | None]] = []  # before a sleep, after the wake
_suspended: list[tuple[Callable[[], object] | None, Callable[[], object] | None]] | None = None  # wait for the wake
_GRANULE = 2 << 20  # of CUDA
CONTENTS = ("pinned", "host", "file", "drop")


# --- enable ---


def _check_torch() -> None:
    if torch.version.cuda is None:
        kind = "ROCm" if getattr(torch.version, "hip", None) else "the CPU only"
        raise RuntimeError(f"PyTorch {torch.__version__} is built for {kind}; Loch needs a build for CUDA")
    if torch.cuda.is_initialized():
        raise RuntimeError(
            "too late: PyTorch has used CUDA already. Call loch.torch.enable() before the first tensor on CUDA and "
            "before torch.cuda.init()")


def _write_options(settings: dict[str, Any]) -> str:
    lines = {
        "device": settings["device"],
        "limit": settings["limit"],
        "pinned": "on" if settings["pinned"] else "off",
        "sharing": "on" if settings["sharing"] else "off",
    }
    return "\n".join(f"{name}={value}" for name, value in lines.items() if value is not None)


def _install_shim(settings: dict[str, Any]) -> None:
    path = _shim.find(torch.__version__)
    version = _core.torch_load(os.fspath(path))
    if version.split(".") != torch.__version__.split(".")[:2]:
        raise _shim.ShimError(f"{path} is for PyTorch {version}, not {torch.__version__}")
    _core.torch_install(_write_options(settings))


def _install_plugin(settings: dict[str, Any], reason: str) -> None:
    """Installs the plug-in: memory from Loch, but without what PyTorch keeps from plug-ins."""
    global _plugin
    name = get_library("torch")
    if settings["limit"] is not None:
        os.environ["LOCH_TORCH_LIMIT"] = str(settings["limit"])
    if settings["device"]:
        os.environ["LOCH_TORCH_DEVICE"] = settings["device"]
    plugin = torch.cuda.memory.CUDAPluggableAllocator(name, "loch_torch_malloc_or_raise", "loch_torch_free")
    plugin.allocator().set_record_stream_fn(_core.torch_symbol(name, "loch_torch_record_stream"))
    plugin.allocator().set_reset_fn(_core.torch_symbol(name, "loch_torch_empty_cache"))
    torch.cuda.memory.change_current_allocator(plugin)
    _plugin = plugin
    warnings.warn(
        f"Loch has no shim for PyTorch {torch.__version__} ({reason}). It serves memory as a plug-in: statistics, "
        "snapshots, graph trees, sharing between processes and sleep are missing",
        RuntimeWarning, stacklevel=4)


def enable(
    *,
    limit: int | str | None = None,
    pinned: bool = True,
    sharing: bool = True,
    device: str | None = None,
    headroom: int | str | None = None,
) -> None:
    """Makes Loch PyTorch's allocator for CUDA. Call it before the first use of CUDA in the process.

    limit: the most that the pool of each device holds ("40GiB" or a number of bytes); default LOCH_TORCH_LIMIT, or none.
    pinned: pinned host memory comes from Loch, too. sharing: other processes can open the memory (torch.multiprocessing).
    device: Loch's name of the device with PyTorch's number %d; default LOCH_TORCH_DEVICE, or "cuda:%d".
    headroom: memory of each device that idle memory leaves to other libraries; default LOCH_POOL_HEADROOM, or 1 GiB.

    A second call with the same settings does nothing: "1GiB" and 1 << 30 are the same. RuntimeError: CUDA was used before,
    PyTorch has no CUDA, or Loch is enabled with other settings. ValueError: the limit is no size, or none that can serve.
    """
    global _settings
    limit_bytes = _core.read_limit(limit)
    settings = {"limit": limit_bytes, "pinned": bool(pinned), "sharing": bool(sharing), "device": device}
    settings["headroom"] = headroom = _core.read_bytes(headroom)
    if limit_bytes is not None and limit_bytes < _GRANULE:
        raise ValueError(f"a limit of {_show(limit_bytes)} never serves a request: pools take memory in units of 2 MiB")
    with _lock:
        if _settings is not None:
            if settings != _settings:
                raise RuntimeError(f"loch.torch is enabled already, with {_settings}")
            return
        _check_torch()
        if headroom is not None:
            _core.set_option("pool_headroom", str(headroom))
            os.environ["LOCH_POOL_HEADROOM"] = str(headroom)  # for a plug-in with a library of its own
        try:
            _install_shim(settings)
        except (_shim.ShimError, ImportError, OSError) as error:
            _install_plugin(settings, str(error))
        _settings = settings


def is_enabled() -> bool:
    """Tells whether PyTorch's memory comes from Loch."""
    return _plugin is not None or bool(_core.torch_is_installed())


# --- figures ---


class PoolStats(TypedDict):
    """Figures of one pool of a device."""

    name: str
    tag: str
    id: list[int]
    reserved_bytes: int
    peak_reserved_bytes: int
    used_bytes: int
    free_bytes: int
    waiting_bytes: int
    captured_bytes: int
    largest_free_bytes: int
    asleep_bytes: int
    limit_bytes: int


class DeviceStats(TypedDict, total=False):
    """Figures of a device: loch/stats.h, the sums of its pools, and the pools. Empty for one that was not used."""

    allocs: int
    frees: int
    failures: int
    blocks: int
    peak_blocks: int
    requested_bytes: int
    peak_requested_bytes: int
    allocated_bytes: int
    peak_allocated_bytes: int
    largest_bytes: int
    limit_bytes: int
    reserved_bytes: int
    peak_reserved_bytes: int
    cached_bytes: int
    largest_free_bytes: int
    retries: int
    waits_ns: int
    used_bytes: int
    free_bytes: int
    waiting_bytes: int
    captured_bytes: int
    asleep_bytes: int
    host_bytes: int
    fragmentation: float
    pools: list[PoolStats]


_SUMS = ("reserved_bytes", "used_bytes", "free_bytes", "waiting_bytes", "captured_bytes", "asleep_bytes")


def _read_pools() -> Any:
    if _plugin is not None:
        raise RuntimeError("Loch serves PyTorch as a plug-in, which has no figures, regions or sleep")
    return json.loads(_core.torch_pools())


@overload
def stats(device: None = None) -> dict[int, DeviceStats]: ...
@overload
def stats(device: int | str | torch.device) -> DeviceStats: ...
def stats(device: int | str | torch.device | None = None) -> dict[int, DeviceStats] | DeviceStats:
    """Returns Loch's own figures: a dict by the number of the device, or the figures of one device.

    Each device has the sums of its pools (reserved_bytes, used_bytes, free_bytes, asleep_bytes ...), the statistics of
    its allocations, host_bytes (pinned memory held for contents that sleep), and the list "pools". torch.cuda.memory_stats() has PyTorch's figures.
    """
    found: dict[int, DeviceStats] = {}
    read = _read_pools()
    for number, pools in read["devices"].items():
        figures = json.loads(_core.torch_stats(int(number)))
        figures.update({name: sum(pool[name] for pool in pools) for name in _SUMS})
        figures["host_bytes"] = read["host_bytes"][number]
        figures["pools"] = pools
        found[int(number)] = figures
    if device is None:
        return found
    index = torch.device(device).index if isinstance(device, (str, torch.device)) else device
    return found.get(index or 0, {})


def _show(size: int) -> str:
    for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << shift:
            return f"{size / (1 << shift):.1f} {unit}"
    return f"{size} B"


def report() -> str:
    """Returns a text for people: what the pools hold, and what sleeps."""
    lines = [f"asleep: {name or 'memory outside of regions'}" for name in asleep()]
    for number, figures in stats().items():
        lines.append(
            f"cuda:{number}: {_show(figures['used_bytes'])} in use, {_show(figures['reserved_bytes'])} reserved, "
            f"{_show(figures['asleep_bytes'])} asleep, {len(figures['pools'])} pools")
    return "\n".join([*lines, _core.torch_report()])


# --- regions and sleep ---


@contextlib.contextmanager
def region(tag: str | None, *, one_handle: bool = False) -> Iterator[None]:
    """Gives CUDA memory that this thread allocates a tag, by which it can sleep. Regions nest.

    Pools of graphs and MemPools that are made inside belong to the tag. None: memory outside of regions.
    `one_handle`: each block of 1 MiB and more is one mapping of the driver, rounded up to 2 MiB, for libraries that
    register memory (Mooncake, NIXL, UCX, DeepEP).
    """
    _core.torch_region_begin("" if tag is None else tag, one_handle)
    try:
        yield
    finally:
        _core.torch_region_end()


def tags() -> dict[str, bool]:
    """Returns the tags that exist: a dict of the name and whether it sleeps. "" is memory outside of regions."""
    return {"": False, **_read_pools()["tags"]}


def asleep() -> list[str]:
    """Returns the list of the tags that sleep."""
    return [name for name, is_asleep in tags().items() if is_asleep]


def get_tag(tensor: torch.Tensor) -> str | None:
    """Returns the tag of the memory of a tensor: "" outside of regions, None if the memory is not from Loch."""
    found: str | None = _core.torch_find_tag(tensor.data_ptr())
    return found


def _make_parts(tag: Any, contents: str, path: str | os.PathLike[str] | None) -> list[tuple[str, str, str | None]]:
    if isinstance(tag, dict):
        chosen = tag
    elif tag is None:
        chosen = {name: contents for name, is_asleep in tags().items() if not is_asleep}
    else:
        chosen = {name: contents for name in ([tag] if isinstance(tag, str) else tag)}
    folder = None if path is None else os.fspath(path)
    for word in chosen.values():
        if word not in CONTENTS:
            raise ValueError(f"contents is one of {', '.join(CONTENTS)}, not {word!r}")
    if folder is not None and contents != "file" and not isinstance(tag, dict):
        raise ValueError("a path is for contents in a file: write contents='file', or leave the path out")
    return [(name, word, folder if word == "file" else None) for name, word in chosen.items()]


def _clear_workspaces() -> None:
    """Frees cuBLAS's workspaces, unless a graph may have their addresses."""
    pools = [pool for figures in _read_pools()["devices"].values() for pool in figures]
    if torch.cuda.is_initialized() and all(pool["id"] == [0, 0] for pool in pools):
        torch._C._cuda_clearCublasWorkspaces()


def _resume() -> None:
    """Calls the functions for after a wake, the last one first: all of them, and raises what the first failure raised."""
    global _suspended
    waiting, _suspended = _suspended or [], None
    failure: BaseException | None = None
    for _, after in reversed(waiting):
        try:
            if after is not None:
                after()
        except BaseException as error:
            failure = failure or error
    if failure is not None:
        raise failure


def _suspend() -> None:
    """Calls the functions for before a sleep. After a failure, undoes the calls that were made."""
    global _suspended
    _suspended = []
    for pair in list(_callbacks):
        try:
            if pair[0] is not None:
                pair[0]()
        except BaseException:
            _resume()
            raise
        _suspended.append(pair)


def sleep(
    tag: str | Iterable[str] | Mapping[str, str] | None = None,
    contents: str = "pinned",
    path: str | os.PathLike[str] | None = None,
) -> int:
    """Puts memory to sleep: its physical memory goes back to the GPU, its addresses stay. Returns the bytes given back.

    tag: the tag of a region, several of them, a dict {tag: contents}, "" for memory outside of regions, or None for
    everything. contents: "pinned" (fastest wake), "host", "file" or "drop". path: a folder for the files, which have no
    names; None for TMPDIR. Other contents take no path.

    All pools of the tags sleep, on all devices, with the pools of their CUDA graphs, or none does. Dropped contents read
    as zeros after the wake; LOCH_SLEEP_NAN=on makes them NaN, to find what reads them. Until the wake, no kernel may use the memory, and no allocation can be
    made in the regions of these tags.
    """
    with _lock:
        parts = _make_parts(tag, contents, path)
        was_suspended = _suspended is not None
        if not was_suspended:
            _suspend()
        try:
            _clear_workspaces()
            return int(_core.torch_sleep(parts))
        except BaseException:
            if not was_suspended:
                _resume()
            raise


def wake(tag: str | Iterable[str] | None = None, *, keep_host: bool = False) -> int:
    """Wakes memory: maps it at its old addresses with its contents. Returns the bytes of contents restored.

    tag: as in sleep(); a tag that is awake is left alone. All of the tags wake, or none does. keep_host: keeps the
    pinned host memory for the next sleep, which is then faster.
    """
    with _lock:
        names = [tag] if isinstance(tag, str) else tag
        restored = int(_core.torch_wake(names, keep_host))
        if _suspended is not None:
            _resume()
        return restored


def add_callbacks(
    before_sleep: Callable[[], object] | None = None, after_wake: Callable[[], object] | None = None
) -> Callable[[], None]:
    """Adds functions for libraries with GPU memory of their own (ncclCommSuspend, ncclCommResume). Returns a function
    that removes them.

    `before_sleep` runs before a sleep, `after_wake` after the first wake that follows, or after a sleep that failed. The
    calls are always in pairs: a second sleep before the wake calls nothing, and functions that are added meanwhile begin
    with the next sleep. A wake calls all functions, and raises what the first one that failed raised.
    """
    pair = (before_sleep, after_wake)
    with _lock:
        _callbacks.append(pair)

    def remove() -> None:
        with _lock:
            _callbacks.remove(pair)
            if _suspended is not None and pair in _suspended:
                _suspended.remove(pair)

    return remove
