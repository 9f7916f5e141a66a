# SPDX-License-Identifier: MIT
"""Pinned memory of the shim under a real PyTorch, on a simulated device. tests/gpu/torch/test_pinned.py has a GPU."""

import ctypes
import os
import pathlib
import random
import subprocess
import threading

import pytest
import torch

HERE = pathlib.Path(__file__).resolve().parent
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


class Pinned:
    """The functions of pinned.cpp. Those that fail raise RuntimeError."""

    def __init__(self, path):
        self.library = ctypes.CDLL(str(path))
        self.library.pinned_error.restype = ctypes.c_char_p
        self.live = {}

    def call(self, name, *arguments):
        function = getattr(self.library, f"pinned_{name}")
        function.restype = ctypes.c_long
        result = function(*(ctypes.c_size_t(argument) for argument in arguments))
        if result == -1:
            raise RuntimeError(self.library.pinned_error().decode())
        return result

    def alloc(self, size, fill=0):
        address = self.call("alloc", size, fill)
        if size:
            self.live[address] = size, fill
        return address

    def free(self, *addresses):
        for address in addresses:
            size, fill = self.live.pop(address)
            assert self.call("check", address, size, fill) == 1, "another block was written over this one"
            self.call("free", address)


def stats():
    return torch._C._cuda_hostMemoryStats()


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    root = pathlib.Path(torch.__file__).parent
    path = tmp_path_factory.mktemp("pinned") / "pinned.so"
    standard = "c++17" if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 14) else "c++20"
    subprocess.run([os.environ.get("CXX", "c++"), f"-std={standard}", "-O1", "-shared", "-fPIC", "-D_GLIBCXX_USE_CXX11_ABI=1",
                    "-isystem", root / "include", HERE / "pinned.cpp", "-o", path, f"-L{root / 'lib'}", "-lc10", "-ltorch_cpu",
                    f"-Wl,-rpath,{root / 'lib'}"], check=True)
    return path


@pytest.fixture
def pinned(installed, library):
    """Every test starts and ends without memory."""
    result = Pinned(library)
    torch._C._host_emptyCache()
    torch._C._cuda_resetPeakHostMemoryStats()
    torch._C._cuda_resetAccumulatedHostMemoryStats()
    assert stats()["allocated_bytes"]["current"] == 0
    yield result
    result.free(*list(result.live))
    torch._C._host_emptyCache()
    assert stats()["active_requests"]["current"] == 0
    assert stats()["active_bytes"]["current"] == 0
    assert stats()["allocated_bytes"]["current"] == 0
    assert stats()["segments" if "segments" in stats() else "allocations"]["current"] == 0


def test_no_bytes_are_no_block(pinned):
    assert pinned.alloc(0) == 0
    assert stats()["active_requests"]["allocated"] == 0


@pytest.mark.parametrize("shift", range(20, 29))
@pytest.mark.parametrize("more", [1, 4096, 65537])
def test_sizes_just_above_powers_of_two_take_their_size(pinned, shift, more):
    pinned.alloc((1 << shift) + more, 7)
    assert stats()["allocated_bytes"]["current"] <= 1.02 * ((1 << shift) + more)


def test_mixed_sizes_take_their_sum(pinned):
    sizes = [(1 << random.Random(i).randrange(20, 26)) + random.Random(i).randrange(1, 9000) for i in range(40)]
    for i, size in enumerate(sizes):
        pinned.alloc(size, i)
    assert stats()["allocated_bytes"]["peak"] <= 1.02 * sum(sizes)
    assert stats()["active_bytes"]["current"] <= 1.001 * sum(sizes)


def test_other_sizes_use_the_memory_again(pinned):
    for round in range(3):
        for shift in range(20, 28):
            pinned.free(pinned.alloc((1 << shift) + 1, round))
    assert stats()["allocated_bytes"]["peak"] <= 1.02 * ((1 << 27) + 1)
    assert stats()["num_host_alloc"] <= 14


