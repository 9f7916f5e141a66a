#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""pack.py MODEL-FOLDER OUT-FOLDER: what the comparison on a GPU needs, for a machine without network and tokenizer.

Writes model.safetensors with the weights in f16 (44 MB), and tokens of three shapes: 32x32.txt, 32x128.txt, 256x128.txt and natural.txt.
"""
import json
import pathlib
import struct
import sys

import numpy as np

import onnx_model
import tokens


def save_half(weights, path):
    header, data, at = {}, [], 0
    for name, value in weights.items():
        if value.dtype == np.float32:
            value = value.astype(np.float16)
            header[name] = {"dtype": "F16", "shape": value.shape, "data_offsets": [at, at + value.nbytes]}
            data.append(value.tobytes())
            at += value.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data))


def main():
    folder, out = map(pathlib.Path, sys.argv[1:3])
    out.mkdir(parents=True, exist_ok=True)
    save_half(onnx_model.read_safetensors(folder / "model.safetensors"), out / "model.safetensors")
    vocabulary = folder / "vocab.txt"
    for count, length in ((32, 32), (32, 128), (256, 128)):
        tokens.save(out / f"{count}x{length}.txt", tokens.even(vocabulary, count, length))
    tokens.save(out / "natural.txt", tokens.natural(vocabulary, 256))


main()
