# SPDX-License-Identifier: MIT
"""Builds all-MiniLM-L6-v2 as an ONNX model from the weights that the embedder uses.

Two graphs with the same results: `fused` has ONNX Runtime's own operators for transformers (Attention, SkipLayerNormalization, BiasGelu),
which its optimizer for transformers makes of an exported model; `plain` has standard operators, as an exporter writes them, and leaves all
to the optimisations of the session.
"""
import json
import pathlib
import struct

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LAYERS, HEADS, WIDTH, EPSILON = 6, 12, 384, 1e-12


def read_safetensors(path):
    """Returns the tensors of a safetensors file by their names."""
    data = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    types = {"F32": np.float32, "I64": np.int64}
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + length]).items():
        if name != "__metadata__":
            start, end = entry["data_offsets"]
            tensors[name] = np.frombuffer(data[8 + length + start : 8 + length + end], types[entry["dtype"]]).reshape(entry["shape"])
    return tensors


class Graph:
    """Nodes and constants of a graph; each method adds one and returns the name of its result."""

    def __init__(self):
        self.nodes, self.constants, self.count = [], {}, 0

    def constant(self, value, name=None):
        name = name or f"constant{len(self.constants)}"
        self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def add(self, kind, *inputs, outputs=1, domain="", **attributes):
        self.count += 1
        results = [f"{kind}{self.count}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), results, domain=domain, **attributes))
        return results[0]


def linear(graph, x, weights, name, bias=True):
    y = graph.add("MatMul", x, graph.constant(weights[name + ".weight"].T))
    return graph.add("Add", y, graph.constant(weights[name + ".bias"])) if bias else y


def norm(graph, x, weights, name):
    return graph.add("LayerNormalization", x, graph.constant(weights[name + ".weight"]), graph.constant(weights[name + ".bias"]),
                     axis=-1, epsilon=EPSILON)


def attention_plain(graph, x, weights, name, mask):
    shape = graph.constant(np.array([0, 0, HEADS, WIDTH // HEADS], np.int64))
    heads = {}
    for part, order in ("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3]):
        y = graph.add("Reshape", linear(graph, x, weights, f"{name}.{part}"), shape)
        heads[part] = graph.add("Transpose", y, perm=order)
    scores = graph.add("MatMul", heads["query"], heads["key"])
    scores = graph.add("Div", scores, graph.constant(np.float32((WIDTH // HEADS) ** 0.5)))
    mixed = graph.add("MatMul", graph.add("Softmax", graph.add("Add", scores, mask), axis=-1), heads["value"])
    return graph.add("Reshape", graph.add("Transpose", mixed, perm=[0, 2, 1, 3]), graph.constant(np.array([0, 0, WIDTH], np.int64)))


def attention_fused(graph, x, weights, name):
    parts = [f"{name}.{part}" for part in ("query", "key", "value")]
    return graph.add("Attention", x, graph.constant(np.concatenate([weights[p + ".weight"].T for p in parts], 1)),
                     graph.constant(np.concatenate([weights[p + ".bias"] for p in parts])), "mask", domain="com.microsoft", num_heads=HEADS)


def residual(graph, y, x, weights, name, fused):
    """Adds the input of a block and the bias of its last product to its result, and normalises."""
    norm_name, bias = name + ".LayerNorm", weights[name + ".dense.bias"]
    if not fused:
        return norm(graph, graph.add("Add", graph.add("Add", y, graph.constant(bias)), x), weights, norm_name)
    return graph.add("SkipLayerNormalization", y, x, graph.constant(weights[norm_name + ".weight"]),
                     graph.constant(weights[norm_name + ".bias"]), graph.constant(bias), domain="com.microsoft", epsilon=EPSILON)


def gelu(graph, x):
    half = graph.add("Erf", graph.add("Div", x, graph.constant(np.float32(2**0.5))))
    half = graph.add("Mul", x, graph.add("Add", half, graph.constant(np.float32(1))))
    return graph.add("Mul", half, graph.constant(np.float32(0.5)))


def layer(graph, x, weights, name, mask, fused):
    mixed = attention_fused(graph, x, weights, f"{name}.attention.self") if fused else attention_plain(
        graph, x, weights, f"{name}.attention.self", mask)
    x = residual(graph, linear(graph, mixed, weights, f"{name}.attention.output.dense", bias=False), x, weights, f"{name}.attention.output",
                 fused)
    y = linear(graph, x, weights, f"{name}.intermediate.dense", bias=not fused)
    if fused:
        y = graph.add("BiasGelu", y, graph.constant(weights[f"{name}.intermediate.dense.bias"]), domain="com.microsoft")
    else:
        y = gelu(graph, y)
    return residual(graph, linear(graph, y, weights, f"{name}.output.dense", bias=False), x, weights, f"{name}.output", fused)


def embeddings(graph, weights):
    word = graph.add("Gather", graph.constant(weights["embeddings.word_embeddings.weight"]), "ids")
    length = graph.add("Gather", graph.add("Shape", "ids"), graph.constant(np.array([1], np.int64)))
    zero = graph.constant(np.array([0], np.int64))
    position = graph.add("Slice", graph.constant(weights["embeddings.position_embeddings.weight"]), zero, length, zero)
    kind = graph.constant(weights["embeddings.token_type_embeddings.weight"][0])
    return norm(graph, graph.add("Add", graph.add("Add", word, kind), position), weights, "embeddings.LayerNorm")


def pool(graph, x):
    """The mean over the tokens of a sentence, normalised."""
    ones = graph.add("Cast", graph.add("Unsqueeze", "mask", graph.constant(np.array([-1], np.int64))), to=TensorProto.FLOAT)
    axis = graph.constant(np.array([1], np.int64))
    total = graph.add("ReduceSum", graph.add("Mul", x, ones), axis, keepdims=0)
    mean = graph.add("Div", total, graph.add("ReduceSum", ones, axis, keepdims=0))
    return graph.add("LpNormalization", mean, axis=-1, p=2)


def build(weights, fused):
    graph = Graph()
    x = embeddings(graph, weights)
    mask = None
    if not fused:
        ones = graph.add("Cast", graph.add("Unsqueeze", "mask", graph.constant(np.array([1, 2], np.int64))), to=TensorProto.FLOAT)
        mask = graph.add("Mul", graph.add("Sub", graph.constant(np.float32(1)), ones), graph.constant(np.float32(np.finfo(np.float32).min)))
    for i in range(LAYERS):
        x = layer(graph, x, weights, f"encoder.layer.{i}", mask, fused)
    result = pool(graph, x)
    shape = ["batch", "length"]
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT32, shape) for name in ("ids", "mask")]
    outputs = [helper.make_tensor_value_info(result, TensorProto.FLOAT, ["batch", WIDTH])]
    made = helper.make_graph(graph.nodes, "embedder", inputs, outputs, list(graph.constants.values()))
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)], ir_version=9)


def save(folder, model, fused):
    path = pathlib.Path(folder) / ("fused.onnx" if fused else "plain.onnx")
    if not path.exists():
        path.with_suffix(".new").write_bytes(build(read_safetensors(model), fused).SerializeToString())
        path.with_suffix(".new").rename(path)
    return path
