#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tests/gpu/torch/bars.py [--only pair,pinned,sleep,programs] [--json FILE]: what the shim promises, measured, as one table.

Each measurement is a process of its own; the allocators take turns. Exits with 1 if a bar is missed. Needs a GPU that
nothing else uses: memory of the process is read from the driver. LOCH_PAIR names a pair.so that was compiled elsewhere
(bench/torch/pair.py --build FILE), for machines without CUDA's headers.
"""
import argparse
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parents[2]
MIB, GIB = 1 << 20, 1 << 30
WIDTHS = {"sleep": 4096, "large sleep": 9216}  # of the 48 layers of a model: 1.5 and 7.6 GiB
sys.path[:0] = [str(HERE), str(TREE / "tests" / "torch")]


# --- measured in a process of its own ---


def measure_pinned():
    """Bytes of pinned memory held for tensors whose sizes are just above powers of two."""
    import torch

    torch.empty(1, device="cuda")
    sizes = [(1 << power) + 4096 for power in range(20, 31)] + [int(2.0832 * GIB)]
    start = time.monotonic()
    keep = [torch.empty(size, dtype=torch.uint8, pin_memory=True) for size in sizes]
    took = time.monotonic() - start
    stats = torch.cuda.host_memory_stats()
    names = [name for name in ("reserved_bytes.current", "allocated_bytes.current") if name in stats]
    for tensor in keep:
        tensor[::4096] = 1
    return {"requested": sum(sizes), "reserved": max(stats[name] for name in names), "seconds": took,
            "is_pinned": all(tensor.is_pinned() for tensor in keep)}


def copy_speed(torch, size):
    """Bytes a second of one copy from pinned memory to the GPU."""
    host, there = torch.empty(size, dtype=torch.uint8, pin_memory=True), torch.empty(size, dtype=torch.uint8, device="cuda")
    best = 0.0
    for _ in range(4):
        torch.cuda.synchronize()
        start = time.monotonic()
        there.copy_(host, non_blocking=True)
        torch.cuda.synchronize()
        best = max(best, size / (time.monotonic() - start))
    return best


def used_by_device(torch):
    free, total = torch.cuda.mem_get_info()
    return total - free


def measure_sleep(allocator, width):
    """A model with graphs: what is left on the GPU while it sleeps, how fast it wakes, and whether graphs replay the same bits."""
    import door
    import torch
    from torch import nn

    torch.manual_seed(3)
    before = used_by_device(torch)
    speed = copy_speed(torch, 2 * GIB)
    torch.cuda.empty_cache()

    class Nothing:
        def __enter__(self): pass

        def __exit__(self, *_): pass

    region = door.region if allocator == "loch" else lambda tag: Nothing()
    with region("weights"):
        options = {"device": "cuda", "dtype": torch.bfloat16}  # made on the GPU: the host would take a minute
        model = nn.Sequential(*(nn.Sequential(nn.Linear(width, width, **options), nn.GELU()) for _ in range(48)))
        x = torch.randn(256, width, **options)
    graphs = []
    with region("graphs"), torch.no_grad():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            model(x)
        torch.cuda.current_stream().wait_stream(side)
        pool = torch.cuda.graph_pool_handle()
        for batch in (256, 64, 8):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                y = model(x[:batch])
            graphs.append((graph, y))

    def run():
        digest = hashlib.sha256()
        for graph, y in graphs:
            graph.replay()
            digest.update(y.float().cpu().numpy().tobytes())
        return digest.hexdigest()

    want = run()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    reserved = torch.cuda.memory_reserved()
    result = {"reserved": reserved, "used": used_by_device(torch), "used_before": before, "copy_speed": speed}
    if allocator != "loch":
        return result
    start = time.monotonic()
    pools = json.loads(door.print_text(door.get().print_pools))
    result["tags"] = tags = list(pools["tags"])
    result["released"] = door.sleep(*tags, contents="pinned")
    torch.cuda.synchronize()
    result["sleep_s"] = time.monotonic() - start
    result["reserved_asleep"] = torch.cuda.memory_reserved()
    result["used_asleep"] = used_by_device(torch)
    start = time.monotonic()
    result["restored"] = door.wake()
    torch.cuda.synchronize()
    result["wake_s"] = time.monotonic() - start
    result["same_bits"] = run() == want
    # a second time: host memory and addresses are there
    door.sleep(*tags, contents="pinned")
    start = time.monotonic()
    restored = door.wake(keeps_host=True)
    torch.cuda.synchronize()
    result["second_wake_speed"] = restored / (time.monotonic() - start)
    result["same_bits"] = result["same_bits"] and run() == want
    return result


def measure(what, allocator):
    import door

    kept = door.install(allocator)
    print(json.dumps(measure_pinned() if what == "pinned" else measure_sleep(allocator, WIDTHS[what])), flush=True)
    return kept


# --- the table ---


class Table:
    def __init__(self):
        self.rows, self.data, self.missed = [], {}, []

    def add(self, what, value, text, bar=None, is_met=None):
        self.rows.append((what, text, bar or "", "" if is_met is None else "ok" if is_met else "MISSED"))
        self.data[what] = value
        if is_met is False:
            self.missed.append(what)
        print("  ".join(self.rows[-1]), file=sys.stderr, flush=True)

    def print(self):
        rows = [("what", "measured", "bar", "")] + self.rows
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        for row in rows:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def in_process(what, allocator, timeout=150):
    env = {**os.environ, "LOCH_TORCH_ALLOCATOR": allocator, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, str(HERE / "bars.py"), "--measure", what, "--allocator", allocator],
                          env=env, capture_output=True, text=True, errors="replace", timeout=timeout, check=False)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        raise RuntimeError(f"{what} with {allocator}: exit code {done.returncode}\n{done.stderr[-3000:]}")
    return json.loads(lines[-1])


def bar_pair(table):
    """bench/torch/pair.py, with fewer rounds: allocate + free through PyTorch's C++ calls."""
    import tempfile

    sys.path.insert(0, str(TREE / "bench" / "torch"))
    import pair

    ways = ("native", "plugin", "shim")
    best = {way: {} for way in ways}
    with tempfile.TemporaryDirectory() as folder:
        library = os.environ.get("LOCH_PAIR") or pair.build(pathlib.Path(folder) / "pair.so")
        for turn in range(2):
            for way in ways[turn:] + ways[:turn]:
                done = subprocess.run([sys.executable, pair.__file__, "--way", way, "--library", str(library), "--rounds", "300000"],
                                      check=True, capture_output=True, text=True, timeout=150)
                for case, value in json.loads(done.stdout.splitlines()[-1]).items():
                    best[way][case] = min(value, best[way].get(case, value))
    for case in best["shim"]:
        row = {way: best[way][case] for way in ways}
        text = f"{row['shim']:.0f} ns (native {row['native']:.0f}, plug-in {row['plugin']:.0f})"
        is_bar = "pair_many" not in case
        table.add(f"pair: {case}", row, text, "<= 80 ns" if is_bar else None, row["shim"] <= 80 if is_bar else None)


