# SPDX-License-Identifier: MIT
"""Parts of the page that Loch's own programs measure: `loch bench`, bench/core, `loch replay`, and the instructions of small blocks.

A part is a function: it takes a runner and returns tables. Bars are those of docs/benchmarks.md."""
import glob
import os
import shutil

import machine
from runner import MISREAD, Failed, Left, say_misread
from table import OWN, Table, show_bytes

LABELS = {"loch": OWN, "raw": "driver, raw", "ordered": "driver, ordered"}
PAIR_BARS = {512: 15, 65536: 15, 16777216: 15}  # ns on a GPU
RANDOM_BARS = {"log": 180, "uniform": 300}
INSTRUCTION_BARS = {"pair": 140, "zeroed": 190, "size": 180, "in_place": 320}


def devices():
    return ["cpu"] + ["cuda:0"] * bool(machine.gpu())


def on_devices(measure):
    """Makes a part of a function that measures one device. Tables of devices before one that failed are kept."""
    def part(runner):
        tables = []
        for device in devices():
            try:
                tables += measure(runner, device)
            except Failed as reason:
                raise Failed(f"on {device}: {reason}", tables) from reason
            except MISREAD as error:
                raise Failed(f"on {device}: {say_misread(error)}", tables) from error
        return tables
    return part


def count_threads(count):
    return f"{count} thread{'s' * (count != 1)}"


def label(name):
    return LABELS.get(name, name)


def absent_peers(found):
    return [peer["name"] for peer in found.get("peers", []) if not peer["is_present"]]


def group(results, key, figure):
    """Returns {case: {name: [figure]}} of results that name their allocators, in their order."""
    cases = {}
    for one in results:
        if one.get(figure) is not None:
            cases.setdefault(key(one), {})[label(one["allocator"])] = [one[figure]]
    return cases


# --- loch bench and bench/core, beside other allocators ---

@on_devices
def pool(runner, device):
    found = runner.bench("pool", device)
    table = Table(f"Alloc and free on {device}", "ns", absent=absent_peers(found))

    def key(one):
        if one["case"] == "pair":
            return one["case"], one["bytes"]
        return one["case"], one.get("sizes", one.get("live"))
    for (case, what), samples in group(found["results"], key, "ns").items():
        name = {"pair": "alloc + free of {}", "random": "random free + alloc, sizes {}", "live": "random, {} live blocks"}.get(case, case + " {}")
        row = table.add(name.format(show_bytes(what) if case == "pair" else f"{what:,}" if isinstance(what, int) else what), samples)
        limit = {"pair": PAIR_BARS, "random": RANDOM_BARS}.get(case, {}).get(what)
        if limit and device != "cpu":
            row.expect("{} ns", row.figures.get(OWN), limit)
    return [table]


@on_devices
def threads(runner, device):
    found = runner.bench("threads", device)
    rates = Table(f"Throughput of threads on {device}", "million operations a second", "more", absent_peers(found))
    growth = Table(f"Own blocks on {device}: throughput over that of one thread", "ratio", "more")

    def key(one):
        return one["case"], one["threads"], one["bytes"]
    for one in found["results"]:
        one["rate"] = one["operations_per_second"] / 1e6
    for (case, count, size), samples in group(found["results"], key, "rate").items():
        how = "own blocks" if case == "cycle" else "handed over"
        row = rates.add(f"{how}, {count_threads(count)}, {show_bytes(size)}", samples)
        if case == "hand" and device == "cpu" and count == 2:
            row.expect_ratio("mimalloc", 0.8, least=True)
            row.expect_ratio("tcmalloc", 2, least=True)
    for (case, count, size), samples in group(found["results"], key, "speedup").items():
        if case != "cycle":
            continue
        row = growth.add(f"{count_threads(count)}, {show_bytes(size)}", samples)
        limit = {2: 1.8, 16: 10 if device == "cpu" else 8}.get(count)
        if limit:
            row.expect("{}", row.figures.get(OWN), limit, least=True)
    return [rates, growth] if growth.rows else [rates]


