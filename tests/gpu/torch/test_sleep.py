# SPDX-License-Identifier: MIT
"""Sleep of a model with CUDA graphs on a GPU: no memory is left, and replayed graphs give the same bits."""

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
import loch.torch  # noqa: E402
import loch.torch.memory_saver  # noqa: E402

if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)
if not loch.torch.is_enabled():
    loch.torch.enable()

MIB = 1 << 20


def get_pools():
    return [pool for figures in loch.torch.stats().values() for pool in figures["pools"]]


def get_reserved():
    return sum(pool["reserved_bytes"] for pool in get_pools())


def get_used():
    free, total = torch.cuda.mem_get_info()
    return total - free


def make_model():
    torch.manual_seed(1)
    return torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(16)]).cuda().half()


def capture(model, tag, saver=None):
    """Captures the model. Returns the graph, its input and its output."""
    given = torch.zeros(64, 1024, device="cuda", dtype=torch.half)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), torch.no_grad():
        for _ in range(3):
            model(given)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), loch.torch.region(tag):
        with torch.cuda.graph(graph):
            result = model(given)
    return graph, given, result


def replay(captured, seed):
    graph, given, result = captured
    given.copy_(torch.randn(given.shape, generator=torch.Generator().manual_seed(seed)).half())
    graph.replay()
    return result.clone().cpu()


@pytest.fixture(autouse=True)
def awake():
    """Every test leaves everything awake."""
    yield
    loch.torch.wake()


@pytest.mark.parametrize("contents", ["pinned", "host", "file"])
def test_everything_with_graphs(contents):
    with loch.torch.region("weights"):
        model = make_model()
    captured = capture(model, "graphs")
    before = [replay(captured, seed) for seed in range(4)]
    torch.cuda.synchronize()
    used = get_used()
    reserved = get_reserved()
    loch.torch.sleep(contents=contents)
    assert get_reserved() == 0
    assert get_used() <= used - reserved + 64 * MIB
    loch.torch.wake()
    after = [replay(captured, seed) for seed in range(4)]
    assert all(torch.equal(old, new) for old, new in zip(before, after))


def test_graph_pool_sleeps_with_its_tag():
    with loch.torch.region("weights"):
        model = make_model()
    captured = capture(model, "graph memory")
    before = replay(captured, 1)
    pools = [pool for pool in get_pools() if pool["tag"] == "graph memory"]
    assert pools and sum(pool["reserved_bytes"] for pool in pools) > 0
    loch.torch.sleep("graph memory")
    assert all(pool["reserved_bytes"] == 0 for pool in get_pools() if pool["tag"] == "graph memory")
    eager = model(torch.ones(4, 1024, device="cuda", dtype=torch.half))  # other memory works
    assert torch.isfinite(eager).all()
    loch.torch.wake("graph memory")
    assert torch.equal(replay(captured, 1), before)


def test_many_cycles_leave_nothing_behind():
    with loch.torch.region("weights"):
        model = make_model()
    captured = capture(model, "graphs")
    expected = replay(captured, 1)
    loch.torch.sleep()
    first = get_used()
    for _ in range(20):
        loch.torch.wake()
        loch.torch.sleep()
    assert get_used() <= first + 2 * MIB
    loch.torch.wake()
    assert torch.equal(replay(captured, 1), expected)


def test_dropped_weights_are_zero():
    with loch.torch.region("dropped"):
        weights = torch.ones(1 << 20, device="cuda")
        halves = torch.ones(1 << 20, device="cuda", dtype=torch.half)
    loch.torch.sleep("dropped", "drop")
    loch.torch.wake("dropped")
    assert not weights.any() and not halves.any()


def test_work_in_flight_is_waited_for():
    with loch.torch.region("flight"):
        tensor = torch.zeros(64 << 20, device="cuda")
    streams = [torch.cuda.Stream() for _ in range(4)]
    for number, stream in enumerate(streams):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(20):
                tensor[number << 24:(number + 1) << 24] += 1
    loch.torch.sleep("flight")
    loch.torch.wake("flight")
    assert (tensor == 20).all()


def test_a_process_ends_while_memory_is_unpinned():
    program = """
import ctypes, torch, loch.torch
loch.torch.enable()
with loch.torch.region("large"):
    tensor = torch.ones(4 << 30, dtype=torch.uint8, device="cuda")
loch.torch.sleep("large")
loch.torch.wake("large")
assert bool((tensor[::4096] == 1).all())
ctypes.CDLL(None).exit(0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_memory_saver_with_graph():
    saver = loch.torch.memory_saver.TorchMemorySaver()
    with saver.region(tag="model_weights", enable_cpu_backup=True):
        model = make_model()
    given = torch.ones(8, 1024, device="cuda", dtype=torch.half)
    with torch.no_grad():
        model(given)
        graph = torch.cuda.CUDAGraph()
        with saver.cuda_graph(graph, tag="graph", enable_cpu_backup=True):
            result = model(given)
    graph.replay()
    before = result.clone()
    saver.pause()
    assert sum(pool["asleep_bytes"] for pool in get_pools()) > 16 * 2 * MIB
    copy = saver.get_cpu_backup(model[0].weight.data)
    saver.resume()
    assert torch.equal(copy, model[0].weight.data.cpu())
    assert saver.get_cpu_backup(model[0].weight.data) is None
    graph.replay()
    assert torch.equal(result, before)


def test_statistics_follow():
    with loch.torch.region("counted"):
        tensor = torch.ones(64 << 20, dtype=torch.uint8, device="cuda")
    reserved = torch.cuda.memory_reserved()
    loch.torch.sleep("counted")
    assert torch.cuda.memory_reserved() <= reserved - (64 << 20)
    assert loch.torch.stats()[0]["asleep_bytes"] >= 64 << 20
    loch.torch.wake()
    assert (tensor == 1).all()
