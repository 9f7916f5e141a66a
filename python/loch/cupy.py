# SPDX-License-Identifier: MIT
"""Memory of CuPy's arrays from Loch pools.

    import loch.cupy

    loch.cupy.enable(limit="40GiB")

Each device has one pool. Memory is ordered by CuPy's current stream: a freed array's memory is reused on its own stream
at once, and on another stream after an event. Arrays keep their memory after disable().
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import cupy

from . import Pool, _core

if TYPE_CHECKING:
    from collections.abc import Iterator

    from . import Stats

__all__ = ["disable", "enable", "enabled", "is_enabled", "malloc", "report", "stats", "trim"]

class _Memory(NamedTuple):
    """The memory of one device."""

    pool: Pool
    blocks: Any  # a DeviceMemory on the pool


_lock = threading.Lock()
_devices: dict[int, _Memory] = {}  # by the number of the device
_settings: tuple[str, int | str | None] | None = None
_is_enabled = False


class _Block:
    """Owns one block: frees it when CuPy has dropped the last pointer to it."""

    __slots__ = ("address", "blocks")

    def __init__(self, blocks: Any, address: int) -> None:
        self.blocks = blocks
        self.address = address

    def __del__(self) -> None:
        self.blocks.free(self.address)


def _get_memory(number: int) -> _Memory:
    memory = _devices.get(number)
    if memory is not None:
        return memory
    device, limit = _settings or ("cuda:%d", None)
    with _lock:
        if number not in _devices:
            pool = Pool(device.replace("%d", str(number)), name=f"cupy cuda:{number}", limit=limit)
            _devices[number] = _Memory(pool, _core.DeviceMemory(pool))
        return _devices[number]


def _allocate(memory: _Memory, size: int) -> int:
    try:
        return int(memory.blocks.alloc(size, cupy.cuda.get_current_stream()))
    except MemoryError as error:
        figures = memory.pool.info()
        raise cupy.cuda.memory.OutOfMemoryError(size, figures["used_bytes"], figures["limit_bytes"]) from error


def malloc(size: int) -> Any:
    """Allocates `size` bytes on the current device for the current stream: an allocator for cupy.cuda.set_allocator."""
    number = cupy.cuda.runtime.getDevice()
    if size == 0:
        return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(0, 0, None, number), 0)
    memory = _get_memory(number)
    address = _allocate(memory, size)
    owner = _Block(memory.blocks, address)
    return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(address, size, owner, number), 0)


def _set(device: str, limit: int | str | None) -> None:
    global _settings
    limit = _core.read_limit(limit)
    with _lock:
        if _settings not in (None, (device, limit)):
            raise RuntimeError(f"loch.cupy is in use with device and limit {_settings}")
        _settings = (device, limit)


def enable(*, limit: int | str | None = None, device: str = "cuda:%d") -> None:
    """Takes the memory of new arrays from Loch.

    limit: the most that the pool of each device holds ("40GiB" or a number of bytes). device: Loch's name of the device
    with CuPy's number %d.
    """
    global _is_enabled
    _set(device, limit)
    cupy.cuda.set_allocator(malloc)
    _is_enabled = True


def disable() -> None:
    """Takes the memory of new arrays from CuPy's own pool again. Existing arrays stay valid."""
    global _is_enabled
    cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)
    _is_enabled = False


@contextlib.contextmanager
def enabled(*, limit: int | str | None = None, device: str = "cuda:%d") -> Iterator[None]:
    """Enables Loch for a block of code on this thread (cupy.cuda.using_allocator)."""
    _set(device, limit)
    with cupy.cuda.using_allocator(malloc):
        yield


def is_enabled() -> bool:
    """Tells whether enable() is in force."""
    return _is_enabled


def stats() -> dict[int, Stats]:
    """Returns the figures of the pools: a dict by the number of the device."""
    return {number: memory.pool.stats() for number, memory in sorted(_devices.items())}


def report() -> str:
    """Returns a text for people: what the pools hold."""
    return "".join(memory.pool.report() for _, memory in sorted(_devices.items()))


def trim() -> int:
    """Gives free memory back to the devices and returns the number of bytes."""
    return sum(memory.pool.trim() for memory in list(_devices.values()))
