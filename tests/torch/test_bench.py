# SPDX-License-Identifier: MIT
"""bench/torch without a GPU: each program in tiny sizes on the CPU, the runner, recorded requests on a simulated device, and the tables.

bench-gpu-1.json and bench-gpu-2.json are made up: files as run.py writes them, with figures that no machine measured.
"""

import json
import math
import os
import pathlib
import subprocess
import sys

import pytest
import torch

HERE = pathlib.Path(__file__).resolve().parent
BENCH = HERE.parents[1] / "bench" / "torch"
FILES = [str(HERE / name) for name in ("bench-gpu-1.json", "bench-gpu-2.json")]
sys.path.insert(0, str(BENCH))

import pair  # noqa: E402
import peers  # noqa: E402
import place  # noqa: E402
import programs  # noqa: E402
import recorded  # noqa: E402
import run  # noqa: E402
import tables  # noqa: E402


@pytest.fixture
def tiny():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    place.use("cpu", True)
    yield
    place.use("cuda", False)
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(False)


def test_names_agree():
    assert set(programs.PROGRAMS) == set(run.PROGRAMS) | set(run.RECORDED)
    assert len(run.PROGRAMS) >= 12
    assert peers.SETTINGS == run.SETTINGS
    assert set(run.WAYS) == set(programs.WAYS) | {"again"}


@pytest.mark.parametrize("name", run.PROGRAMS)
def test_program_repeats_itself(name, tiny):
    first, second = (programs.run(name, peers.Nothing()) for _ in range(2))
    assert len(first["losses"]) == 3 and len(first["step_ms"]) == 2
    assert all(map(math.isfinite, first["losses"]))
    assert first["losses"] == second["losses"]


