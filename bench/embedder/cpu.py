#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""cpu.py DRIVER MODEL-FOLDER [--rounds N] [--threads N] [--only SHAPE] [--json FILE]: the embedder and ONNX Runtime on the CPU.

Both get the tokens of this repository's own pages in batches of 32, with the same number of threads, in turns. Even batches have texts of
one length, so no side pads. In natural batches each sentence has its own length: ONNX Runtime pads to the longest one of a batch, the
embedder does not pad. ONNX Runtime runs the faster one of two graphs (onnx_model.py) with all its optimisations.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import onnx_model  # noqa: E402
import tokens  # noqa: E402

BATCH = 32


class Ours:
    """The driver, in a process of its own."""

    def __init__(self, driver, model, path, threads):
        self.process = subprocess.Popen([driver, model, path, "cpu", "f32", str(threads), str(BATCH)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.text = self.process.stdout.readline().strip()

    def ask(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().split()

    def run(self):
        return int(self.ask("run 1")[0]) / 1e9

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Theirs:
    """ONNX Runtime, in a process of its own: this file with --serve."""

    def __init__(self, model, path, threads):
        self.process = subprocess.Popen([sys.executable, __file__, "--serve", model, path, str(threads)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()

    ask = Ours.ask
    run = Ours.run
    close = Ours.close


def resident(name):
    with open("/proc/self/status", encoding="ascii") as status:
        return int(next(line for line in status if line.startswith(name)).split()[1])


def serve(model, path, threads):
    """Answers as the driver does."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    lists = [[int(token) for token in line.split()] for line in pathlib.Path(path).read_text().splitlines()]
    feeds = []
    for i in range(0, len(lists), BATCH):
        part = lists[i : i + BATCH]
        longest = max(map(len, part))
        feeds.append({"ids": np.array([ids + [0] * (longest - len(ids)) for ids in part], np.int32),
                      "mask": np.array([[1] * len(ids) + [0] * (longest - len(ids)) for ids in part], np.int32)})
    before = resident("VmRSS")
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    print("ready", flush=True)
    results = []
    for command in sys.stdin:
        if command.startswith("run"):
            start = time.perf_counter_ns()
            results = [session.run(None, feed)[0] for feed in feeds]
            print(time.perf_counter_ns() - start, flush=True)
        elif command.startswith("save"):
            np.save(command[5:].strip(), np.concatenate(results))
            print("saved", flush=True)
        else:
            print(before, resident("VmHWM"), 0, flush=True)


def compare(name, sides, work, count, rounds):
    """Runs the sides in turns and prints a line for each. Returns the figures of each side."""
    times = {side: [] for side in sides}
    for side in sides.values():
        side.run()
    for _ in range(rounds):
        for label, side in sides.items():
            time.sleep(0.05)  # threads of the other side stop spinning
            times[label].append(side.run())
    vectors, memory = {}, {}
    for label, side in sides.items():
        side.ask(f"save {work}/vectors.npy")
        vectors[label] = np.load(f"{work}/vectors.npy")
        before, most, _ = map(int, side.ask("memory"))
        memory[label] = (most - before) / 1024
        side.close()
    rivals = [label for label in sides if label != "loch"]
    best = min(rivals, key=lambda label: statistics.median(times[label]))
    for label in sides:
        cosine = (vectors["loch"] * vectors[label]).sum(1).min()
        print(f"{name:10} {label:18} {count / statistics.median(times[label]):8.1f} sentences/s (best {count / min(times[label]):8.1f})"
              f"  {memory[label]:6.1f} MiB   lowest cosine {cosine:.7f}")
    pairs = sorted(theirs / ours for theirs, ours in zip(times[best], times["loch"]))
    print(f"{name:10} loch / {best}: throughput {statistics.median(pairs):.2f} (median of {len(pairs)} pairs, {pairs[0]:.2f} to {pairs[-1]:.2f})"
          f", best of each {min(times[best]) / min(times['loch']):.2f}, memory {memory['loch'] / min(memory[r] for r in rivals):.2f}\n", flush=True)
    return {label: {"rates": [count / seconds for seconds in times[label]], "memory": memory[label]} for label in sides}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("driver")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", help="one shape of batches: '32 x 32', '32 x 128' or 'natural'")
    parser.add_argument("--json", type=pathlib.Path, help="file for the figures")
    options = parser.parse_args()
    model, vocabulary = options.folder / "model.safetensors", options.folder / "vocab.txt"
    graphs = {f"onnxruntime {path.stem}": path for path in (onnx_model.save(options.folder, model, fused) for fused in (True, False))}
    shapes = {"32 x 32": tokens.even(vocabulary, BATCH, 32), "32 x 128": tokens.even(vocabulary, BATCH, 128),
              "natural": tokens.natural(vocabulary, 8 * BATCH)}
    figures = {}
    with tempfile.TemporaryDirectory() as work:
        for name, lists in shapes.items():
            if options.only not in (None, name):
                continue
            path = f"{work}/tokens.txt"
            tokens.save(path, lists)
            sides = {"loch": Ours(options.driver, str(model), path, options.threads)}
            sides |= {label: Theirs(str(graph), path, options.threads) for label, graph in graphs.items()}
            figures[name] = compare(name, sides, work, len(lists), options.rounds if len(lists) == BATCH else max(3, options.rounds // 4))
    if options.json:
        options.json.write_text(json.dumps(figures))


if len(sys.argv) == 5 and sys.argv[1] == "--serve":
    serve(sys.argv[2], sys.argv[3], int(sys.argv[4]))
else:
    main()
