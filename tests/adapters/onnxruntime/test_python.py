# SPDX-License-Identifier: MIT
"""loch.onnxruntime with the ONNX Runtime of this Python. LOCH_TEST_MODELS is the folder of the models."""

import gc
import os
import threading

import numpy as np
import onnxruntime
import pytest

import loch
import loch.onnxruntime

MLP = os.path.join(os.environ["LOCH_TEST_MODELS"], "mlp.onnx")


def make_options():
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return options


def make_input(batch, length):
    return np.random.default_rng(batch * 1000 + length).standard_normal((batch, length, 64), dtype=np.float32)


@pytest.fixture
def own():
    return onnxruntime.InferenceSession(MLP, make_options(), providers=["CPUExecutionProvider"])


def test_results_are_equal_and_figures_are_by_name(own):
    first = loch.onnxruntime.create_session(MLP, make_options(), name="first")
    second = loch.onnxruntime.create_session(MLP, make_options(), name="second")
    loaded = loch.onnxruntime.stats("first")
    assert loaded.weights["requested_bytes"] >= 6 * 64 * 64 * 4
    for i in range(20):
        x = make_input(1 + i % 4, 5 + 13 * (i % 7))
        assert np.array_equal(first.run(None, {"x": x})[0], own.run(None, {"x": x})[0])
    assert loch.onnxruntime.stats("first").run["allocs"] >= 20
    assert loch.onnxruntime.stats("second").run["allocs"] == 0
    x = make_input(3, 30)
    assert np.array_equal(second.run(None, {"x": x})[0], own.run(None, {"x": x})[0])
    assert loch.onnxruntime.stats("second").run["allocs"] > 0
    del first, second
    gc.collect()
    for name in ("first", "second"):
        left = loch.onnxruntime.stats(name)
        assert left.run["blocks"] == left.weights["blocks"] == 0


def test_pool_is_the_default_one():
    assert loch.onnxruntime.pool() == loch.Device("cpu").default_pool


def test_results_outlive_their_session(own):
    session = loch.onnxruntime.create_session(MLP, make_options(), name="gone")
    x = make_input(2, 40)
    y = session.run(None, {"x": x})[0]
    del session
    gc.collect()
    assert np.array_equal(y, own.run(None, {"x": x})[0])


def test_limit_is_an_error_with_the_sentence():
    session = loch.onnxruntime.create_session(MLP, make_options(), name="small", limit="1MiB")
    with pytest.raises(Exception, match="Loch has no memory for session 'small': .* can never fit: the limit of allocator"):
        session.run(None, {"x": make_input(8, 1000)})
    assert session.run(None, {"x": make_input(1, 10)})[0].shape == (1, 10, 64)
    assert loch.onnxruntime.stats("small").run["peak_requested_bytes"] < 1 << 20


def test_wrong_names_are_refused():
    with pytest.raises(Exception, match="1 to 55 characters"):
        loch.onnxruntime.create_session(MLP, name="x" * 56)
    with pytest.raises(Exception, match="no quotation mark"):
        loch.onnxruntime.create_session(MLP, name='"')


def test_model_in_memory_and_without_options(own):
    with open(MLP, "rb") as file:
        session = loch.onnxruntime.create_session(file.read())
    x = make_input(1, 7)
    assert session.run(None, {"x": x})[0].shape == own.run(None, {"x": x})[0].shape
    assert loch.onnxruntime.stats().weights["blocks"] > 0


def test_threads_create_and_run_sessions(own):
    inputs = [make_input(1 + i, 10 + 30 * i) for i in range(4)]
    expected = [own.run(None, {"x": x})[0] for x in inputs]
    failures = []

    def work(number):
        try:
            for i in range(8):
                session = loch.onnxruntime.create_session(MLP, make_options(), name=f"thread {number}")
                which = (number + i) % 4
                if not np.array_equal(session.run(None, {"x": inputs[which]})[0], expected[which]):
                    failures.append(f"thread {number}, round {i}: results differ")
        except Exception as error:  # noqa: BLE001
            failures.append(repr(error))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    for i in range(4):
        assert loch.onnxruntime.stats(f"thread {i}").run["allocs"] >= 8
