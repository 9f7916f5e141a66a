# SPDX-License-Identifier: MIT
"""Snapshots, the history of allocations with Python stacks, and the memory view of the profiler."""

import pathlib
import pickle
import subprocess
import sys

import pytest
import torch
from torch.cuda import _memory_viz as viz

MIB = 1 << 20
GPU = "cuda"
TREE = pathlib.Path(__file__).resolve().parents[3]


def byte_tensor(count):
    return torch.empty(count, dtype=torch.uint8, device=GPU)


@pytest.fixture
def history():
    torch.cuda.memory._record_memory_history(stacks="python", max_entries=100_000)
    yield
    torch.cuda.memory._record_memory_history(enabled=None)


def check_tiling(segments):
    end = 0
    for part in sorted(segments, key=lambda part: (part["device"], part["address"])):
        assert part["address"] >= end
        at = part["address"]
        for block in part["blocks"]:
            assert block["address"] == at and block["size"] > 0
            at += block["size"]
        assert at == part["address"] + part["total_size"]
        live = [block for block in part["blocks"] if block["state"] == "active_allocated"]
        active = [block for block in part["blocks"] if block["state"] != "inactive"]
        assert part["allocated_size"] == sum(block["size"] for block in live)
        assert part["active_size"] == sum(block["size"] for block in active)
        end = at


def find_block(segments, tensor):
    for part in segments:
        for block in part["blocks"]:
            if block["address"] == tensor.data_ptr():
                return part, block
    return None, None


def test_memory_snapshot_tiles_and_sums_up():
    keep = [byte_tensor(size) for size in (100, 3 * MIB, 70 * MIB, 512, 1_234_567)]
    gone = byte_tensor(9 * MIB)
    del gone
    segments = torch.cuda.memory_snapshot()
    check_tiling(segments)
    stats = torch.cuda.memory_stats()
    assert sum(part["total_size"] for part in segments) == stats["reserved_bytes.all.current"]
    assert sum(part["allocated_size"] for part in segments) == stats["allocated_bytes.all.current"]
    assert sum(part["active_size"] for part in segments) == stats["active_bytes.all.current"]
    for tensor in keep:
        part, block = find_block(segments, tensor)
        assert block["requested_size"] == tensor.numel() and block["state"] == "active_allocated" and part["device"] == 0
    count = sum(block["state"] == "active_allocated" for part in segments for block in part["blocks"])
    assert count == stats["allocation.all.current"]


def test_a_block_that_waits_for_a_stream_shows_so():
    side = torch.cuda.Stream()
    x = byte_tensor(20 * MIB)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(2_000_000_000)
        x.add_(1)
    x.record_stream(side)
    address = x.data_ptr()
    del x
    states = {block["address"]: block["state"] for part in torch.cuda.memory_snapshot() for block in part["blocks"]}
    assert states[address] in ("active_awaiting_free", "active_pending_free")
    torch.cuda.synchronize()


def entries(snapshot, action):
    return [entry for entry in snapshot["device_traces"][0] if entry["action"] == action]


def make_named_tensor():
    return byte_tensor(11 * MIB)


def test_blocks_keep_their_stacks_when_the_history_ends(history):
    x = make_named_tensor()
    torch.cuda.memory._record_memory_history(enabled=None)
    _, block = find_block(torch.cuda.memory._snapshot()["segments"], x)
    assert any(frame["name"] == "make_named_tensor" for frame in block["frames"])


def test_history_has_blocks_and_stacks(history):
    x = make_named_tensor()
    address = x.data_ptr()
    snapshot = torch.cuda.memory._snapshot()
    allocation = [entry for entry in entries(snapshot, "alloc") if entry["addr"] == address]
    assert len(allocation) == 1 and allocation[0]["size"] == 11 * MIB
    assert any(frame["name"] == "make_named_tensor" and frame["filename"].endswith("test_history.py") for frame in allocation[0]["frames"])
    _, block = find_block(snapshot["segments"], x)
    assert any(frame["name"] == "make_named_tensor" for frame in block["frames"])
    del x
    snapshot = torch.cuda.memory._snapshot()
    for action in ("free_requested", "free_completed"):
        assert [entry["size"] for entry in entries(snapshot, action) if entry["addr"] == address] == [11 * MIB]
    times = [entry["time_us"] for entry in snapshot["device_traces"][0]]  # the first snapshot is an entry of the second
    assert times == sorted(times) and len(entries(snapshot, "snapshot")) >= 1
    assert any(entry["action"].startswith("segment_") for entry in snapshot["device_traces"][0])


def actions_at(address):
    """Returns what happened to blocks at an address, in order."""
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    return [entry["action"] for entry in trace if entry["addr"] == address and not entry["action"].startswith("segment")]


def test_a_free_that_waits_completes_later(history):
    side = torch.cuda.Stream()
    x = byte_tensor(2 * MIB)
    address = x.data_ptr()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(1_000_000_000)
        x.add_(1)
    x.record_stream(side)
    del x
    assert actions_at(address) == ["alloc", "free_requested"]
    torch.cuda.synchronize()
    for _ in range(3):
        byte_tensor(2 * MIB)
    assert actions_at(address)[:3] == ["alloc", "free_requested", "free_completed"]


