# SPDX-License-Identifier: MIT
"""Figures over time: peaks, sums since the start, what resets do to them, with private pools and several threads."""

import itertools
import threading

import pytest
import torch

MIB = 1 << 20
FIGURES = ("allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes",
           "requested_bytes")
numbers = itertools.count(5000)


def stats(figure, pool="all"):
    return torch._C._cuda_memoryStats(0)[figure][pool]


def restart():
    torch._C._cuda_emptyCache()
    torch.cuda.reset_peak_memory_stats(0)


class Inside:
    """Routes allocations to a private pool."""

    def __init__(self, probe):
        self.probe, self.id = probe, (next(numbers), 0)

    def __enter__(self):
        self.probe.begin_pool(*self.id)
        return self

    def __exit__(self, *_):
        self.probe.end_pool(*self.id)

    def release(self):
        self.probe.release_pool(*self.id)


@pytest.fixture
def pool(probe, blocks):
    return Inside(probe)


# --- sums since the start ---


def test_use_is_what_was_made_less_what_was_freed(fresh):
    """Nothing was reset, so all sums count from the same moment."""
    wrong = fresh("""
A, F = torch._C._cuda_cudaCachingAllocator_raw_alloc, torch._C._cuda_cudaCachingAllocator_raw_delete
wrong = []
def look(when):
    for figure, pools in torch._C._cuda_memoryStats(0).items():
        if not isinstance(pools, dict) or "all" not in pools: continue
        for pool, stat in pools.items():
            if stat["current"] != stat["allocated"] - stat["freed"] or min(stat.values()) < 0 or stat["peak"] < stat["current"]:
                wrong.append((when, figure, pool, stat))
        for key in ("current", "allocated", "freed"):
            if pools["all"][key] != pools["small_pool"][key] + pools["large_pool"][key]:
                wrong.append((when, figure, key, pools))
kept = [A(size, 0) for size in (1, 600, 70_000, 1 << 20, (1 << 20) + 1, 9_000_000)]
look("allocated")
F(kept.pop(0)); F(kept.pop(2)); F(kept.pop())
look("freed")
torch._C._cuda_emptyCache()
look("emptied")
kept.append(A(30 << 20, 0))
look("again")
torch.cuda.reset_peak_memory_stats(0)
look("new peaks")
print(json.dumps(wrong))
""")
    assert not wrong


def test_sums_of_memory_from_the_device_grow(blocks):
    before, count = stats("reserved_bytes"), torch._C._cuda_memoryStats(0)["num_device_alloc"]
    for _ in range(3):
        blocks.free(blocks.alloc(64 * MIB))
        torch._C._cuda_emptyCache()
        torch.cuda.reset_peak_memory_stats(0)  # peaks alone
    after = stats("reserved_bytes")
    assert after["allocated"] - before["allocated"] >= 3 * 64 * MIB and after["freed"] - before["freed"] >= 3 * 64 * MIB
    assert torch._C._cuda_memoryStats(0)["num_device_alloc"] >= count + 3


def test_a_reset_of_the_sums_resets_all_of_them(blocks):
    blocks.free(blocks.alloc(64 * MIB))
    torch._C._cuda_emptyCache()
    kept = blocks.alloc(5 * MIB)
    held = stats("reserved_bytes")
    torch.cuda.reset_accumulated_memory_stats(0)
    everything = torch._C._cuda_memoryStats(0)
    for figure in FIGURES:
        for pool in ("all", "small_pool", "large_pool"):
            assert (everything[figure][pool]["allocated"], everything[figure][pool]["freed"]) == (0, 0), (figure, pool)
    for count in ("num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free"):
        assert everything[count] == 0, count
    assert stats("reserved_bytes")["current"] == held["current"] and stats("reserved_bytes")["peak"] == held["peak"]
    blocks.free(kept)
    torch._C._cuda_emptyCache()
    assert stats("reserved_bytes")["freed"] >= 4 * MIB and stats("reserved_bytes")["allocated"] == 0
    assert torch._C._cuda_memoryStats(0)["num_device_free"] >= 1


def test_the_end_of_a_pool_takes_nothing_from_the_sums(probe, blocks, pool):
    with pool:
        blocks.free(blocks.alloc(64 * MIB))
    before = torch._C._cuda_memoryStats(0)
    pool.release()
    torch._C._cuda_emptyCache()
    after = torch._C._cuda_memoryStats(0)
    for count in ("num_device_alloc", "num_device_free", "num_sync_all_streams"):
        assert after[count] >= before[count], count
    for figure in ("segment", "reserved_bytes"):
        assert after[figure]["all"]["allocated"] >= before[figure]["all"]["allocated"]