def small(runner):
    found = runner.bench("small")
    table = Table("Memory that small blocks take", "resident bytes for each requested byte", absent=absent_peers(found))
    for case, samples in group(found["results"], lambda one: one["case"], "resident_per_requested").items():
        table.add(case, samples)
    return [table]


# --- loch bench and bench/core, beside the driver or plain copies ---

@on_devices
def copy(runner, device):
    found = runner.bench("copy", device)
    table = Table(f"Copies and fills on {device}", "GB/s", "more")
    for one in found["results"]:
        table.add(f"{one['work']}, {show_bytes(one['bytes'])}",
                  {OWN: [one["loch_bytes_per_s"] / 1e9], found["against"]: [one["bare_bytes_per_s"] / 1e9]})
    queueing = found.get("queueing")
    if not queueing:
        return [table]
    calls_table = Table(f"The call of a copy on {device}", "ns")
    calls_table.add(show_bytes(queueing["bytes"]), {OWN: [queueing["loch_ns"]], found["against"]: [queueing["bare_ns"]]})
    return [table, calls_table]


@on_devices
def strided(runner, device):
    found = runner.bench("strided", device)
    table = Table(f"Copies between layouts and types on {device}", "GB/s", "more")
    for one in found["results"]:
        work = f"rows of {show_bytes(one['row_bytes'])}" if one["work"] == "rows" else one["work"]
        row = table.add(f"{work}, {one['layout']}, {show_bytes(one['bytes'])}",
                        {OWN: [one["loch_bytes_per_s"] / 1e9], found["against"]: [one["plain_bytes_per_s"] / 1e9]})
        if device == "cpu" and one["work"] == "rows" and one["row_bytes"] >= 256:
            row.expect_ratio(found["against"], 0.8, least=True)
    return [table]


def tracking(runner):
    table = Table("Calls under the tracking wrapper", "ns")
    for one in runner.bench("tracking")["results"]:
        for call in ("alloc", "free"):
            row = table.add(f"{call}, {count_threads(one['threads'])}, {one['live_blocks']:,} live blocks, frees {one['frees']}",
                            {OWN: [one[f"tracked_{call}_ns"]], "untracked": [one[f"{call}_ns"]]})
            if "bar_ns" in one:
                row.expect("{} ns added", one[f"added_{call}_ns"], one["bar_ns"])
    return [table]


def record(runner):
    table = Table("An event while the recorder runs", "ns")
    results = runner.bench("record")["results"]
    off = {one["threads"]: one["ns_per_event"] for one in results if one["way"] == "off"}
    for one in results:
        if one["way"] == "off":
            continue
        row = table.add(f"{one['way']}, {count_threads(one['threads'])}", {OWN: [one["ns_per_event"]], "not recorded": [off[one["threads"]]]})
        if one["threads"] == 1:
            row.expect("{} ns added", one["more_ns"], 400 if one["way"] == "stacks" else 20)
        elif one["threads"] == 16:
            row.expect("{} times the events of one thread", one["speedup"], 8, least=True)
    return [table]


def reading(runner):
    table = Table("A memory snapshot of PyTorch that is read", "one process for each file", None)
    for one in runner.bench("read")["files"]:
        row = table.add(f"{one['file']}, {one['bytes'] / 1e6:.0f} MB",
                        {"CPU seconds": [one["cpu_seconds"]], "peak memory over the size of the file": [one["peak_ratio"]]})
        row.expect("{} s", one["cpu_seconds"], 5)
        row.expect("{} times the file", one["peak_ratio"], 4)
    return [table]


