# SPDX-License-Identifier: MIT
"""What recordings are written as, read by the programs that it is for: Perfetto's trace_processor, the parser of prometheus_client."""

import json
import pickle

import insight
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from test_torch_snapshot import BASE, MIB, PROFILE, block, entry, frame, load, segment, snapshot
from trace_processor import TraceProcessor

ODD = 'a "tag" with\\ back;slash\nand a newline \u00e9'


def busy(tmp_path):
    """Two devices, three tags, a failure, a segment that goes."""
    first = [
        entry("segment_alloc", BASE, 4 * MIB, 100),
        entry("alloc", BASE, 1000, 110, frames=[frame(1, "inner"), frame(2, "outer")], user_metadata="weights"),
        entry("alloc", BASE + 1024, 500, 120, frames=[frame(3, "inner;odd"), frame(2, "outer")], user_metadata=ODD),
        entry("free_requested", BASE, 1000, 130),
        entry("free_completed", BASE, 1000, 130),
        entry("oom", 0, 1 << 30, 140),
        entry("alloc", BASE + 4096, 100, 150),
    ]
    second = [entry("segment_alloc", BASE + 64 * MIB, 2 * MIB, 105), entry("segment_free", BASE + 64 * MIB, 2 * MIB, 145)]
    return load(tmp_path, snapshot([segment(BASE, 4 * MIB, [block(BASE + 1024, 512, "active_allocated", 500)])], first, second))


# --- Perfetto ---


@pytest.fixture(scope="module")
def perfetto():
    def open_trace(path):
        processor = TraceProcessor()
        processor.load(path.read_bytes())
        assert processor.query("select name, value from stats where severity != 'info' and value > 0") == []
        return processor

    return open_trace


def counters(processor):
    sql = """select process.name, process_counter_track.name, ts, value from counter
             join process_counter_track on track_id = process_counter_track.id join process using (upid) order by ts"""
    found = {}
    for process, track, time, value in processor.query(sql):
        found.setdefault((process, track), []).append((time, value))
    return found


def test_perfetto_reads_counters_failures_and_blocks(tmp_path, perfetto):
    path = busy(tmp_path).save(tmp_path / "trace.json")
    processor = perfetto(path)
    found = counters(processor)
    assert found["cuda:0", "requested bytes"] == [(10_000, 1000), (20_000, 1500), (30_000, 500), (50_000, 600)]
    assert found["cuda:0", "reserved bytes"] == [(0, 4 * MIB)]
    assert found["cuda:1", "reserved bytes"] == [(5_000, 2 * MIB), (45_000, 0)]
    assert found["cuda:0", "requested by tag weights"] == [(10_000, 1000), (20_000, 1000), (30_000, 0), (50_000, 0)]
    assert [value for _, value in found["cuda:0", f"requested by tag {ODD}"]] == [0, 500, 500, 500]
    assert [value for _, value in found["cuda:0", "requested by tag no tag"]] == [0, 0, 0, 100]
    blocks = processor.query("select name, ts, dur from slice where category = 'block' order by ts")
    assert blocks == [("weights", 10_000, 20_000), (ODD, 20_000, -1), ("cuda:0", 50_000, -1)]
    assert processor.query("select ts, dur from slice where name = 'allocation failed'") == [(40_000, 0)]
    assert ("program",) in processor.query("select name from process")
    assert ("main",) in processor.query("select name from thread")


def test_a_file_of_the_recorder_keeps_devices_apart(tmp_path, perfetto):
    traces = [[entry("alloc", BASE, 10, 1)], [entry("alloc", BASE, 20, 2)]]
    path = load(tmp_path, snapshot([], *traces)).save(tmp_path / "both.loch")
    found = counters(perfetto(insight.Recording(path).save(tmp_path / "trace.json")))
    assert found["cuda:0", "requested bytes"] == [(0, 10)] and found["cuda:1", "requested bytes"] == [(1000, 20)]
    assert [len(trace) for trace in pickle.loads(insight.Recording(path).save(tmp_path / "again.pickle").read_bytes())["device_traces"]] == [1, 1]


