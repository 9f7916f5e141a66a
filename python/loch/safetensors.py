# SPDX-License-Identifier: MIT
"""Tensors in .safetensors files, mapped and without a copy.

    from loch import safetensors

    with safetensors.open("model.safetensors") as model:     # or model.safetensors.index.json
        weight = model["encoder.weight"]                     # a view of the mapped file
        rows = model.load("decoder.weight", "bf16", start=0, count=1024, device="cuda:0")

    tensors = safetensors.load("model.safetensors", device="cuda:0")
    safetensors.save("copy.safetensors", tensors, metadata={"format": "pt"})
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, NamedTuple

from . import _core
from ._core import Pool, Tensor
from ._dtypes import DType

__all__ = ["File", "Info", "load", "open", "save"]


class Info(NamedTuple):
    """A tensor in a file."""

    type: str  # as the file names it: "BF16"
    dtype: DType | None  # None if Loch lacks it
    shape: tuple[int, ...]


class File(Mapping[str, Tensor]):
    """An open file, or an open model in several files: a mapping from names to tensors, in the order of the data.

    A tensor is a view of the mapped file and stays valid after the file is closed. Nothing may change the file on the disk in
    place meanwhile. `read_only` makes read-only tensors; without it, changes go to private pages and never to the file.
    """

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False) -> None:
        handle = _core._safetensors_open(path, read_only)
        self._tensors = _core._safetensors_list(handle)
        self._metadata = _core._safetensors_metadata(handle)
        self._handle: Any = handle
        self._path = os.fspath(path)

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._tensors:
            raise KeyError(name)
        return _core._safetensors_get(self._open(), name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __repr__(self) -> str:
        return f"<loch.safetensors.File {self._path!r}: {len(self)} tensors{'' if self._handle else ', closed'}>"

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of the file."""
        return dict(self._metadata)

    def info(self, name: str) -> Info:
        """Type and shape of a tensor, also of one whose type Loch lacks."""
        return Info(*self._tensors[name])

    def load(
        self,
        name: str,
        dtype: Any = None,
        *,
        axis: int = 0,
        start: int = 0,
        count: int | None = None,
        device: Any = None,
        pool: Pool | None = None,
        tag: str | None = None,
    ) -> Tensor:
        """A tensor in new memory, converted to `dtype`: all of it, or `count` indices from `start` on along `axis`."""
        if name not in self._tensors:
            raise KeyError(name)
        if count is not None and count < 1:
            raise ValueError(f"a part has at least one index, not {count}")
        return _core._safetensors_load(self._open(), name, dtype, axis, start, count or 0, device, pool, tag)

    def close(self) -> None:
        """Closes the file. Its tensors stay valid."""
        self._handle = None

    def __enter__(self) -> File:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _open(self) -> Any:
        handle = self._handle
        if handle is None:
            raise ValueError(f"{self._path} is closed")
        return handle


def open(path: str | os.PathLike[str], *, read_only: bool = False) -> File:
    """Opens a .safetensors file, or the index of a model in several files. All of it is checked."""
    return File(path, read_only=read_only)


def load(
    path: str | os.PathLike[str], dtype: Any = None, *, device: Any = None, pool: Pool | None = None, tag: str | None = None
) -> dict[str, Tensor]:
    """All tensors of a file or model, in new memory."""
    with open(path, read_only=True) as file:
        return {name: file.load(name, dtype, device=device, pool=pool, tag=tag) for name in file}


def save(path: str | os.PathLike[str], tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> None:
    """Writes tensors, or what loch.tensor takes, to a file, which replaces an older one when it is complete."""
    values = tuple(value if isinstance(value, Tensor) else _core.tensor(value) for value in tensors.values())
    pairs = dict(metadata or {})
    _core._safetensors_save(path, tuple(tensors), values, tuple(pairs), tuple(pairs.values()))