@on_devices
def compact(runner, device):
    results = runner.bench("compact", device)["results"]
    table = Table(f"Copies of a compaction on {device}", "GB/s", "more")
    row = table.add(f"{len(results)} compactions", {
        OWN: [one["copies_gb_per_second"] for one in results],
        "these copies alone": [one["same_gb_per_second"] for one in results],
        "plain copies": [one["plain_gb_per_second"] for one in results]})
    if device != "cpu":
        row.expect_ratio("plain copies", 0.85, least=True)
    served = Table(f"After a compaction on {device}", "part of the free bytes", None)
    row = served.add("one block has", {OWN: [one["served_part"] for one in results]})
    row.expect("{}", row.figures[OWN], 0.95, least=True)
    return [table, served]


def plan(runner):
    device = "cuda:0" if machine.gpu() else "sim:128GiB,unbacked"
    table = Table(f"How long a compaction is planned on {device}", "ms; no peer", None)
    for one in runner.bench("plan", device)["results"]:
        row = table.add(f"{one['handles']:,} handles, buffers of {one['buffers_of']}, goal: {one['goal']}", {OWN: [one["median_ms"]]})
        row.expect("{} ms", one["median_ms"], 1)
    return [table]


@on_devices
def sleep(runner, device):
    found = runner.bench("sleep", device)
    by_work = {one["work"]: one["bytes_per_s"] / 1e9 for one in found["results"]}
    table = Table(f"Sleep and wake of {show_bytes(found['bytes'])} on {device}", "GB/s", "more")
    row = table.add("contents kept", {OWN: [by_work["sleep"]], "plain copies": [by_work["copy"]]})
    if device != "cpu":
        row.expect_ratio("plain copies", 0.8, least=True)
    return [table]


@on_devices
def behind_driver(runner, device):
    found = runner.bench("behind-driver", device)
    by_work = {one["work"]: one for one in found["results"]}
    table = Table(f"Requests that fit, while the driver maps memory, on {device}", "µs")
    for call in ("alloc", "free"):
        for name, key in (("median", "p50_ns"), ("99.9 %", "p999_ns")):
            row = table.add(f"{call}, {name}", {OWN: [by_work[f"{call}, beside driver"][key] / 1e3],
                                                "driver idle": [by_work[f"{call}, alone"][key] / 1e3]})
            if call == "alloc" and key == "p999_ns":
                row.expect("{} µs", row.figures[OWN], found["bar_ns"] / 1e3)
    return [table]


@on_devices
def share(runner, device):
    table = Table(f"Buffers shared with another process on {device}", "µs; no peer", None)
    for one in runner.bench("share", device)["results"]:
        row = table.add(f"{show_bytes(one['bytes'])}, handles of {show_bytes(one['handle_bytes'])}", {
            name: [one[key] / 1e3] for name, key in (("export", "export_ns"), ("first import", "first_import_ns"),
                                                     ("import again", "import_again_ns"), ("last release", "last_release_ns"))})
        row.expect("{} µs for an import", row.figures["first import"], 50 if device == "cpu" else 200)
    return [table]


def pinned(runner):
    device = "cuda:0" if machine.gpu() else "sim:8GiB"
    found = runner.bench("pinned", device)
    memory = Table(f"Pinned memory held on {device}", "bytes held for each requested byte")
    for one in found["memory"]:
        memory.add(one["case"], {OWN: [one["held"]], "powers of two": [one["powers_of_two"]]})
    times = Table(f"Pinned memory taken and given back on {device}", "ms for a GiB")
    for one in found["times"]:
        parts = one["bytes"] / 2**30 * 1e6
        times.add(f"blocks of {show_bytes(one['bytes'])}", {OWN: [(one["alloc_ns"] + one["free_ns"]) / parts],
                                                           "driver": [(one["driver_alloc_ns"] + one["driver_free_ns"]) / parts]})
    return [memory] + [times] * bool(times.rows)


@on_devices
def calls(runner, device):
    table = Table(f"What the driver's calls cost on {device}", "ns; no peer", None)
    for name, results in runner.bench("calls", device)["calls"].items():
        table.add(name, {show_bytes(one["bytes"]) if "bytes" in one else "any size": [one["ns"]] for one in results})
    return [table]


