# SPDX-License-Identifier: MIT
"""Parts of the page that other programs measure: the scripts of bench/, each beside the program that an adapter is made for.

A part is a function: it takes a runner and returns tables. Bars are those of docs/benchmarks.md and of the adapters' pages."""
import glob
import json
import math
import os
import re
import sys
import tempfile

import machine
from runner import Left
from table import OWN, Table, show_bytes

ADAPTERS = "is not installed (scripts/setup adapters)"


def need_environment(name, what):
    python = machine.environment_python(name)
    if not python:
        raise Left(f"{what} {ADAPTERS}")
    return python


def geometric_mean(values):
    return math.exp(sum(math.log(value) for value in values) / len(values))


def malloc(runner):
    """libloch_malloc.so under programs, beside other allocators under LD_PRELOAD."""
    file = os.path.join(runner.scratch, "malloc.json")
    runner.run([runner.source("bench", "malloc", "run"), "--build", runner.build, "--json", file]
               + (["--programs", runner.programs] if runner.programs else [])
               + (["--rounds", "1", "--only", "python"] if runner.is_quick else []))
    with open(file, encoding="utf-8") as text:
        found = json.load(text)
    runner.raw.append({"file": "malloc.json", "output": found})
    tables, means = [], Table("Geometric means of the ratios of all programs", "Loch over each peer", None)
    for index, title, unit, peer, limit in ((0, "CPU time of programs on libloch_malloc.so", "seconds", "tcmalloc", 1.25),
                                            (1, "Peak memory of programs on libloch_malloc.so", "MiB", "jemalloc", None)):
        table = Table(title, unit, absent=machine.absent_allocators())
        for program, figures in found.items():
            row = table.add(program, {OWN if name == "loch" else name: [values[index] / (1024 if index else 1)]
                                      for name, values in figures.items()})
            if limit:
                row.expect_ratio(peer, limit)
        ratios = {name: [geometric_mean([row.figures[OWN] / row.figures[name] for row in table.rows])]
                  for name in table.columns() if name != OWN}
        row = means.add(title.split(" of")[0], ratios)
        row.expect(f"{{}} of {peer}", row.figures.get(peer), 1.1)
        tables.append(table)
    return tables + [means]


def rows_of(text, names):
    """Returns {first word: [numbers]} of lines with as many numbers as `names`; and the first words of lines "NAME not there"."""
    found, absent = {}, []
    for line in text.splitlines():
        words = line.split()
        if len(words) == 1 + len(names) and all(re.fullmatch(r"-?[\d.]+", word) for word in words[1:]):
            found[words[0]] = [float(word) for word in words[1:]]
        elif line.endswith("not there"):
            absent.append(words[0])
    return found, absent


def from_runs(runs, absent, tables, names):
    """Adds a row to the table of each figure: `runs` has {way: [figures]} of every run. Returns the tables."""
    for index, (title, unit, better, case) in enumerate(tables):
        table = names.setdefault((title, unit), Table(title, unit, better, absent, own=(OWN, "Loch without tag")))
        table.add(case, {way: [run[way][index] for run in runs if way in run] for way in dict.fromkeys(way for run in runs for way in run)})
    return list(names.values())


def umf(runner):
    need_environment("umf", "UMF")
    runs, absent = [], []
    for _ in runner.rounds():
        found, absent = rows_of(runner.run([runner.source("bench", "umf", "run"), runner.build, "1" if runner.is_quick else "3"]), ("ns", "MiB"))
        runs.append({OWN if name == "loch" else f"UMF's {name} pool": figures for name, figures in found.items()})
    return from_runs(runs, [f"UMF's {name} pool" for name in absent], (
        ("Loch's pool under UMF: CPU time", "ns", "less", "a free and a malloc, two threads, 16 B to 64 KiB"),
        ("Loch's pool under UMF: memory", "MiB", "less", "peak of the process")), {})


def arrow(runner):
    need_environment("arrow", "pyarrow")
    works = ("build", "sort", "group", "parquet", "buffers", "asked", "peak")
    names = {"loch": OWN, "loch-untagged": "Loch without tag"}
    runs, absent = [], []
    for _ in runner.rounds():
        found, absent = rows_of(runner.run([runner.source("bench", "arrow", "run"), runner.build, "1" if runner.is_quick else "3"]), works)
        runs.append({names.get(name, f"Arrow's {name}"): figures for name, figures in found.items()})
    time, memory = "Loch's memory pool under Arrow: CPU time", "Loch's memory pool under Arrow: memory"
    return from_runs(runs, [f"Arrow's {name}" for name in absent], [(time, "ms", "less", work) for work in works[:5]]
                     + [(memory, "MiB", "less", "asked for"), (memory, "MiB", "less", "peak of the process")], {})


