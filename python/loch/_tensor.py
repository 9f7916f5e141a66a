# SPDX-License-Identifier: MIT
"""What a Tensor does in Python: pickles, its repr, arrays of NumPy, and indices with arrays."""

from __future__ import annotations

import pickle
import textwrap
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


def _show_bits(tensor: _core.Tensor) -> Any:
    """An array of NumPy on the elements as unsigned integers, for types that NumPy lacks, too."""
    return array(tensor.view_as(f"u{8 * tensor.itemsize}"), None, None)


def _make_key(key: Any) -> Any:
    if isinstance(key, tuple):
        return tuple(map(_make_key, key))
    return array(key, None, None) if isinstance(key, _core.Tensor) else key


def take(tensor: _core.Tensor, key: Any) -> _core.Tensor:
    """A copy of the elements that an index with arrays or lists chooses, by the rules of NumPy, which does it."""
    import numpy

    return _core.tensor(numpy.asarray(_show_bits(tensor)[_make_key(key)])).view_as(tensor.dtype)


def put(tensor: _core.Tensor, key: Any, value: Any) -> None:
    """Assigns to the elements that an index with arrays or lists chooses."""
    made = value.to("cpu", tensor.dtype) if isinstance(value, _core.Tensor) else _core.tensor(value, tensor.dtype)
    _show_bits(tensor)[_make_key(key)] = _show_bits(made)


_START = "loch.tensor("
_WIDTH = 75  # of a line, as NumPy's


def represent(tensor: _core.Tensor) -> str:
    """The elements as an expression that makes the tensor again, unless it is too large to be shown whole."""
    device = "" if tensor.device == "cpu" else f", device={tensor.device!r}"
    end = f"dtype={tensor.dtype.name!r}{device})"
    if not tensor.size:
        return f"loch.empty({tensor.shape}, {end}"
    values = tensor.format(separator=", ", width=_WIDTH - len(_START) - 1)
    text = _START + textwrap.indent(values, " " * len(_START)).lstrip() + ","
    if tensor.size > 1000:
        end = f"shape={tensor.shape}, {end}"
    last = len(text) - text.rfind("\n") - 1
    return text + (" " if last + len(end) < _WIDTH else "\n" + " " * len(_START)) + end


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
