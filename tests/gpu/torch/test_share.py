# SPDX-License-Identifier: MIT
"""Tensors shared between processes by torch.multiprocessing, both ways, in the order of events."""

import gc

import pytest
import share_workers
import torch
import torch.multiprocessing as mp

MIB = 1 << 20
GPU = "cuda"
SECONDS = 60


@pytest.fixture
def start():
    context = mp.get_context("spawn")
    started = []

    def begin(target, *arguments):
        process = context.Process(target=target, args=arguments)
        process.start()
        started.append(process)
        return process

    begin.context = context
    yield begin
    for process in started:
        process.join(SECONDS)
        if process.is_alive():
            process.kill()
            process.join()


def test_the_other_process_writes_into_our_memory(start):
    inbox, outbox = start.context.Queue(), start.context.Queue()
    process = start(share_workers.add_one, inbox, outbox)
    base = torch.zeros(4 * MIB, device=GPU)
    tensors = [torch.zeros(1000, device=GPU), torch.full((30 * MIB,), 2.0, device=GPU), base[1000:5000], torch.ones(3, 5, device=GPU).t(),
               torch.zeros(7, dtype=torch.int64, device=GPU)]
    for tensor in tensors:
        want = float((tensor + 1).double().sum())
        inbox.put(tensor)
        assert outbox.get(timeout=SECONDS) == want
        assert float(tensor.double().sum()) == want
    assert float(base.sum()) == 4000
    inbox.put(None)
    process.join(SECONDS)
    assert process.exitcode == 0


def test_we_read_memory_of_the_other_process(start):
    outbox, done = start.context.Queue(), start.context.Event()
    process = start(share_workers.make, outbox, 40, done)
    allocated = torch.cuda.memory_allocated()
    tensors = [outbox.get(timeout=SECONDS) for _ in range(41)]
    assert torch.cuda.memory_allocated() <= allocated + MIB  # not copied
    for number, tensor in enumerate(tensors[:40]):
        assert tensor.shape == (1000 + 17 * number,) and bool((tensor == number).all())
    assert float(tensors[40][0]) == 5 and float(tensors[40][-1]) == 99_999
    tensors[3].record_stream(torch.cuda.Stream())  # not ours: nothing happens
    del tensors, tensor
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.ipc_collect()
    done.set()
    process.join(SECONDS)
    assert process.exitcode == 0


def test_the_order_of_an_event(start):
    inbox, outbox = start.context.Queue(), start.context.Queue()
    process = start(share_workers.wait_and_sum, inbox, outbox)
    x = torch.zeros(8 * MIB, device=GPU)
    event = torch.cuda.Event(interprocess=True)
    torch.cuda.synchronize()
    torch.cuda._sleep(3_000_000_000)
    x.fill_(3)
    event.record()
    inbox.put((x, event.ipc_handle()))
    assert outbox.get(timeout=SECONDS) == 3.0 * 8 * MIB
    assert outbox.get(timeout=SECONDS) == "read"
    inbox.put(None)
    process.join(SECONDS)
    assert process.exitcode == 0


def test_memory_that_was_shared_comes_back(start):
    inbox, outbox = start.context.Queue(), start.context.Queue()
    process = start(share_workers.add_one, inbox, outbox)
    before = torch.cuda.memory_reserved()
    for _ in range(4):
        x = torch.zeros(64 * MIB, device=GPU)
        inbox.put(x)
        outbox.get(timeout=SECONDS)
        del x
    inbox.put(None)
    process.join(SECONDS)
    gc.collect()
    torch.cuda.ipc_collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= before + 8 * MIB
    assert process.exitcode == 0


def test_a_reader_that_ends_at_once_does_no_harm(start):
    inbox, outbox = start.context.Queue(), start.context.Queue()
    process = start(share_workers.read_and_stop, inbox, outbox)
    x = torch.ones(MIB, device=GPU)
    inbox.put(x)
    assert outbox.get(timeout=SECONDS) == MIB
    process.join(SECONDS)
    assert process.exitcode == 3
    x.add_(1)
    assert float(x.sum()) == 2 * MIB
    y = torch.full((MIB,), 7.0, device=GPU)
    assert float(y.sum()) == 7 * MIB


def test_a_model_as_an_argument(start):
    model = torch.nn.Linear(64, 64).to(GPU)
    x = torch.ones(2, 64, device=GPU)
    outbox = start.context.Queue()
    model.share_memory()
    process = start(share_workers.train, model, x, outbox)
    want = 2 * 64 * (64 * 0.5 + 0.5)
    assert outbox.get(timeout=SECONDS) == want
    process.join(SECONDS)
    assert process.exitcode == 0
    assert float(model(x).sum()) == want
