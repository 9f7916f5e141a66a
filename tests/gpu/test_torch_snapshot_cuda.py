# SPDX-License-Identifier: MIT
"""Memory snapshots of real programs: recorded by PyTorch on a GPU, read by Loch, replayed, written, and read by PyTorch again.

Run by scripts/gpu-test; nothing here is skipped. LOCH_SNAPSHOT_OUT names a folder that gets a copy of each snapshot.
"""

import json
import os
import pathlib
import pickle
import shutil
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "exchange"))

import insight  # noqa: E402
from test_torch_snapshot import check_snapshot  # noqa: E402
from torch.cuda import _memory_viz as viz  # noqa: E402

LOCH = pathlib.Path(insight.LIBRARY).resolve().parent.parent / "bin" / "loch"

# Trains a small network, on two streams, with a request that fails; says what PyTorch itself counted.
PROGRAM = """
import json, sys, torch
torch.empty(1, device="cuda")
early = torch.empty(3_000_000, device="cuda")  # before the recording
gone = torch.empty(500_000, device="cuda")
torch.cuda.synchronize()
torch.cuda.memory._record_memory_history(stacks="python", max_entries=1_000_000)
torch.cuda.reset_peak_memory_stats()
del gone
set_tag = getattr(torch.cuda.memory, "_set_memory_metadata", lambda tag: None)
set_tag("model")
model = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(4))).cuda()
set_tag("")
optimizer = torch.optim.AdamW(model.parameters())
side = torch.cuda.Stream()
for step in range(int(sys.argv[2])):
    x = torch.randn(64 + 32 * (step % 5), 512, device="cuda")
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    with torch.cuda.stream(side):
        y = torch.randn(1000 * (step + 1), device="cuda")
    torch.cuda.synchronize()
    del y
    if step == 3:
        del x, loss
        torch.cuda.empty_cache()
failed = 0
try:
    torch.empty(1 << 45, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    failed = 1
torch.cuda.synchronize()
stats = torch.cuda.memory_stats()
torch.cuda.memory._dump_snapshot(sys.argv[1])
keys = ["requested_bytes.all.peak", "requested_bytes.all.current", "reserved_bytes.all.peak", "reserved_bytes.all.current", "num_ooms"]
print(json.dumps({**{key: stats[key] for key in keys}, "failed": failed}))
"""


def loch(*arguments):
    run = subprocess.run([LOCH, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    return run.stdout


def record(path, settings, steps=6):
    environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": settings, "PYTORCH_ALLOC_CONF": settings}
    run = subprocess.run([sys.executable, "-c", PROGRAM, str(path), str(steps)], env=environment, capture_output=True, text=True, timeout=250)
    assert run.returncode == 0, run.stderr
    if os.environ.get("LOCH_SNAPSHOT_OUT"):
        shutil.copy(path, os.environ["LOCH_SNAPSHOT_OUT"])
    return json.loads(run.stdout.splitlines()[-1])


@pytest.fixture(scope="module", params=["expandable_segments:False", "expandable_segments:True"], ids=["plain", "expandable"])
def recorded(request, tmp_path_factory):
    name = "torch-expandable.pickle" if request.param.endswith("True") else "torch-plain.pickle"
    path = tmp_path_factory.mktemp("snapshot") / name
    return path, record(path, request.param)


def test_the_figures_are_those_of_pytorch(recorded):
    path, stats = recorded
    recording = insight.Recording(path)
    info = recording.info
    assert info.peak_requested == stats["requested_bytes.all.peak"]
    assert info.live_bytes == stats["requested_bytes.all.current"]
    assert info.peak_reserved == stats["reserved_bytes.all.peak"]
    kinds = [insight.KINDS[event.kind] for event in recording.events]
    reserved = sum(e.value * {"take": 1, "give": -1}.get(kind, 0) for e, kind in zip(recording.events, kinds))
    assert reserved == stats["reserved_bytes.all.current"]
    assert stats["failed"] == 1 and kinds.count("fail") >= 1
    assert recording.name("device", 0) == "cuda:0"
    assert info.streams >= 2 and info.stacks > 10
    assert sum(block.is_present for block in recording.blocks) >= 2
    assert any(b.is_present and b.bytes == 2_000_000 and b.free_event != insight.NONE for b in recording.blocks)


def test_every_block_keeps_its_call_stack(recorded):
    recording = insight.Recording(recorded[0])
    allocations = [e for e in recording.events if insight.KINDS[e.kind] == "alloc" and not recording.blocks[e.subject].is_present]
    entries = [e for trace in pickle.loads(recorded[0].read_bytes())["device_traces"] for e in trace if e["action"] == "alloc"]
    with_frames = sum(bool(entry["frames"]) for entry in entries)  # threads of PyTorch's own have no frames of Python
    assert len(allocations) == len(entries)
    assert sum(bool(recording.stack(event.stack)) for event in allocations) == with_frames > 10
    assert any("<string>" in frame for event in allocations for frame in recording.stack(event.stack))


def test_pytorch_reads_what_loch_writes(recorded, tmp_path):
    first = insight.Recording(recorded[0])
    path = first.save(tmp_path / "written.pickle")
    data = pickle.loads(path.read_bytes())
    check_snapshot(data)
    assert insight.Recording(path).story() == first.story()
    assert sum(part["total_size"] for part in data["segments"]) == recorded[1]["reserved_bytes.all.current"]
    assert viz.segments(data, lambda lines: lines) and viz.memory(data, lambda lines: lines)
    assert "total_reserved" in viz.segsum(data)
    assert "Device 0" in viz.trace(data) and "raise OutOfMemoryError" in viz.trace(data)
    assert "add_local_files" in viz.trace_plot(data)


def test_loch_replays_and_converts_it(recorded, tmp_path):
    path, stats = recorded
    replay = json.loads(loch("replay", path, "--device", "sim:140GiB", "--json"))
    assert replay["peak_requested"] == stats["requested_bytes.all.peak"] and replay["failures"] == 0
    assert loch("stats", path)
    for ending in ("trace", "loch", "json", "folded", "prom", "pickle"):
        loch("convert", path, tmp_path / f"out.{ending}")
    again = insight.Recording(tmp_path / "out.trace").info
    assert again.peak_requested == stats["requested_bytes.all.peak"]


def test_replay_on_the_gpu_itself(recorded):
    replay = json.loads(loch("replay", recorded[0], "--device", "cuda:0", "--json"))
    assert replay["failures"] == 0 and replay["peak_reserved"] >= replay["peak_requested"]