def onnxruntime(runner):
    need_environment("onnxruntime", "ONNX Runtime")
    names = {"own": "own arenas", "shared": "one arena", "loch": OWN}
    text = runner.run([runner.source("bench", "onnxruntime", "run.py"), "--build", runner.build]
                      + (["--clients", "1", "--requests", "6", "--repeat", "1"] if runner.is_quick else []))
    order, figures = ("memory held, MiB", "peak RSS, MiB", "CPU seconds", "wall seconds"), {}
    for line in text.splitlines():
        words = line.split()
        if len(words) == 9 and words[1] in names:
            for what, word in zip(order, words[2:6]):
                figures.setdefault((what, words[0]), {})[names[words[1]]] = [float(word)]
    table = Table("Four sessions of ONNX Runtime", "as the rows say", note="Results were equal bit for bit." * ("equal bit for bit" in text))
    for (what, clients), samples in sorted(figures.items(), key=lambda one: order.index(one[0][0])):
        row = table.add(f"{what}, {clients} client{'s' * (clients != '1')}", samples)
        if what != "wall seconds":
            row.expect_ratio("own arenas", 1.02 if what == "CPU seconds" else 0.85)
    return [table]


def embedder(runner):
    python, folder = machine.environment_python("embedder-bench"), os.path.join(machine.CACHE, "embedder")
    program = os.path.join(runner.build, "bench", "embedder")
    if not python or not os.path.exists(os.path.join(folder, "version")):
        raise Left("the model of apps/embedder is not installed (scripts/setup embedder-bench)")
    if not os.path.exists(program):
        raise Left("apps/embedder was not built")
    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "figures.json")
        runner.run([python, runner.source("bench", "embedder", "cpu.py"), program, folder, "--json", path]
                   + (["--rounds", "1", "--only", "32 x 32"] if runner.is_quick else []))
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    rates = Table("all-MiniLM-L6-v2, 2 threads, batches of 32 texts", "sentences a second", "more")
    memory = Table("all-MiniLM-L6-v2: resident memory above that before the model was opened, at its peak", "MiB")
    for case, sides in found.items():
        names = {label: OWN if label == "loch" else label.replace("onnxruntime", "ONNX Runtime,") for label in sides}
        row = rates.add(case, {names[label]: side["rates"] for label, side in sides.items()})
        row_memory = memory.add(case, {names[label]: [side["memory"]] for label, side in sides.items()})
        for peer in names.values():
            if peer != OWN:
                row.expect_ratio(peer, 0.9, least=True)
                row_memory.expect_ratio(peer, 0.7)
    return [rates, memory]


def ggml(runner):
    if not os.path.exists(os.path.join(machine.CACHE, "llama", "version")):
        raise Left(f"llama.cpp {ADAPTERS}")
    if not os.path.exists(os.path.join(runner.build, "adapters", "ggml", "adapter", "libloch_ggml.so")):
        runner.run([runner.source("tests", "adapters", "ggml", "run"), runner.build])
    size = ["2048", "64", "16", "1", "1"] if runner.is_quick else ["131072", "512", "256", "1", "3"]
    text = runner.run([runner.source("bench", "ggml", "run"), runner.build, *size])
    ways = {"plain": "llama.cpp", "loch": OWN}
    runs = [words for words in map(str.split, text.splitlines()) if len(words) == 9 and words[0] in ways]
    samples = {way: [[float(word) for word in run[1:]] for run in runs if run[0] == name] for name, way in ways.items()}
    title = f"A context of {int(size[0]):,} tokens"
    tables = [Table(f"{title}: memory", "MiB"), Table(f"{title}: time", "as the rows say"), Table(f"{title}: rates", "tokens a second", "more")]
    for index, table, case in ((0, 0, "RSS"), (1, 0, "peak RSS"), (4, 1, "load, s"), (7, 1, "CPU time of a token, ms"),
                               (5, 2, "prompt"), (6, 2, "generated")):
        tables[table].add(case, {way: [run[index] for run in of_way] for way, of_way in samples.items()})
    return tables


