# SPDX-License-Identifier: MIT
"""Snapshots and the history of allocations, as PyTorch shows them and as its viewers read them."""

import os
import pathlib
import pickle
import subprocess
import sys
import time

import pytest
import torch
from torch.cuda import _memory_viz as viz

MIB = 1 << 20
NEVER, STATE, ALLOC, ALL = range(4)
LOCH = pathlib.Path(os.environ.get("LOCH_PROGRAM", pathlib.Path(__file__).resolve().parents[2] / "build" / "bin" / "loch"))


def snapshot(pool=None, **options):
    return torch._C._cuda_memorySnapshot(pool, **options)


@pytest.fixture
def history(probe, blocks):
    """Records; a test may start again with other settings."""

    class History:
        def start(self, entries=10_000, when=ALL, clear=1, skipped=""):
            probe.record_history(1, entries, when, clear, skipped)

        def entries(self, *actions):
            trace = snapshot()["device_traces"][0]
            return [entry for entry in trace if not actions or entry["action"] in actions]

    result = History()
    result.start()
    yield result
    probe.record_history(0, 1, NEVER, 0, "")


def check_tiling(segments):
    end = 0
    for part in segments:
        assert part["address"] >= end and part["total_size"] > 0
        at = part["address"]
        for block in part["blocks"]:
            assert block["address"] == at and block["size"] > 0
            at += block["size"]
        assert at == end_of(part)
        by_state = {state: sum(block["size"] for block in part["blocks"] if block["state"] == state)
                    for state in ("active_allocated", "active_pending_free", "active_awaiting_free", "inactive")}
        assert sum(by_state.values()) == part["total_size"]
        assert part["allocated_size"] == by_state["active_allocated"]
        assert part["active_size"] == part["total_size"] - by_state["inactive"]
        end = at


def end_of(part):
    return part["address"] + part["total_size"]


def block_at(segments, address):
    return next((block for part in segments for block in part["blocks"] if block["address"] == address), None)


# --- segments ---


def test_segments_tile_and_sum_up(blocks):
    addresses = {blocks.alloc(size): size for size in (1, 1000, 4096, 300_000, MIB, 3 * MIB + 5, 70 * MIB, 33)}
    gone = blocks.alloc(9 * MIB)
    blocks.free(gone)
    segments = snapshot()["segments"]
    check_tiling(segments)
    stats = torch._C._cuda_memoryStats(0)
    assert sum(part["total_size"] for part in segments) == stats["reserved_bytes"]["all"]["current"]
    assert sum(part["allocated_size"] for part in segments) == stats["allocated_bytes"]["all"]["current"]
    for address, size in addresses.items():
        block = block_at(segments, address)
        assert block["state"] == "active_allocated" and block["requested_size"] == size <= block["size"]
    live = [block for part in segments for block in part["blocks"] if block["state"] == "active_allocated"]
    assert len(live) == len(addresses)
    assert block_at(segments, gone) is None or block_at(segments, gone)["state"] == "inactive"
    for part in segments:
        assert part["device"] == 0 and part["segment_pool_id"] == (0, 0) and part["segment_type"] in ("small", "large")


def test_an_empty_cache_has_no_segments(blocks):
    address = blocks.alloc(40 * MIB)
    assert snapshot()["segments"]
    blocks.free(address)
    torch._C._cuda_emptyCache()
    assert sum(part["total_size"] for part in snapshot()["segments"]) < 8 * MIB


def test_memory_snapshot_of_python(blocks):
    address = blocks.alloc(5 * MIB)
    segments = torch.cuda.memory_snapshot()
    assert block_at(segments, address)["requested_size"] == 5 * MIB
    assert torch.cuda.memory_snapshot(include_traces=False) == segments


def test_settings_are_shown(blocks):
    settings = snapshot()["allocator_settings"]
    assert settings["PYTORCH_CUDA_ALLOC_CONF"] == "" and settings["expandable_segments"] is False
    assert "garbage_collection_threshold" in settings and "max_split_size" in settings


# --- history ---


def test_nothing_is_recorded_unless_asked_for(blocks, probe):
    assert not torch._C._cuda_isHistoryEnabled()
    blocks.alloc(1000)
    assert snapshot()["device_traces"] == [[]]
    probe.record_history(1, 100, ALL, 0, "")
    assert torch._C._cuda_isHistoryEnabled()
    probe.record_history(0, 100, ALL, 0, "")
    assert not torch._C._cuda_isHistoryEnabled()
    blocks.alloc(1000)
    assert snapshot()["device_traces"] == [[]]


