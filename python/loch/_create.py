# SPDX-License-Identifier: MIT
"""New tensors."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Sequence
from typing import Any, TypeAlias

from . import _core
from ._core import Pool, Tensor

Shape: TypeAlias = int | Sequence[int]


def ones(
    shape: Shape, dtype: Any = "f32", device: Any = None, *, pool: Pool | None = None, stream: Any = None, tag: str | None = None
) -> Tensor:
    """A tensor of ones."""
    return _core.full(shape, 1, dtype, device=device, pool=pool, stream=stream, tag=tag)


def arange(
    start: float, stop: float | None = None, step: float = 1, dtype: Any = None, device: Any = None, *, pool: Pool | None = None
) -> Tensor:
    """The numbers start, start + step, ... before stop, as numpy.arange: i64 for integers, otherwise f32."""
    if stop is None:
        start, stop = 0, start
    if step == 0:
        raise ValueError("the step of a range is not 0")
    bounds: list[Any] = [start, stop, step]
    if all(hasattr(number, "__index__") for number in bounds):
        numbers = range(*map(operator.index, bounds))
        return _core.tensor(numbers, "i64" if dtype is None else dtype, device, pool=pool)
    count = max(0, math.ceil((stop - start) / step))
    return _core.tensor([start + step * at for at in range(count)], "f32" if dtype is None else dtype, device, pool=pool)


def from_numpy(array: Any, *, copy: bool = False) -> Tensor:
    """A tensor that shares the memory of an array of NumPy. A read-only array makes a read-only tensor."""
    if not hasattr(array, "__array_interface__"):
        raise TypeError(f"from_numpy takes an array of NumPy, not {type(array).__name__}: loch.tensor copies other things")
    return _core.from_buffer(array, copy=copy)


def from_dlpack(source: Any, *, device: Any = None, stream: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor that shares the memory of any object with __dlpack__, or of a capsule.

    `stream` is the stream whose later work may use the memory; the default stream if None. `copy`: True always copies. `device`
    moves the result there.
    """
    made = _core.from_dlpack(source, stream=stream, copy=copy)
    if device is None or device == made.device:
        return made
    if copy is False:
        raise ValueError(f"a tensor on {made.device} is not on {device} without a copy")
    return made.to(device)


def save(path: str | os.PathLike[str], values: Any, *, as_bits: bool = False) -> None:
    """Writes a .npy file. `as_bits` writes types that NumPy lacks as raw bytes."""
    (values if isinstance(values, Tensor) else _core.tensor(values)).save(path, as_bits=as_bits)
