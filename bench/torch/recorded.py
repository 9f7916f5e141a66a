# SPDX-License-Identifier: MIT
"""Recorded requests as programs: the traces of bench/traces through PyTorch's C++ calls (recorded.cpp), at the pace of the recording.

No kernels run and nothing is queued, so memory that a second stream has used is free at once. A gap between two requests is cut to 20 ms.
LOCH_BENCH_RECORDED names the library that pair.py's build() compiled.
"""
import array
import ctypes
import gzip
import os

import place

HERE = os.path.dirname(os.path.abspath(__file__))
TRACES = os.path.join(HERE, "..", "traces")
KINDS = {"a": 0, "u": 1, "f": 2}
GAP_US = 20000


def read_events(path, most=None):
    """Returns (numbers, slots, streams, peak): five numbers for each event, as recorded.cpp has them."""
    numbers, slots, streams, sizes, names = array.array("q"), {}, 1, {}, {}
    held = peak = now = last = 0
    with gzip.open(path, "rt") as file:
        for line in file:
            words = line.split()
            if not words or words[0] not in KINDS or (most and len(numbers) >= 5 * most):
                continue
            kind, block = words[0], words[1]
            size = stream = 0
            if kind == "a":
                size, stream, time = int(words[2]), words[3], int(words[4])
                slots[block], sizes[block] = len(slots), size
                held += size
                peak = max(peak, held)
            elif kind == "u":
                stream, time = words[2], int(words[3])
            else:
                stream, time = "0", int(words[2])
                held -= sizes[block]
            stream = 0 if stream == "0" else names.setdefault(stream, len(names) + 1)
            now, last = now + min(GAP_US, max(0, time - last)), time
            numbers.extend((KINDS[kind], slots[block], size, stream, now))
    return numbers, len(slots), len(names) + 1, peak


def replay(path, is_paced=True, most=None):
    """Replays a trace with the allocator of this process; returns nanoseconds in its calls, events, and the peak of the requested bytes."""
    if not os.path.exists(os.environ.get("LOCH_BENCH_RECORDED", "")):
        raise RuntimeError("LOCH_BENCH_RECORDED names no library: scripts/bench-gpu builds it")
    numbers, slots, streams, peak = read_events(path, most)
    library = ctypes.CDLL(os.environ["LOCH_BENCH_RECORDED"])
    library.recorded_replay.restype = ctypes.c_double
    error = ctypes.create_string_buffer(2000)
    place_of, _ = numbers.buffer_info()
    count = len(numbers) // 5
    time = library.recorded_replay(ctypes.c_void_p(place_of), ctypes.c_size_t(count), ctypes.c_size_t(slots), ctypes.c_int64(streams),
                                   int(is_paced), error, ctypes.c_size_t(len(error)))
    if time < 0:
        raise RuntimeError(error.value.decode(errors="replace"))
    return time, count, peak


def make_program(file):
    path = os.path.join(TRACES, file)

    def program(watch):
        if not place.is_gpu():
            _, _, _, peak = read_events(path, most=1000)
            watch.extra.update(step_ms=[], requests=1000)
            return [peak]
        time, count, peak = replay(path)
        watch.extra.update(step_ms=[time / 1e6], ns_per_event=time / count, requests=count)
        return [peak]

    program.__name__ = "recorded_" + file.removesuffix(".trace.gz")
    program.__doc__ = f"The recorded requests of {file}."
    return program


PROGRAMS = [make_program(file) for file in sorted(os.listdir(TRACES)) if file.endswith(".trace.gz")]
