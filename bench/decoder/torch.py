# SPDX-License-Identifier: MIT
"""bench/decoder/torch.py [--batch N] [--positions N] [--dtype bf16|f32]: the decoder of apps/decoder with the shape 1.1b in PyTorch,
one step captured into a CUDA graph. Prints the time of a step in the words of the example, and the rate of a copy on the device.

Weights are random. Queries, keys and values are one matrix, gate and up another. Caches have room for all positions, and attention
reads all of it under a mask, as a captured graph has to.
"""
import argparse
import os
import sys
import time

sys.path = [path for path in sys.path if os.path.abspath(path or ".") != os.path.dirname(os.path.abspath(__file__))]  # not this file
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

VOCABULARY, WIDTH, HEADS, KV_HEADS, MLP, LAYERS = 32000, 2048, 32, 4, 5632, 22
HEAD = WIDTH // HEADS
KV_WIDTH = KV_HEADS * HEAD


class Decoder:
    def __init__(self, batch, positions, dtype):
        def matrix(rows, columns):
            return (torch.rand(rows, columns, device="cuda", dtype=torch.float32) * 2 - 1).mul_((3 / columns) ** 0.5).to(dtype)

        self.embedding, self.head = matrix(VOCABULARY, WIDTH), matrix(VOCABULARY, WIDTH)
        self.final_norm = torch.ones(WIDTH, device="cuda", dtype=dtype)
        self.layers = [
            {
                "attention_norm": torch.ones(WIDTH, device="cuda", dtype=dtype),
                "qkv": matrix(WIDTH + 2 * KV_WIDTH, WIDTH),
                "output": matrix(WIDTH, WIDTH),
                "mlp_norm": torch.ones(WIDTH, device="cuda", dtype=dtype),
                "gate_up": matrix(2 * MLP, WIDTH),
                "down": matrix(WIDTH, MLP),
                "keys": torch.zeros(batch, KV_HEADS, positions, HEAD, device="cuda", dtype=dtype),
                "values": torch.zeros(batch, KV_HEADS, positions, HEAD, device="cuda", dtype=dtype),
            }
            for _ in range(LAYERS)
        ]
        angles = torch.arange(positions, dtype=torch.float64)[:, None] * 10000.0 ** (-torch.arange(0, HEAD, 2) / HEAD)
        self.cosines, self.sines = angles.cos().to("cuda", dtype), angles.sin().to("cuda", dtype)
        self.numbers = torch.arange(positions, device="cuda")
        self.position = torch.zeros(1, device="cuda", dtype=torch.long)
        self.tokens = torch.zeros(batch, device="cuda", dtype=torch.long)
        self.batch = batch

    def rotate(self, x):
        a, b = x.chunk(2, -1)
        c, s = self.cosines[self.position], self.sines[self.position]
        return torch.cat((a * c - b * s, a * s + b * c), -1)

    def step(self):
        x = self.embedding[self.tokens]
        mask = (self.numbers <= self.position)[None, None, None, :]
        for layer in self.layers:
            normed = F.rms_norm(x, (WIDTH,), layer["attention_norm"], 1e-5)
            q, k, v = F.linear(normed, layer["qkv"]).split((WIDTH, KV_WIDTH, KV_WIDTH), -1)
            q = self.rotate(q.view(self.batch, HEADS, 1, HEAD))
            layer["keys"].index_copy_(2, self.position, self.rotate(k.view(self.batch, KV_HEADS, 1, HEAD)))
            layer["values"].index_copy_(2, self.position, v.view(self.batch, KV_HEADS, 1, HEAD))
            mixed = F.scaled_dot_product_attention(q, layer["keys"], layer["values"], attn_mask=mask, enable_gqa=True)
            x = x + F.linear(mixed.reshape(self.batch, WIDTH), layer["output"])
            gate, up = F.linear(F.rms_norm(x, (WIDTH,), layer["mlp_norm"], 1e-5), layer["gate_up"]).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, layer["down"])
        logits = F.linear(F.rms_norm(x, (WIDTH,), self.final_norm, 1e-5), self.head)
        self.tokens.copy_(logits.argmax(-1))
        self.position.add_(1)


def copy_rate():
    """Bytes read and written a second by a copy on the device."""
    a = torch.empty(1 << 31, dtype=torch.uint8, device="cuda")
    b = torch.empty_like(a)
    best = 0
    for _ in range(10):
        torch.cuda.synchronize()
        start = time.perf_counter()
        b.copy_(a)
        torch.cuda.synchronize()
        best = max(best, 2 * a.numel() / (time.perf_counter() - start))
    return best


@torch.inference_mode()
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--positions", type=int, default=291)
    parser.add_argument("--dtype", choices=["bf16", "f32"], default="bf16")
    options = parser.parse_args()
    dtype = torch.bfloat16 if options.dtype == "bf16" else torch.float32
    decoder = Decoder(options.batch, options.positions, dtype)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            decoder.step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    decoder.position.zero_()
    with torch.cuda.graph(graph):
        decoder.step()
    decoder.position.zero_()
    warm = 8
    for _ in range(warm):
        graph.replay()
    torch.cuda.synchronize()
    start = time.perf_counter()
    steps = options.positions - warm - 1
    for _ in range(steps):
        graph.replay()
    torch.cuda.synchronize()
    seconds = (time.perf_counter() - start) / steps
    print(f"PyTorch {torch.__version__}: {seconds * 1e3:.4f} ms a step, {options.batch / seconds:.1f} tokens/s")
    print(f"a copy reads and writes {copy_rate() / 1e9:.0f} GB/s")


if __name__ == "__main__":
    main()
