# SPDX-License-Identifier: MIT
"""NumPy's arrays on a Loch pool (NEP 49), with the real NumPy."""

import contextvars
import gc
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import loch

numpy = pytest.importorskip("numpy")
import loch.numpy  # noqa: E402

core = getattr(numpy, "_core", None) or numpy.core
numpy.random.default_rng(1).random((2, 2))  # keeps an array of its own, for good


def get_handler(array):
    return core.multiarray.get_handler_name(array)


@pytest.fixture(autouse=True)
def nothing_left():
    """Every test leaves NumPy's own handler and no array behind."""
    yield
    loch.numpy.disable()
    gc.collect()
    assert loch.numpy.stats().get("blocks", 0) == 0


def test_arrays_come_from_the_pool():
    assert not loch.numpy.is_enabled()
    loch.numpy.enable()
    assert loch.numpy.is_enabled()
    before = loch.numpy.stats()["requested_bytes"]
    array = numpy.empty(1000, "f8")
    assert get_handler(array) == "loch"
    assert loch.numpy.stats()["requested_bytes"] == before + 8000
    assert array.ctypes.data % 16 == 0


def test_blocks_have_the_tag_numpy():
    with loch.numpy.enabled():
        array = numpy.ones(5000)
    assert loch.numpy._pool.stats("numpy")["blocks"] == 1
    assert loch.numpy._pool.stats("numpy")["requested_bytes"] == array.nbytes


def test_arrays_outlive_disable():
    loch.numpy.enable()
    array = numpy.arange(100000)
    loch.numpy.disable()
    other = numpy.arange(10)
    assert get_handler(array) == "loch" and get_handler(other) == "default_allocator"
    assert (array == numpy.arange(100000)).all()
    array.resize(200000, refcheck=False)  # by the array's own handler
    assert get_handler(array) == "loch"
    assert (array[:100000] == numpy.arange(100000)).all() and (array[100000:] == 0).all()


def test_the_context_manager_restores():
    with loch.numpy.enabled():
        with loch.numpy.enabled():
            pass
        assert loch.numpy.is_enabled()
    assert not loch.numpy.is_enabled()
    with pytest.raises(ZeroDivisionError):
        with loch.numpy.enabled():
            1 / 0
    assert not loch.numpy.is_enabled()


def test_zeros_are_zero_in_used_memory():
    with loch.numpy.enabled():
        for size in (1, 7, 100, 5000, 1 << 20):
            for _ in range(3):
                numpy.full(size, 255, "u1")
                assert not numpy.zeros(size, "u1").any()


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 511, 512, 4095, 1 << 16, (1 << 20) + 1])
def test_sizes(size):
    with loch.numpy.enabled():
        array = numpy.empty(size, "u1")
        array[...] = 7
        assert array.sum() == 7 * size
        array.resize(2 * size + 1, refcheck=False)
        assert array[:size].sum() == 7 * size and array[size:].sum() == 0
        array.resize(size // 2, refcheck=False)
        assert array.sum() == 7 * (size // 2)


def test_computing():
    with loch.numpy.enabled():
        left, right = numpy.random.default_rng(1).random((2, 64, 64))
        product = left @ right
        text = numpy.array(["a", "bcd", "é" * 100])
        objects = numpy.array([[1], {}, None], dtype=object)
    assert numpy.allclose(product, left @ right)
    assert text[2] == "é" * 100 and objects[1] == {}
    assert sorted(product.flatten())[0] == product.min()


def test_a_thread_begins_with_numpys_own_memory():
    loch.numpy.enable()
    seen = {}

    def run(name):
        seen[name] = get_handler(numpy.empty(100))

    threads = [threading.Thread(target=run, args=("plain",)),
               threading.Thread(target=contextvars.copy_context().run, args=(run, "copied"))]
    for thread in threads:
        thread.start()
        thread.join()
    assert seen["copied"] == "loch"
    assert seen["plain"] == ("loch" if getattr(sys.flags, "thread_inherit_context", 0) else "default_allocator")


def test_many_threads():
    def run(seed):
        random = numpy.random.default_rng(seed)
        kept = []
        for _ in range(300):
            array = numpy.full(int(random.integers(1, 20000)), seed, "i4")
            kept.append(array)
            if len(kept) > 20:
                kept.pop(int(random.integers(20)))
        return all((array == seed).all() for array in kept), get_handler(kept[0])

    with ThreadPoolExecutor(4, initializer=loch.numpy.enable) as pool:
        assert set(pool.map(run, range(8))) == {(True, "loch")}


def test_freed_on_another_thread():
    with loch.numpy.enabled():
        arrays = [numpy.ones(10000) for _ in range(10)]
    thread = threading.Thread(target=arrays.clear)
    thread.start()
    thread.join()
    assert loch.numpy.stats()["blocks"] == 0


def test_trim_gives_memory_back():
    with loch.numpy.enabled():
        array = numpy.ones(64 << 20, "u1")
    del array
    loch.numpy.trim()
    assert loch.numpy.stats()["reserved_bytes"] < 64 << 20


def test_a_second_pool_is_refused():
    loch.numpy.enable()
    with pytest.raises(RuntimeError, match="a pool already"):
        loch.numpy.enable(limit="1GiB")


def test_a_pool_of_a_device_is_refused():
    with pytest.raises(ValueError, match="host can read"):
        loch._core.numpy_handler(loch.Pool("sim:1GiB"))
    with pytest.raises((TypeError, ValueError)):
        loch._core.numpy_handler(None)
    with pytest.raises(TypeError, match="capsule"):
        loch._core.numpy_set(core._multiarray_umath._ARRAY_API, object())


LIMITED = """
import numpy, loch.numpy
loch.numpy.enable(limit="64MiB")
try:
    numpy.ones(128 << 20, "u1")
except MemoryError:
    print("refused")
array = numpy.ones(1 << 20)  # the pool still works, and the array lives until the process ends
numpy.kept = array
"""


def test_limit_and_clean_exit():
    done = subprocess.run([sys.executable, "-c", LIMITED], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "refused\n", "")
