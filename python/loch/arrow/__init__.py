# SPDX-License-Identifier: MIT
"""Memory of Arrow's buffers from Loch pools.

    import loch.arrow

    loch.arrow.enable(limit="8GiB")

From then on pyarrow's default memory pool is on a Loch pool with the name "arrow". make_pool() makes further memory
pools, each with a tag of its own, for functions of pyarrow that have an argument `memory_pool`.

The first call compiles a small library for the version of Arrow that runs, which needs a C++20 compiler and takes some
seconds; it is kept in ~/.cache/loch/arrow-shims.
"""

from __future__ import annotations

import ctypes
import threading
from typing import TYPE_CHECKING, Any

import pyarrow

from .. import Pool, _core
from . import _shim
from ._shim import ShimError

if TYPE_CHECKING:
    from .. import Stats

__all__ = ["ShimError", "disable", "enable", "is_enabled", "make_pool", "report", "stats", "trim"]

_lock = threading.Lock()
_loaded: ctypes.CDLL | None = None
_enabled: tuple[tuple[int | str | None, str], Pool, Any] | None = None  # settings, Loch's pool, Arrow's memory pool
_before: Any = None  # Arrow's default memory pool before enable
_is_enabled = False


def _load() -> ctypes.CDLL:
    global _loaded
    if _loaded is None:
        _loaded = _shim.load()
    return _loaded


def _box(address: int) -> Any:
    """Returns a pyarrow.MemoryPool for an arrow::MemoryPool *, by the C function that pyarrow exports for this."""
    capsule = pyarrow.lib.__pyx_capi__["box_memory_pool"]
    get_name = ctypes.pythonapi.PyCapsule_GetName
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    function = get_pointer(capsule, get_name(capsule))
    return ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p)(function)(address)


def make_pool(pool: Pool, *, tag: str = "arrow") -> Any:
    """Makes a pyarrow.MemoryPool on a Loch pool of host memory. Its blocks have `tag`, so that figures name them.

    The memory pool stays until the process ends, and so does the Loch pool. ValueError: the pool is closed or its memory
    is not the host's, or the tag is not valid. ShimError: the library for this Arrow cannot be compiled.
    """
    shim = _load()
    error = ctypes.create_string_buffer(512)
    address = shim.loch_arrow_make(pool.handle, tag.encode(), error, len(error))
    if not address:
        raise ValueError(error.value.decode(errors="replace"))
    return _box(address)


def enable(*, limit: int | str | None = None, tag: str = "arrow") -> None:
    """Makes Loch pyarrow's default memory pool. Buffers that exist stay where they are.

    limit: the most that the pool holds ("8GiB" or a number of bytes). tag: the tag of its blocks. A second call with
    equal settings does nothing. RuntimeError: Loch is in use with other settings.
    """
    global _enabled, _before, _is_enabled
    limit = _core.read_limit(limit)
    with _lock:
        if _enabled is not None and _enabled[0] != (limit, tag):
            raise RuntimeError(f"loch.arrow is in use with limit and tag {_enabled[0]}")
        if _enabled is None:
            pool = Pool("cpu", name="arrow", limit=limit)
            _enabled = ((limit, tag), pool, make_pool(pool, tag=tag))
        if not _is_enabled:
            _before = pyarrow.default_memory_pool()
            pyarrow.set_memory_pool(_enabled[2])
            _is_enabled = True


def disable() -> None:
    """Makes the memory pool before enable() the default again. Existing buffers stay valid."""
    global _is_enabled
    with _lock:
        if _is_enabled:
            pyarrow.set_memory_pool(_before)
        _is_enabled = False


def is_enabled() -> bool:
    """Tells whether enable() is in force."""
    return _is_enabled


def stats() -> Stats | None:
    """Returns the figures of the Loch pool; None before the first enable()."""
    return _enabled[1].stats() if _enabled else None


def report() -> str:
    """Returns a text for people: what the Loch pool holds; "" before the first enable()."""
    return _enabled[1].report() if _enabled else ""


def trim() -> int:
    """Gives free memory back to the system and returns the number of bytes."""
    return _enabled[1].trim() if _enabled else 0