def test_recorded_requests_on_a_simulated_device(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCH_BENCH_RECORDED", str(pair.build(tmp_path / "recorded.so", "recorded.cpp")))
    trace = os.path.join(recorded.TRACES, "diffusion.trace.gz")
    torch.cuda.reset_peak_memory_stats(0)
    time, count, peak = recorded.replay(trace, is_paced=False)
    stats = torch.cuda.memory_stats(0)
    assert count == 18581 and peak == 761355547 and time > 0  # of bench/traces/README.md
    assert stats["requested_bytes.all.peak"] == peak
    assert stats["allocated_bytes.all.current"] == 0


def test_gaps_are_cut():
    numbers, slots, streams, peak = recorded.read_events(os.path.join(recorded.TRACES, "stream_infer.trace.gz"))
    times = numbers[4::5]
    assert (slots, streams, peak) == (2898, 2, 484933632)
    assert max(later - earlier for earlier, later in zip(times, times[1:])) == recorded.GAP_US
    assert times[-1] < 14306517


def run_tiny(*arguments):
    command = [sys.executable, str(BENCH / "run.py"), "--tiny", "--ways", "native,loch", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=300, check=False)


def test_runner_writes_every_run(tmp_path):
    done = run_tiny("--programs", "gnn_train", "--turn", "4", "--json", str(tmp_path / "out.json"))
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out.json").read_text())
    assert [(one["way"], one["round"]) for one in found["runs"]] == [("native", 4), ("loch", 4)]
    assert found["summaries"]["gnn_train"]["loch"]["losses"] == "bitwise"
    assert len(found["summaries"]["gnn_train"]["loch"]["times"]) == 1


def test_failures_do_not_end_the_run(tmp_path):
    done = run_tiny("--programs", "gnn_train", "--timeout", "0", "--json", str(tmp_path / "out.json"))
    assert done.returncode == 1
    found = json.loads((tmp_path / "out.json").read_text())
    assert len(found["runs"]) == 2
    assert all("not ended after 0.0 s" in one["failure"] for one in found["runs"])


# --- tables ---


def cells(lines, start):
    """The cells of the row that starts with a name, in the first table that has it."""
    return [cell.strip() for cell in next(line for line in lines if line.startswith(f"| {start} |")).strip("|").split("|")]


def test_tables_of_two_files():
    sessions, runs = tables.merge(FILES)
    assert {one["session"] for one in runs} == {0, 1}
    lines = tables.page(sessions, runs)
    assert "2000-01-01 and 2000-01-02" in lines[0] and "Test GPU" in lines[0] and "RMM 00.00" in lines[0]
    assert "not a measurement" in lines[0]
    row = cells(lines, "graph_serve")
    assert row[:4] == ["graph_serve", "1.0 GiB", "1.50", "1.10"]
    assert row[4].startswith("1.70<sup>")  # with what NVML has beyond cudaMallocAsync's own figure
    assert row[5].startswith("fails<sup>") and row[6] == "**1.00**"
    assert cells(lines, "offload_train")[5].startswith("wrong results")
    assert cells(lines, "gnn_train")[5] == "1.75"
    assert cells(lines, "geometric mean")[5:] == ["-", "1.10"]  # no mean over fewer programs
    notes = "\n".join(lines)
    assert "`RuntimeError: no capture \\| here`. RMM's plug-in has no pool of its own for a graph." in notes
    assert "gnn_train (relative difference: PyTorch again 1e-04, Loch 1e-04)" in notes
    assert cells(lines, "diffusion")[6] == "**1.04**, 50 ns"


def test_times_are_paired_by_round():
    lines = tables.page(*tables.merge(FILES))
    second = lines[lines.index(next(line for line in lines if line.startswith("Step time"))):]
    row = cells(second, "graph_serve")
    assert row[1:3] == ["10.0 ms", "1.03 (1.02 to 1.04)"]
    assert row[6] == "0.95 (0.90 to 1.00)"


def test_pages_are_filled_between_their_markers():
    text = f"before\n{tables.START}\nold\n{tables.END}\nafter\n"
    assert tables.fill(text, ["new"]) == f"before\n{tables.START}\n\nnew\n\n{tables.END}\nafter\n"
    with pytest.raises(ValueError):
        tables.fill("nothing", ["new"])
    for name in ("README.md", "docs/benchmarks.md"):
        page = (HERE.parents[1] / name).read_text()
        assert tables.fill(page, ["new"]) != page


def test_the_short_table_has_means_ranges_and_misses():
    lines = tables.short(*tables.merge(FILES))
    assert "not a measurement" in lines[0]
    head = next(line for line in lines if "programs |" in line)
    count = int(head.split()[1])
    assert count == len({one["program"] for one in tables.merge(FILES)[1]} & set(run.PROGRAMS))
    long = tables.page(*tables.merge(FILES))
    assert cells(lines, "memory / needed, geometric mean")[5] == cells(long, "geometric mean")[6] == "1.10"
    assert cells(lines, "memory / needed, geometric mean")[4] == "-"  # RMM fails in one program
    assert cells(lines, "fails or computes wrong results in") == ["fails or computes wrong results in", "0", "0", "0", "2", "0"]
    assert " to " in cells(lines, "memory / needed, range")[5]
    assert any(line.startswith("Misses of Loch: ") for line in lines)


def test_pages_are_written(tmp_path):
    (tmp_path / "docs").mkdir()
    for name in ("README.md", "docs/benchmarks.md"):
        (tmp_path / name).write_text(f"{tables.START}\n{tables.END}\n")
    script = HERE.parents[1] / "scripts" / "bench-gpu"
    subprocess.run([sys.executable, str(script), "--table", *FILES, "--out", str(tmp_path), "--readme", str(tmp_path / "README.md")], check=True)
    assert "Misses of Loch" in (tmp_path / "README.md").read_text()
    assert (tmp_path / "docs" / "benchmarks.md").read_text().count("geometric mean") == 2


def test_a_cell_without_a_run_says_so(tmp_path):
    found = json.loads(pathlib.Path(FILES[0]).read_text())
    found["runs"] = [one for one in found["runs"] if one["way"] != "rmm" or one["program"] != "gnn_train"]
    (tmp_path / "part.json").write_text(json.dumps(found))
    assert cells(tables.page(*tables.merge([tmp_path / "part.json"])), "gnn_train")[5] == "not run"


def test_programs_without_a_run_are_named():
    line = next(line for line in tables.page(*tables.merge(FILES)) if line.startswith("Not measured: "))
    assert "llm_serve, beam_search" in line and line.endswith("recorded_stream_infer.")
    assert "graph_serve" not in line and "recorded_diffusion" not in line


def test_quick_and_whole_runs_are_not_joined(tmp_path):
    found = json.loads(pathlib.Path(FILES[0]).read_text())
    found["sessions"][0]["is_quick"] = True
    (tmp_path / "quick.json").write_text(json.dumps(found))
    with pytest.raises(ValueError):
        tables.merge([FILES[1], tmp_path / "quick.json"])
