# SPDX-License-Identifier: MIT
"""The type that serves CuPy and cuda.core, on the simulator. tests/gpu/test_doors_cuda.py has the real libraries."""

import gc
import threading
import weakref

import loch
import pytest


@pytest.fixture
def pool():
    made = loch.Pool("sim:1GiB", limit="64MiB")
    yield made
    gc.collect()
    assert made.stats()["blocks"] == 0


@pytest.fixture
def memory(pool):
    return loch._core.DeviceMemory(pool)


def test_alloc_and_free(pool, memory):
    address = memory.alloc(1000)
    assert address % 256 == 0
    assert pool.stats()["requested_bytes"] == 1000
    memory.free(address)
    assert pool.stats()["blocks"] == 0


def test_streams(pool, memory):
    stream = loch.Stream("sim:1GiB")
    for given in (None, 0, 1, 2, loch.Stream.default("sim:1GiB")):
        address = memory.alloc(100, given)
        memory.free(address, given)
    with pytest.raises(TypeError, match="stream"):
        memory.alloc(100, "stream")
    del stream


def test_wrong_arguments(pool, memory):
    with pytest.raises(ValueError):
        memory.alloc(-1)
    with pytest.raises(TypeError):
        memory.alloc()
    with pytest.raises(TypeError):
        memory.free("here")
    with pytest.raises(ValueError):  # not a block
        memory.free(4096)
    address = memory.alloc(10)
    memory.free(address)
    with pytest.raises(ValueError):  # twice
        memory.free(address)
    with pytest.raises(TypeError):
        loch._core.DeviceMemory(None)
    with pytest.raises(TypeError):
        loch._core.DeviceMemory("cpu")


def test_limit(pool, memory):
    with pytest.raises(loch.OutOfMemoryError, match="limit"):
        memory.alloc(65 << 20)


def test_blocks_outlive_the_object(pool):
    memory = loch._core.DeviceMemory(pool)
    address = memory.alloc(100)
    del memory
    gc.collect()
    assert pool.stats()["blocks"] == 1
    pool.free(address)


class Foreign:
    """A stream as other libraries have it. The simulator has no handles of its own, so each wrap is refused."""

    def __init__(self, handle):
        self.handle = handle

    def __cuda_stream__(self):
        return 0, self.handle


def test_a_refused_stream_is_not_kept(pool, memory):
    stream = Foreign(0x1000)
    seen = weakref.ref(stream)
    with pytest.raises(loch.Error):
        memory.alloc(100, stream)
    del stream
    gc.collect()
    assert seen() is None


def test_threads(pool, memory):
    def run():
        for number in range(300):
            memory.free(memory.alloc(1 + number * 100))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert pool.stats()["blocks"] == 0