def test_random_blocks_keep_their_contents(pinned):
    numbers, live = random.Random(5), []
    for i in range(600):
        if live and numbers.random() < 0.45:
            pinned.free(live.pop(numbers.randrange(len(live))))
        else:
            live.append(pinned.alloc(int(2 ** numbers.uniform(0, 22)), i % 251))
            if numbers.random() < 0.5:
                assert pinned.call("record", live[-1], live[-1]) == 1


def test_figures(pinned):
    first, second = pinned.alloc(3 * MIB), pinned.alloc(5 * MIB)
    pinned.free(first)
    now = stats()
    assert now["active_requests"] == {"current": 1, "peak": 2, "allocated": 2, "freed": 1}
    assert now["active_bytes"] == {"current": 5 * MIB, "peak": 8 * MIB, "allocated": 8 * MIB, "freed": 3 * MIB}
    assert now["allocated_bytes"]["current"] == 8 * MIB
    assert now["num_host_alloc"] == 2 and now["num_host_free"] == 0
    assert now["host_alloc_time"]["count"] == 2
    torch._C._host_emptyCache()
    assert stats()["allocated_bytes"]["current"] == 5 * MIB
    assert stats()["num_host_free"] == 1 and stats()["host_free_time"]["count"] == 1
    torch._C._cuda_resetPeakHostMemoryStats()
    torch._C._cuda_resetAccumulatedHostMemoryStats()
    assert stats()["active_bytes"] == {"current": 5 * MIB, "peak": 5 * MIB, "allocated": 0, "freed": 0}
    pinned.free(second)


def test_uses_of_foreign_memory_are_refused(pinned):
    block = pinned.alloc(MIB)
    foreign = ctypes.create_string_buffer(64)
    address = ctypes.addressof(foreign)
    assert pinned.call("record", address, 0) == 0
    assert pinned.call("record", address, address) == 0
    assert pinned.call("record", block + 100, block) == 1  # a view: its context names the block
    assert pinned.call("record", block, 0) == 1  # no context, as after a round trip through NumPy
    assert pinned.call("record", block, address) == 1
    assert pinned.call("record", block + 100, 0) == 0
    pinned.free(block)
    assert pinned.call("record", block, block) == 0


def test_used_blocks_serve_again(pinned):
    for _ in range(20):
        block = pinned.alloc(4 * MIB + 1, 3)
        assert pinned.call("record", block, block) == 1
        pinned.free(block)
    assert stats()["allocated_bytes"]["peak"] <= 3 * 4.1 * MIB


def test_copies(pinned):
    first, second = pinned.alloc(100, 1), pinned.alloc(100, 2)
    pinned.call("copy", first, second, 100)
    assert pinned.call("check", first, 100, 2) == 1
    pinned.live[first] = 100, 2


def test_huge_sizes_fail_with_a_sentence(pinned):
    with pytest.raises(RuntimeError, match="Loch could not pin host memory: "):
        pinned.alloc(1 << 62)
    pinned.alloc(MIB)