def test_a_long_recording_is_thinned_and_keeps_its_peak(tmp_path, perfetto):
    trace, time = [], 0
    for i in range(60_000):
        time += 3
        size = 100_000 if i == 31_234 else 1 + i % 97
        trace += [entry("alloc", BASE, size, time), entry("free_requested", BASE, size, time + 1), entry("free_completed", BASE, size, time + 1)]
    recording = load(tmp_path, snapshot([], trace))
    path = recording.save(tmp_path / "trace.json")
    assert path.stat().st_size < 8_000_000
    samples = counters(perfetto(path))["cuda:0", "requested bytes"]
    assert len(samples) <= 20_002
    assert max(value for _, value in samples) == recording.info.peak_requested == 100_000


def test_the_trace_of_a_real_profile(tmp_path, perfetto):
    recording = insight.Recording(PROFILE)
    processor = perfetto(recording.save(tmp_path / "trace.json"))
    samples = counters(processor)["device:0", "requested bytes"]
    assert max(value for _, value in samples) == recording.info.peak_requested
    assert processor.query("select count(*) from slice where category = 'block'") == [(recording.info.blocks,)]


def test_the_trace_is_strict_json(tmp_path):
    trace = json.loads(busy(tmp_path).save(tmp_path / "trace.json").read_text("utf-8"))
    assert set(trace) == {"displayTimeUnit", "traceEvents"}
    for event in trace["traceEvents"]:
        assert {"ph", "pid", "ts", "name"} <= set(event)
        assert event["ph"] in "MCXibe"


# --- folded stacks ---


def test_folded_stacks_are_those_at_the_peak(tmp_path):
    text = busy(tmp_path).save(tmp_path / "out.folded").read_text()
    assert text.splitlines() == [
        "outer at /opt/model.py:2;inner at /opt/model.py:1 1000",
        "outer at /opt/model.py:2;inner:odd at /opt/model.py:3 500",
    ]


def test_folded_stacks_without_stacks_are_by_allocator_and_tag(tmp_path):
    trace = [entry("alloc", BASE, 10, 1), entry("alloc", BASE + 512, 20, 1, user_metadata="kv;cache"), entry("alloc", BASE + 1024, 5, 1, user_metadata="kv;cache")]
    text = load(tmp_path, snapshot([], trace)).save(tmp_path / "out.folded").read_text()
    assert text.splitlines() == ["cuda:0;kv:cache 25", "cuda:0 10"]


def test_folded_stacks_sum_to_the_peak(tmp_path):
    recording = insight.Recording(PROFILE)
    lines = recording.save(tmp_path / "out.folded").read_text().splitlines()
    assert sum(int(line.rsplit(" ", 1)[1]) for line in lines) == recording.info.peak_requested


# --- OpenMetrics ---


def samples(path):
    found = {}
    for family in text_string_to_metric_families(path.read_text()):
        assert family.documentation
        for sample in family.samples:
            found[sample.name, *sorted(sample.labels.values())] = sample.value
    return found


def test_metrics_are_what_the_parser_of_prometheus_reads(tmp_path):
    found = samples(busy(tmp_path).save(tmp_path / "out.prom"))
    assert found["loch_peak_bytes",] == 1500
    assert found["loch_duration_seconds",] == 50e-6
    assert found["loch_requested_bytes", "cuda:0", "weights"] == 0
    assert found["loch_requested_peak_bytes", "cuda:0", "weights"] == 1000
    assert found["loch_requested_bytes", ODD, "cuda:0"] == 500
    assert found["loch_allocations_total", "cuda:0", "weights"] == 1
    assert found["loch_frees_total", "cuda:0", "weights"] == 1
    assert found["loch_allocated_bytes_total", "", "cuda:0"] == 100
    assert found["loch_reserved_bytes", "cuda:0"] == 4 * MIB
    assert (found["loch_reserved_bytes", "cuda:1"], found["loch_reserved_peak_bytes", "cuda:1"]) == (0, 2 * MIB)
    assert found["loch_failures_total", "cuda:0"] == 1


def test_metrics_of_a_recording_without_events(tmp_path):
    path = load(tmp_path, pickle.dumps({"segments": []})).save(tmp_path / "out.prom")
    assert path.read_text().endswith("# EOF\n")
    assert samples(path)["loch_peak_bytes",] == 0
