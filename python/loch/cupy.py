# SPDX-License-Identifier: MIT
"""Memory of CuPy's arrays from Loch pools.

    import loch.cupy

    loch.cupy.enable(limit="40GiB")

Each device has one pool. Memory is ordered by CuPy's current stream: a freed array's memory is reused on its own stream
at once, and on another stream after an event. Arrays keep their memory after disable().
"""

import contextlib
import threading

import cupy

from . import _loch
from ._sizes import parse_bytes

__all__ = ["disable", "enable", "enabled", "is_enabled", "malloc", "report", "stats", "trim"]

_lock = threading.Lock()
_pools = {}  # by the number of the device
_settings = None
_is_enabled = False


class _Block:
    """Owns one block: frees it when CuPy has dropped the last pointer to it."""

    __slots__ = ("address", "pool")

    def __init__(self, pool, address):
        self.pool = pool
        self.address = address

    def __del__(self):
        self.pool.free(self.address)


def _get_pool(number):
    pool = _pools.get(number)
    if pool is not None:
        return pool
    device, limit = _settings or ("cuda:%d", 0)
    with _lock:
        if number not in _pools:
            _pools[number] = _loch.DeviceMemory(device.replace("%d", str(number)), f"cupy cuda:{number}", limit)
        return _pools[number]


def _make_pointer(pool, size, number):
    stream = cupy.cuda.get_current_stream()
    try:
        address = pool.alloc(size, stream.ptr, stream)
    except MemoryError as error:
        figures = pool.stats()
        raise cupy.cuda.memory.OutOfMemoryError(
            size, figures["allocated_bytes"], figures["limit_bytes"]) from error
    memory = cupy.cuda.UnownedMemory(address, size, _Block(pool, address), number)
    return cupy.cuda.MemoryPointer(memory, 0)


def malloc(size):
    """Allocates `size` bytes on the current device for the current stream: an allocator for cupy.cuda.set_allocator."""
    number = cupy.cuda.runtime.getDevice()
    if size == 0:
        return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(0, 0, None, number), 0)
    return _make_pointer(_get_pool(number), size, number)


def _set(device, limit):
    global _settings
    settings = (device, parse_bytes(limit))
    with _lock:
        if _settings not in (None, settings):
            raise RuntimeError(
                f"loch.cupy has settings already: device {_settings[0]!r}, limit {_settings[1]} bytes")
        _settings = settings


def enable(*, limit=None, device="cuda:%d"):
    """Takes the memory of new arrays from Loch.

    limit: the most that the pool of each device holds ("40GiB" or a number of bytes). device: Loch's name of the device
    with CuPy's number %d.
    """
    global _is_enabled
    _set(device, limit)
    cupy.cuda.set_allocator(malloc)
    _is_enabled = True


def disable():
    """Takes the memory of new arrays from CuPy's own pool again. Existing arrays stay valid."""
    global _is_enabled
    cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)
    _is_enabled = False


@contextlib.contextmanager
def enabled(*, limit=None, device="cuda:%d"):
    """Enables Loch for a block of code on this thread (cupy.cuda.using_allocator)."""
    _set(device, limit)
    with cupy.cuda.using_allocator(malloc):
        yield


def is_enabled():
    """Tells whether enable() is in force."""
    return _is_enabled


def stats():
    """Returns the figures of the pools: a dict by the number of the device."""
    return {number: pool.stats() for number, pool in sorted(_pools.items())}


def report():
    """Returns a text for people: what the pools hold."""
    return "".join(pool.report() for _, pool in sorted(_pools.items()))


def trim():
    """Gives free memory back to the devices and returns the number of bytes."""
    return sum(pool.trim() for pool in list(_pools.values()))
