# SPDX-License-Identifier: MIT
"""apps/decoder on a GPU: in f32 the tokens of the CPU for the same seed, in bf16 the logits of NumPy within tolerance; with
both kinds of caches, batches of one and several, graphs and single launches. compute-sanitizer looks over the kernels where it is there."""

import os
import pathlib
import shutil
import subprocess
import sys

import loch
import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "exchange"))
import decoder_reference as reference  # noqa: E402

PROGRAM = os.environ.get("LOCH_DECODER") or str(pathlib.Path(loch.get_library()).resolve().parents[1] / "apps" / "decoder")


def run(*arguments, before=()):
    result = subprocess.run(
        [*before, PROGRAM, *(str(argument) for argument in arguments)], capture_output=True, text=True, timeout=280
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-2000:]
    return result.stdout


def decode(folder, *arguments):
    """The tokens and the logits of a run."""
    texts, logits = folder / "texts.npy", folder / "logits.npy"
    out = run("--texts", texts, "--logits", logits, *arguments)
    assert out.rstrip().endswith("no leak")
    return np.load(texts), np.load(logits)


WAYS = [(batch, cache, graph) for batch in (1, 3, 4, 8) for cache in ("grown", "paged") for graph in ("on", "off")]


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    return decode(tmp_path_factory.mktemp("host"), "--requests", 9, "--tokens", 60, "--seed", 4)


@pytest.mark.parametrize("batch, cache, graph", WAYS)
def test_f32_has_the_tokens_of_the_cpu(tmp_path, host, batch, cache, graph):
    texts, logits = decode(
        tmp_path, "--device", "cuda:0", "--requests", 9, "--tokens", 60, "--seed", 4, "--batch", batch, "--cache", cache,
        "--graph", graph,
    )  # fmt: skip
    np.testing.assert_array_equal(texts, host[0])
    np.testing.assert_allclose(logits, host[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("early, ahead", [("on", 12), ("on", 0), ("off", 12), ("off", 0)])
@pytest.mark.parametrize("warps", [1, 8])
def test_launches_do_not_matter(tmp_path, host, early, ahead, warps):
    texts, _ = decode(
        tmp_path, "--device", "cuda:0", "--requests", 9, "--tokens", 60, "--seed", 4, "--early", early, "--ahead", ahead, "--warps", warps
    )  # fmt: skip
    np.testing.assert_array_equal(texts, host[0])


def test_samples_are_those_of_the_cpu(tmp_path):
    ways = ["--requests", 6, "--tokens", 50, "--seed", 4, "--temperature", 0.8, "--texts"]
    run(*ways, tmp_path / "host.npy")
    run(*ways, tmp_path / "device.npy", "--device", "cuda:0")
    np.testing.assert_array_equal(np.load(tmp_path / "device.npy"), np.load(tmp_path / "host.npy"))


def to_bf16(x):
    """Rounded to nearest, ties to even."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


@pytest.mark.parametrize("batch, cache", [(1, "grown"), (1, "paged"), (4, "grown"), (4, "paged")])
def test_bf16_against_numpy(tmp_path, batch, cache):
    requests, tokens = 5, 40
    texts, logits = decode(
        tmp_path, "--device", "cuda:0", "--dtype", "bf16", "--requests", requests, "--tokens", tokens, "--batch", batch,
        "--cache", cache,
    )  # fmt: skip
    weights = {name: to_bf16(value) for name, value in reference.weights_from_seed(1).items()}
    at = 0
    for i in range(requests):
        text = texts[i][texts[i] >= 0]
        rows = logits[at : at + len(text) - 1]
        at += len(text) - 1
        prompt = len(reference.PROMPTS[i % len(reference.PROMPTS)])
        assert len(text) == prompt + tokens
        np.testing.assert_array_equal(rows[prompt - 1 :].argmax(axis=1), text[prompt:])
        expected = reference.logits(weights, text[:-1])
        np.testing.assert_allclose(rows, expected, atol=0.05 * np.abs(expected).max())  # keys and values are rounded
        assert np.abs(rows - expected).mean() < 0.01 * np.abs(expected).max()


def test_long_requests_are_split(tmp_path):
    """More than 512 positions: attention of a head is the work of several blocks."""
    arguments = ["--device", "cuda:0", "--dtype", "f32", "--shape", "1.1b", "--requests", 2, "--tokens", 600, "--threads", 16]
    first = run(*arguments, "--texts", tmp_path / "a.npy", "--batch", 1, "--cache", "grown")
    run(*arguments, "--texts", tmp_path / "b.npy", "--batch", 2, "--cache", "paged", "--graph", "off")
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), np.load(tmp_path / "b.npy"))
    assert " ms a step" in first and "the pool holds" in first


SANITIZER = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"

if os.path.exists(SANITIZER):  # there is no such test where there is no such tool

    @pytest.mark.parametrize("tool", ["memcheck", "racecheck", "initcheck", "synccheck"])
    @pytest.mark.parametrize("dtype, batch, cache", [("f32", 1, "grown"), ("bf16", 4, "paged")])
    def test_sanitizer(tool, dtype, batch, cache):
        out = run(
            "--device", "cuda:0", "--dtype", dtype, "--batch", batch, "--cache", cache, "--requests", 3, "--tokens", 4, "--graph", "off",
            before=[SANITIZER, "--tool", tool, "--error-exitcode", "9", "--report-api-errors", "no"],
        )  # fmt: skip
        assert "ERROR SUMMARY: 0 errors" in out or "0 hazards" in out