def opencl(runner):
    program = os.path.join(runner.build, "bench", "opencl")
    if not machine.library_path("libOpenCL.so.1"):
        raise Left(f"OpenCL {ADAPTERS}")
    if not os.path.exists(program):
        raise Left("bench/opencl is not in this build")
    samples, device = {}, ""
    for _ in runner.rounds():
        text = runner.run([program])
        device = text.splitlines()[0]
        for name, size, ours, theirs in re.findall(r"^(\S.*?) +(\d+) KiB +Loch +([\d.]+) us +OpenCL +([\d.]+) us", text, re.M):
            row = samples.setdefault(f"{name}, {show_bytes(1024 * int(size))}", {OWN: [], "OpenCL": []})
            row[OWN].append(float(ours))
            row["OpenCL"].append(float(theirs))
    table = Table(f"Calls on {device}", "µs")
    for case, row in samples.items():
        table.add(case, row)
    return [table]


def report(runner):
    sys.path.insert(0, runner.source("tests", "browser"))
    from chromium import find_program  # beside the tests that drive it
    if not find_program():
        raise Left("Chromium is not installed (scripts/setup browser)")
    files = [runner.source("bench", "traces", "stream_infer.trace.gz")] if runner.is_quick else []
    table = Table("Reports of recordings", "as the columns say; no peer", None)
    for one in runner.run_json([runner.source("bench", "report", "run"), "--build", runner.build, "--json", *files]):
        row = table.add(f"{one['file']}, {one['events']:,} events", {
            "made, s": [one["made_s"]], "CPU, s": [one["cpu_s"]], "file, MB": [one["bytes"] / 1e6], "first picture, ms": [one["shown_ms"]],
            "complete, ms": [one["ready_ms"]], "zoom, frames/s": [one["zoom_frames_s"]], "cursor, frames/s": [one["scrub_frames_s"]]})
        if one["file"] == "million.trace":
            row.expect("{} s", one["made_s"], 3)
            row.expect("{} MB", one["bytes"] / 1e6, 12)
            row.expect("{} ms to the first picture", one["shown_ms"], 2000)
            row.expect("{} frames/s", one["zoom_frames_s"], 30, least=True)
        elif one["file"] == "ten-million.trace":
            row.expect("{} MB", one["bytes"] / 1e6, 30)
    return [table]


def torch(runner):
    if not machine.gpu():
        raise Left("there is no GPU")
    python = machine.environment_python("torch") or "python3"
    if not machine.first_line([python, "-c", "import torch; print(torch.cuda.is_available() or '')"]):
        raise Left("there is no PyTorch that can use the GPU (scripts/setup torch)")
    libraries = os.path.join(runner.build, "lib")
    version = machine.first_line([python, "-c", "import torch; print('_'.join(torch.__version__.split('.')[:2]))"])
    shim = os.path.join(libraries, f"loch_torch_{version}.so")
    if not glob.glob(shim):
        runner.run([runner.source("scripts", "build-torch-shim"), python, libraries])
    file = os.path.join(runner.scratch, "torch.json")
    runner.run([python, runner.source("bench", "torch", "run.py"), "--library", os.path.join(libraries, "libloch_torch.so"), "--json", file]
               + (["--quick", "--programs", "unet_infer"] if runner.is_quick else ["--repeat", "3"]), LOCH_TORCH_SHIM=shim)
    with open(file, encoding="utf-8") as text:
        found = json.load(text)
    runner.raw.append({"file": "torch.json", "output": found})
    names = {"loch": OWN, "native": "native", "expandable": "expandable segments"}
    memory = Table("PyTorch programs: memory", "bytes reserved for each byte held, at the peaks")
    time = Table("PyTorch programs: time of a step", "ms")
    for program, ways in found["summaries"].items():
        good = {names[way]: summary for way, summary in ways.items() if "failure" not in summary}
        row = memory.add(program, {name: [summary["ratio"]] for name, summary in good.items()})
        row.expect("{}", row.figures.get(OWN), {"offload_train": 1.6, "llm_serve": 1.027}.get(program, 1.05))
        time.add(program, {name: [summary["step_ms"]] for name, summary in good.items()}).expect_ratio("native", 1.03)
    return [memory, time]
