# SPDX-License-Identifier: MIT
"""Loch as a memory resource of cuda.core.

    from cuda.core import Device
    import loch.cuda

    device = Device(0)
    device.set_current()
    device.memory_resource = loch.cuda.MemoryResource(device, limit="40GiB")
    buffer = device.allocate(1 << 20, stream=device.default_stream)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cuda.core

from . import Pool, _core

if TYPE_CHECKING:
    from . import Stats

__all__ = ["MemoryResource"]


class MemoryResource(cuda.core.MemoryResource):  # type: ignore[misc]
    """A pool of device memory. Allocation and free are ordered on the stream that is passed.

    device: a cuda.core.Device or its number. limit: the most that the pool holds ("40GiB" or a number of bytes). Any
    object with __cuda_stream__ is accepted as a stream.
    """

    def __init__(self, device: Any = 0, *, limit: int | str | None = None) -> None:
        self._number = int(getattr(device, "device_id", device))
        self._pool = Pool(f"cuda:{self._number}", name=f"cuda.core cuda:{self._number}", limit=limit)
        self._blocks = _core.DeviceMemory(self._pool)

    def allocate(self, size: int, *, stream: Any) -> Any:
        """Allocates a Buffer of `size` bytes for work on `stream`."""
        address = self._blocks.alloc(size, stream) if size else 0
        return cuda.core.Buffer.from_handle(address, size, mr=self, stream=stream)

    def deallocate(self, ptr: Any, size: int, *, stream: Any) -> None:
        """Frees a block, ordered on `stream`. A Buffer calls this when it is closed."""
        if size:
            self._blocks.free(int(ptr), stream)

    @property
    def is_device_accessible(self) -> bool:
        """Tells that devices can use the memory."""
        return True

    @property
    def is_host_accessible(self) -> bool:
        """Tells that the host cannot use the memory."""
        return False

    @property
    def is_managed(self) -> bool:
        """Tells that the memory is not managed memory."""
        return False

    @property
    def device_id(self) -> int:
        """The number of the device."""
        return self._number

    def stats(self) -> Stats:
        """Returns the figures of the pool."""
        return self._pool.stats()

    def report(self) -> str:
        """Returns a text for people: what the pool holds."""
        return self._pool.report()

    def trim(self) -> int:
        """Gives free memory back to the device and returns the number of bytes."""
        return self._pool.trim()
