#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Times allocate + free of a cached tensor through PyTorch's C++ calls: native, the plug-in and the shim, in one run.

    python bench/torch/pair.py [--ways native plugin shim] [--rounds 2000000] [--repeat 5] [--lib build/lib] [--built pair.so] [--held MIB]

Each way runs in processes of its own, in turn. Printed is the least of the repeats in ns: other programs only add to it.
On a machine without a GPU give LOCH_TORCH_DEVICE=sim:8GiB,id=%d and --ways shim: the share of CUDA's runtime is missing
then, but not PyTorch's and Loch's. With --count the shim's instructions for a pair are counted by valgrind. --built names a pair.so
that was compiled elsewhere (--build FILE), for machines without CUDA's headers. --held allocates so many MiB first: a pool of Loch keeps
up to an eighth of its memory, 4 to 64 MiB, ready for all threads, so a program that holds nothing else is its worst case.
"""
import argparse
import ctypes
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SIZES = [512, 4096, 65536, 1 << 20, 4 << 20, 64 << 20]
CALLS = ["pair_raw", "pair_data"]


def build(library, source="pair.cpp"):
    """Compiles pair.cpp, or another file beside it, against the PyTorch of this Python."""
    import importlib.util
    torch = pathlib.Path(importlib.util.find_spec("torch").submodule_search_locations[0])
    local = pathlib.Path("/usr/local")
    folders = [*sorted((torch.parent / "nvidia").glob("cu*/include")), pathlib.Path(os.environ.get("CUDA_HOME", local / "cuda")) / "include",
               local / "cuda" / "include", *sorted(local.glob("cuda-*/targets/*/include"))]
    cuda = [folder for folder in folders if (folder / "cuda_runtime_api.h").exists() and (folder / "crt" / "host_config.h").exists()]
    if not cuda:
        raise RuntimeError("no folder with cuda_runtime_api.h and crt/host_config.h: set CUDA_HOME, or give --built")
    subprocess.run([os.environ.get("CXX", "c++"), "-std=c++20", "-O2", "-g1", "-shared", "-fPIC", HERE / source, "-o", library,
                    "-D_GLIBCXX_USE_CXX11_ABI=1", "-isystem", torch / "include", "-isystem", cuda[0], "-L", torch / "lib",
                    "-lc10", "-lc10_cuda"], check=True)
    return library


def install(way, lib):
    """Makes an allocator that of this process."""
    import torch
    if way == "plugin":
        sys.path.insert(0, str(HERE))
        import plugin
        return plugin.Loch(str(pathlib.Path(lib) / "libloch_torch.so"))
    if way == "shim":
        version = "_".join(torch.__version__.split(".")[:2])
        shim = ctypes.CDLL(str(pathlib.Path(lib) / f"loch_torch_{version}.so"))
        shim.loch_torch_get_door.restype = ctypes.POINTER(ctypes.c_void_p)
        door = shim.loch_torch_get_door()
        error = ctypes.create_string_buffer(1000)
        if ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)(door[2])(b"", error, 1000):
            raise RuntimeError(error.value.decode())
        return shim
    return None


def measure(arguments):
    """Measures one way in this process; prints JSON."""
    import torch
    kept = install(arguments.way, arguments.lib)
    if torch.cuda.is_available():
        torch.cuda.init()
        torch.empty(1, device="cuda")
    held = [torch._C._cuda_cudaCachingAllocator_raw_alloc(1 << 20, 0) for _ in range(arguments.held)]
    library = ctypes.CDLL(arguments.library)
    for call in [*CALLS, "pair_many"]:
        getattr(library, call).restype = ctypes.c_double
    result = {}
    if arguments.count:
        library.pair_counted(ctypes.c_size_t(arguments.count), ctypes.c_long(arguments.rounds))
        return
    streams = {"default stream": None}
    if torch.cuda.is_available():
        streams["side stream"] = torch.cuda.Stream()
    for name, stream in streams.items():
        with torch.cuda.stream(stream):
            for size in SIZES:
                for call in CALLS:
                    run = getattr(library, call)
                    run(ctypes.c_size_t(size), ctypes.c_long(1000))
                    result[f"{name}, {call}, {size}"] = run(ctypes.c_size_t(size), ctypes.c_long(arguments.rounds))
                if size <= 1 << 20:
                    result[f"{name}, pair_many, {size}"] = library.pair_many(ctypes.c_size_t(size), ctypes.c_long(arguments.rounds),
                                                                           ctypes.c_size_t(16))
    print(json.dumps(result))
    for address in held:
        torch._C._cuda_cudaCachingAllocator_raw_delete(address)
    del kept


def count(arguments, library):
    """Counts instructions of a pair for some sizes."""
    for size in SIZES:
        totals = []
        for rounds in (1000, 3000):
            with tempfile.NamedTemporaryFile() as out:
                subprocess.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={out.name}", "--toggle-collect=pair_counted", "-q",
                                sys.executable, __file__, "--way", "shim", "--library", str(library), "--count", str(size),
                                "--rounds", str(rounds), "--lib", arguments.lib], check=True, stderr=subprocess.DEVNULL)
                text = pathlib.Path(out.name).read_text()
                totals.append(int(next(line for line in text.splitlines() if line.startswith(("summary:", "totals:"))).split()[1]))
        print(f"{size:>10} bytes: {(totals[1] - totals[0]) / 2000:.1f} instructions")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ways", nargs="+", default=["native", "plugin", "shim"])
    parser.add_argument("--rounds", type=int, default=2_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--lib", default=str(HERE.parent.parent / "build" / "lib"), help="folder with libloch.so, the plug-in and the shim")
    parser.add_argument("--count", type=int, nargs="?", const=1, default=0, help="count instructions by valgrind instead")
    parser.add_argument("--held", type=int, default=0, metavar="MIB", help="memory that the process holds meanwhile")
    parser.add_argument("--build", metavar="FILE", help="only compile pair.so")
    parser.add_argument("--built", metavar="FILE", help="a pair.so that was compiled elsewhere, for this version of PyTorch")
    parser.add_argument("--way", help=argparse.SUPPRESS)
    parser.add_argument("--library", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.way:
        return measure(arguments)
    if arguments.build:
        return build(pathlib.Path(arguments.build))
    with tempfile.TemporaryDirectory() as folder:
        library = pathlib.Path(arguments.built).resolve() if arguments.built else build(pathlib.Path(folder) / "pair.so")
        if arguments.count:
            return count(arguments, library)
        best = {way: {} for way in arguments.ways}
        for _ in range(arguments.repeat):
            for way in arguments.ways:
                done = subprocess.run([sys.executable, __file__, "--way", way, "--library", str(library), "--rounds", str(arguments.rounds),
                                       "--lib", arguments.lib, "--held", str(arguments.held)], check=True, capture_output=True, text=True)
                for case, time in json.loads(done.stdout.splitlines()[-1]).items():
                    best[way][case] = min(time, best[way].get(case, time))
        print(f"{'ns for a pair':40}" + "".join(f"{way:>10}" for way in arguments.ways))
        for case in best[arguments.ways[0]]:
            print(f"{case:40}" + "".join(f"{best[way][case]:>10.1f}" for way in arguments.ways))


if __name__ == "__main__":
    main()
