# SPDX-License-Identifier: MIT
"""Private pools of PyTorch: routes, use counts, live blocks, checkpoints."""

import itertools

import pytest
import torch

MIB = 1 << 20
numbers = itertools.count(1001)


@pytest.fixture
def pool(probe):
    """A pool in use, with a number of its own."""
    pool_id = (next(numbers), 0)
    probe.create_pool(*pool_id)
    yield pool_id
    while probe.pool_use_count(*pool_id) > 0:
        probe.release_pool(*pool_id)


def inside(probe, pool, blocks, *sizes):
    probe.begin_pool(*pool)
    try:
        return [blocks.alloc(size) for size in sizes]
    finally:
        probe.end_pool(*pool)
        probe.release_pool(*pool)


def is_live(pool, *addresses):
    return torch._C._cuda_checkPoolLiveAllocations(0, pool, set(addresses))


def test_use_counts(probe, pool):
    assert probe.pool_use_count(*pool) == 1
    probe.create_pool(*pool)
    assert probe.pool_use_count(*pool) == 2
    probe.begin_pool(*pool)
    assert probe.pool_use_count(*pool) == 3
    with pytest.raises(RuntimeError):
        probe.begin_pool(*pool)  # is recording to it already
    probe.end_pool(*pool)
    with pytest.raises(RuntimeError):
        probe.end_pool(*pool)
    for left in (2, 1):
        probe.release_pool(*pool)
        assert probe.pool_use_count(*pool) == left


def test_a_route_sends_blocks_to_the_pool(probe, pool, blocks):
    outside = blocks.alloc(3 * MIB)
    a, b = inside(probe, pool, blocks, 2 * MIB, 700)
    after = blocks.alloc(700)
    assert is_live(pool, a, b) and not is_live(pool, a) and not is_live(pool, a, b, outside)
    blocks.free(a)
    assert is_live(pool, b) and after not in (a, b)
    blocks.free(b)
    assert is_live(pool)


def test_memory_of_a_pool_stays_with_it_until_it_is_released(probe, pool, blocks):
    (first,) = inside(probe, pool, blocks, 64 * MIB)
    blocks.free(first)
    assert blocks.alloc(64 * MIB) != first
    torch._C._cuda_emptyCache()
    (again,) = inside(probe, pool, blocks, 64 * MIB)
    assert again == first
    blocks.free(again)
    held = torch.cuda.memory_reserved(0)
    probe.release_pool(*pool)
    torch._C._cuda_emptyCache()
    assert torch.cuda.memory_reserved(0) <= held - 64 * MIB


def test_a_block_outlives_its_pool(probe, pool, blocks):
    (block,) = inside(probe, pool, blocks, 5 * MIB)
    probe.release_pool(*pool)
    torch._C._cuda_emptyCache()
    others = [blocks.alloc(5 * MIB) for _ in range(4)]
    assert block not in others
    allocated = torch.cuda.memory_allocated(0)
    blocks.free(block)
    assert torch.cuda.memory_allocated(0) <= allocated - 5 * MIB


def reserved():
    return torch._C._cuda_memoryStats(0)["reserved_bytes"]["all"]["current"]


@pytest.mark.parametrize("end", ["release", "empty cache"])
def test_a_block_of_an_ended_pool_is_kept_for_the_graph_that_is_captured_when_it_is_freed(probe, blocks, end):
    first, second = (next(numbers), 0), (next(numbers), 0)
    torch._C._cuda_emptyCache()
    before = reserved()
    probe.create_pool(*first)
    (block,) = inside(probe, first, blocks, 8 * MIB)
    probe.release_pool(*first)  # the graph is reset; its output lives
    held = reserved()
    assert held >= before + 8 * MIB
    probe.create_pool(*second)
    allocated = torch._C._cuda_memoryStats(0)["allocated_bytes"]["all"]["current"]
    probe.begin_pool(*second)
    blocks.free(block)  # the graph that is captured may read it
    assert torch._C._cuda_memoryStats(0)["allocated_bytes"]["all"]["current"] == allocated - 8 * MIB
    assert reserved() >= held
    probe.end_pool(*second)
    assert reserved() >= held
    probe.release_pool(*second)
    assert reserved() >= held  # the graph is there
    if end == "release":
        probe.release_pool(*second)
    torch._C._cuda_emptyCache()
    assert reserved() == before
    while probe.pool_use_count(*second) > 0:
        probe.release_pool(*second)


def test_figures_count_pools(probe, pool, blocks):
    before = torch.cuda.memory_stats(0)
    inside(probe, pool, blocks, 10 * MIB, 100)
    after = torch.cuda.memory_stats(0)
    assert after["requested_bytes.all.current"] - before["requested_bytes.all.current"] == 10 * MIB + 100
    assert after["allocation.all.current"] - before["allocation.all.current"] == 2
    assert after["reserved_bytes.all.current"] - before["reserved_bytes.all.current"] >= 10 * MIB


def test_a_checkpoint_brings_live_blocks_back_at_their_addresses(probe, pool, blocks):
    a, b = inside(probe, pool, blocks, 3 * MIB, 4000)
    state = torch._C._cuda_getCheckpointState(0, pool)
    blocks.free(a)
    (c,) = inside(probe, pool, blocks, 2 * MIB)
    assert is_live(pool, b, c)
    torch._C._cuda_setCheckpointPoolState(0, state, [], [])
    assert is_live(pool, a, b)
    blocks.live.discard(c)  # may have had the address of a
    blocks.live.add(a)
    (d,) = inside(probe, pool, blocks, 8 * MIB)
    assert d not in (a, b) and is_live(pool, a, b, d)
    blocks.free(a, b, d)
    assert is_live(pool)


def test_storages_get_and_lose_their_deleters_with_checkpoints(pool):
    """What graph trees do: a storage without a deleter gets the memory of its block; a stale one loses it."""
    size = 4 * MIB

    def allocate():
        torch._C._cuda_beginAllocateToPool(0, pool)
        address = torch._C._cuda_cudaCachingAllocator_raw_alloc(size, 0)
        torch._C._cuda_endAllocateToPool(0, pool)
        return address

    def restore(state, address):
        """Frees a block and brings it back as that of a storage."""
        torch._C._cuda_cudaCachingAllocator_raw_delete(address)
        storage = torch._C._construct_storage_from_data_pointer(address, torch.device("cuda", 0), size)
        assert not torch._C._has_Standard_Deleter(storage._cdata)
        torch._C._cuda_setCheckpointPoolState(0, state, [], [storage._cdata])
        assert torch._C._has_Standard_Deleter(storage._cdata)
        return storage

    first = allocate()
    one = torch._C._cuda_getCheckpointState(0, pool)
    kept = restore(one, first)
    assert is_live(pool, first)
    second = allocate()
    two = torch._C._cuda_getCheckpointState(0, pool)
    stale = restore(two, second)
    assert is_live(pool, first, second)
    torch._C._cuda_setCheckpointPoolState(0, one, [stale._cdata], [])
    assert torch._C._has_Standard_Deleter(kept._cdata) and not torch._C._has_Standard_Deleter(stale._cdata)
    assert is_live(pool, first)
    torch._C._free_And_Remove_DeleterFn(kept._cdata)
    assert is_live(pool)
