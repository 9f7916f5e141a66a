# SPDX-License-Identifier: MIT
"""apps/decoder computes what its formulas say: all logits of all requests against NumPy, from seeds and from
files, with any number of threads; and what is asked wrongly is answered by one line."""

import json
import os
import pathlib
import re
import subprocess

import decoder_reference as reference
import numpy as np
import pytest

PROGRAM = os.environ.get("LOCH_DECODER") or str(
    pathlib.Path(os.environ["LOCH_LIBRARY"]).resolve().parents[1] / "apps" / "decoder"
)
TOLERANCE = dict(rtol=1e-4, atol=1e-4)


def decoder(*arguments, **environment):
    arguments = [str(argument) for argument in arguments]
    return subprocess.run(
        [PROGRAM, *arguments], capture_output=True, text=True, timeout=120, env={**os.environ, **environment}
    )


def served(path, *arguments, **environment):
    """The logits of a run that went well, and what it printed."""
    result = decoder("--logits", path, *arguments, **environment)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert result.stdout.rstrip().endswith("no leak")
    return np.load(path), result.stdout


def split(logits, requests, tokens):
    """The rows of each request: a position each, of the prompt and of all tokens but the last."""
    lengths = [len(reference.PROMPTS[i % len(reference.PROMPTS)]) + tokens - 1 for i in range(requests)]
    assert logits.shape == (sum(lengths), reference.VOCABULARY)
    assert logits.dtype == np.float32
    return np.split(logits, np.cumsum(lengths)[:-1])


def check(logits, weights, requests, tokens):
    for i, rows in enumerate(split(logits, requests, tokens)):
        prompt = reference.PROMPTS[i % len(reference.PROMPTS)]
        chosen = rows[len(prompt) - 1 :].argmax(axis=1)  # greedily, the first of the largest
        assert len(chosen) == tokens
        text = np.concatenate([np.frombuffer(prompt, np.uint8), chosen[:-1]])
        np.testing.assert_allclose(rows, reference.logits(weights, text), **TOLERANCE)


def test_reference_depends_on_everything():
    """A reference that ignored a weight or an earlier token would agree with a program that does."""
    weights = reference.weights_from_seed(1)
    text = np.frombuffer(reference.PROMPTS[0], np.uint8)
    expected = reference.logits(weights, text)
    for name in weights:
        changed = {**weights, name: weights[name] * np.float32(1.5)}
        assert np.abs(reference.logits(changed, text)[-1] - expected[-1]).max() > 1e-2, name
    other = text.copy()
    other[0] ^= 1
    assert np.abs(reference.logits(weights, other)[-1] - expected[-1]).max() > 1e-3
    np.testing.assert_array_equal(reference.logits(weights, text[:5]).round(9), expected[:5].round(9))


@pytest.mark.parametrize("seed", [0, 1, 2, 12345, 2**63 - 1])
def test_seeds(tmp_path, seed):
    logits, _ = served(tmp_path / "logits.npy", "--seed", seed, "--requests", 6, "--tokens", 20, "--threads", 2)
    check(logits, reference.weights_from_seed(seed), 6, 20)


@pytest.mark.parametrize(
    "requests, tokens, threads", [(1, 1, 1), (1, 40, 4), (3, 7, 1), (6, 210, 3), (40, 12, 8), (13, 30, 64)]
)
def test_counts(tmp_path, requests, tokens, threads):
    logits, text = served(
        tmp_path / "logits.npy", "--requests", requests, "--tokens", tokens, "--threads", threads, "--seed", 7
    )
    check(logits, reference.weights_from_seed(7), requests, tokens)
    for i in range(requests):
        assert f"request {i:2}:" in text


def test_threads_do_not_matter(tmp_path):
    """Bit for bit: requests share nothing but the weights."""
    runs = [served(tmp_path / f"{n}.npy", "--threads", n, "--requests", 12, "--tokens", 25)[0] for n in (1, 2, 5, 12)]
    for run in runs[1:]:
        np.testing.assert_array_equal(run, runs[0])


