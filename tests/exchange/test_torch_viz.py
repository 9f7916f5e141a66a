# SPDX-License-Identifier: MIT
"""PyTorch's own torch/cuda/_memory_viz.py reads the snapshots that Loch writes, and Loch reads what PyTorch makes on a CPU."""

import pickle
import subprocess
import sys

import insight
import pytest
import torch
from test_torch_snapshot import BASE, MIB, PROFILE, check_snapshot, entry, frame, load, random_trace, segment, simple, snapshot
from torch.cuda import _memory_viz as viz


def unchanged(lines):
    """In place of the script that draws flame graphs, which is downloaded."""
    return lines


def written(tmp_path, source):
    recording = insight.Recording(source) if isinstance(source, str) else load(tmp_path, source)
    path = recording.save(tmp_path / "written.pickle")
    return recording, path, pickle.loads(path.read_bytes())


def expandable():
    trace = [entry("segment_map", BASE + i * 2 * MIB, 2 * MIB, i) for i in range(4)]
    trace += [entry("alloc", BASE + MIB, 3 * MIB, 10, frames=[frame(1)]), entry("segment_unmap", BASE + 6 * MIB, 2 * MIB, 11)]
    return snapshot([segment(BASE, 6 * MIB, [])], trace)


@pytest.mark.parametrize("source", [PROFILE, simple(), random_trace(1), expandable()], ids=["profile", "simple", "random", "expandable"])
def test_every_view_of_memory_viz(tmp_path, source):
    recording, path, data = written(tmp_path, source)
    check_snapshot(data)
    reserved = sum(part["total_size"] for part in data["segments"])
    lines = viz.segments(data, unchanged).splitlines()
    assert sum(int(line.rsplit(" ", 1)[1]) for line in lines) == reserved
    assert sum(int(line.rsplit(" ", 1)[1]) for line in viz.memory(data, unchanged).splitlines()) == reserved
    assert f"total_allocated: {viz.Bytes(recording.info.live_bytes)}\n" in viz.segsum(data)
    text = viz.trace(data)
    for i, events in enumerate(data["device_traces"]):
        if events:
            assert f"Device {i} ----------------\n{len(events)} entries\n" in text
    assert "add_local_files" in viz.trace_plot(data) and "add_local_files" in viz.trace_plot(data, plot_segments=True)
    assert viz.compare(data["segments"], data["segments"], unchanged) == ""


def test_the_program_of_memory_viz_takes_the_file(tmp_path):
    _, path, _ = written(tmp_path, PROFILE)
    page = tmp_path / "page.html"
    subprocess.run([sys.executable, "-m", "torch.cuda._memory_viz", "trace_plot", str(path), "-o", str(page)], check=True)
    assert "snapshot.pickle" in page.read_text()


def test_a_snapshot_that_pytorch_makes_now(tmp_path):
    with torch.profiler.profile(profile_memory=True, record_shapes=True, with_stack=True) as profile:
        keep = torch.ones(1000)
        (torch.ones(5000) + 1).sum()
    recording = load(tmp_path, viz._profile_to_snapshot(profile))
    assert recording.info.peak_requested >= 24_000
    assert any(b.bytes == 4000 and b.free_event == insight.NONE for b in recording.blocks)
    assert keep.sum() == 1000
