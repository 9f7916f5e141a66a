# SPDX-License-Identifier: MIT
"""What Python sees: torch.cuda.memory_stats and its relatives, torch.accelerator, fractions, errors."""

import os
import re
import subprocess
import sys

import pytest
import torch

MIB, GIB = 1 << 20, 1 << 30


def stats():
    return torch.cuda.memory_stats(0)


def test_every_key_is_there(blocks):
    blocks.alloc(1)
    keys = set(stats())
    for figure in ("allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes", "active_bytes",
                   "inactive_split_bytes", "requested_bytes"):
        for pool in ("all", "small_pool", "large_pool"):
            assert {f"{figure}.{pool}.{part}" for part in ("current", "peak", "allocated", "freed")} <= keys
    assert {"num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free", "max_split_size",
            "oversize_allocations.current", "oversize_segments.current"} <= keys


def test_blocks_are_counted(blocks):
    before = stats()
    large, small = blocks.alloc(8 * MIB + 3), blocks.alloc(1000)
    after = stats()

    def grown(name):
        return after[name] - before[name]

    assert grown("requested_bytes.all.current") == 8 * MIB + 1003
    assert grown("requested_bytes.large_pool.current") == 8 * MIB + 3 and grown("requested_bytes.small_pool.current") == 1000
    for figure in ("allocation", "active"):
        assert [grown(f"{figure}.{pool}.current") for pool in ("all", "large_pool", "small_pool")] == [2, 1, 1]
    assert 8 * MIB + 1003 <= grown("allocated_bytes.all.current") <= 11 * MIB
    assert after["reserved_bytes.all.current"] >= after["allocated_bytes.all.current"]
    assert after["segment.all.current"] >= 1 and after["num_device_alloc"] >= 1
    blocks.free(large, small)
    end = stats()
    for figure in ("requested_bytes", "allocated_bytes", "allocation"):
        assert end[f"{figure}.all.current"] == before[f"{figure}.all.current"]
        assert end[f"{figure}.all.freed"] - before[f"{figure}.all.freed"] == grown(f"{figure}.all.allocated")


def test_functions_on_the_figures(blocks):
    base = torch.cuda.memory_allocated(0)
    torch.cuda.reset_peak_memory_stats(0)
    address = blocks.alloc(100 * MIB)
    assert torch.cuda.memory_allocated(0) >= base + 100 * MIB
    blocks.free(address)
    assert torch.cuda.memory_allocated(0) == base and torch.cuda.max_memory_allocated(0) >= base + 100 * MIB
    assert torch.cuda.memory_reserved(0) >= 100 * MIB  # cached
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved(0) < 8 * MIB
    assert torch.cuda.max_memory_reserved(0) >= 100 * MIB
    torch.cuda.reset_peak_memory_stats(0)
    assert torch.cuda.max_memory_allocated(0) == base and torch.cuda.max_memory_reserved(0) == torch.cuda.memory_reserved(0)
    torch.cuda.reset_accumulated_memory_stats(0)
    assert stats()["allocation.all.allocated"] == 0 and stats()["allocation.all.freed"] == 0


def test_memory_summary(blocks):
    blocks.alloc(700 * MIB)
    text = torch.cuda.memory_summary(0)
    shown = re.search(r"\| Allocated memory +\| +(\d+) (\w+) ", text)
    unit = {"B": 1, "KiB": 1 << 10, "MiB": MIB, "GiB": GIB}[shown[2]]
    assert abs(int(shown[1]) * unit - torch.cuda.memory_allocated(0)) <= unit
    assert torch.cuda.memory_summary(0, abbreviated=True)