@pytest.mark.parametrize("threads", [1, 5])
def test_paged_caches(tmp_path, threads):
    """Where keys and values lie does not matter, bit for bit; pages are whole, and used again."""
    ways = ["--threads", threads, "--requests", 12, "--tokens", 40]
    grown, _ = served(tmp_path / "grown.npy", *ways)
    paged, text = served(tmp_path / "paged.npy", *ways, "--cache", "paged")
    np.testing.assert_array_equal(paged, grown)
    each, peak = figures(text)
    page = 16 * CACHED_POSITION / 1024
    lengths = [len(reference.PROMPTS[i % len(reference.PROMPTS)]) + 39 for i in range(12)]
    np.testing.assert_allclose(each, [-(-length // 16) * page for length in lengths], atol=0.06)
    assert max(each) <= peak <= threads * max(each)


def test_paged_caches_without_pools(tmp_path):
    logits, _ = served(tmp_path / "direct.npy", "--seed", 9, "--cache", "paged", LOCH_DIRECT_MEMORY="1")
    check(logits, reference.weights_from_seed(9), 8, 32)


def test_texts(tmp_path):
    logits, _ = served(tmp_path / "logits.npy", "--requests", 3, "--tokens", 5, "--texts", tmp_path / "texts.npy")
    texts = np.load(tmp_path / "texts.npy")
    assert texts.dtype == np.int32 and texts.shape == (3, 46 + 5)
    for i, rows in enumerate(split(logits, 3, 5)):
        prompt = reference.PROMPTS[i]
        expected = list(prompt) + list(rows[len(prompt) - 1 :].argmax(axis=1))
        assert list(texts[i]) == expected + [-1] * (51 - len(expected))


def sampled(row, temperature, seed, request, position):
    """The token that is chosen behind a position: the largest logit over the temperature plus a Gumbel number."""
    first = reference.splitmix64(seed, 1, request)[0]
    key = reference.splitmix64(first, 1, position)[0]
    u = ((reference.splitmix64(key, len(row)) >> np.uint64(41)).astype(np.float64) + 0.5) / 2**23
    return (row.astype(np.float64) / temperature - np.log(-np.log(u))).argmax()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_sampling(tmp_path, temperature):
    ways = ["--requests", 4, "--tokens", 30, "--seed", 6, "--temperature", temperature, "--texts", tmp_path / "texts.npy"]
    logits, _ = served(tmp_path / "logits.npy", *ways)
    texts = np.load(tmp_path / "texts.npy")
    greedy = 0
    for i, rows in enumerate(split(logits, 4, 30)):
        prompt = len(reference.PROMPTS[i])
        for position in range(prompt - 1, len(rows)):
            assert texts[i][position + 1] == sampled(rows[position], temperature, 6, i, position)
            greedy += texts[i][position + 1] == rows[position].argmax()
    assert greedy < 120  # of 4 times 30


def test_saved_weights(tmp_path):
    folder = tmp_path / "weights"
    first, _ = served(tmp_path / "first.npy", "--seed", 3, "--save-weights", folder)
    expected = reference.weights_from_seed(3)
    assert {path.name for path in folder.iterdir()} == {f"{name}.npy" for name in expected}
    for name, value in expected.items():
        found = np.load(folder / f"{name}.npy")
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, value)
    second, _ = served(tmp_path / "second.npy", "--weights", folder)
    np.testing.assert_array_equal(second, first)


def test_weights_of_numpy(tmp_path):
    """Files that NumPy wrote, in double precision, and columns first."""
    random = np.random.default_rng(5)
    weights = {name: random.normal(0, 0.2, shape) for name, shape in reference.shapes()}
    for i, (name, value) in enumerate(weights.items()):
        np.save(tmp_path / f"{name}.npy", np.asfortranarray(value) if i % 2 else value)
    logits, _ = served(tmp_path / "logits.npy", "--weights", tmp_path, "--requests", 5, "--tokens", 16)
    check(logits, {name: value.astype(np.float32) for name, value in weights.items()}, 5, 16)


def test_direct_memory(tmp_path):
    """Without pools, as for memory checkers: blocks do not grow, and all is as before."""
    logits, _ = served(tmp_path / "direct.npy", "--seed", 9, LOCH_DIRECT_MEMORY="1")
    check(logits, reference.weights_from_seed(9), 8, 32)


def test_report():
    result = decoder("--requests", 3, "--threads", 2)
    assert result.returncode == 0, result.stderr
    for word in ["weights", "activations", "peak", "reserved", "fragmentation", "prefill", "decode", "attention", "mlp"]:
        assert word in result.stdout
    assert "FLOP/s" in result.stdout


CACHED_POSITION = 4 * 2 * reference.LAYERS * reference.KV_HEADS * reference.HEAD  # bytes


def figures(text):
    """What the caches of the requests held, and what all of them did at most, in KiB."""
    each = [float(number) for number in re.findall(r"^request .* cache ([0-9.]+) KiB$", text, re.MULTILINE)]
    (peak,) = re.findall(r"^ +caches of all requests +peak ([0-9.]+) KiB$", text, re.MULTILINE)
    return each, float(peak)


def test_caches():
    """A row for each position but that of the last token; with one thread there is one cache at a time."""
    result = decoder("--requests", 6, "--tokens", 9, "--threads", 1)
    assert result.returncode == 0, result.stderr
    each, peak = figures(result.stdout)
    expected = [(len(prompt) + 8) * CACHED_POSITION / 1024 for prompt in reference.PROMPTS]
    np.testing.assert_allclose(each, expected, atol=0.06)
    assert peak == max(each)
    each, peak = figures(decoder("--requests", 12, "--tokens", 9, "--threads", 4).stdout)
    assert max(each) <= peak <= 4 * max(each)


def test_caches_without_pools():
    """Memory for the longest request from the start, and nobody else's."""
    result = decoder("--requests", 3, "--threads", 1, LOCH_DIRECT_MEMORY="1")
    assert result.returncode == 0, result.stderr
    each, peak = figures(result.stdout)
    assert each == [reference.CONTEXT * CACHED_POSITION / 1024] * 3 and peak == each[0]


def test_trace(tmp_path):
    path = tmp_path / "trace.json"
    result = decoder("--trace", path, "--requests", 2, "--tokens", 5)
    assert result.returncode == 0, result.stderr
    names = json.dumps(json.loads(path.read_text()))
    for word in ["request", "prefill", "decode", "attention", "mlp", "head"]:
        assert f'"{word}"' in names


def test_trace_counts_caches(tmp_path):
    """The cache of each request is a counter that grows by a row with every token."""
    path = tmp_path / "trace.json"
    result = decoder("--trace", path, "--requests", 2, "--tokens", 5)
    assert result.returncode == 0, result.stderr
    counters = {}
    for event in json.loads(path.read_text())["traceEvents"]:
        if event["ph"] == "C":
            counters.setdefault(event["name"], []).append(event["args"]["bytes"])
    for i in range(2):
        rows = [0] + [len(reference.PROMPTS[i]) + token for token in range(5)]
        assert sorted(set(counters[f"request {i}"])) == [row * CACHED_POSITION for row in rows]


# --- asked wrongly ---


def complaint(code, *arguments):
    result = decoder(*arguments)
    assert result.returncode == code
    assert result.stderr.startswith("decoder: ")
    assert result.stderr.count("\n") == 1 and result.stderr.endswith("\n")
    return result.stderr


def test_help():
    result = decoder("--help")
    assert result.returncode == 0 and result.stderr == ""
    for name in "seed weights save-weights requests tokens threads device shape dtype cache batch graph early profile ahead warps temperature texts logits trace help".split():
        assert f"--{name} " in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["--there-is-none", "1"],
        ["nothing"],
        [""],
        ["--seed"],
        ["--seed", "one"],
        ["--seed", "-1"],
        ["--seed", "9223372036854775808"],
        ["--requests", "0"],
        ["--requests", "1001"],
        ["--requests", "4x"],
        ["--requests", ""],
        ["--tokens", "0"],
        ["--tokens", "211"],
        ["--threads", "0"],
        ["--threads", "65"],
        ["--threads", "99999999999999999999999"],
        ["--device", ""],
        ["--logits"],
        ["--shape", "7b"],
        ["--dtype", "f64"],
        ["--cache", "none"],
        ["--graph", "yes"],
        ["--early", "1"],
        ["--profile", "1"],
        ["--batch", "0"],
        ["--batch", "9"],
        ["--warps", "17"],
        ["--ahead", "65"],
        ["--temperature", "-1"],
        ["--temperature", "warm"],
        ["--temperature", "nan"],
        ["--seed", "1", "--weights", "."],
    ],
)
def test_called_wrongly(arguments):
    assert "see --help" in complaint(2, *arguments)


