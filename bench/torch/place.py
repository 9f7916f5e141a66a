# SPDX-License-Identifier: MIT
"""Where the programs run: a GPU, or the CPU with tiny sizes for tests. On the CPU streams, pinned memory and graphs do nothing."""
import contextlib
import time

import torch

_device = "cuda"
_is_tiny = False


def use(device, is_tiny):
    """Chooses the device and the sizes of this process. Call it before a program starts."""
    global _device, _is_tiny
    _device, _is_tiny = device, is_tiny


def device():
    return _device


def is_gpu():
    return _device != "cpu"


def is_tiny():
    return _is_tiny


def pick(full, tiny):
    """Returns a size: that of the benchmark, or that of a test."""
    return tiny if _is_tiny else full


def build(make, dtype=torch.float32):
    """Creates a network on the device in its final type, without conversions."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(_device):
            return make()
    finally:
        torch.set_default_dtype(before)


def tokens(vocabulary, batch, length):
    return torch.randint(vocabulary, (batch, length)).to(_device)


def autocast():
    return torch.autocast(_device, dtype=torch.bfloat16)


def synchronize():
    if is_gpu():
        torch.cuda.synchronize()


# --- streams ---


def side_stream():
    return torch.cuda.Stream() if is_gpu() else None


def current_stream():
    return torch.cuda.current_stream() if is_gpu() else None


def on(stream):
    return torch.cuda.stream(stream) if stream is not None else contextlib.nullcontext()


def order(later, earlier):
    """Work queued on `later` from now on waits for the work of `earlier`."""
    if later is not None:
        later.wait_stream(earlier)


def record_use(tensor, stream):
    """Tells the allocator that `stream` uses the tensor, which belongs to another stream."""
    if stream is not None:
        tensor.record_stream(stream)


def pinned_like(tensor):
    return torch.empty_like(tensor, device="cpu", pin_memory=is_gpu())


def to_pinned(tensor):
    """Returns a copy in pinned host memory."""
    host = pinned_like(tensor)
    host.copy_(tensor)
    return host


# --- graphs ---


class Graph:
    """A captured CUDA graph of a function without arguments. On the CPU a replay calls the function."""

    side = None

    def __init__(self, function, pool):
        self.function = function
        if not is_gpu():
            self.result = function()
            return
        side = self.warm_up_stream()
        order(side, current_stream())
        with on(side):
            function()  # outside of the capture: libraries take their workspaces
        order(current_stream(), side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=pool):
            self.result = function()

    @classmethod
    def warm_up_stream(cls):
        """One for all graphs: allocators keep memory for each stream."""
        if cls.side is None:
            cls.side = side_stream()
        return cls.side

    def replay(self):
        """Runs it; returns the tensors of the capture, which the next replay overwrites."""
        if is_gpu():
            self.graph.replay()
        else:
            self.result = self.function()
        return self.result


def graph_pool():
    return torch.cuda.graph_pool_handle() if is_gpu() else None


# --- time ---


class Stopwatch:
    """Marks the device's time at the end of each step; warm-up steps are not counted. Does not wait for the steps."""

    def __init__(self, is_quick=False):
        self.is_quick = is_quick
        self.marks = []
        self.extra = {}  # figures beside the time of steps

    def steps(self, warmup, measured):
        """Yields the numbers of the steps."""
        measured = max(2, measured // 4) if self.is_quick else measured
        if is_tiny():
            warmup, measured = 1, 2
        for number in range(warmup + measured):
            if number == warmup:
                synchronize()
                self._mark()
            yield number
            if number >= warmup:
                self._mark()

    def _mark(self):
        if not is_gpu():
            self.marks.append(time.perf_counter())
            return
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self.marks.append(event)

    def milliseconds(self):
        synchronize()
        if "step_ms" in self.extra:
            return self.extra.pop("step_ms")
        if not is_gpu():
            return [1000 * (end - start) for start, end in zip(self.marks, self.marks[1:])]
        return [start.elapsed_time(end) for start, end in zip(self.marks, self.marks[1:])]