def test_accelerator_asks_loch(blocks, probe):
    probe.init(1)  # what PyTorch calls at the first use of CUDA
    address = blocks.alloc(9 * MIB)
    answer = torch._C._accelerator_getDeviceStats(0)
    assert answer["requested_bytes"]["all"]["current"] == stats()["requested_bytes.all.current"] >= 9 * MIB
    assert torch._C._accelerator_isAllocatorInitialized() is True
    blocks.free(address)
    held = torch.cuda.memory_reserved(0)
    torch._C._accelerator_emptyCache()
    assert torch.cuda.memory_reserved(0) < held
    torch._C._accelerator_resetPeakStats(0)
    assert stats()["allocated_bytes.all.peak"] == stats()["allocated_bytes.all.current"]
    torch._C._accelerator_resetAccumulatedStats(0)
    assert stats()["allocation.all.allocated"] == 0


@pytest.fixture
def limited():
    torch.cuda.set_per_process_memory_fraction(0.125, 0)
    yield
    torch.cuda.set_per_process_memory_fraction(1.0, 0)


def test_a_fraction_is_a_limit(blocks, limited):
    assert torch.cuda.get_per_process_memory_fraction(0) == pytest.approx(0.125)
    ooms = stats()["num_ooms"]
    first = blocks.alloc(600 * MIB)
    with pytest.raises(torch.OutOfMemoryError) as refused:
        blocks.alloc(600 * MIB)
    text = str(refused.value)
    assert text.startswith("CUDA out of memory. Tried to allocate 600.00 MiB. GPU 0 has a total capacity of 8.00 GiB")
    assert "1024.00 MiB allowed" in text
    assert stats()["num_ooms"] == ooms + 1
    blocks.free(first)
    blocks.alloc(1000 * MIB)  # the program goes on, with the memory that was freed
    torch.cuda.set_per_process_memory_fraction(1.0, 0)
    blocks.alloc(3 * GIB)


@pytest.mark.parametrize("fraction", ["0.0", "0.5", "1.0"])
def test_the_fraction_of_the_settings_is_a_limit(fraction):
    script = ("import door, torch; door.install('loch'); torch.cuda._initialized = True\n"
              "print(torch.cuda.get_per_process_memory_fraction(0))\n"
              "try:\n"
              "    torch._C._cuda_cudaCachingAllocator_raw_alloc(5 << 30, 0)\n"
              "    print('served')\n"
              "except torch.OutOfMemoryError:\n"
              "    print('refused')\n")
    environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": f"per_process_memory_fraction:{fraction}",
                   "PYTHONPATH": os.path.dirname(os.path.abspath(__file__))}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == [fraction, "served" if fraction == "1.0" else "refused"], done.stderr


def test_wrong_fractions():
    for wrong in (-0.5, 2.0):
        with pytest.raises((ValueError, RuntimeError)):
            torch.cuda.set_per_process_memory_fraction(wrong, 0)


def test_the_error_of_a_request_that_cannot_be_served(blocks):
    for size in (9 * GIB, 1 << 61):
        with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory. Tried to allocate"):
            blocks.alloc(size)
    assert issubclass(torch.OutOfMemoryError, RuntimeError)
    blocks.alloc(5 * GIB)


def test_wrong_frees_are_refused(blocks):
    address = blocks.alloc(1000)
    with pytest.raises(RuntimeError, match="invalid device pointer"):
        torch._C._cuda_cudaCachingAllocator_raw_delete(12345 << 12)
    blocks.free(address)


def test_nothing_is_no_block(blocks, probe):
    count = stats()["allocation.all.current"]
    assert not probe.allocate(0)
    assert stats()["allocation.all.current"] == count


def test_caching_can_be_switched_off(blocks):
    held = torch.cuda.memory_reserved(0)
    torch.cuda.caching_allocator_enable(False)
    try:
        address = blocks.alloc(16 * MIB)
        assert torch.cuda.memory_reserved(0) == held
    finally:
        torch.cuda.caching_allocator_enable(True)
    cached = blocks.alloc(16 * MIB)
    assert torch.cuda.memory_reserved(0) > held
    blocks.free(address, cached)
