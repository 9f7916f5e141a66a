# SPDX-License-Identifier: MIT
"""torch.cuda.memory_stats and the functions on it, torch.accelerator, cudnn.benchmark, caching_allocator_enable."""

import re

import pytest
import torch

MIB = 1 << 20
GPU = "cuda"


def figure(name):
    return torch.cuda.memory_stats()[name]


def byte_tensor(count):
    return torch.empty(count, dtype=torch.uint8, device=GPU)


def test_name_of_the_allocator(allocator):
    assert torch.cuda.get_allocator_backend() == ("native" if allocator == "native" else "loch")


def test_memory_stats_count_blocks_and_bytes():
    before = torch.cuda.memory_stats()
    large, small = byte_tensor(8 * MIB + 3), byte_tensor(1000)
    after = torch.cuda.memory_stats()
    assert set(before) == set(after)

    def grown(name):
        return after[name] - before[name]

    assert grown("requested_bytes.all.current") == 8 * MIB + 3 + 1000
    assert grown("requested_bytes.large_pool.current") == 8 * MIB + 3
    assert grown("requested_bytes.small_pool.current") == 1000
    for name in ("allocation", "active"):
        assert grown(f"{name}.all.current") == 2
        assert grown(f"{name}.large_pool.current") == 1 and grown(f"{name}.small_pool.current") == 1
        assert grown(f"{name}.all.allocated") == 2
    assert 8 * MIB + 1003 <= grown("allocated_bytes.all.current") <= 11 * MIB
    assert grown("active_bytes.all.current") == grown("allocated_bytes.all.current")
    assert after["reserved_bytes.all.current"] >= after["allocated_bytes.all.current"]
    assert after["segment.all.current"] >= 1
    assert after["num_device_alloc"] >= 1
    del large, small
    end = torch.cuda.memory_stats()
    for name in ("requested_bytes", "allocated_bytes", "allocation", "active"):
        assert end[f"{name}.all.current"] == before[f"{name}.all.current"]
        assert end[f"{name}.all.freed"] > before[f"{name}.all.freed"]


KEYS = [f"{figure}.{pool}.{part}"
        for figure in ("allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes", "active_bytes",
                       "inactive_split_bytes", "requested_bytes")
        for pool in ("all", "small_pool", "large_pool") for part in ("current", "peak", "allocated", "freed")]
KEYS += ["num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free", "max_split_size",
         "oversize_allocations.current", "oversize_segments.current"]


def test_memory_stats_have_every_key():
    keep = byte_tensor(MIB)
    stats = torch.cuda.memory_stats()
    assert [key for key in KEYS if key not in stats] == []
    for figure_name in ("allocation", "allocated_bytes", "active", "active_bytes", "requested_bytes", "reserved_bytes", "segment"):
        for part in ("current", "allocated", "freed"):
            pools = [stats[f"{figure_name}.{pool}.{part}"] for pool in ("all", "small_pool", "large_pool")]
            assert pools[0] == pools[1] + pools[2], (figure_name, part, pools)
    del keep


def test_a_warm_up_and_the_capture_after_it_are_not_one_peak():
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    base = torch.cuda.memory_allocated()
    warm = byte_tensor(200 * MIB)
    del warm
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = torch.zeros(100 * MIB, dtype=torch.uint8, device=GPU)
    assert 200 * MIB <= torch.cuda.max_memory_allocated() - base <= 210 * MIB
    beside = byte_tensor(150 * MIB)
    assert 250 * MIB <= torch.cuda.max_memory_allocated() - base <= 260 * MIB
    del beside, output
    graph.reset()


def work_with_gradients():
    x = torch.ones(4 * MIB, device=GPU, requires_grad=True)
    (x * 2).exp().log().square().sum().backward()  # saved tensors are freed by the thread of the backward pass


def test_the_peak_of_large_blocks_does_not_grow_with_the_steps():
    work_with_gradients()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(20):
        work_with_gradients()
    assert figure("allocated_bytes.large_pool.peak") <= figure("allocated_bytes.all.peak")


def test_peaks_and_their_reset():
    torch.cuda.reset_peak_memory_stats()
    base = torch.cuda.memory_allocated()
    assert torch.cuda.max_memory_allocated() == base
    x = byte_tensor(100 * MIB)
    peak = torch.cuda.max_memory_allocated()
    assert base + 100 * MIB <= peak <= base + 103 * MIB
    assert torch.cuda.memory_allocated() == peak
    del x
    assert torch.cuda.memory_allocated() == base
    assert torch.cuda.max_memory_allocated() == peak
    assert torch.cuda.max_memory_reserved() >= peak
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == base
    assert torch.cuda.max_memory_reserved() == torch.cuda.memory_reserved() < peak
    torch.cuda.reset_accumulated_memory_stats()
    assert figure("allocation.all.allocated") == 0 and figure("allocation.all.freed") == 0
    x = byte_tensor(5)
    assert figure("allocation.all.allocated") == 1
    del x


