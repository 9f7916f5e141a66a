#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs real PyTorch programs with PyTorch's allocator, with its expandable segments, and with Loch, and compares.

"loch" is the shim (build/lib/loch_torch_2_11.so or LOCH_TORCH_SHIM), "plugin" the plug-in of libloch_torch.so.

Each run is a process of its own. Exits with 1 when a program failed or its losses differ from those of the native run.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BUILT = os.path.join(HERE, "..", "..", "build", "lib", "libloch_torch.so")
PROGRAMS = ("llm_serve", "gpt_train", "unet_infer", "moe_train", "offload_train")
WAYS = ("native", "expandable", "loch", "plugin")
TOLERANCE = 0.02  # of a loss, relative
PROBE = """
import json, torch
p = torch.cuda.get_device_properties(0)
print(json.dumps({"torch": torch.__version__, "cuda": torch.version.cuda, "gpu": p.name}))
"""


def environment(way):
    """Returns the environment of a process: without allocator settings, except those of the way."""
    result = {name: value for name, value in os.environ.items()
              if name not in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING")}
    result["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # repeatable results
    result["PYTHONWARNINGS"] = "ignore"
    result["PYTHONDONTWRITEBYTECODE"] = "1"
    if way == "expandable":  # the first name is that of PyTorch 2.9 and later
        result["PYTORCH_ALLOC_CONF"] = result["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    return result


def tail(text, lines=12):
    return "\n".join(text.strip().splitlines()[-lines:])


def run_once(program, way, arguments):
    """Runs one program; returns a dictionary with its results, or with "failure"."""
    command = [sys.executable, os.path.join(HERE, "programs.py"), program, "--library", arguments.library,
               "--allocator", way if way in ("loch", "plugin") else "native"]
    if arguments.quick:
        command.append("--quick")
    start = time.monotonic()
    try:
        done = subprocess.run(command, env=environment(way), capture_output=True, text=True, errors="replace",
                              timeout=arguments.timeout, check=False)
    except subprocess.TimeoutExpired:
        return {"failure": f"not ended after {arguments.timeout} s"}
    result = last_object(done.stdout)
    if done.returncode != 0:
        when = "after its work was done, " if result else ""
        return {"failure": f"{when}exit code {done.returncode}\n{tail(done.stderr)}"}
    if not result:
        return {"failure": f"printed no result\n{tail(done.stderr)}"}
    if way == "expandable" and not result["is_expandable"]:
        return {"failure": "expandable segments were asked for and not used"}
    result["wall_s"] = time.monotonic() - start
    if done.stderr.strip():
        result["stderr"] = tail(done.stderr)
    return result


def last_object(text):
    lines = text.strip().splitlines()
    try:
        return json.loads(lines[-1]) if lines else None
    except ValueError:
        return None


def compare_losses(losses, expected):
    """"bitwise", "close" or "DIFFER", and the largest relative difference."""
    if losses == expected:
        return "bitwise", 0.0
    if len(losses) != len(expected) or not all(map(math.isfinite, losses)):
        return "DIFFER", math.inf
    worst = max(abs(a - b) / max(abs(b), 1e-9) for a, b in zip(losses, expected))
    return ("close" if worst <= TOLERANCE else "DIFFER"), worst


def summarize(runs, expected):
    """Summarises several runs of one program in one way: the largest peaks, the median time."""
    good = [run for run in runs if "failure" not in run]
    if not good:
        return {"failure": runs[0]["failure"]}
    words = [compare_losses(run["losses"], expected) for run in good] if expected else [("no native run", 0.0)]
    worst = max(words, key=lambda word: (word[0] == "DIFFER", word[1]))
    most = max(good, key=lambda run: run["peak_reserved"])
    result = {name: most[name] for name in ("peak_held", "peak_requested", "peak_reserved", "allocs", "driver_calls")}
    result["ratio"] = most["peak_reserved"] / most["peak_held"] if most["peak_held"] else math.inf
    result["step_ms"] = statistics.median(sum(run["step_ms"]) / len(run["step_ms"]) for run in good)
    result["losses"], result["loss_difference"] = worst
    result["last_loss"] = good[0]["losses"][-1]
    result["runs"] = len(good)
    result["failures"] = [run["failure"] for run in runs if "failure" in run]
    return result


def is_bad(summary):
    return "failure" in summary or bool(summary["failures"]) or summary["losses"] == "DIFFER"


HEADER = ("program", "allocator", "held MiB", "reserved MiB", "ratio", "ms/step", "time", "losses", "allocs",
          "driver calls")


def row(program, way, summary, native):
    if "failure" in summary:
        return (program, way, "FAILED") + ("",) * 7
    base = native.get("step_ms")
    losses = summary["losses"]
    if losses not in ("bitwise", "no native run"):
        losses += f" {summary['loss_difference']:.1e}"
    return (program, way, f"{summary['peak_held'] / 2**20:.0f}", f"{summary['peak_reserved'] / 2**20:.0f}",
            f"{summary['ratio']:.3f}", f"{summary['step_ms']:.2f}",
            f"{summary['step_ms'] / base:.3f}" if base else "-", losses, str(summary["allocs"]),
            str(summary["driver_calls"]))


def print_table(rows):
    widths = [max(len(line[i]) for line in rows) for i in range(len(rows[0]))]
    for line in rows:
        cells = [cell.ljust(width) if i < 2 else cell.rjust(width) for i, (cell, width) in enumerate(zip(line, widths))]
        print("  ".join(cells).rstrip())


def probe():
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = tail(done.stderr, 1) or "it gave no reason"
        sys.exit(f"run.py: PyTorch with a GPU is needed: {reason}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def names(text, known, what):
    chosen = text.split(",")
    for name in chosen:
        if name not in known:
            sys.exit(f"run.py: no {what} is called {name!r}; there are {', '.join(known)}")
    return chosen


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", default=",".join(PROGRAMS), help="some of " + ", ".join(PROGRAMS))
    parser.add_argument("--ways", default="native,expandable,loch", help="some of " + ", ".join(WAYS))
    parser.add_argument("--repeat", type=int, default=1, help="runs of each; times are medians")
    parser.add_argument("--quick", action="store_true", help="a quarter of the steps")
    parser.add_argument("--timeout", type=float, default=180, help="seconds for one run")
    parser.add_argument("--library", default=BUILT, help="libloch_torch.so")
    parser.add_argument("--json", metavar="FILE", help="writes every figure of every run")
    arguments = parser.parse_args()
    arguments.programs = names(arguments.programs, PROGRAMS, "program")
    arguments.ways = names(arguments.ways, WAYS, "way")
    if arguments.repeat < 1:
        sys.exit("run.py: --repeat takes a number from 1")
    arguments.library = os.path.realpath(arguments.library)
    if "plugin" in arguments.ways and not os.path.exists(arguments.library):
        sys.exit(f"run.py: there is no {arguments.library}; build it with make, or name it with --library")
    return arguments


def run_all(arguments):
    """Runs everything. The ways alternate, each time in another order, so that none always has the cold machine."""
    runs = {program: {way: [] for way in arguments.ways} for program in arguments.programs}
    for repeat in range(arguments.repeat):
        for program in arguments.programs:
            turn = repeat % len(arguments.ways)
            for way in arguments.ways[turn:] + arguments.ways[:turn]:
                result = run_once(program, way, arguments)
                runs[program][way].append(result)
                said = result["failure"] if "failure" in result else f"{result['wall_s']:.1f} s"
                print(f"{program} {way}: {said}", file=sys.stderr, flush=True)
    return runs


def report(runs):
    """The table of all programs; the rows as dictionaries."""
    rows, summaries = [HEADER], {}
    for program, ways in runs.items():
        good = [run for run in ways.get("native", []) if "failure" not in run]
        expected = good[0]["losses"] if good else None
        summaries[program] = {way: summarize(results, expected) for way, results in ways.items()}
        native = summaries[program].get("native", {})
        rows += [row(program, way, summary, native) for way, summary in summaries[program].items()]
    print_table(rows)
    return summaries


def main():
    arguments = read_arguments()
    machine = probe()
    print(f"PyTorch {machine['torch']}, CUDA {machine['cuda']}, {machine['gpu']}", flush=True)
    runs = run_all(arguments)
    summaries = report(runs)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"machine": machine, "summaries": summaries, "runs": runs}, file, indent=1)
    return any(is_bad(summary) for ways in summaries.values() for summary in ways.values())


if __name__ == "__main__":
    sys.exit(main())
