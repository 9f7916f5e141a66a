# SPDX-License-Identifier: MIT
"""Memory of ONNX Runtime's sessions on the cpu from one Loch pool.

    import loch.onnxruntime

    session = loch.onnxruntime.create_session("model.onnx", name="minilm")
    print(loch.onnxruntime.stats("minilm").run["requested_bytes"])

All sessions share the default pool of the device "cpu", and each has figures under its own name. ONNX Runtime 1.23 or later.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import onnxruntime

from . import Device, _core, get_library

if TYPE_CHECKING:
    import os

    from . import Pool, Stats

__all__ = ["SessionStats", "create_session", "pool", "stats"]

# ONNX Runtime has one allocator at a time for sessions that are created; it is named and used under this lock.
_lock = threading.Lock()
_pool: Pool | None = None


class SessionStats(NamedTuple):
    """The figures of a name: of the memory of runs, and of weights and other memory that a session keeps."""

    run: Stats
    weights: Stats


def create_session(
    model: str | bytes | os.PathLike[str],
    options: Any = None,
    *,
    name: str = "onnxruntime",
    limit: int | str | None = None,
    providers: Any = ("CPUExecutionProvider",),
    **arguments: Any,
) -> Any:
    """Creates an onnxruntime.InferenceSession whose memory comes from Loch.

    options: an onnxruntime.SessionOptions, which is changed; None for new ones. name: for the figures, at most 55 characters; several
    sessions may have one name. limit: the most in use under this name ("2GiB" or a number of bytes). A name that was first used without a limit never has one.
    arguments: further ones of InferenceSession.
    """
    global _pool
    if options is None:
        options = onnxruntime.SessionOptions()
    options.add_session_config_entry("loch.session", name)
    options.add_session_config_entry("loch.limit_bytes", str(_core.read_limit(limit) or 0))
    with _lock:
        if _pool is None:
            _pool = Device("cpu").default_pool
        options.register_custom_ops_library(get_library("onnxruntime"))
        return onnxruntime.InferenceSession(model, options, providers=list(providers), **arguments)


def pool() -> Pool:
    """Returns the pool that all sessions share."""
    return Device("cpu").default_pool if _pool is None else _pool


def stats(name: str = "onnxruntime") -> SessionStats:
    """Returns the figures of all sessions with a name."""
    return SessionStats(pool().stats(name), pool().stats(name + " weights"))