def test_empty_cache_gives_memory_back():
    base = torch.cuda.memory_reserved()
    free_before, total = torch.cuda.mem_get_info()
    x = byte_tensor(512 * MIB)
    assert torch.cuda.memory_reserved() >= base + 512 * MIB
    del x
    assert torch.cuda.memory_reserved() >= base + 512 * MIB  # cached
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= base + 4 * MIB
    assert 0 < free_before <= total


def test_memory_summary_shows_the_figures():
    x = byte_tensor(700 * MIB)
    text = torch.cuda.memory_summary()
    shown = re.search(r"\| Allocated memory +\| +(\d+) (\w+) ", text)
    unit = {"B": 1, "KiB": 1 << 10, "MiB": MIB, "GiB": 1 << 30}[shown[2]]
    assert abs(int(shown[1]) * unit - torch.cuda.memory_allocated()) <= unit
    assert "GPU reserved memory" in text and "CUDA OOMs" in text
    assert torch.cuda.memory_summary(abbreviated=True)
    del x


def test_accelerator_asks_the_same_allocator():
    x = byte_tensor(33 * MIB)
    assert torch.accelerator.memory_allocated() == torch.cuda.memory_allocated() >= 33 * MIB
    assert torch.accelerator.memory_reserved() == torch.cuda.memory_reserved()
    assert torch.accelerator.max_memory_allocated() == torch.cuda.max_memory_allocated()
    stats = torch.accelerator.memory_stats()
    assert stats["requested_bytes.all.current"] == figure("requested_bytes.all.current")
    del x
    held = torch.cuda.memory_reserved()
    torch.accelerator.empty_cache()
    assert torch.cuda.memory_reserved() < held
    torch.accelerator.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated()
    torch.accelerator.reset_accumulated_memory_stats()
    assert figure("allocation.all.allocated") == 0
    if hasattr(torch.accelerator, "get_memory_info"):
        assert torch.accelerator.get_memory_info()[1] == torch.cuda.mem_get_info()[1]


@pytest.mark.parametrize("is_deterministic", [False, True])
def test_cudnn_benchmark_chooses_an_algorithm(is_deterministic):
    before = torch.backends.cudnn.benchmark
    net = torch.nn.Sequential(torch.nn.Conv2d(8, 64, 3, padding=1), torch.nn.Conv2d(64, 16, 5), torch.nn.ConvTranspose2d(16, 4, 3)).to(GPU)
    x = torch.randn(4, 8, 64, 64, device=GPU)
    try:
        results = []
        for is_on in (False, True):
            torch.backends.cudnn.benchmark = is_on
            torch.backends.cudnn.deterministic = is_deterministic
            y = net(x)
            net.zero_grad()
            y.square().mean().backward()
            results.append((y.detach(), net[1].weight.grad.clone()))
            for shape in ((2, 8, 40, 40), (1, 8, 100, 64)):
                net(torch.randn(*shape, device=GPU)).sum().backward()
    finally:
        torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = before, False
    for eager, chosen in zip(*results):
        torch.testing.assert_close(eager, chosen, rtol=2e-2, atol=2e-3)


def test_without_caching_memory_comes_from_the_driver():
    held, allocated = torch.cuda.memory_reserved(), torch.cuda.memory_allocated()
    torch.cuda.caching_allocator_enable(False)
    try:
        x = torch.full((64 * MIB,), 3, dtype=torch.uint8, device=GPU)
        y = x + 1
        assert int(y.sum()) == 4 * 64 * MIB
        assert torch.cuda.memory_allocated() == allocated and torch.cuda.memory_reserved() == held
    finally:
        torch.cuda.caching_allocator_enable(True)
    z = torch.full((MIB,), 9, dtype=torch.uint8, device=GPU)
    del x, y  # came from the driver, freed with caching on
    assert int(z.sum()) == 9 * MIB and torch.cuda.memory_allocated() > allocated


def test_raw_calls():
    address = torch.cuda.caching_allocator_alloc(3 * MIB)
    assert address and figure("requested_bytes.all.current") >= 3 * MIB
    count = figure("allocation.all.current")
    side = torch.cuda.Stream()
    second = torch.cuda.caching_allocator_alloc(1000, stream=side)
    assert figure("allocation.all.current") == count + 1 and second not in (0, address)
    torch.cuda.caching_allocator_delete(second)
    torch.cuda.caching_allocator_delete(address)
    assert figure("allocation.all.current") == count - 1


def test_nothing_is_a_tensor_too():
    count = figure("allocation.all.current")
    x = torch.empty(0, device=GPU)
    assert x.data_ptr() == 0 and figure("allocation.all.current") == count
    assert (x + 1).numel() == 0
