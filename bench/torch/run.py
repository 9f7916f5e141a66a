#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs real PyTorch programs and recorded requests with several allocators, in turn, and compares memory, time and results.

Ways: "native" is PyTorch's allocator, "again" a second run of it, which shows the noise; "expandable" has its expandable segments, "async"
cudaMallocAsync behind PyTorch, "rmm" RMM's pool behind RMM's plug-in (LOCH_RMM names a folder with its wheels unpacked), "loch" is the shim
(build/lib/loch_torch_2_11.so or LOCH_TORCH_SHIM), "plugin" the plug-in of libloch_torch.so.

Each run is a process of its own. The file of --json is written after each run: an interrupt keeps what was measured, and --resume goes on
from there. Exits with 1 when a program failed natively or with Loch, or its losses with Loch differ from those of the native run, otherwise
with 3 when the time was up before all runs. Other ways may fail: their cells say why.
"""
import argparse
import ctypes
import datetime
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BUILT = os.path.join(ROOT, "build", "lib", "libloch_torch.so")
PROGRAMS = ("llm_serve", "beam_search", "graph_serve", "unet_infer", "stream_infer", "model_swap", "gpt_train", "moe_train", "offload_train",
            "adapter_tune", "rl_loop", "detect_train", "loader_train", "gnn_train")
RECORDED = ("recorded_llm_serve_head", "recorded_gpt_train", "recorded_gnn_train", "recorded_diffusion", "recorded_stream_infer")
WAYS = ("native", "again", "expandable", "async", "rmm", "loch", "plugin")
SETTINGS = {"expandable": "expandable_segments:True", "async": "backend:cudaMallocAsync"}  # as peers.py checks them
OWN = ("native", "again", "loch", "plugin")
TOLERANCE = 0.02  # of a loss, relative
SAMPLE_S = 0.004
FIGURES = ("peak_held", "peak_requested", "peak_reserved", "allocs", "driver_calls")
PROBE = """
import json, torch
p = torch.cuda.get_device_properties(0)
print(json.dumps({"torch": torch.__version__, "cuda": torch.version.cuda, "gpu": p.name, "gpu_bytes": p.total_memory}))
"""


# --- one run ---


def environment(way):
    """Returns the environment of a process: without allocator settings, except those of the way."""
    result = {name: value for name, value in os.environ.items()
              if name not in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING")}
    result["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # repeatable results
    result["PYTHONWARNINGS"] = "ignore"
    result["PYTHONDONTWRITEBYTECODE"] = "1"
    if way in SETTINGS:  # the first name is that of PyTorch 2.9 and later
        result["PYTORCH_ALLOC_CONF"] = result["PYTORCH_CUDA_ALLOC_CONF"] = SETTINGS[way]
    return result


def tail(text, lines=12):
    return "\n".join(text.strip().splitlines()[-lines:])


def last_object(text):
    lines = text.strip().splitlines()
    try:
        return json.loads(lines[-1]) if lines else None
    except ValueError:
        return None


class Device:
    """The memory in use on GPU 0, by all programs, as NVML has it; None without NVML."""

    class Memory(ctypes.Structure):
        _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]

    def __init__(self):
        self.handle, self.memory = ctypes.c_void_p(), self.Memory()
        try:
            self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
            is_there = not self.nvml.nvmlInit_v2() and not self.nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.handle))
        except (OSError, AttributeError):
            is_there = False
        if not is_there:
            self.nvml = None
        self.idle = self.used()

    def settle(self):
        """Waits up to two seconds until the driver has taken back the memory of the last process."""
        start = time.monotonic()
        while self.nvml and time.monotonic() - start < 2 and self.used() > self.idle + (16 << 20):
            time.sleep(SAMPLE_S)

    def used(self):
        if not self.nvml or self.nvml.nvmlDeviceGetMemoryInfo(self.handle, ctypes.byref(self.memory)):
            return None
        return self.memory.used

    def driver(self):
        text = ctypes.create_string_buffer(80)
        if not self.nvml or self.nvml.nvmlSystemGetDriverVersion(text, len(text)):
            return None
        return text.value.decode()


class Run:
    """A process for one program in one way. It loads PyTorch when it is made, while another one runs, and waits for start()."""

    def __init__(self, program, way, arguments):
        self.program, self.way, self.arguments = program, way, arguments
        self.out, self.err = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
        command = [sys.executable, os.path.join(HERE, "programs.py"), program, "--library", arguments.library, "--wait",
                   "--allocator", "native" if way == "again" else way]
        command += ["--quick"] * arguments.quick + ["--device", "cpu", "--tiny"] * arguments.tiny
        self.process = subprocess.Popen(command, env=environment(way), stdin=subprocess.PIPE, stdout=self.out, stderr=self.err, text=True)

    def start(self, device):
        """Runs the program; returns a dictionary with its results, or with "failure"."""
        device.settle()
        most, start = 0, time.monotonic()
        try:
            self.process.stdin.write("go\n")
            self.process.stdin.close()
        except OSError:
            pass  # it has ended; what it wrote says why
        while self.process.poll() is None and time.monotonic() - start < self.arguments.timeout:
            time.sleep(SAMPLE_S)
            most = max(most, device.used() or 0)
        result = self.result()
        result["wall_s"] = time.monotonic() - start
        if most:
            result["device_peak"] = most - device.idle  # with CUDA's context and its libraries
        return result

    def result(self):
        if self.process.poll() is None:
            self.end()
            return {"failure": f"not ended after {self.arguments.timeout} s\n{tail(self.read(self.err))}"}
        result, said = last_object(self.read(self.out)), tail(self.read(self.err))
        if self.process.returncode != 0:
            when = "after its work was done, " if result else ""
            return {"failure": f"{when}exit code {self.process.returncode}\n{said}"}
        if not result:
            return {"failure": f"printed no result\n{said}"}
        return dict(result, stderr=said) if said else result

    @staticmethod
    def read(file):
        file.seek(0)
        return file.read()

    def end(self):
        """Ends the process, also one that has not started."""
        self.process.kill()
        self.process.wait()


# --- summaries ---


def compare_losses(losses, expected):
    """"bitwise", "close" or "DIFFER", and the largest relative difference."""
    if losses == expected:
        return "bitwise", 0.0
    if len(losses) != len(expected) or not all(map(math.isfinite, losses)):
        return "DIFFER", math.inf
    worst = max(abs(a - b) / max(abs(b), 1e-9) for a, b in zip(losses, expected))
    return ("close" if worst <= TOLERANCE else "DIFFER"), worst


def mean_step(run):
    return sum(run["step_ms"]) / len(run["step_ms"]) if run["step_ms"] else 0.0


def summarize(runs, native):
    """Summarises the runs of one program in one way: the largest peaks, the median time. `native` has the good native runs."""
    good = [run for run in runs if "failure" not in run]
    if not good:
        return {"failure": runs[0]["failure"]}
    expected = native[0]["losses"] if native else None
    words = [compare_losses(run["losses"], expected) for run in good] if expected else [("no native run", 0.0)]
    worst = max(words, key=lambda word: (word[0] == "DIFFER", word[1]))
    most = max(good, key=lambda run: run["peak_reserved"])
    result = {name: most[name] for name in FIGURES}
    if most["way"] in ("async", "rmm"):  # they do not count what was asked for; PyTorch's allocator does, for the same program
        result["peak_held"] = max((run["peak_held"] for run in native), default=0)
    held = result["peak_held"]
    result["ratio"] = most["peak_reserved"] / held if held else math.inf
    result["step_ms"] = statistics.median(map(mean_step, good))
    times = {(run["session"], run["round"]): mean_step(run) for run in native}
    ratios = [mean_step(run) / time for run in good if (time := times.get((run["session"], run["round"])))]
    result["times"] = ratios  # of a step, relative to native's in the same round
    if "ns_per_event" in good[0]:
        result["ns_per_event"] = statistics.median(run["ns_per_event"] for run in good)
    outside = [run["device_peak"] - run["peak_reserved"] for run in good if "device_peak" in run]
    result["outside"] = statistics.median(outside) if outside else None  # of the allocator: CUDA's context, libraries, graphs
    result["losses"], result["loss_difference"] = worst
    result["last_loss"] = good[0]["losses"][-1]
    result["runs"] = len(good)
    result["failures"] = [run["failure"] for run in runs if "failure" in run]
    return result


def summarize_all(runs):
    """Returns the summaries by program and way, in the order of the runs."""
    grouped = {}
    for run in runs:
        grouped.setdefault(run["program"], {}).setdefault(run["way"], []).append(run)
    result = {}
    for program, ways in grouped.items():
        native = [run for run in ways.get("native", []) if "failure" not in run]
        order = sorted(ways, key=WAYS.index)
        result[program] = {way: summarize(ways[way], native) for way in order}
    return result


def is_bad(way, summary):
    return way in OWN and ("failure" in summary or bool(summary["failures"]) or summary["losses"] == "DIFFER")


HEADER = ("program", "allocator", "held MiB", "reserved MiB", "ratio", "ms/step", "time", "losses", "allocs",
          "driver calls")


def row(program, way, summary):
    if "failure" in summary:
        return (program, way, "FAILED") + ("",) * 7
    losses = summary["losses"]
    if losses not in ("bitwise", "no native run"):
        losses += f" {summary['loss_difference']:.1e}"
    return (program, way, f"{summary['peak_held'] / 2**20:.0f}", f"{summary['peak_reserved'] / 2**20:.0f}",
            f"{summary['ratio']:.3f}", f"{summary['step_ms']:.2f}",
            f"{statistics.median(summary['times']):.3f}" if summary["times"] else "-", losses, str(summary["allocs"]),
            str(summary["driver_calls"]))


def print_table(rows):
    widths = [max(len(line[i]) for line in rows) for i in range(len(rows[0]))]
    for line in rows:
        cells = [cell.ljust(width) if i < 2 else cell.rjust(width) for i, (cell, width) in enumerate(zip(line, widths))]
        print("  ".join(cells).rstrip())


def report(summaries):
    print_table([HEADER] + [row(program, way, summary) for program, ways in summaries.items() for way, summary in ways.items()])


# --- all runs ---


def first_line(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=30, cwd=ROOT, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip().split("\n")[0] if done.returncode == 0 else ""


def describe(arguments, device):
    """Returns what a reader of the figures has to know: machine, versions, date."""
    if arguments.tiny:
        machine = {"torch": "", "cuda": "", "gpu": "none: a test on the CPU", "gpu_bytes": 0}
    else:
        done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            reason = tail(done.stderr, 1) or "it gave no reason"
            sys.exit(f"run.py: PyTorch with a GPU is needed: {reason}")
        machine = last_object(done.stdout)
    now = datetime.datetime.now(datetime.timezone.utc)
    loch = first_line([os.path.join(os.path.dirname(os.path.dirname(arguments.library)), "bin", "loch"), "--version"])
    return dict(machine, driver=device.driver(), date=now.strftime("%Y-%m-%d"), time=now.strftime("%H:%M UTC"), is_quick=arguments.quick,
                loch=loch, commit=first_line(["git", "rev-parse", "--short=12", "HEAD"]), cores=len(os.sched_getaffinity(0)),
                system=f"Linux {platform.release()}", rounds=arguments.repeat)


def names(text, known, what):
    chosen = text.split(",")
    for name in chosen:
        if name not in known:
            sys.exit(f"run.py: no {what} is called {name!r}; there are {', '.join(known)}")
    return chosen


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", default=",".join(PROGRAMS), help="some of " + ", ".join(PROGRAMS + RECORDED))
    parser.add_argument("--ways", default="native,expandable,loch", help="some of " + ", ".join(WAYS))
    parser.add_argument("--repeat", type=int, default=1, help="rounds; times are medians")
    parser.add_argument("--turn", type=int, default=0, help="the number of the first round: each begins with another way")
    parser.add_argument("--quick", action="store_true", help="a quarter of the steps")
    parser.add_argument("--timeout", type=float, default=180, help="seconds for one run")
    parser.add_argument("--until", type=float, metavar="SECONDS", help="begins nothing that would not end by then")
    parser.add_argument("--library", default=BUILT, help="libloch_torch.so")
    parser.add_argument("--json", metavar="FILE", help="writes every figure of every run")
    parser.add_argument("--resume", action="store_true", help="keeps the rounds of programs that FILE has in all ways, and runs the others")
    parser.add_argument("--tiny", action="store_true", help="three tiny steps on the CPU, without an allocator, for tests")
    arguments = parser.parse_args()
    arguments.programs = names(arguments.programs, PROGRAMS + RECORDED, "program")
    arguments.ways = names(arguments.ways, WAYS, "way")
    if arguments.repeat < 1:
        sys.exit("run.py: --repeat takes a number from 1")
    if arguments.resume and not arguments.json:
        sys.exit("run.py: --resume needs --json")
    arguments.library = os.path.realpath(arguments.library)
    if "plugin" in arguments.ways and not os.path.exists(arguments.library):
        sys.exit(f"run.py: there is no {arguments.library}; build it with make, or name it with --library")
    return arguments


def plan(arguments):
    """The order of the runs. The ways alternate, each time in another order, so that none always has the cold machine."""
    for repeat in range(arguments.repeat):
        for number, program in enumerate(arguments.programs):
            turn = (arguments.turn + repeat + number) % len(arguments.ways)
            for way in arguments.ways[turn:] + arguments.ways[:turn]:
                yield arguments.turn + repeat, program, way


def write(path, sessions, runs):
    if not path:
        return
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump({"sessions": sessions, "runs": runs, "summaries": summarize_all(runs)}, file, indent=1)
    os.replace(path + ".new", path)


def read_earlier(arguments):
    """Returns the sessions and runs that are kept. A round of a program is kept if it has all ways: times are compared inside one session."""
    if not arguments.resume or not os.path.exists(arguments.json):
        return [], []
    with open(arguments.json, encoding="utf-8") as file:
        found = json.load(file)
    if any(one["is_quick"] != arguments.quick for one in found["sessions"]):
        sys.exit(f"run.py: quick runs and whole ones are not joined: {arguments.json}")
    ways = {}
    for run in found["runs"]:
        ways.setdefault((run["session"], run["round"], run["program"]), set()).add(run["way"])
    whole = {key for key, has in ways.items() if has >= set(arguments.ways)}
    return found["sessions"], [run for run in found["runs"] if (run["session"], run["round"], run["program"]) in whole]


def run_all(arguments, sessions, runs, device):
    """Runs what `runs` lacks, and adds it; the process of the next run loads PyTorch meanwhile. Returns whether the time sufficed. A round of a
    program is begun if there is time for the longest one so far; the first one always is."""
    done, begin, start, longest = {(run["round"], run["program"]) for run in runs}, time.monotonic(), 0.0, 0.0
    jobs = [job for job in plan(arguments) if job[:2] not in done]
    waiting = [Run(*job[1:], arguments) for job in jobs[:1]]
    for number, (turn, program, way) in enumerate(jobs):
        if number and jobs[number - 1][:2] != (turn, program):
            now = time.monotonic() - begin
            longest, start = max(longest, now - start), now
            if arguments.until and now + longest > arguments.until:
                print(f"the time is up: {len(jobs) - number} of {len(jobs)} runs are left", file=sys.stderr, flush=True)
                waiting[0].end()
                return False
        run = waiting.pop()
        waiting = [Run(*job[1:], arguments) for job in jobs[number + 1:number + 2]]
        runs.append(dict(run.start(device), program=program, way=way, round=turn, session=len(sessions) - 1))
        said = runs[-1].get("failure") or f"{runs[-1]['wall_s']:.1f} s"
        print(f"{program} {way}: {said}", file=sys.stderr, flush=True)
        write(arguments.json, sessions, runs)
    return True


def main():
    arguments = read_arguments()
    device = Device()
    sessions, runs = read_earlier(arguments)
    session = describe(arguments, device)
    print(f"PyTorch {session['torch']}, CUDA {session['cuda']}, {session['gpu']}, driver {session['driver']}", flush=True)
    is_whole = run_all(arguments, [*sessions, session], runs, device)
    summaries = summarize_all(runs)
    report(summaries)
    if any(is_bad(way, summary) for ways in summaries.values() for way, summary in ways.items()):
        return 1
    return 0 if is_whole else 3


if __name__ == "__main__":
    sys.exit(main())