def instructions(runner):
    if not shutil.which("valgrind"):
        raise Left("valgrind is not installed (scripts/setup test)")
    lines = runner.run([runner.source("scripts", "count-instructions"), runner.build]).splitlines()
    names = [label(name) for name in lines[0].split()[1:]]
    table = Table("Instructions for a block of 48 bytes", "a round", absent=machine.absent_allocators())
    for line in lines[1:]:
        case, *words = line.split()
        row = table.add(case, {name: [float(word)] for name, word in zip(names, words) if word != "-"})
        if case in INSTRUCTION_BARS:
            row.expect("{}", row.figures.get(OWN), INSTRUCTION_BARS[case], is_exact=True)
    return [table]


# --- loch replay ---

def traces(runner):
    """Returns the traces by name. A quick page has the two short ones."""
    found = {os.path.basename(path).split(".")[0]: path for path in sorted(glob.glob(runner.source("bench", "traces", "*.trace.gz")))}
    return {name: path for name, path in found.items() if not runner.is_quick or name in ("diffusion", "stream_infer")}


def held_by_pytorch(runner):
    with open(runner.source("bench", "traces", "pytorch.csv"), encoding="ascii") as file:
        return {line.split(",")[0]: float(line.split(",")[1]) for line in file if not line.startswith("#")}


def replay_sim(runner):
    """Memory and driver time. Simulated devices have the driver costs of an H200, so every run gives the same figures."""
    peer = "PyTorch, recorded"
    memory = Table("Memory held for recorded programs, simulated H200", "bytes reserved for each requested byte, at the peaks",
                   note=f"*{peer}*: what PyTorch 2.11 held on an H200 when the program was recorded; it did not run here.")
    time = Table("Driver calls of these programs, simulated H200", "% of the program's time; no peer", None)
    pytorch = held_by_pytorch(runner)
    for name, path in traces(runner).items():
        runner.shown = {path: "TRACE"}
        found = runner.run_json([runner.loch, "replay", path, "--device", "sim:140GiB", "--json"])
        samples = {OWN: [found["reserved_ratio"]]}
        if name in pytorch:
            samples[peer] = [pytorch[name]]
        row = memory.add(name, samples)
        row.expect("{}", found["reserved_ratio"], 1.02 if found["streams"] == 1 else 1.15, is_exact=True)
        row = time.add(name, {OWN: [100 * found["driver_share"]]})
        row.expect("{} %", 100 * found["driver_share"], 3, is_exact=True)
    return [memory, time]


def replay_cpu(runner):
    """The pool's own time, beside the same loop through malloc. The allocators take turns."""
    ways = {OWN: ("pool", None), "libc": ("libc", None)}
    ways.update({name: ("libc", library) for name, library in machine.allocators().items()})
    tables, left = [], []
    repeats = (3,) if runner.is_quick else (15, 1)
    for repeat in repeats:
        table = Table(f"Events of recorded programs, {repeat} run{'s' * (repeat > 1)} in a process", "ns for an event without driver calls",
                      absent=machine.absent_allocators())
        for name, path in traces(runner).items():
            samples, runner.shown = {way: [] for way in ways}, {path: "TRACE"}
            for _ in runner.rounds():
                for way, (allocator, library) in ways.items():
                    if name in left:
                        break
                    command = [runner.loch, "replay", path, "--allocator", allocator, "--repeat", str(repeat), "--allow-failures", "--json"]
                    found = runner.run_json(command, **({"LD_PRELOAD": library} if library else {}))
                    if found["failures"] or found["peak_requested"] > machine.memory_bytes():
                        left.append(name)
                    samples[way].append(found["ns_per_event"])
            if name not in left:
                table.add(name, samples).expect_ratio("tcmalloc", 1)
        tables.append(table)
    if left:
        tables[0].note = f"Left out, because this machine has too little memory: {', '.join(left)}."
    return tables