def test_entries_of_a_block(history, blocks):
    before = time.time_ns() // 1000
    address = blocks.alloc(7 * MIB + 1)
    blocks.free(address)
    after = time.time_ns() // 1000
    mine = [entry for entry in history.entries() if entry["addr"] == address and not entry["action"].startswith("segment")]
    assert [entry["action"] for entry in mine] == ["alloc", "free_requested", "free_completed"]
    for entry in mine:
        assert entry["size"] == 7 * MIB + 1 and entry["stream"] == 0
        assert before - 50_000 <= entry["time_us"] <= after + 50_000
    assert [entry["time_us"] for entry in mine] == sorted(entry["time_us"] for entry in mine)
    assert history.entries()[-1]["action"] == "snapshot"  # of the snapshot before


def test_a_snapshot_does_not_show_itself(history, blocks):
    address = blocks.alloc(100)
    assert history.entries()[-1]["addr"] == address
    (entry,) = history.entries("snapshot")
    assert entry["size"] == torch._C._cuda_memoryStats(0)["active_bytes"]["all"]["current"]


def empty_here():
    torch._C._cuda_emptyCache()


def test_the_stack_of_memory_that_goes(history, blocks):
    for when, function in ((ALL, "empty_here"), (ALLOC, "allocate_here")):
        torch._C._cuda_emptyCache()
        history.start(when=when)
        blocks.free(allocate_here(blocks, 64 * MIB))
        empty_here()
        gone = history.entries("segment_unmap")
        assert gone and all(function in names(entry) for entry in gone)


def test_memory_is_mapped_before_it_is_used_and_unmapped_after(history, blocks):
    torch._C._cuda_emptyCache()
    history.start()
    address = blocks.alloc(64 * MIB)
    blocks.free(address)
    torch._C._cuda_emptyCache()
    mapped, order = 0, []
    for entry in history.entries():
        if entry["action"] == "segment_map":
            mapped += entry["size"]
        elif entry["action"] == "segment_unmap":
            mapped -= entry["size"]
        if entry["addr"] == address and entry["action"] == "alloc":
            assert mapped >= 64 * MIB
        order.append(entry["action"])
    assert order.index("segment_map") < order.index("alloc") < order.index("free_completed") < len(order) - order[::-1].index("segment_unmap")
    assert mapped == sum(part["total_size"] for part in snapshot()["segments"])


def allocate_here(blocks, size):
    return blocks.alloc(size)


def names(entry):
    return [frame["name"] for frame in entry.get("frames", [])]


def test_stacks_of_allocations_and_frees(history, blocks):
    address = allocate_here(blocks, 12_345)
    segments = snapshot()["segments"]
    assert "allocate_here" in names(block_at(segments, address))
    blocks.free(address)
    entries = {entry["action"]: entry for entry in history.entries() if entry["addr"] == address}
    assert "allocate_here" in names(entries["alloc"])
    assert "free" in names(entries["free_requested"]) and "allocate_here" not in names(entries["free_requested"])
    frame = next(frame for frame in entries["alloc"]["frames"] if frame["name"] == "allocate_here")
    assert frame["filename"].endswith("test_history.py") and frame["line"] > 0


@pytest.mark.parametrize("when,has_state,has_trace", [(NEVER, False, False), (STATE, True, False), (ALLOC, True, True), (ALL, True, True)])
def test_levels_of_stacks(history, blocks, when, has_state, has_trace):
    history.start(when=when)
    address = allocate_here(blocks, 5000)
    assert ("allocate_here" in names(block_at(snapshot()["segments"], address))) == has_state
    blocks.free(address)
    entries = {entry["action"]: entry for entry in history.entries() if entry["addr"] == address}
    assert ("allocate_here" in names(entries["alloc"])) == has_trace
    # without stacks of frees, a free shows where its block was allocated
    assert ("allocate_here" in names(entries["free_completed"])) == (has_trace and when == ALLOC)


def test_a_block_from_before_the_history(blocks, probe, history):
    probe.record_history(0, 1, NEVER, 0, "")
    address = blocks.alloc(777)
    history.start()
    blocks.free(address)
    mine = [(entry["action"], entry["size"]) for entry in history.entries() if entry["addr"] == address]
    assert mine == [("free_requested", 777), ("free_completed", 777)]