def test_the_ring_keeps_the_newest():
    torch.cuda.memory._record_memory_history(stacks="python", max_entries=10)
    try:
        for size in range(100):
            byte_tensor(512 * (size + 1))
        trace = torch.cuda.memory._snapshot()["device_traces"][0]
        assert len(trace) == 10 and trace[-1]["action"] == "free_completed" and trace[-1]["size"] == 512 * 100
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    assert torch.cuda.memory._snapshot()["device_traces"][0] == []


@pytest.mark.parametrize("context,alloc_frames,free_frames,state_frames", [
    (None, False, False, False), ("state", False, False, True), ("alloc", True, True, True), ("all", True, True, True)])
def test_contexts(context, alloc_frames, free_frames, state_frames):
    torch.cuda.memory._record_memory_history(context=context, stacks="python", max_entries=1000)
    try:
        x, y = make_named_tensor(), make_named_tensor()
        addresses = (x.data_ptr(), y.data_ptr())
        del y
        snapshot = torch.cuda.memory._snapshot()
        assert all(bool(entry.get("frames")) == alloc_frames for entry in entries(snapshot, "alloc") if entry["addr"] in addresses)
        frees = [entry for entry in entries(snapshot, "free_requested") if entry["addr"] == addresses[1]]
        assert frees and all(bool(entry.get("frames")) == free_frames for entry in frees)
        if context == "all":
            assert any(frame["name"] == "test_contexts" for frame in frees[0]["frames"])
        assert bool(find_block(snapshot["segments"], x)[1].get("frames")) == state_frames
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)


def test_an_oom_is_in_the_history(history):
    with pytest.raises(torch.OutOfMemoryError):
        byte_tensor(1 << 45)
    assert [entry["size"] for entry in entries(torch.cuda.memory._snapshot(), "oom")] == [1 << 45]


def test_metadata_and_annotations(history):
    torch.cuda.memory._set_memory_metadata("weights")
    x = byte_tensor(MIB)
    assert torch.cuda.memory._get_memory_metadata() == "weights"
    torch.cuda.memory._set_memory_metadata("")
    entry = [entry for entry in entries(torch.cuda.memory._snapshot(), "alloc") if entry["addr"] == x.data_ptr()][-1]
    assert entry.get("user_metadata") == "weights"
    with torch.autograd.profiler.record_function("a named part"):
        byte_tensor(MIB)


def test_what_pytorch_makes_of_a_dump(history, tmp_path):
    net = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(4))).to(GPU)
    for batch in (64, 200, 64):
        net(torch.randn(batch, 512, device=GPU)).square().mean().backward()
    torch.cuda.empty_cache()
    with pytest.raises(torch.OutOfMemoryError):
        byte_tensor(1 << 45)
    path = tmp_path / "snapshot.pickle"
    torch.cuda.memory._dump_snapshot(str(path))
    data = pickle.loads(path.read_bytes())
    check_tiling(data["segments"])
    reserved = sum(part["total_size"] for part in data["segments"])
    lines = viz.segments(data, lambda text: text).splitlines()
    assert sum(int(line.rsplit(" ", 1)[1]) for line in lines) == reserved
    assert viz.memory(data, lambda text: text) and "total_reserved" in viz.segsum(data)
    assert "raise OutOfMemoryError" in viz.trace(data)
    for view in ("trace_plot", "segment_plot"):
        page = tmp_path / f"{view}.html"
        subprocess.run([sys.executable, "-m", "torch.cuda._memory_viz", view, str(path), "-o", str(page)], check=True, timeout=60)
        assert "snapshot.pickle" in page.read_text()
    loch = TREE / "build" / "bin" / "loch"
    if loch.exists():
        done = subprocess.run([loch, "stats", path], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and done.stdout, done.stderr
        done = subprocess.run([loch, "report", path, "-o", tmp_path / "report.html"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and (tmp_path / "report.html").stat().st_size > 10_000, done.stderr


def test_history_costs_nothing_when_it_is_off():
    assert not torch._C._cuda_isHistoryEnabled()
    torch.cuda.memory._record_memory_history()
    assert torch._C._cuda_isHistoryEnabled()
    torch.cuda.memory._record_memory_history(enabled=None)
    assert not torch._C._cuda_isHistoryEnabled()
    byte_tensor(MIB)
    assert torch.cuda.memory._snapshot()["device_traces"][0] == []


def test_the_profiler_shows_memory():
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities, profile_memory=True, record_shapes=True) as profile:
        x = byte_tensor(48 * MIB)
        y = x + 1
        del x
    events = {event.key: event for event in profile.key_averages()}
    assert events["aten::empty"].self_device_memory_usage >= 48 * MIB
    assert events["aten::add"].device_memory_usage >= 48 * MIB
    changes = [event.device_memory_usage for event in profile.events() if event.name == "[memory]"]
    assert any(change <= -48 * MIB for change in changes)
    del y


def test_the_sanitizer_of_streams_sees_memory(fresh):
    """torch.cuda._sanitizer gets an event for each block."""
    result = fresh("""
import json, torch
from torch.cuda import _sanitizer
seen = []
import torch.cuda._gpu_trace as trace
trace.register_callback_for_memory_allocation(lambda address: seen.append(("alloc", address)))
trace.register_callback_for_memory_deallocation(lambda address: seen.append(("free", address)))
torch._C._activate_gpu_trace()
x = torch.empty(1000, device="cuda")
address = x.data_ptr()
del x
print(json.dumps([kind for kind, at in seen if at == address]))
""")
    assert result == ["alloc", "free"]
