# SPDX-License-Identifier: MIT
"""Real programs for an allocator: python3 programs.py NAME --allocator WAY runs one in this process.

Each program is a function that takes a Stopwatch and returns its losses. Weights are random, seeds fixed: with the
same kernels the losses are the same, whatever the allocator. The last line of the output is one JSON object. run.py
runs them in all ways and compares. Without a GPU, --device cpu --tiny shows that a program runs.
"""
import argparse
import json
import os
import sys

import torch

import infer
import peers
import place
import plugin
import recorded
import train

PROGRAMS = {program.__name__: program for program in (*infer.PROGRAMS, *train.PROGRAMS, *recorded.PROGRAMS)}
WAYS = ("native", "expandable", "async", "rmm", "loch", "plugin")


def make_repeatable():
    """The same kernels in the same order; what is left uninitialised stays so, as in ordinary programs."""
    torch.manual_seed(7)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.benchmark = False
    torch.backends.cuda.enable_cudnn_sdp(False)


def run(name, allocator, is_quick=False):
    """Runs a program; returns its figures as a dictionary."""
    if place.is_gpu():
        torch.cuda.init()
        place.synchronize()
    allocator.start()
    make_repeatable()
    watch = place.Stopwatch(is_quick)
    losses = PROGRAMS[name](watch)
    times = watch.milliseconds()
    figures = allocator.figures()
    losses = [float(loss) for loss in losses]
    if place.is_gpu():
        torch.cuda.empty_cache()  # has to work too
    return dict(figures, losses=losses, step_ms=times, **watch.extra)


def main():
    parser = argparse.ArgumentParser(description="Runs one program in this process; prints one JSON object.")
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("--allocator", choices=WAYS, default="native")
    parser.add_argument("--library", default=plugin.BUILT, help="libloch_torch.so, for the plug-in; LOCH_TORCH_SHIM names the shim")
    parser.add_argument("--quick", action="store_true", help="a quarter of the steps")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="three steps of tiny sizes, for tests")
    parser.add_argument("--wait", action="store_true", help="starts when a line comes from standard input; PyTorch is loaded before")
    arguments = parser.parse_args()
    place.use(arguments.device, arguments.tiny)
    if arguments.wait and not sys.stdin.readline():
        return
    if place.is_gpu() and not torch.cuda.is_available():
        sys.exit("programs.py: PyTorch finds no GPU")
    allocator = peers.install(arguments.allocator, arguments.library) if place.is_gpu() else peers.Nothing()
    print(json.dumps(run(arguments.program, allocator, arguments.quick)), flush=True)
    if arguments.allocator == "rmm":
        os._exit(0)  # its resources go before PyTorch's last tensors, and that ends the process with a signal


if __name__ == "__main__":
    main()
