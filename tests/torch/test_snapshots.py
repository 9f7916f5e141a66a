# SPDX-License-Identifier: MIT
"""What snapshots and traces say of single blocks: where they were allocated, how large their segments are, when they are free."""

import ctypes
import itertools
import pathlib

import door
import pytest
import torch
from test_history import ALL, ALLOC, NEVER, block_at, check_tiling, history, names, snapshot  # noqa: F401

MIB = 1 << 20
numbers = itertools.count(6000)


def allocate_here(blocks, size):
    return blocks.alloc(size)


def allocate_elsewhere(blocks, size):
    return blocks.alloc(size)


# --- call stacks after the history ---


def off(probe):
    probe.record_history(0, 1, NEVER, 0, "")


def test_live_blocks_keep_their_stacks_when_the_history_ends(history, probe, blocks):
    addresses = [allocate_here(blocks, size) for size in (100, 70_000, 2 * MIB, 30 * MIB)]
    off(probe)
    segments = snapshot()["segments"]
    for address in addresses:
        assert "allocate_here" in names(block_at(segments, address))
    plain = blocks.alloc(300)
    assert not names(block_at(snapshot()["segments"], plain))


@pytest.mark.parametrize("size", [100, 70_000, 3 * MIB, 30 * MIB])
def test_a_block_in_the_place_of_another_has_not_its_stack(history, probe, blocks, size):
    old = allocate_here(blocks, size)
    off(probe)
    blocks.free(old)  # not noted
    new = blocks.alloc(size)
    assert new == old and not names(block_at(snapshot()["segments"], new))
    history.start()
    blocks.free(new)
    assert not any("allocate_here" in names(entry) for entry in history.entries() if entry["addr"] == new)


def test_stacks_last_over_a_second_history(history, probe, blocks):
    first = allocate_here(blocks, 5 * MIB)
    off(probe)
    history.start(when=ALLOC)
    second = allocate_elsewhere(blocks, 5 * MIB)
    off(probe)
    segments = snapshot()["segments"]
    assert "allocate_here" in names(block_at(segments, first)) and "allocate_elsewhere" in names(block_at(segments, second))
    history.start(when=ALLOC)
    blocks.free(first)
    (entry,) = [entry for entry in history.entries("free_requested") if entry["addr"] == first]
    assert "allocate_here" in names(entry) and entry["size"] == 5 * MIB


def test_segments_keep_their_stacks_when_the_history_ends(history, probe, blocks):
    torch._C._cuda_emptyCache()
    address = allocate_here(blocks, 64 * MIB)
    off(probe)
    (segment,) = [part for part in snapshot()["segments"] if part["address"] <= address < part["address"] + part["total_size"]]
    assert "allocate_here" in names(segment)


# --- private pools ---


def inside(probe, pool, blocks, *sizes):
    probe.begin_pool(*pool)
    result = [allocate_here(blocks, size) for size in sizes]
    probe.end_pool(*pool)
    return result


def test_blocks_of_an_ended_pool_keep_their_stacks(history, probe, blocks):
    pool = (next(numbers), 0)
    kept, gone = inside(probe, pool, blocks, 3 * MIB, 5000)
    probe.release_pool(*pool)
    off(probe)
    blocks.free(gone)
    assert "allocate_here" in names(block_at(snapshot()["segments"], kept))


def test_a_block_that_is_kept_for_a_graph_is_free_in_a_snapshot(history, probe, blocks):
    first, second = (next(numbers), 0), (next(numbers), 0)
    before = torch._C._cuda_memoryStats(0)
    probe.create_pool(*first)
    (block,) = inside(probe, first, blocks, 8 * MIB)
    probe.release_pool(*first)
    probe.release_pool(*first)
    probe.create_pool(*second)
    probe.begin_pool(*second)
    blocks.free(block)
    segments, stats = snapshot()["segments"], torch._C._cuda_memoryStats(0)
    assert block_at(segments, block)["state"] == "inactive"
    assert sum(part["allocated_size"] for part in segments) == stats["allocated_bytes"]["all"]["current"]
    assert sum(part["total_size"] for part in segments) == stats["reserved_bytes"]["all"]["current"]
    for figure in ("allocated_bytes", "requested_bytes", "allocation"):
        for kind in ("all", "small_pool", "large_pool"):
            assert stats[figure][kind]["current"] == before[figure][kind]["current"], (figure, kind)
    check_tiling(segments)
    probe.end_pool(*second)
    probe.release_pool(*second)
    probe.release_pool(*second)
    assert block_at(snapshot()["segments"], block) is None


