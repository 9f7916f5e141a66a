# SPDX-License-Identifier: MIT
"""model.py FOLDER: writes two small models with weights from a fixed seed: mlp.onnx, input x of [batch, length, 64], and
conv.onnx, input x of [batch, 3, height, width]. Both have the output y, and shapes that only a run knows."""

import sys

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

random = np.random.default_rng(18)


def weights(name, *shape):
    return numpy_helper.from_array(random.standard_normal(shape, dtype=np.float32) * np.float32(0.2), name)


def write(path, nodes, initializers, shape_in, shape_out):
    graph = helper.make_graph(nodes, "model", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape_in)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape_out)], initializers)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def mlp(path):
    nodes, initializers, name = [], [], "x"
    for i in range(6):
        initializers.append(weights(f"w{i}", 64, 64))
        nodes.append(helper.make_node("MatMul", [name, f"w{i}"], [f"m{i}"]))
        nodes.append(helper.make_node("Softmax", [f"m{i}"], [f"s{i}"]))
        name = "y" if i == 5 else f"a{i}"
        nodes.append(helper.make_node("Add", [f"m{i}", f"s{i}"], [name]))
    write(path, nodes, initializers, ["batch", "length", 64], ["batch", "length", 64])


def conv(path):
    nodes, initializers, name, channels = [], [], "x", 3
    for i in range(4):
        initializers.append(weights(f"w{i}", 16, channels, 3, 3))
        nodes.append(helper.make_node("Conv", [name, f"w{i}"], [f"c{i}"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{i}"], [f"r{i}"]))
        name, channels = f"r{i}", 16
    nodes.append(helper.make_node("GlobalAveragePool", [name], ["y"]))
    write(path, nodes, initializers, ["batch", 3, "height", "width"], ["batch", 16, 1, 1])


mlp(sys.argv[1] + "/mlp.onnx")
conv(sys.argv[1] + "/conv.onnx")
