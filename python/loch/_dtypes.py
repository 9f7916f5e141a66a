# SPDX-License-Identifier: MIT
"""Types of elements: Loch's names, and the types of NumPy, PyTorch and Python in both directions."""

from __future__ import annotations

import sys
from typing import Any

from . import _core

# In the order of loch_dtype: name, bytes, name of NumPy and PyTorch.
_ROWS = [
    ("none", 0, ""),
    ("f64", 8, "float64"),
    ("f32", 4, "float32"),
    ("f16", 2, "float16"),
    ("bf16", 2, "bfloat16"),
    ("f8e4m3", 1, "float8_e4m3fn"),
    ("f8e5m2", 1, "float8_e5m2"),
    ("i8", 1, "int8"),
    ("i16", 2, "int16"),
    ("i32", 4, "int32"),
    ("i64", 8, "int64"),
    ("u8", 1, "uint8"),
    ("u16", 2, "uint16"),
    ("u32", 4, "uint32"),
    ("u64", 8, "uint64"),
    ("bool", 1, "bool"),
]
_PYTHON = {float: "f64", int: "i64", bool: "bool"}


class DType:
    """A type of elements. Equal to its names, and to the type of NumPy or PyTorch with that name."""

    __slots__ = ("_long", "itemsize", "name")

    def __init__(self, name: str, itemsize: int, long: str) -> None:
        self.name = name
        self.itemsize = itemsize
        self._long = long

    def __repr__(self) -> str:
        return f"loch.{self._long or self.name}"

    def __str__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DType):
            return self is other
        try:
            return _core.dtype_name(other) == self.name
        except TypeError:
            return False

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return dtype, (self.name,)

    @property
    def dtype(self) -> Any:
        """The type of NumPy: numpy.dtype(tensor.dtype) and numpy.zeros(3, tensor.dtype) find it here."""
        return self.numpy

    @property
    def numpy(self) -> Any:
        """The type of NumPy, or of ml_dtypes if that is imported; a TypeError for a type that NumPy lacks."""
        import numpy

        extra = sys.modules.get("ml_dtypes")
        if self.name in ("bf16", "f8e4m3", "f8e5m2"):
            if extra is None:
                raise TypeError(f"NumPy has no type {self._long}: ml_dtypes has one")
            return numpy.dtype(getattr(extra, self._long))
        return numpy.dtype(self._long)


_ALL = tuple(DType(*row) for row in _ROWS)
_core._set_dtypes(_ALL)
_BY_NAME = {each.name: each for each in _ALL[1:]}


def dtype(value: Any) -> DType:
    """Returns the type that a name, a DType, or a type of NumPy, PyTorch or Python stands for."""
    if value is None:
        raise TypeError("None is no type of elements")
    return _BY_NAME[_core.dtype_name(value)]


def name_of(value: Any) -> str:
    """Returns a name of a type of another library, for the library to look up."""
    if isinstance(value, DType):
        return value.name
    if isinstance(value, int):
        raise TypeError(f"{value!r} is no type of elements: the sizes of a shape are one argument, as in zeros((2, 3))")
    if isinstance(value, type) and value in _PYTHON:
        return _PYTHON[value]
    if getattr(value, "isnative", True) is False:
        raise TypeError(f"{value!r} has the other byte order: .astype(...) it first")
    name = getattr(value, "name", None)
    if isinstance(name, str):  # numpy.dtype
        return name
    if isinstance(value, type):  # numpy.float32, ml_dtypes.bfloat16
        numpy = sys.modules.get("numpy")
        if numpy is not None and issubclass(value, numpy.generic):
            return str(numpy.dtype(value).name)
        return value.__name__
    text = str(value)
    if text.startswith("torch."):
        return text
    raise TypeError(f"{value!r} is no type of elements")


float64, float32, float16, bfloat16, float8_e4m3fn, float8_e5m2 = _ALL[1:7]
int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool_ = _ALL[7:]