def bar_pinned(table):
    for allocator in ("native", "loch"):
        figures = in_process("pinned", allocator)
        ratio = figures["reserved"] / figures["requested"]
        text = f"{ratio:.3f} ({figures['reserved'] / GIB:.2f} of {figures['requested'] / GIB:.2f} GiB, {figures['seconds']:.1f} s)"
        is_loch = allocator == "loch"
        table.add(f"pinned reserved / requested, {allocator}", figures, text, "<= 1.02" if is_loch else None,
                  ratio <= 1.02 and figures["is_pinned"] if is_loch else None)


def bar_sleep(table):
    for what in WIDTHS:
        add_sleep(table, what)


def add_sleep(table, what):
    native, loch = in_process(what, "native"), in_process(what, "loch")
    table.add(f"{what}: bytes of the pools asleep", loch["reserved_asleep"], f"{loch['reserved_asleep']} B of {loch['reserved'] / GIB:.2f} GiB", "0",
              loch["reserved_asleep"] == 0)
    bound = native["used"] - native["reserved"] + 64_000_000
    table.add(f"{what}: process memory asleep", {"loch": loch, "native": native},
              f"{loch['used_asleep'] / MIB:.0f} MiB (native used - reserved {(native['used'] - native['reserved']) / MIB:.0f} MiB)", "<= native + 64 MB",
              loch["used_asleep"] <= bound)
    first = loch["restored"] / loch["wake_s"] if loch["wake_s"] else 0
    for name, speed in (("wake", first), ("second wake", loch["second_wake_speed"])):
        share = speed / loch["copy_speed"]
        table.add(f"{what}: {name} speed", speed, f"{speed / 1e9:.1f} GB/s, {share:.2f} of a copy ({loch['copy_speed'] / 1e9:.1f} GB/s)", ">= 0.85", share >= 0.85)
    table.add(f"{what}: bits after replay", loch["same_bits"], "the same" if loch["same_bits"] else "DIFFERENT", "the same", loch["same_bits"])


def bar_programs(table, is_quick, ways):
    path = pathlib.Path(os.environ.get("OUT", "/tmp")) / f"loch-bars-{os.getuid()}.json"
    command = [sys.executable, str(TREE / "bench/torch/run.py"), "--ways", ways, "--json", str(path)] + (["--quick"] if is_quick else [])
    path.unlink(missing_ok=True)
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if not path.exists():
        table.add("programs", None, (done.stderr or done.stdout)[-500:], "run", False)
        return
    summaries = json.loads(path.read_text())["summaries"]
    for program, ways_of in summaries.items():
        native, loch = ways_of["native"], ways_of["loch"]
        if "failure" in loch or "failure" in native:
            table.add(program, ways_of, f"FAILED: {loch.get('failure') or native.get('failure')}"[:300], "runs", False)
            continue
        time_ratio = loch["step_ms"] / native["step_ms"]
        table.add(program, ways_of, f"reserved / requested {loch['ratio']:.3f} (native {native['ratio']:.3f}), time {time_ratio:.3f} of native, "
                  f"losses {loch['losses']}", "<= native's memory, <= 1.10 of its time, bitwise",
                  loch["ratio"] <= native["ratio"] and time_ratio <= 1.10 and loch["losses"] == "bitwise")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="pair,pinned,sleep,programs")
    parser.add_argument("--full", action="store_true", help="all steps of the programs, in place of a quarter")
    parser.add_argument("--ways", default="native,loch", help="ways of bench/torch/run.py")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--allocator", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure, arguments.allocator)
        return 0
    table = Table()
    bars = {"pair": bar_pair, "pinned": bar_pinned, "sleep": bar_sleep,
            "programs": lambda table: bar_programs(table, not arguments.full, arguments.ways)}
    for name in arguments.only.split(","):
        try:
            bars[name](table)
        except (RuntimeError, subprocess.SubprocessError, OSError, KeyError, StopIteration) as error:
            table.add(name, None, f"FAILED: {error}"[-600:], "", False)
    table.print()
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps({"bars": table.data, "missed": table.missed}, indent=1))
    return 1 if table.missed else 0


if __name__ == "__main__":
    sys.exit(main())
