# SPDX-License-Identifier: MIT
"""The plug-in for vLLM under the real PyTorch, on a simulated device, with a double of vLLM (doubles/README.md)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
if torch.version.cuda is None:
    pytest.skip("PyTorch is built without CUDA", allow_module_level=True)

DOUBLES = Path(__file__).parent / "doubles"

# A worker's life: the engine's memory is Loch's, weights survive level 1, dropped pages read as zeros.
LIFE = """
import ctypes
import torch
import loch.torch
loch.torch.enable(device="sim:256MiB,backed,id=%d", pinned=False)
import loch.vllm
loch.vllm.register()
loch.vllm.register()
from vllm.v1.worker.worker_base import WorkerWrapperBase

worker = WorkerWrapperBase(*BACKEND)
worker.init_device()
is_loch = type(worker.allocator) is loch.vllm.LochAllocator
print("loch" if is_loch else "vllm", getattr(worker.vllm_config.model_config, "sleep_mode_backend", None))
if is_loch:
    PAGE, KEYS = 1 << 20, 256  # the last page of a request: 16 tokens are written, the others never
    weights, cache = worker.allocate("weights", PAGE), worker.allocate("kv_cache", PAGE)

    def fill(address, value, count=PAGE):
        ctypes.memset(address, value, count)

    def attend():
        # As FlashAttention 3 reads a page: scores are masked, values are not. 0 times NaN is NaN.
        values = (ctypes.c_float * KEYS).from_address(cache)
        return sum(value * (1.0 / 16 if i < 16 else 0.0) for i, value in enumerate(values))

    for level in 1, 2:
        fill(weights, 1)
        fill(cache, 0xFF)
        worker.sleep(level)
        worker.wake_up(["weights"])
        print(level, "weights", ctypes.string_at(weights, 1)[0], "asleep", loch.torch.asleep())
        worker.wake_up()
        (ctypes.c_float * 16).from_address(cache)[:] = [2.0] * 16
        print(level, "attention", attend())
"""


def run(version, backend=None, **environment):
    code = LIFE.replace("*BACKEND", repr(backend) if backend else "")
    paths = os.pathsep.join(filter(None, [str(DOUBLES), os.environ.get("PYTHONPATH")]))
    mine = {"PYTHONPATH": paths, "LOCH_TEST_VLLM": version, **environment}
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **mine}, capture_output=True, text=True)
    return done.returncode, done.stdout.splitlines(), done.stderr


SERVED = [
    "1 weights 1 asleep ['kv_cache']",
    "1 attention 2.0",
    "2 weights 0 asleep ['kv_cache']",
    "2 attention 2.0",
]


@pytest.mark.parametrize(
    ("version", "asked", "backend", "head"),
    [
        ("0.33", {}, "loch", "loch loch"),  # --sleep-mode-backend loch
        ("0.33", {"LOCH_VLLM": "1"}, None, "loch loch"),
        ("0.25", {"LOCH_VLLM": "on"}, None, "loch loch"),
        ("0.20", {"LOCH_VLLM": "1"}, None, "loch None"),
    ],
)
def test_an_engine_that_asked_is_served(version, asked, backend, head):
    code, lines, errors = run(version, backend, **asked)
    assert (code, lines) == (0, [head, *SERVED]), errors


@pytest.mark.parametrize("version", ["0.33", "0.25", "0.20"])
@pytest.mark.parametrize("asked", [{}, {"LOCH_VLLM": "0"}, {"LOCH_VLLM": "off"}, {"LOCH_VLLM": ""}])
def test_other_engines_are_left_alone(version, asked):
    code, lines, errors = run(version, **asked)
    assert (code, lines) == (0, ["vllm None" if version == "0.20" else "vllm cumem"]), errors


def test_pages_of_nan_would_be_seen():
    """The check above can fail: with NaN by name, what was not written spoils the request."""
    code, lines, errors = run("0.33", LOCH_VLLM="1", LOCH_SLEEP_NAN="on")
    assert code == 0 and lines[2] == "1 attention nan", errors


def test_another_backend_stays():
    code, lines, errors = run("0.33", "theirs", LOCH_VLLM="1")
    assert lines[:1] == ["loch theirs"], errors


def test_a_wrong_word_is_refused():
    code, lines, errors = run("0.33", LOCH_VLLM="yes please")
    assert code and "LOCH_VLLM is 'yes please': it is 1 or on" in errors


def test_a_version_without_doors_gets_a_sentence():
    code, lines, errors = run("9.0", LOCH_VLLM="1")
    assert code and "RuntimeError: Loch does not fit vLLM 9.0" in errors and "loch.torch.enable()" in errors
    code, lines, errors = run("9.0")
    assert "RuntimeWarning: Loch does not fit vLLM 9.0" in errors