def test_memory_after_a_failure_in_a_pool_is_not_the_pools(history, probe, blocks):
    """The failed request has ended: what the thread takes later is noted as its own."""
    pool = (next(numbers), 0)
    off(probe)  # requests of the main pool are not noted
    probe.attach_tracker(0)
    probe.begin_pool(*pool)
    assert probe.allocate(1 << 40) is None
    probe.end_pool(*pool)
    count = len(probe.seen("segment"))
    blocks.alloc(200 * MIB)
    taken = probe.seen("segment")[count:]
    assert taken and {entry[4] for entry in taken} == {0}
    probe.release_pool(*pool)


# --- kinds of segments ---


def test_segments_are_large_if_they_can_serve_large_blocks(blocks):
    torch._C._cuda_emptyCache()
    address = blocks.alloc(40 * MIB)

    def kinds():
        return {part["segment_type"] for part in snapshot()["segments"] if part["address"] <= address < part["address"] + part["total_size"]}

    assert kinds() == {"large"}
    blocks.free(address)
    assert kinds() == {"large"}  # cached
    for part in snapshot()["segments"]:
        assert (part["segment_type"] == "large") == any(block["size"] > MIB for block in part["blocks"])


# --- streams ---


class Kernel(ctypes.Structure):
    """loch_sim_kernel."""

    _fields_ = [("size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("reads", ctypes.c_void_p), ("reads_count", ctypes.c_size_t),
                ("writes", ctypes.c_void_p), ("writes_count", ctypes.c_size_t), ("duration_ns", ctypes.c_uint64),
                ("run", ctypes.c_void_p), ("user", ctypes.c_void_p)]


class Streams:
    """Streams of the simulated device, by Loch's own functions."""

    def __init__(self):
        self.loch = ctypes.CDLL(str(pathlib.Path(door.shim()).parent / "libloch.so"))
        self.loch.loch_allocator_get_device.restype = self.loch.loch_stream_get_native.restype = ctypes.c_void_p
        self.device = ctypes.c_void_p(self.loch.loch_allocator_get_device(ctypes.c_void_p(door.get().get_pool(0))))

    def make(self):
        """Returns a stream, as Loch's and as PyTorch's."""
        stream = ctypes.c_void_p()
        assert self.loch.loch_stream_create(self.device, None, ctypes.byref(stream)) == 0
        return stream, self.loch.loch_stream_get_native(stream)

    def work(self, stream, ns):
        kernel = Kernel(ctypes.sizeof(Kernel), duration_ns=ns)
        assert self.loch.loch_sim_launch(stream, ctypes.byref(kernel)) == 0

    def advance(self, ns):
        assert self.loch.loch_sim_advance(self.device, ctypes.c_uint64(ns)) == 0


@pytest.fixture
def streams(blocks):
    blocks.free(blocks.alloc(1))  # opens the device
    return Streams()


def actions_of(history, address):
    return [entry["action"] for entry in history.entries() if entry["addr"] == address and not entry["action"].startswith("segment")]


def test_a_use_on_the_blocks_own_stream_delays_nothing(history, probe, blocks, streams):
    _, native = streams.make()
    address = blocks.alloc(5 * MIB, native)
    probe.record_stream(address, native)
    blocks.free(address)
    after = blocks.alloc(100)
    order = [(entry["action"], entry["addr"]) for entry in history.entries("alloc", "free_completed")]
    assert order[-2:] == [("free_completed", address), ("alloc", after)]


def test_a_block_that_a_stream_uses_is_free_later(history, probe, blocks, streams):
    stream, native = streams.make()
    _, address, _ = (blocks.alloc(5 * MIB) for _ in range(3))  # between others, so that larger ones lie elsewhere
    streams.work(stream, 1000)
    probe.record_stream(address, native)
    blocks.free(address)
    assert block_at(snapshot()["segments"], address)["state"] == "active_pending_free"
    assert actions_of(history, address) == ["alloc", "free_requested"]
    stats = torch._C._cuda_memoryStats(0)
    assert stats["active_bytes"]["all"]["current"] == stats["allocated_bytes"]["all"]["current"] + 5 * MIB
    streams.advance(2000)
    several = [blocks.alloc(size) for size in (64 * MIB, 100)]  # the first one looks for finished blocks
    order = [(entry["action"], entry["addr"]) for entry in history.entries("alloc", "free_completed")]
    assert order[-3:].index(("free_completed", address)) < order[-3:].index(("alloc", several[1]))  # an allocation has noted it
    assert block_at(snapshot()["segments"], address) is None or block_at(snapshot()["segments"], address)["state"] == "inactive"
