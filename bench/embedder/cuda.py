#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""cuda.py DRIVER FOLDER: the embedder and PyTorch eager on a GPU, f16 on both sides, in turns.

FOLDER is what pack.py writes. The PyTorch model is written as transformers runs BERT with scaled_dot_product_attention: separate products
for query, key and value, F.layer_norm, F.gelu (erf), and a mask where a batch is padded. Both sides begin with tokens in host memory and
end with vectors in host memory.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
import torch.nn.functional as F

LAYERS, HEADS, EPSILON = 6, 12, 1e-12


def read_weights(path):
    """Reads a .safetensors file without its library."""
    import json
    import struct

    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    types = {"F16": np.float16, "F32": np.float32}
    weights = {}
    for name, entry in json.loads(data[8 : 8 + length]).items():
        if entry.get("dtype") in types:
            start, end = (8 + length + offset for offset in entry["data_offsets"])
            values = np.frombuffer(data[start:end], types[entry["dtype"]]).reshape(entry["shape"])
            weights[name] = torch.from_numpy(values.copy()).to("cuda", torch.float16)
    return weights


class Bert:
    """The encoder, as eager PyTorch."""

    def __init__(self, weights):
        self.weights = weights
        self.layers = [f"encoder.layer.{i}" for i in range(LAYERS)]

    def linear(self, x, name):
        return F.linear(x, self.weights[name + ".weight"], self.weights[name + ".bias"])

    def norm(self, x, name):
        return F.layer_norm(x, x.shape[-1:], self.weights[name + ".weight"], self.weights[name + ".bias"], EPSILON)

    def attention(self, x, name, mask):
        batch, length, width = x.shape
        parts = [self.linear(x, f"{name}.self.{part}").view(batch, length, HEADS, width // HEADS).transpose(1, 2)
                 for part in ("query", "key", "value")]
        mixed = F.scaled_dot_product_attention(*parts, attn_mask=mask)
        mixed = mixed.transpose(1, 2).reshape(batch, length, width)
        return self.norm(self.linear(mixed, f"{name}.output.dense") + x, f"{name}.output.LayerNorm")

    @torch.inference_mode()
    def __call__(self, ids, ones):
        weights = self.weights
        mask = None
        if ones is not None:
            mask = torch.zeros(ones.shape, dtype=torch.float16, device=ids.device).masked_fill_(ones == 0, -65504.0)[:, None, None, :]
            mask = mask.expand(-1, 1, ids.shape[1], -1)
        x = F.embedding(ids, weights["embeddings.word_embeddings.weight"]) + weights["embeddings.token_type_embeddings.weight"][0]
        x = self.norm(x + weights["embeddings.position_embeddings.weight"][: ids.shape[1]], "embeddings.LayerNorm")
        for name in self.layers:
            x = self.attention(x, f"{name}.attention", mask)
            y = F.gelu(self.linear(x, f"{name}.intermediate.dense"))
            x = self.norm(self.linear(y, f"{name}.output.dense") + x, f"{name}.output.LayerNorm")
        if ones is None:
            mean = x.float().mean(1)
        else:
            kept = ones[:, :, None].float()
            mean = (x.float() * kept).sum(1) / kept.sum(1)
        return F.normalize(mean, dim=1).cpu()


def environment():
    """The environment of the driver: cuBLAS is the one that PyTorch uses."""
    folders = [pathlib.Path(folder) / "nvidia" for folder in sys.path]
    found = sorted(str(file) for folder in folders for file in folder.glob("*/lib/libcublas.so.*"))
    return dict(os.environ, **({"LOCH_CUBLAS": found[-1]} if found and "LOCH_CUBLAS" not in os.environ else {}))


class Ours:
    def __init__(self, driver, model, path, batch):
        self.process = subprocess.Popen([driver, str(model), str(path), "cuda:0", "f16", "1", str(batch)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env=environment())
        self.text = self.process.stdout.readline().strip()

    def ask(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().split()

    def run(self, times):
        """Returns the median of the times in seconds."""
        return int(self.ask(f"run {times}")[1]) / 1e9


class Theirs:
    def __init__(self, model, path, batch):
        self.model = model
        lists = [[int(token) for token in line.split()] for line in path.read_text().splitlines()]
        self.feeds = []
        for i in range(0, len(lists), batch):
            part = lists[i : i + batch]
            longest = max(map(len, part))
            ids = torch.tensor([ids + [0] * (longest - len(ids)) for ids in part])
            ones = torch.tensor([[1] * len(ids) + [0] * (longest - len(ids)) for ids in part])
            self.feeds.append((ids.pin_memory(), None if bool(ones.all()) else ones.pin_memory()))

    def once(self):
        return [self.model(ids.to("cuda", non_blocking=True), None if ones is None else ones.to("cuda", non_blocking=True))
                for ids, ones in self.feeds]

    def run(self, times):
        taken = []
        for _ in range(times):
            start = time.perf_counter()
            self.once()
            taken.append(time.perf_counter() - start)
        return statistics.median(taken)


def compare(name, ours, theirs, count, rounds, times):
    vectors = torch.cat(theirs.once()).numpy()
    pairs = []
    ours.run(times), theirs.run(times)
    for _ in range(rounds):
        pairs.append((ours.run(times), theirs.run(times)))
    with tempfile.TemporaryDirectory() as work:
        ours.ask(f"save {work}/vectors.npy")
        cosine = (np.load(f"{work}/vectors.npy") * vectors).sum(1).min()
    _, most, held = map(int, ours.ask("memory"))
    our, their = (statistics.median(pair[side] for pair in pairs) for side in (0, 1))
    ratios = sorted(b / a for a, b in pairs)
    print(f"{name:10} loch {our * 1e6:9.1f} us {count / our:10.0f} sentences/s   torch {their * 1e6:9.1f} us {count / their:10.0f} sentences/s   "
          f"loch / torch {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})   lowest cosine {cosine:.6f}   "
          f"device memory {held / 2**20:.0f} MiB, torch {torch.cuda.max_memory_reserved() / 2**20:.0f} MiB", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("driver")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--times", type=int, default=30)
    options = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}")
    model = Bert(read_weights(options.folder / "model.safetensors"))
    for name, batch in (("32x32", 32), ("32x128", 32), ("256x128", 256), ("natural", 32)):
        path = options.folder / f"{name}.txt"
        ours = Ours(options.driver, options.folder / "model.safetensors", path, batch)
        theirs = Theirs(model, path, batch)
        compare(name, ours, theirs, len(path.read_text().splitlines()), options.rounds, options.times)
        ours.process.stdin.close()
        ours.process.wait()


main()
