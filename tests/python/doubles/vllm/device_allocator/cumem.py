# SPDX-License-Identifier: MIT
"""A test double of vLLM's own allocator: one object serves the process."""


class CuMemAllocator:
    instance = None

    @classmethod
    def get_instance(cls):
        if cls.instance is None:
            cls.instance = cls()
        return cls.instance