def test_device():
    assert '"tpu"' in complaint(1, "--device", "tpu:0")
    assert "sim" in complaint(1, "--device", "sim:1GiB,backed")
    assert "f32" in complaint(1, "--dtype", "bf16")


def test_weights_missing(tmp_path):
    assert "embedding.npy" in complaint(1, "--weights", tmp_path)
    assert "embedding.npy" in complaint(1, "--weights", tmp_path / "nowhere")


def test_weights_wrong(tmp_path):
    for name, shape in reference.shapes():
        np.save(tmp_path / f"{name}.npy", np.zeros(shape, np.float32))
    np.save(tmp_path / "layer1.gate.npy", np.zeros((176, 63), np.float32))
    assert "layer1.gate.npy" in complaint(1, "--weights", tmp_path)
    (tmp_path / "layer1.gate.npy").write_text("these are no weights")
    assert "layer1.gate.npy" in complaint(1, "--weights", tmp_path)


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_output_that_cannot_be_written(arguments):
    with open("/dev/full", "w") as full:
        result = subprocess.run([PROGRAM, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
    assert result.returncode == 1
    assert result.stderr == "decoder: the output cannot be written\n"


def test_files_that_cannot_be_written(tmp_path):
    nowhere = tmp_path / "no" / "folder"
    complaint(1, "--save-weights", nowhere)
    complaint(1, "--logits", nowhere / "logits.npy")
    complaint(1, "--trace", nowhere / "trace.json")
