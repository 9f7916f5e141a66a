# SPDX-License-Identifier: MIT
"""Pinned memory: how much of it a program holds, and that no copy finds it written over."""

import gc
import random
import threading

import pytest
import torch

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
GPU = "cuda"
LONG = 300_000_000  # cycles: a fifth of a second


def pin(size):
    return torch.empty(size, dtype=torch.uint8, pin_memory=True)


def held(which="current"):
    return torch.cuda.host_memory_stats()[f"allocated_bytes.{which}"]


def in_use():
    return torch.cuda.host_memory_stats()["active_bytes.current"]


@pytest.fixture(autouse=True)
def empty():
    """Every test starts without pinned memory, and leaves none."""
    gc.collect()
    torch.cuda.synchronize()
    torch._C._host_emptyCache()
    torch.cuda.reset_peak_host_memory_stats()
    torch.cuda.reset_accumulated_host_memory_stats()
    yield


@pytest.fixture
def exact(allocator):
    if allocator != "loch":
        pytest.skip("this allocator rounds sizes up to powers of two")


# --- how much is held ---


@pytest.mark.parametrize("shift", range(20, 33))
def test_a_size_just_above_a_power_of_two_takes_its_size(exact, shift):
    for more in (1, 4 * KIB, 33 * KIB):
        size = (1 << shift) + more
        x = pin(size)
        assert held() <= 1.02 * size, held() / size
        x[0], x[-1] = 3, 4
        del x
        torch._C._host_emptyCache()
        assert held() == 0


def test_many_sizes_at_one_time_take_their_sum(exact):
    sizes = [(1 << shift) + 1 + 512 * i for i in range(4) for shift in range(20, 30)]
    random.Random(1).shuffle(sizes)
    blocks = [pin(size) for size in sizes]
    assert held("peak") <= 1.02 * sum(sizes), held("peak") / sum(sizes)
    del blocks


def test_sizes_one_after_the_other_take_the_largest(exact):
    for _ in range(2):
        for shift in range(20, 31):
            del_me = pin((1 << shift) + 1)
            del del_me
    assert held("peak") <= 1.02 * (GIB + 1), held("peak") / GIB


def test_varying_batches_settle(exact):
    numbers = random.Random(3)
    batches = [None] * 3
    for i in range(60):
        batches[i % 3] = None
        batches[i % 3] = pin(numbers.randrange(90, 110) * MIB)
    pinned_then = torch.cuda.host_memory_stats()["num_host_alloc"]
    for i in range(60):
        batches[i % 3] = None
        batches[i % 3] = pin(numbers.randrange(90, 110) * MIB)
    assert torch.cuda.host_memory_stats()["num_host_alloc"] - pinned_then <= 4
    assert held("peak") <= 1.15 * 330 * MIB


# --- contents ---


def test_contents_go_to_the_gpu_and_back():
    for size in (1, 1000, MIB + 1, 100 * MIB + 12345):
        source = pin(size)
        source.random_(0, 255, generator=torch.Generator().manual_seed(size))
        assert source.is_pinned()
        back = pin(size)
        back.copy_(source.to(GPU, non_blocking=True), non_blocking=True)
        torch.cuda.synchronize()
        assert torch.equal(source, back)