def test_the_oldest_entries_go(history, blocks):
    history.start(entries=7)
    for size in range(1, 50):
        blocks.free(blocks.alloc(size))
    trace = history.entries()
    assert len(trace) == 7 and trace[-1] == {**trace[-1], "action": "free_completed", "size": 49}
    history.start(entries=3, clear=0)  # fewer of them: the newest stay
    assert [entry["action"] for entry in history.entries()] == ["free_requested", "free_completed", "snapshot"]


def test_clearing(history, blocks):
    address = blocks.alloc(100)
    history.start(clear=0)
    assert any(entry["addr"] == address for entry in history.entries())
    history.start(clear=1)
    assert not any(entry["addr"] == address for entry in history.entries())


def test_skipped_actions(history, blocks, probe):
    history.start(skipped="free_requested,snapshot")
    blocks.free(blocks.alloc(100))
    actions = {entry["action"] for entry in history.entries()}
    assert {"alloc", "free_completed"} <= actions and not actions & {"free_requested", "snapshot"}
    with pytest.raises(RuntimeError, match="Unknown TraceEntry action"):
        probe.record_history(1, 10, ALL, 0, "nonsense")


def test_metadata(history, blocks):
    torch._C._cuda_setMemoryMetadata("weights")
    try:
        assert torch._C._cuda_getMemoryMetadata() == "weights"
        tagged = blocks.alloc(100)
    finally:
        torch._C._cuda_setMemoryMetadata("")
    plain = blocks.alloc(100)
    entries = {entry["addr"]: entry for entry in history.entries("alloc")}
    assert entries[tagged]["user_metadata"] == "weights" and entries[plain]["user_metadata"] == ""


def test_compile_contexts(history, blocks, probe):
    probe.push_compile("outer")
    probe.push_compile("0/1")
    inner = blocks.alloc(100)
    probe.pop_compile()
    probe.pop_compile()
    outside = blocks.alloc(100)
    entries = {entry["addr"]: entry for entry in history.entries("alloc")}
    assert entries[inner]["compile_context"] == "0/1" and entries[outside]["compile_context"] == "N/A"
    with pytest.raises(RuntimeError):
        probe.pop_compile()


def test_annotations(history, blocks, probe):
    probe.annotate("stage", "BACKWARD")
    found = snapshot()["external_annotations"]
    assert len(found) == 1 and found[0]["stage"] == "BACKWARD" and found[0]["device"] == 0 and found[0]["time_us"] > 1e15
    probe.record_history(0, 1, NEVER, 0, "")
    probe.annotate("stage", "FORWARD")
    assert snapshot()["external_annotations"] == []


def test_failures_are_recorded_and_observed(history, probe, blocks):
    probe.attach_oom_observer()
    count = len(probe.seen("oom"))
    assert probe.allocate(1 << 40) is None
    (entry,) = history.entries("oom")
    assert entry["size"] == 1 << 40 and entry["device_free"] <= 8 << 30
    seen = probe.seen("oom")[count:]
    assert len(seen) == 1
    device, wanted, total, free, _ = seen[0]
    assert (device, wanted, total) == (0, 1 << 40, 8 << 30) and 0 <= free <= total
    blocks.free(blocks.alloc(1000))


def test_threads(history, blocks):
    """Stacks are taken without a lock: a thread that holds Python's lock and one that waits for it do not block each other."""
    import threading

    def work():
        for size in range(1, 400):
            torch._C._cuda_cudaCachingAllocator_raw_delete(torch._C._cuda_cudaCachingAllocator_raw_alloc(size * 100, 0))

    threads = [threading.Thread(target=work) for _ in range(4)]
    history.start(entries=1000)
    for thread in threads:
        thread.start()
    for _ in range(20):
        check_tiling(snapshot()["segments"])
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    history.start(entries=100_000)
    work()
    assert len(history.entries("alloc")) == len(history.entries("free_completed")) == 399


# --- trackers ---


def test_trackers_see_memory_come_and_go(probe, blocks):
    torch._C._cuda_emptyCache()
    probe.attach_tracker(1)
    probe.attach_tracker(0)
    count = len(probe.seen("segment"))
    address = blocks.alloc(32 * MIB)
    taken = probe.seen("segment")[count:]
    names_of = {action: name for name, action in (("alloc", 3), ("free", 4), ("map", 5), ("unmap", 6))}
    assert taken and {names_of[entry[0]] for entry in taken} == {"map"}
    assert sum(entry[3] for entry in taken) >= 32 * MIB and all(entry[1] == 0 for entry in taken)
    assert any(entry[2] <= address < entry[2] + entry[3] for entry in taken)
    blocks.free(address)
    torch._C._cuda_emptyCache()
    gone = probe.seen("segment")[count + len(taken):]
    assert {names_of[entry[0]] for entry in gone} == {"unmap"}
    assert {entry[2:4] for entry in gone} >= {entry[2:4] for entry in taken}


