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

import contextlib
import threading

import numpy

from . import _loch
from ._sizes import parse_bytes

__all__ = ["disable", "enable", "enabled", "is_enabled", "stats", "trim"]

_lock = threading.Lock()
_handler = None  # created by the first enable, kept until the process ends
_settings = None


def _api():
    core = getattr(numpy, "_core", None) or numpy.core
    return core._multiarray_umath._ARRAY_API


def _get_handler_name():
    core = getattr(numpy, "_core", None) or numpy.core
    return core.multiarray.get_handler_name()


def _make(device, limit):
    global _handler, _settings
    version = tuple(int(part) for part in numpy.__version__.split(".")[:2])
    if version < (1, 22):
        raise RuntimeError(f"NumPy {numpy.__version__} has no memory handlers; 1.22 is the first")
    settings = (device, parse_bytes(limit))
    with _lock:
        if _handler is None:
            _handler = _loch.numpy_handler(*settings)
            _settings = settings
        elif settings != _settings and (device, limit) != ("cpu", None):
            raise RuntimeError(f"loch.numpy has a pool already: device {_settings[0]!r}, limit {_settings[1]} bytes")
        return _handler


def enable(*, device="cpu", limit=None):
    """Takes the memory of new arrays of this context from Loch.

    device: a device whose memory the host can read. limit: the most that the pool holds ("2GiB" or a number of bytes);
    an array above it raises MemoryError. The first call decides both for the process.
    """
    _loch.numpy_set(_api(), _make(device, limit))


def disable():
    """Takes the memory of new arrays of this context from NumPy's own allocator again. Existing arrays stay valid."""
    _loch.numpy_set(_api(), None)


@contextlib.contextmanager
def enabled(*, device="cpu", limit=None):
    """Enables Loch for a block of code, and restores the handler that was there before."""
    before = _loch.numpy_set(_api(), _make(device, limit))
    try:
        yield
    finally:
        _loch.numpy_set(_api(), before)


def is_enabled():
    """Tells whether new arrays of this context take their memory from Loch."""
    return _get_handler_name() == "loch"


def stats():
    """Returns the figures of the pool as a dict; empty before the first enable()."""
    return _loch.numpy_stats(_handler) if _handler is not None else {}


def trim():
    """Gives free memory of the pool back to the system and returns the number of bytes."""
    return _loch.numpy_trim(_handler) if _handler is not None else 0