@pytest.mark.parametrize("is_side", [False, True])
def test_a_copy_in_progress_keeps_its_memory(is_side):
    stream = torch.cuda.Stream() if is_side else torch.cuda.current_stream()
    results = []
    with torch.cuda.stream(stream):
        for i in range(12):
            source = pin(16 * MIB + 1).fill_(i)
            torch.cuda._sleep(LONG // 10)
            results.append(source.to(GPU, non_blocking=True))
            del source  # the next block must not be this one before the copy has run
    torch.cuda.synchronize()
    for i, x in enumerate(results):
        assert int(x.min()) == int(x.max()) == i


def test_a_copy_to_the_host_in_progress_keeps_its_memory():
    source = torch.full((16 * MIB,), 9, dtype=torch.uint8, device=GPU)
    for _ in range(10):
        target = pin(16 * MIB)
        torch.cuda._sleep(LONG // 10)
        target.copy_(source, non_blocking=True)
        del target
        other = pin(16 * MIB).fill_(1)
        torch.cuda.synchronize()
        assert int(other.max()) == 1


def test_the_host_does_not_wait_for_copies():
    torch.cuda.synchronize()
    done = torch.cuda.Event()
    source = pin(32 * MIB).fill_(1)
    torch.cuda._sleep(10 * LONG)
    x = source.to(GPU, non_blocking=True)
    done.record()
    del source
    more = [pin(32 * MIB) for _ in range(3)]
    assert not done.query()  # still asleep: new memory was taken instead
    torch.cuda.synchronize()
    assert int(x.max()) == 1
    del more


def test_memory_serves_again_after_the_copies():
    for _ in range(30):
        source = pin(20 * MIB + 5)
        source.to(GPU, non_blocking=True)
        del source
        torch.cuda.synchronize()
    assert held("peak") <= 2.1 * 20 * MIB if torch.cuda.get_allocator_backend() == "loch" else True


def test_threads():
    failures = []

    def run(seed):
        numbers = random.Random(seed)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for i in range(40):
                value = numbers.randrange(256)
                source = pin(numbers.randrange(1, 4 * MIB)).fill_(value)
                x = source.to(GPU, non_blocking=True)
                del source
                if int(x.min()) != value or int(x.max()) != value:
                    failures.append((seed, i))

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_loaders_with_workers(fresh):
    program = """
import json, torch
data = torch.utils.data.TensorDataset(torch.arange(256 * 1000, dtype=torch.float32).view(256, 1000))
held = torch.empty(1 << 28, dtype=torch.uint8, pin_memory=True)  # a fork must not copy it
torch.zeros(1, device="cuda")
total = 0.0
for (batch,) in torch.utils.data.DataLoader(data, batch_size=8, num_workers=2, pin_memory=True):
    assert batch.is_pinned()
    total += float(batch.to("cuda", non_blocking=True).double().sum())
print(json.dumps(total == float(data.tensors[0].double().sum())))
"""
    assert fresh(program, may_warn=True) is True


def test_memory_of_another_device():
    if torch.cuda.device_count() < 2:
        pytest.skip("this machine has one GPU")
    source = pin(8 * MIB).fill_(5)
    torch.cuda._sleep(LONG)
    x = source.to("cuda:1", non_blocking=True)
    del source
    others = [pin(8 * MIB).fill_(1) for _ in range(4)]
    torch.cuda.synchronize("cuda:1")
    assert int(x.min()) == 5
    del others


# --- figures ---


def test_figures(exact):
    x, y = pin(3 * MIB), pin(40 * MIB)
    stats = torch.cuda.host_memory_stats()
    assert stats["active_requests.current"] == 2 and stats["active_requests.allocated"] == 2
    assert stats["active_bytes.current"] >= 43 * MIB
    assert stats["num_host_alloc"] == 2
    assert stats["host_alloc_time.count"] == 2 and stats["host_alloc_time.total"] > 0
    del x, y
    assert torch.cuda.host_memory_stats()["active_requests.current"] == 0
    assert held() >= 43 * MIB
    torch._C._host_emptyCache()
    assert held() == 0
    assert torch.cuda.host_memory_stats()["num_host_free"] >= 2


def test_too_much_is_refused_and_the_program_goes_on():
    with pytest.raises(RuntimeError):
        pin(1 << 50)
    x = pin(MIB).fill_(2)
    assert int(x.to(GPU).max()) == 2


# --- graphs ---


def capture(size, value):
    """Captures a copy from pinned memory that the capture allocates. Returns the graph, the block and the result."""
    graph, result = torch.cuda.CUDAGraph(), torch.zeros(size, dtype=torch.uint8, device=GPU)
    with torch.cuda.graph(graph):
        source = pin(size)
        result.copy_(source, non_blocking=True)
    source.fill_(value)
    return graph, source, result


def test_a_graph_reads_pinned_memory_of_its_capture():
    graph, source, result = capture(2 * MIB, 7)
    graph.replay()
    torch.cuda.synchronize()
    assert int(result.min()) == int(result.max()) == 7
    source.fill_(8)
    graph.replay()
    torch.cuda.synchronize()
    assert int(result.max()) == 8


def test_a_graph_keeps_the_pinned_memory_that_it_reads():
    graph, source, result = capture(2 * MIB, 7)
    del source
    others = [pin(2 * MIB).fill_(1) for _ in range(8)]
    graph.replay()
    torch.cuda.synchronize()
    assert int(result.min()) == int(result.max()) == 7
    del others


def test_pinned_memory_of_a_dropped_graph_comes_back(exact):
    for _ in range(3):
        graph, source, result = capture(16 * MIB + 1, 7)
        graph.replay()
        del source, graph, result
        gc.collect()
        torch.cuda.synchronize()
        torch._C._host_emptyCache()
        assert held() == 0


def test_pinned_memory_from_before_a_capture_serves_after_it(exact):
    source, result = pin(8 * MIB).fill_(3), torch.zeros(8 * MIB, dtype=torch.uint8, device=GPU)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result.copy_(source, non_blocking=True)
    graph.replay()
    torch.cuda.synchronize()
    assert int(result.max()) == 3
    address = source.data_ptr()
    del graph, source
    gc.collect()
    torch.cuda.synchronize()
    assert address in [block.data_ptr() for block in [pin(8 * MIB) for _ in range(3)]]


def test_the_end_of_the_process(fresh):
    program = """
import json, torch
kept = [torch.empty((1 << 20) + 1, dtype=torch.uint8, pin_memory=True) for _ in range(4)]
x = kept[0].to("cuda", non_blocking=True)
del kept[0]
print(json.dumps(True))
"""
    assert fresh(program) is True