def test_threads(pinned):
    function, wrong = pinned.library.pinned_churn, []
    function.restype, function.argtypes = ctypes.c_long, [ctypes.c_ulong, ctypes.c_size_t]
    threads = [threading.Thread(target=lambda seed=seed: wrong.append(function(seed, 3000))) for seed in range(1, 9)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        torch._C._host_emptyCache()
        stats()
    for thread in threads:
        thread.join()
    assert wrong == [0] * 8


def test_the_child_of_a_fork_leaves_the_blocks_alone(pinned):
    block = pinned.alloc(3 * MIB, 9)
    done = threading.Event()
    function = pinned.library.pinned_churn
    function.restype, function.argtypes = ctypes.c_long, [ctypes.c_ulong, ctypes.c_size_t]

    def run():
        while not done.is_set():
            function(3, 100)

    thread = threading.Thread(target=run)  # a fork finds the other thread anywhere
    thread.start()
    codes = [pinned.call("fork", block) for _ in range(20)]
    done.set()
    thread.join()
    assert codes == [0] * 20
    assert pinned.call("check", block, 3 * MIB, 9) == 1


# --- graphs ---


def test_blocks_of_a_capture_stay_with_it(pinned):
    pinned.call("begin", 1, 9, 1)
    used, unused = pinned.alloc(3 * MIB, 1), pinned.alloc(5 * MIB, 2)
    assert pinned.call("record", used, used) == 1
    pinned.free(used, unused)
    assert pinned.alloc(5 * MIB, 3) == unused  # the capture did not use it: it serves the capture again
    pinned.call("end", 1, 9)
    others = [pinned.alloc(3 * MIB, 4) for _ in range(4)]
    assert used not in others  # a replay writes to it
    pinned.free(*others, unused)
    torch._C._host_emptyCache()
    assert stats()["allocated_bytes"]["current"] >= 3 * MIB
    pinned.call("release", 1, 9)
    torch._C._host_emptyCache()
    assert stats()["allocated_bytes"]["current"] == 0


def test_live_blocks_outlive_their_graph(pinned):
    pinned.call("begin", 2, 9, 1)
    block = pinned.alloc(2 * MIB, 5)
    assert pinned.call("record", block, block) == 1
    pinned.call("end", 2, 9)
    pinned.call("release", 2, 9)
    torch._C._host_emptyCache()
    assert pinned.call("check", block, 2 * MIB, 5) == 1
    pinned.free(block)


def test_graphs_share_a_pool_until_the_last_one_is_gone(pinned):
    for _ in range(2):
        pinned.call("begin", 3, 9, 1)
        block = pinned.alloc(MIB, 6)
        assert pinned.call("record", block, block) == 1
        pinned.free(block)
        pinned.call("end", 3, 9)
    pinned.call("release", 3, 9)
    torch._C._host_emptyCache()
    assert stats()["allocated_bytes"]["current"] >= 2 * MIB
    pinned.call("release", 3, 9)


def test_other_streams_are_not_of_the_graph(pinned):
    pinned.call("begin", 4, 9, 0)
    block = pinned.alloc(MIB, 1)
    pinned.call("end", 4, 9)
    pinned.call("release", 4, 9)
    torch._C._host_emptyCache()
    pinned.free(block)


def test_a_block_from_before_the_capture_serves_after_it(pinned):
    block = pinned.alloc(6 * MIB, 1)
    pinned.call("begin", 5, 9, 1)
    assert pinned.call("record", block, block) == 1
    pinned.free(block)
    inside = pinned.alloc(6 * MIB, 2)
    assert inside != block
    pinned.call("end", 5, 9)
    pinned.call("release", 5, 9)
    pinned.free(inside)
    assert block in [pinned.alloc(6 * MIB, 3) for _ in range(3)]


def test_wrong_calls_of_graphs_are_refused(pinned):
    with pytest.raises(RuntimeError, match="not currently recording"):
        pinned.call("end", 6, 9)
    with pytest.raises(RuntimeError, match="no private pool"):
        pinned.call("release", 6, 9)
    pinned.call("begin", 6, 9, 1)
    with pytest.raises(RuntimeError, match="already recording"):
        pinned.call("begin", 6, 9, 1)
    pinned.call("end", 6, 9)
    pinned.call("release", 6, 9)
    with pytest.raises(RuntimeError, match="no private pool"):
        pinned.call("release", 6, 9)


def test_pinned_memory_of_pytorch_can_be_kept(fresh):
    """With pinned=off PyTorch keeps its own allocator of pinned memory."""
    program = "print(json.dumps(torch._C._cuda_hostMemoryStats()['allocated_bytes']['current']))"
    assert fresh(f"import door; door.install('loch', 'pinned=off')\n{program}", is_installed=False) == 0
