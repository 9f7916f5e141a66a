# SPDX-License-Identifier: MIT
"""Real programs for an allocator: python3 programs.py NAME --allocator native|loch|plugin runs one in this process.

Each program is a function that takes a Stopwatch and returns its losses. Weights are random, seeds fixed: with the
same kernels the losses are the same, whatever the allocator. The last line of the output is one JSON object. run.py
runs them in all ways and compares.
"""
import argparse
import json
import os
import random
import sys

import torch

import models
import plugin

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "torch"))
import door  # noqa: E402  loads the shim

GPU = "cuda"


class Stopwatch:
    """Marks the device's time at the end of each step; warm-up steps are not counted. Does not wait for the steps."""

    def __init__(self, is_quick):
        self.is_quick = is_quick
        self.marks = []

    def steps(self, warmup, measured):
        """Yields the numbers of the steps."""
        measured = max(2, measured // 4) if self.is_quick else measured
        for number in range(warmup + measured):
            if number == warmup:
                torch.cuda.synchronize()
                self._mark()
            yield number
            if number >= warmup:
                self._mark()

    def _mark(self):
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self.marks.append(event)

    def milliseconds(self):
        torch.cuda.synchronize()
        return [start.elapsed_time(end) for start, end in zip(self.marks, self.marks[1:])]


def build(make, dtype=torch.float32):
    """Creates a network on the GPU in its final type, without conversions."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(GPU):
            return make()
    finally:
        torch.set_default_dtype(before)


def random_tokens(vocabulary, batch, length):
    return torch.randint(vocabulary, (batch, length)).to(GPU)


# --- inference ---


class Session:
    """A batch of prompts that is being answered: its key/value caches grow by one token at a time."""

    def __init__(self, model, batch, length, answer):
        self.left = answer
        self.caches = [[] for _ in model.blocks]
        self.tokens = random_tokens(model.tokens.num_embeddings, batch, length)
        self.start = 0

    def advance(self, model):
        hidden = model(self.tokens, self.caches, self.start)
        self.start += self.tokens.shape[1]
        logits = model.logits(hidden[:, -1])
        self.tokens = logits.argmax(-1, keepdim=True)
        self.left -= 1
        return logits.float().logsumexp(-1).mean()


@torch.no_grad()
def llm_serve(watch):
    """A language model that answers up to four batches at a time, of any size; new ones come as old ones end."""
    choose = random.Random(1)
    model = build(lambda: models.Gpt(32000, 2048, 24, 16, 4096), torch.bfloat16)
    sessions, losses = [], []
    for _ in watch.steps(20, 120):
        if len(sessions) < 4:
            length = choose.randrange(64, 2048)
            batch = min(choose.randrange(1, 33), max(1, 16384 // length))
            sessions.append(Session(model, batch, length, choose.randrange(16, 64)))
        scores = [session.advance(model) for session in sessions]
        losses.append(torch.stack(scores).mean())
        sessions = [session for session in sessions if session.left]
    return losses


@torch.no_grad()
def unet_infer(watch):
    """A convolutional U-Net on images of many sizes."""
    choose = random.Random(2)
    shapes = [(1, 512, 512), (8, 512, 512), (2, 768, 768), (4, 768, 512), (1, 1024, 1024), (3, 1024, 1024),
              (16, 256, 256), (2, 640, 896)]
    model = build(models.Unet, torch.bfloat16).to(memory_format=torch.channels_last)
    losses = []
    for step in watch.steps(len(shapes), 40):  # the warm-up sees each of them: cuDNN takes its time at the first
        batch, height, width = shapes[step] if step < len(shapes) else choose.choice(shapes)
        image = torch.randn(batch, 4, height, width, device=GPU, dtype=torch.bfloat16)
        losses.append(model(image.contiguous(memory_format=torch.channels_last)).float().square().mean())
    return losses


# --- training ---


def train_step(model, optimizer, tokens, recompute=False):
    with torch.autocast(GPU, dtype=torch.bfloat16):
        loss = model.loss(tokens, recompute)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.detach()


def gpt_train(watch):
    """GPT with sequences of any length; every other step recomputes activations in place of keeping them."""
    choose = random.Random(3)
    model = build(lambda: models.Gpt(32000, 1536, 16, 12, 2048))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    losses = []
    for step in watch.steps(4, 24):
        tokens = random_tokens(32000, 6, choose.randrange(256, 2048))
        losses.append(train_step(model, optimizer, tokens, recompute=step % 2 == 1))
    return losses


def moe_train(watch):
    """A mixture of experts: how many tokens an expert gets depends on the data."""
    choose = random.Random(4)
    model = build(lambda: models.Gpt(8192, 1024, 6, 16, 1024, experts=12))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    losses = []
    for _ in watch.steps(4, 30):
        tokens = random_tokens(8192, choose.randrange(4, 17), choose.randrange(512, 1024))
        losses.append(train_step(model, optimizer, tokens))
    return losses


class Offload(torch.autograd.graph.saved_tensors_hooks):
    """Keeps what backward needs in pinned host memory. A second stream copies it there and back, beside the work."""

    SMALLEST_BYTES = 1 << 20

    def __init__(self, model):
        self.stream = torch.cuda.Stream()
        self.weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
        super().__init__(self.pack, self.unpack)

    @torch.no_grad()
    def pack(self, tensor):
        if (not tensor.is_cuda or tensor.nbytes < self.SMALLEST_BYTES
                or tensor.untyped_storage().data_ptr() in self.weights):
            return tensor
        tensor = tensor.detach()
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            host = torch.empty_like(tensor, device="cpu", pin_memory=True)
            host.copy_(tensor, non_blocking=True)
        tensor.record_stream(self.stream)  # it may be freed here long before the copy runs
        return host, tensor.device

    @torch.no_grad()
    def unpack(self, packed):
        if isinstance(packed, torch.Tensor):
            return packed
        host, device = packed
        with torch.cuda.stream(self.stream):
            tensor = host.to(device, non_blocking=True)  # allocated on the second stream, used on the first
        torch.cuda.current_stream().wait_stream(self.stream)
        tensor.record_stream(torch.cuda.current_stream())
        return tensor


def offload_train(watch):
    """Training that keeps its activations on the host: blocks made on one stream and used on another."""
    choose = random.Random(5)
    model = build(lambda: models.Gpt(16000, 2048, 12, 16, 1024), torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    offload = Offload(model)
    losses = []
    for step in watch.steps(3, 10):
        # The largest comes first: pinned memory is slow to allocate, and cached.
        batch, length = (choose.randrange(4, 9), choose.randrange(512, 1024)) if step else (8, 1023)
        tokens = random_tokens(16000, batch, length)
        with offload:
            loss = model.loss(tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.detach())
    return losses


PROGRAMS = {program.__name__: program for program in (llm_serve, gpt_train, unet_infer, moe_train, offload_train)}


# --- one run ---


def make_repeatable():
    """The same kernels in the same order; what is left uninitialised stays so, as in ordinary programs."""
    torch.manual_seed(7)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.benchmark = False
    torch.backends.cuda.enable_cudnn_sdp(False)


def native_figures():
    """What torch.cuda.memory_stats counted. A freed block that a second stream still uses stays in its requested bytes,
    and leaves its allocated ones, which are rounded up: the lower of the two peaks is what the program held."""
    stats = torch.cuda.memory_stats()
    segments = torch.cuda.memory_snapshot()
    return {
        "peak_held": min(stats["requested_bytes.all.peak"], stats["allocated_bytes.all.peak"]),
        "peak_requested": stats["requested_bytes.all.peak"],
        "peak_reserved": stats["reserved_bytes.all.peak"],
        "allocs": stats["allocation.all.allocated"],
        "driver_calls": stats.get("num_device_alloc", 0) + stats.get("num_device_free", 0),
        "retries": stats.get("num_alloc_retries", 0),
        "is_expandable": any(segment.get("is_expandable") for segment in segments),
    }


def plugin_figures(loch):
    stats = loch.stats()
    return dict(stats, peak_held=stats["peak_requested"])


def run(name, allocator, library, is_quick):
    loch = plugin.Loch(library) if allocator == "plugin" else None
    if allocator == "loch":
        door.install("loch")
    torch.cuda.init()
    torch.cuda.synchronize()
    if loch:
        loch.reset_peaks()
    else:
        torch.cuda.reset_peak_memory_stats()
    make_repeatable()
    watch = Stopwatch(is_quick)
    losses = PROGRAMS[name](watch)
    times = watch.milliseconds()
    figures = plugin_figures(loch) if loch else native_figures()
    losses = [float(loss) for loss in losses]
    torch.cuda.empty_cache()  # has to work too
    return dict(figures, losses=losses, step_ms=times)


def main():
    parser = argparse.ArgumentParser(description="Runs one program in this process; prints one JSON object.")
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("--allocator", choices=("native", "loch", "plugin"), default="native")
    parser.add_argument("--library", default=plugin.BUILT, help="libloch_torch.so, for the plug-in; LOCH_TORCH_SHIM names the shim")
    parser.add_argument("--quick", action="store_true", help="a quarter of the steps")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("programs.py: PyTorch finds no GPU")
    result = run(arguments.program, arguments.allocator, arguments.library, arguments.quick)
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
