# SPDX-License-Identifier: MIT
"""Streams, threads and pinned memory: memory is not used again while somebody works on it."""

import random
import threading

import torch

MIB = 1 << 20
GPU = "cuda"
LONG = 1_500_000_000  # cycles: about a second


def test_memory_of_a_stream_is_used_again_at_once_on_it():
    x = torch.empty(30 * MIB, dtype=torch.uint8, device=GPU)
    address = x.data_ptr()
    torch.cuda._sleep(LONG // 10)
    x.fill_(1)
    del x
    assert torch.empty(30 * MIB, dtype=torch.uint8, device=GPU).data_ptr() == address


def test_memory_of_another_stream_is_not_used_while_it_works():
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        x = torch.zeros(30 * MIB, dtype=torch.uint8, device=GPU)
        torch.cuda._sleep(LONG)
        x.fill_(9)
        total = x.sum(dtype=torch.int64)
    del x
    y = torch.zeros(30 * MIB, dtype=torch.uint8, device=GPU)
    y.fill_(1)
    torch.cuda.synchronize()
    assert int(total) == 9 * 30 * MIB and int(y.sum(dtype=torch.int64)) == 30 * MIB


def run_on_side(is_recorded, side=None):
    """Reads a tensor late on a second stream, frees it meanwhile, and writes new tensors."""
    side = side or torch.cuda.Stream()
    x = torch.full((8 * MIB,), 3.0, device=GPU)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(LONG)
        total = x.sum()
    if is_recorded:
        x.record_stream(side)
    address = x.data_ptr()
    del x
    others = [torch.full((8 * MIB,), 7.0, device=GPU) for _ in range(3)]
    is_reused = any(other.data_ptr() == address for other in others)
    torch.cuda.synchronize()
    return is_reused, float(total)


def test_record_stream_keeps_memory():
    assert run_on_side(is_recorded=False) == (True, 7.0 * 8 * MIB)  # so the test sees memory that is used too early
    # The memory may be handed out at once, if the new owner's work waits for the second stream: contents tell.
    assert run_on_side(is_recorded=True)[1] == 3.0 * 8 * MIB


def test_recorded_memory_serves_again():
    held, side = [], torch.cuda.Stream()
    for _ in range(6):
        run_on_side(is_recorded=True, side=side)
        held.append(torch.cuda.memory_reserved())
    assert max(held[2:]) <= held[1] + 4 * MIB


def test_threads_with_streams_of_their_own():
    failures = []

    def work(number):
        try:
            choose = random.Random(number)
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                live = []
                for step in range(300):
                    size = choose.choice((100, 5000, 300_000, 2 * MIB, 9 * MIB))
                    value = (number * 31 + step) % 251
                    live.append((torch.full((size,), value, dtype=torch.uint8, device=GPU), value))
                    if len(live) > 12:
                        tensor, want = live.pop(choose.randrange(len(live)))
                        if step % 20 == 0 and not bool((tensor == want).all()):
                            failures.append((number, step))
                stream.synchronize()
                for tensor, want in live:
                    if not bool((tensor == want).all()):
                        failures.append((number, "end"))
        except Exception as error:  # noqa: BLE001
            failures.append((number, repr(error)))

    before = torch.cuda.memory_allocated()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == before


def test_memory_freed_by_another_thread():
    tensors = [torch.full((MIB,), number, dtype=torch.uint8, device=GPU) for number in range(64)]
    before = torch.cuda.memory_allocated()
    thread = threading.Thread(target=tensors.clear)
    thread.start()
    thread.join()
    assert torch.cuda.memory_allocated() <= before - 64 * MIB
    torch.cuda.synchronize()


def test_backward_runs_in_other_threads():
    x = torch.randn(512, 512, device=GPU, requires_grad=True)
    levels = []
    for _ in range(5):
        (x @ x).relu().sum().backward()
        x.grad = None
        torch.cuda.synchronize()
        levels.append(torch.cuda.memory_allocated())
    assert levels[1:] == levels[:1] * 4  # the first has made the workspaces


def test_pinned_memory():
    host = torch.empty(5 * MIB + 1, dtype=torch.uint8, pin_memory=True)
    assert host.is_pinned() and torch.empty(10).pin_memory().is_pinned()
    host.fill_(3)
    there = host.to(GPU, non_blocking=True)
    back = torch.empty_like(host, pin_memory=True)
    back.copy_(there, non_blocking=True)
    torch.cuda.synchronize()
    assert bool((back == 3).all())


def test_pinned_memory_that_is_freed_during_a_copy():
    wanted = []
    for value in range(20):
        torch.cuda._sleep(LONG // 50)
        host = torch.full((4 * MIB,), value, dtype=torch.uint8).pin_memory()
        wanted.append((host.to(GPU, non_blocking=True), value))
        del host  # the copy has not begun
    torch.cuda.synchronize()
    assert all(bool((tensor == value).all()) for tensor, value in wanted)


def test_host_memory_stats():
    torch.cuda.synchronize()
    before = torch.cuda.host_memory_stats()
    host = torch.empty(33 * MIB, dtype=torch.uint8, pin_memory=True)
    after = torch.cuda.host_memory_stats()
    names = [name for name in after if name.startswith("allocated_bytes") or name.startswith("active_bytes")]
    assert any(after[name] - before.get(name, 0) >= 33 * MIB for name in names if name.endswith("current"))
    del host
    torch.cuda.reset_peak_host_memory_stats()
    torch.cuda.reset_accumulated_host_memory_stats()


def test_a_data_loader_with_pinned_memory():
    data = torch.utils.data.TensorDataset(torch.arange(64 * 1000, dtype=torch.float32).view(64, 1000))
    loader = torch.utils.data.DataLoader(data, batch_size=8, pin_memory=True)
    total = 0.0
    for (batch,) in loader:
        assert batch.is_pinned()
        total += float(batch.to(GPU, non_blocking=True).double().sum())
    assert total == float(data.tensors[0].double().sum())
