# SPDX-License-Identifier: MIT
"""What a Tensor does in Python: pickles, and arrays of NumPy."""

from __future__ import annotations

import pickle
from typing import Any

from . import _core

_LACKING = ("bf16", "f8e4m3", "f8e5m2")  # types that NumPy lacks


def _rebuild(dtype: str, shape: tuple[int, ...], contents: Any, device: str) -> _core.Tensor:
    """Makes a tensor of a pickle."""
    return _core._create_from(dtype, shape, contents, device)


def reduce(tensor: _core.Tensor, protocol: int) -> tuple[Any, tuple[Any, ...]]:
    """Pickles the contents: loading makes a new, contiguous tensor on a device of the same name.

    With protocol 5 the contents are an out-of-band buffer for programs that take those.
    """
    contents: Any = b""
    if tensor.size:
        flat = tensor.to("cpu").contiguous().view(-1).view_as("u8")
        contents = pickle.PickleBuffer(flat) if protocol >= 5 else bytes(flat)
    return _rebuild, (tensor.dtype.name, tensor.shape, contents, tensor.device)


def array(tensor: _core.Tensor, dtype: Any, copy: bool | None) -> Any:
    """Makes an array of NumPy: it shares the memory if the host can access it and the type stays."""
    import numpy

    name = tensor.dtype.name
    if name in _LACKING:
        raise TypeError(f'NumPy has no {name}: .to(dtype="f32") first')
    try:
        view = memoryview(tensor)
    except BufferError as error:
        raise TypeError(str(error)) from None
    shared = numpy.asarray(view)
    if dtype is not None and numpy.dtype(dtype) != shared.dtype:
        if copy is False:
            raise ValueError(f"{name} as {numpy.dtype(dtype)} needs a copy")
        return shared.astype(dtype)
    return shared.copy() if copy else shared
