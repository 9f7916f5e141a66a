# SPDX-License-Identifier: MIT
"""CuPy's arrays and cuda.core's buffers on Loch pools, on a GPU.

The tests of cuda.core are there where that package is installed.
"""

import gc
import importlib.util

import cupy
import loch.cupy
import numpy
import pytest

LIMIT = 1 << 30


@pytest.fixture(autouse=True)
def enabled():
    """Loch serves CuPy in every test, and no array is left behind."""
    loch.cupy.enable(limit=LIMIT)
    yield
    loch.cupy.enable(limit=LIMIT)
    cupy.cuda.Device().synchronize()
    gc.collect()
    assert loch.cupy.stats()[0]["blocks"] == 0
    loch.cupy.disable()


def test_arrays_come_from_the_pool():
    array = cupy.arange(1 << 20, dtype="f4")
    assert loch.cupy.is_enabled()
    assert loch.cupy.stats()[0]["requested_bytes"] >= array.nbytes
    assert cupy.get_default_memory_pool().used_bytes() == 0
    assert float(array.sum()) == pytest.approx(numpy.arange(1 << 20, dtype="f4").sum(), rel=1e-4)
    assert 'pool "cupy cuda:0"' in loch.cupy.report()


def test_empty_arrays():
    assert cupy.empty(0).sum() == 0
    assert cupy.zeros((0, 5)).shape == (0, 5)


def test_arrays_outlive_disable():
    array = cupy.ones(1000)
    loch.cupy.disable()
    other = cupy.ones(1000)
    assert not loch.cupy.is_enabled()
    assert float((array + other).sum()) == 2000
    del array, other


def test_the_context_manager():
    loch.cupy.disable()
    with loch.cupy.enabled(limit=LIMIT):
        inside = cupy.ones(1000)
        assert loch.cupy.stats()[0]["blocks"] >= 1
    before = loch.cupy.stats()[0]["blocks"]
    outside = cupy.ones(1000)
    assert loch.cupy.stats()[0]["blocks"] == before
    assert float((inside * outside).sum()) == 1000
    del inside, outside


def test_views_keep_the_memory():
    view = cupy.arange(1000)[10:20]
    assert view.tolist() == list(range(10, 20))
    del view


def test_limit():
    with pytest.raises(cupy.cuda.memory.OutOfMemoryError) as raised:
        cupy.empty(2 * LIMIT, "u1")
    assert isinstance(raised.value.__cause__, MemoryError)
    del raised
    gc.collect()
    assert cupy.ones(10).sum() == 10


def test_memory_is_ordered_by_streams():
    """Memory that is freed with work in flight is not overwritten by another stream."""
    first, second = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    for _ in range(20):
        with first:
            array = cupy.zeros(4 << 20, "f4")
            for _ in range(20):
                array += 1
            total = array.sum()
            del array
        with second:
            noise = cupy.full(4 << 20, 7, "f4")
            del noise
        first.synchronize()
        assert float(total) == 20 * (4 << 20)
    second.synchronize()
    del total


def test_streams_come_and_go():
    """Handles of destroyed streams may be used for new ones."""
    for number in range(200):
        with cupy.cuda.Stream(non_blocking=True) as stream:
            array = cupy.full(1 << 16, number, "i4")
            assert int(array[5]) == number
            del array
            stream.synchronize()


def test_trim():
    array = cupy.ones(64 << 20, "u1")
    del array
    cupy.cuda.Device().synchronize()
    loch.cupy.trim()
    assert loch.cupy.stats()[0]["reserved_bytes"] == 0


def test_other_settings_are_refused():
    with pytest.raises(RuntimeError, match="in use with"):
        loch.cupy.enable(limit=2 * LIMIT)


if importlib.util.find_spec("cuda") and importlib.util.find_spec("cuda.core"):
    import cuda.core
    import loch.cuda

    @pytest.fixture
    def resource():
        """A memory resource of a device that is current."""
        device = cuda.core.Device(0)
        device.set_current()
        made = loch.cuda.MemoryResource(device, limit=LIMIT)
        yield device, made
        device.sync()
        assert made.stats()["blocks"] == 0

    def test_cuda_core_buffers(resource):
        device, memory = resource
        stream = device.create_stream()
        device.memory_resource = memory
        buffer = device.allocate(1 << 20, stream=stream)
        assert buffer.size == 1 << 20 and buffer.is_device_accessible and not buffer.is_host_accessible
        assert memory.stats()["requested_bytes"] == 1 << 20
        assert memory.device_id == 0 and not memory.is_managed
        buffer.close(stream)
        assert memory.stats()["blocks"] == 0
        memory.allocate(0, stream=stream).close()
        memory.allocate(100, stream=device.default_stream).close()

    def test_cuda_core_with_streams_of_others(resource):
        _, memory = resource
        with cupy.cuda.Stream(non_blocking=True) as stream:
            address = memory._blocks.alloc(1000, stream)
            memory.deallocate(address, 1000, stream=stream)
            stream.synchronize()

    def test_cuda_core_limit(resource):
        device, memory = resource
        with pytest.raises(MemoryError):
            memory.allocate(2 * LIMIT, stream=device.default_stream)
