# SPDX-License-Identifier: MIT
"""CUDA streams of other libraries as the driver's handles."""


def get_handle(stream):
    """Returns the driver's handle of a stream as an int; 0 for the default stream.

    Accepts None, an int, an object with __cuda_stream__ (cuda.core, CuPy 14), and the streams of PyTorch, CuPy and
    Numba.
    """
    if stream is None:
        return 0
    if isinstance(stream, int):
        return stream
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        version, handle = protocol() if callable(protocol) else protocol
        if version != 0:
            raise RuntimeError(f"__cuda_stream__ of version {version}; Loch reads version 0")
        return int(handle)
    for name in ("cuda_stream", "ptr"):  # PyTorch, CuPy
        handle = getattr(stream, name, None)
        if handle is not None:
            return int(handle)
    handle = getattr(stream, "handle", None)  # Numba
    value = getattr(handle, "value", handle)
    if isinstance(value, int):
        return value
    raise TypeError(f"{type(stream).__name__} is not a CUDA stream: it has no __cuda_stream__")
