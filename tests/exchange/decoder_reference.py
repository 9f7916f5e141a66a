# SPDX-License-Identifier: MIT
"""The model of apps/decoder, written down once more from its formulas with NumPy, in float64.

Nothing is shared with the program but the sizes, the prompts and the way from a seed to weights. All positions of a request
are computed at once, without a cache.
"""

import numpy as np

VOCABULARY, WIDTH, HEADS, KV_HEADS, MLP, LAYERS, CONTEXT = 256, 64, 4, 2, 176, 3, 256
HEAD = WIDTH // HEADS
EPSILON, ROTARY_BASE = 1e-5, 10000.0

PROMPTS = [
    b"The loch lay still below the hills,",
    b"Memory is",
    b"A pool of memory is like a lake:",
    b"To allocate is human;",
    b"x",
    b"Once upon a time there was a block of 64 bytes",
]


def shapes():
    """Names and shapes of all weights, in the order in which they take numbers from a seed."""
    yield "embedding", (VOCABULARY, WIDTH)
    for layer in range(LAYERS):
        for name, shape in [
            ("attention_norm", (WIDTH,)),
            ("query", (WIDTH, WIDTH)),
            ("key", (KV_HEADS * HEAD, WIDTH)),
            ("value", (KV_HEADS * HEAD, WIDTH)),
            ("output", (WIDTH, WIDTH)),
            ("mlp_norm", (WIDTH,)),
            ("gate", (MLP, WIDTH)),
            ("up", (MLP, WIDTH)),
            ("down", (WIDTH, MLP)),
        ]:
            yield f"layer{layer}.{name}", shape
    yield "final_norm", (WIDTH,)
    yield "head", (VOCABULARY, WIDTH)


def splitmix64(seed, count, start=0):
    """Numbers `start` and following of the generator."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(start + 1, start + count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def weights_from_seed(seed):
    """All weights as float32, bit for bit what the program makes."""
    weights, taken = {}, 0
    for name, shape in shapes():
        count = int(np.prod(shape))
        u = (splitmix64(seed, count, taken) >> np.uint64(40)).astype(np.float64) / 2**23 - 1
        taken += count
        if len(shape) == 1:
            values = 1 + u * 0.1
        elif name == "embedding":
            values = u
        else:
            values = u * np.sqrt(3.0 / shape[1])
        weights[name] = values.astype(np.float32).reshape(shape)
    return weights


def rmsnorm(x, weight):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + EPSILON) * weight


def rotary(x):
    """x is positions by heads by HEAD; each pair (i, i + HEAD / 2) is a complex number that is turned."""
    angles = np.arange(len(x))[:, None] * ROTARY_BASE ** (-2.0 * np.arange(HEAD // 2) / HEAD)
    turned = (x[..., : HEAD // 2] + 1j * x[..., HEAD // 2 :]) * np.exp(1j * angles)[:, None, :]
    return np.concatenate([turned.real, turned.imag], axis=-1)


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def attention(x, w):
    n = len(x)
    query = rotary((x @ w["query"].T).reshape(n, HEADS, HEAD))
    key = rotary((x @ w["key"].T).reshape(n, KV_HEADS, HEAD))
    value = (x @ w["value"].T).reshape(n, KV_HEADS, HEAD)
    key, value = (np.repeat(a, HEADS // KV_HEADS, axis=1) for a in (key, value))
    scores = np.einsum("ihd,jhd->hij", query, key) / np.sqrt(HEAD)
    scores = np.where(np.tri(n, dtype=bool), scores, -np.inf)
    return np.einsum("hij,jhd->ihd", softmax(scores), value).reshape(n, WIDTH) @ w["output"].T


def mlp(x, w):
    gate = x @ w["gate"].T
    return (gate / (1 + np.exp(-gate)) * (x @ w["up"].T)) @ w["down"].T


def logits(weights, tokens):
    """Of all positions: len(tokens) by VOCABULARY."""
    weights = {name: value.astype(np.float64) for name, value in weights.items()}
    x = weights["embedding"][np.asarray(tokens)]
    for layer in range(LAYERS):
        prefix = f"layer{layer}."
        w = {name[len(prefix) :]: value for name, value in weights.items() if name.startswith(prefix)}
        x = x + attention(rmsnorm(x, w["attention_norm"]), w)
        x = x + mlp(rmsnorm(x, w["mlp_norm"]), w)
    return rmsnorm(x, weights["final_norm"]) @ weights["head"].T
