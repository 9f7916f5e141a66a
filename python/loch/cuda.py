# SPDX-License-Identifier: MIT
"""Loch as a memory resource of cuda.core.

    from cuda.core import Device
    import loch.cuda

    device = Device(0)
    device.set_current()
    device.memory_resource = loch.cuda.MemoryResource(device, limit="40GiB")
    buffer = device.allocate(1 << 20, stream=device.default_stream)
"""

import cuda.core

from . import _loch
from ._sizes import parse_bytes
from ._streams import get_handle

__all__ = ["MemoryResource"]


class MemoryResource(cuda.core.MemoryResource):
    """A pool of device memory. Allocation and free are ordered on the stream that is passed.

    device: a cuda.core.Device or its number. limit: the most that the pool holds ("40GiB" or a number of bytes). Any
    object with __cuda_stream__ is accepted as a stream.
    """

    def __init__(self, device=0, *, limit=None, name=None):
        self._number = int(getattr(device, "device_id", device))
        device_name = name or f"cuda:{self._number}"
        self._pool = _loch.DeviceMemory(device_name, f"cuda.core {device_name}", parse_bytes(limit))

    def allocate(self, size, *, stream):
        """Allocates a Buffer of `size` bytes for work on `stream`."""
        address = self._pool.alloc(size, get_handle(stream), stream) if size else 0
        return cuda.core.Buffer.from_handle(address, size, mr=self, stream=stream)

    def deallocate(self, ptr, size, *, stream):
        """Frees a block, ordered on `stream`. A Buffer calls this when it is closed."""
        if size:
            self._pool.free_on(int(ptr), get_handle(stream), stream)

    @property
    def is_device_accessible(self):
        """Tells that devices can use the memory."""
        return True

    @property
    def is_host_accessible(self):
        """Tells that the host cannot use the memory."""
        return False

    @property
    def is_managed(self):
        """Tells that the memory is not managed memory."""
        return False

    @property
    def device_id(self):
        """The number of the device."""
        return self._number

    def stats(self):
        """Returns the figures of the pool as a dict."""
        return self._pool.stats()

    def report(self):
        """Returns a text for people: what the pool holds."""
        return self._pool.report()

    def trim(self):
        """Gives free memory back to the device and returns the number of bytes."""
        return self._pool.trim()
