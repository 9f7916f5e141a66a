# SPDX-License-Identifier: MIT
"""Loch: memory for AI engines.

    import loch, numpy

    weights = loch.zeros((2, 3), "f32")        # or device="cuda:0"
    array = weights.numpy()                    # shares the memory
    pool = loch.Pool("cuda:0", limit="40GiB")
    cache = loch.empty((1024, 1024), "bf16", pool=pool)
    print(pool.report())

Tensors exchange memory with NumPy, PyTorch, CuPy and others by DLPack and the buffer protocol. Every argument `stream=` takes
a loch.Stream, a handle, None, or a stream of another library.
"""

from __future__ import annotations

from . import _core, _distribution
from ._core import (
    Block,
    Device,
    Event,
    Pool,
    Session,
    Stream,
    Tensor,
    collect,
    devices,
    empty,
    from_buffer,
    full,
    get_option,
    load,
    options,
    set_option,
    snapshot,
    tags,
    tensor,
    zeros,
)
from ._create import arange, from_dlpack, from_numpy, ones, save
from ._dtypes import (
    DType,
    bfloat16,
    bool_,
    dtype,
    float8_e4m3fn,
    float8_e5m2,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from ._errors import Error, OutOfMemoryError
from ._files import get_include, get_library, get_program
from ._plan import Plan, plan
from ._process import record, tag
from ._stats import (
    BlockInfo,
    Compaction,
    DeviceProperties,
    MemoryInfo,
    OptionInfo,
    PoolInfo,
    SessionStats,
    Stats,
)

__version__: str = _core.version()
_distribution.check()

__all__ = [
    "Block",
    "BlockInfo",
    "Compaction",
    "DType",
    "Device",
    "DeviceProperties",
    "Error",
    "Event",
    "MemoryInfo",
    "OptionInfo",
    "OutOfMemoryError",
    "Plan",
    "Pool",
    "PoolInfo",
    "Session",
    "SessionStats",
    "Stats",
    "Stream",
    "Tensor",
    "__version__",
    "arange",
    "bfloat16",
    "bool_",
    "collect",
    "devices",
    "dtype",
    "empty",
    "float16",
    "float32",
    "float64",
    "float8_e4m3fn",
    "float8_e5m2",
    "from_buffer",
    "from_dlpack",
    "from_numpy",
    "full",
    "get_include",
    "get_library",
    "get_option",
    "get_program",
    "int16",
    "int32",
    "int64",
    "int8",
    "load",
    "ones",
    "options",
    "plan",
    "record",
    "save",
    "set_option",
    "snapshot",
    "tag",
    "tags",
    "tensor",
    "uint16",
    "uint32",
    "uint64",
    "uint8",
    "zeros",
]