def test_sums_of_a_pool_whose_blocks_are_segments(probe, blocks, pool):
    """Blocks of such a pool have more bytes than their sizes in units of 512."""
    probe.create_pool(*pool.id)
    probe.set_no_split(*pool.id)
    before = stats("allocated_bytes")
    with pool:
        several = [blocks.alloc(size) for size in (1000, 3 * MIB + 1)]
    made = stats("allocated_bytes")
    assert made["allocated"] - before["allocated"] == made["current"] - before["current"]
    assert made["freed"] == before["freed"]
    blocks.free(*several)
    assert stats("allocated_bytes")["freed"] - before["freed"] == made["allocated"] - before["allocated"]
    pool.release()
    pool.release()


# --- peaks ---


def test_the_peak_of_large_blocks_that_another_thread_frees(blocks):
    """Backward passes free on a thread of their own what the forward pass has allocated."""
    restart()
    before = stats("allocated_bytes")["current"]

    def work(addresses):
        for address in addresses:
            torch._C._cuda_cudaCachingAllocator_raw_delete(address)

    for _ in range(30):
        addresses = [torch._C._cuda_cudaCachingAllocator_raw_alloc(8 * MIB, 0) for _ in range(2)]
        thread = threading.Thread(target=work, args=(addresses,))
        thread.start()
        thread.join()
    for pool in ("all", "large_pool"):
        assert 16 * MIB <= stats("allocated_bytes", pool)["peak"] <= before + 16 * MIB
        assert 2 <= stats("allocation", pool)["peak"] <= stats("allocation", pool)["current"] + 2


def test_segments_have_a_peak(blocks):
    restart()
    several = [blocks.alloc(40 * MIB) for _ in range(4)]
    most = stats("segment")["current"]
    blocks.free(*several)
    torch._C._cuda_emptyCache()
    assert stats("segment")["peak"] == most > stats("segment")["current"]
    torch.cuda.reset_peak_memory_stats(0)
    assert stats("segment")["peak"] == stats("segment")["current"]


def test_peaks_of_the_main_pool_and_of_private_pools_at_different_times(probe, blocks, pool):
    """A graph is warmed up in the main pool, which is free again when the graph is captured."""
    restart()
    before = {figure: stats(figure)["current"] for figure in ("allocated_bytes", "requested_bytes", "allocation", "reserved_bytes")}

    def peak(figure):
        return stats(figure)["peak"] - before[figure]

    blocks.free(*[blocks.alloc(10 * MIB) for _ in range(10)])
    torch._C._cuda_emptyCache()
    assert peak("allocated_bytes") == 100 * MIB
    with pool:
        several = [blocks.alloc(10 * MIB) for _ in range(8)]
    assert (peak("allocated_bytes"), peak("requested_bytes"), peak("allocation")) == (100 * MIB, 100 * MIB, 10)
    assert 100 * MIB <= peak("reserved_bytes") <= 104 * MIB
    beside = blocks.alloc(40 * MIB)
    assert (peak("allocated_bytes"), peak("allocation")) == (120 * MIB, 10)
    assert 120 * MIB <= peak("reserved_bytes") <= 124 * MIB
    blocks.free(*several, beside)
    pool.release()
    torch._C._cuda_emptyCache()
    blocks.alloc(110 * MIB)
    assert peak("allocated_bytes") == 120 * MIB
    blocks.alloc(30 * MIB)
    assert peak("allocated_bytes") == 140 * MIB
    assert 140 * MIB <= peak("reserved_bytes") <= 146 * MIB


def test_own_figures_keep_their_peaks(probe, blocks, pool):
    """The peaks of Loch's own figures do not change because PyTorch's are read or private pools come."""
    import json

    import door

    restart()
    blocks.free(blocks.alloc(100 * MIB))
    torch._C._cuda_emptyCache()
    with pool:
        several = [blocks.alloc(20 * MIB) for _ in range(3)]
    stats("allocated_bytes")
    own = json.loads(door.print_text(door.get().print_pools))["devices"]["0"][0]
    assert own["peak_reserved_bytes"] >= 100 * MIB
    blocks.free(*several)
    pool.release()