# --- what reads snapshots ---


@pytest.fixture
def dump(history, blocks, probe, tmp_path):
    keep = [allocate_here(blocks, size) for size in (100, 5000, 2 * MIB, 30 * MIB)]
    for size in (MIB, 3 * MIB, 600):
        blocks.free(blocks.alloc(size))
    probe.allocate(1 << 40)
    path = tmp_path / "snapshot.pickle"
    torch.cuda.memory._dump_snapshot(str(path))
    return path, keep


def test_viewers_of_pytorch(dump, tmp_path):
    path, _ = dump
    data = pickle.loads(path.read_bytes())
    check_tiling(data["segments"])
    reserved = sum(part["total_size"] for part in data["segments"])
    lines = viz.segments(data, lambda text: text).splitlines()
    assert sum(int(line.rsplit(" ", 1)[1]) for line in lines) == reserved
    assert sum(int(line.rsplit(" ", 1)[1]) for line in viz.memory(data, lambda text: text).splitlines()) == reserved
    assert "total_reserved" in viz.segsum(data) and "raise OutOfMemoryError" in viz.trace(data)
    for view in ("trace_plot", "segment_plot"):
        page = tmp_path / f"{view}.html"
        subprocess.run([sys.executable, "-m", "torch.cuda._memory_viz", view, str(path), "-o", str(page)], check=True)
        assert "snapshot.pickle" in page.read_text()


def test_loch_reads_it(dump, tmp_path):
    path, keep = dump
    stats = torch._C._cuda_memoryStats(0)
    done = subprocess.run([LOCH, "stats", path, "--json"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert str(stats["requested_bytes"]["all"]["current"]) in done.stdout
    report = tmp_path / "report.html"
    done = subprocess.run([LOCH, "report", path, "-o", report], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and report.stat().st_size > 10_000, done.stderr


# --- pools ---


def test_a_snapshot_of_one_pool(probe, blocks):
    pool = (77, 1)
    outside = blocks.alloc(3 * MIB)
    probe.begin_pool(*pool)
    inside = blocks.alloc(5 * MIB)
    probe.end_pool(*pool)
    everything, only = snapshot()["segments"], snapshot(pool)["segments"]
    check_tiling(everything)
    check_tiling(only)
    assert block_at(only, inside)["requested_size"] == 5 * MIB and block_at(only, outside) is None
    assert all(part["segment_pool_id"] == pool for part in only)
    assert {part["segment_pool_id"] for part in everything} == {(0, 0), pool}
    assert block_at(everything, inside) and block_at(everything, outside)
    assert snapshot((5, 5))["segments"] == []
    reserved = torch._C._cuda_memoryStats(0)["reserved_bytes"]["all"]["current"]
    assert sum(part["total_size"] for part in everything) == reserved
    probe.release_pool(*pool)
    check_tiling(snapshot()["segments"])
    assert block_at(snapshot()["segments"], inside)["requested_size"] == 5 * MIB  # the pool has gone, the block lives
    blocks.free(inside)
    torch._C._cuda_emptyCache()
    assert block_at(snapshot()["segments"], inside) is None


def test_trackers_see_segments_of_a_pool_with_its_id(probe, blocks):
    probe.attach_tracker(0)
    count, pool = len(probe.seen("segment")), (78, 1)
    probe.begin_pool(*pool)
    address = blocks.alloc(24 * MIB)
    probe.end_pool(*pool)
    mine = [entry for entry in probe.seen("segment")[count:] if entry[4] == 78]
    assert mine and {entry[0] for entry in mine} == {3}  # segment_alloc, which NCCL registers
    assert any(entry[2] <= address < entry[2] + entry[3] for entry in mine)
    blocks.free(address)
    probe.release_pool(*pool)
    torch._C._cuda_emptyCache()


def test_entries_of_a_pool_have_its_id(history, probe, blocks):
    pool = (79, 1)
    probe.begin_pool(*pool)
    address = blocks.alloc(MIB)
    probe.end_pool(*pool)
    blocks.free(address)
    probe.release_pool(*pool)
    mine = [entry for entry in history.entries() if entry["addr"] == address and not entry["action"].startswith("segment")]
    assert len(mine) == 3 and all(entry.get("pool_id", pool) == pool for entry in mine)  # PyTorch 2.11 does not show it
