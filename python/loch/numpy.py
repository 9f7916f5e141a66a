# SPDX-License-Identifier: MIT
"""Memory of NumPy's arrays from a Loch pool.

    import loch.numpy

    loch.numpy.enable()              # arrays of this thread from now on
    with loch.numpy.enabled():       # or only here
        array = numpy.zeros(1000)
    print(loch.numpy.stats())

The handler belongs to a context (contextvars), as NumPy defines it (NEP 49): a new thread begins with NumPy's own
memory and calls enable() itself. All contexts share one pool. Arrays keep their memory after disable().
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

import numpy

from . import Pool, Stats, _core

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["disable", "enable", "enabled", "is_enabled", "stats", "trim"]

_lock = threading.Lock()
_pool: Pool | None = None  # created by the first enable, with its handler; kept until the process ends
_handler: object = None
_settings: tuple[str, int | str | None] | None = None


def _get_core() -> Any:
    return getattr(numpy, "_core", None) or numpy.core


def _set(handler: object) -> object:
    return _core.numpy_set(_get_core()._multiarray_umath._ARRAY_API, handler)


def _make(device: str, limit: int | str | None) -> object:
    global _pool, _handler, _settings
    limit = _core.read_limit(limit)
    version = tuple(int(part) for part in numpy.__version__.split(".")[:2])
    if version < (1, 22):
        raise RuntimeError(f"NumPy {numpy.__version__} has no memory handlers; 1.22 is the first")
    with _lock:
        if _handler is None:
            _pool = Pool(device, name="numpy", limit=limit)
            _handler = _core.numpy_handler(_pool)
            _settings = (device, limit)
        elif (device, limit) not in (_settings, ("cpu", None)):
            raise RuntimeError(f"loch.numpy has a pool already, with device and limit {_settings}")
        return _handler


def enable(*, device: str = "cpu", limit: int | str | None = None) -> None:
    """Takes the memory of new arrays of this context from Loch.

    device: a device whose memory the host can read. limit: the most that the pool holds ("2GiB" or a number of bytes);
    an array above it raises MemoryError. The first call decides both for the process.
    """
    _set(_make(device, limit))


def disable() -> None:
    """Takes the memory of new arrays of this context from NumPy's own allocator again. Existing arrays stay valid."""
    _set(None)


@contextlib.contextmanager
def enabled(*, device: str = "cpu", limit: int | str | None = None) -> Iterator[None]:
    """Enables Loch for a block of code, and restores the handler that was there before."""
    before = _set(_make(device, limit))
    try:
        yield
    finally:
        _set(before)


def is_enabled() -> bool:
    """Tells whether new arrays of this context take their memory from Loch."""
    return bool(_get_core().multiarray.get_handler_name() == "loch")


def stats() -> Stats:
    """Returns the figures of the pool; empty before the first enable()."""
    return _pool.stats() if _pool is not None else Stats()


def trim() -> int:
    """Gives free memory of the pool back to the system and returns the number of bytes."""
    return _pool.trim() if _pool is not None else 0
