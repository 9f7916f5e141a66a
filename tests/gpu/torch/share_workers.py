# SPDX-License-Identifier: MIT
"""What the other processes of test_share.py do. Importing it makes the allocator PyTorch's, before any use of CUDA."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "torch"))

import door  # noqa: E402

door.install()

import torch  # noqa: E402


def add_one(inbox, outbox):
    """Adds 1 in place to every tensor that arrives, until None arrives."""
    for tensor in iter(inbox.get, None):
        tensor.add_(1)
        torch.cuda.synchronize()
        outbox.put(float(tensor.double().sum()))
        del tensor
    torch.cuda.ipc_collect()


def make(outbox, count, done):
    """Sends tensors that this process made, and waits until they are no longer used."""
    tensors = [torch.full((1000 + 17 * number,), float(number), device="cuda") for number in range(count)]
    tensors.append(torch.arange(1 << 22, device="cuda", dtype=torch.float32)[5:100_000])  # a view
    torch.cuda.synchronize()
    for tensor in tensors:
        outbox.put(tensor)
    done.wait()


def wait_and_sum(inbox, outbox):
    """Waits on the GPU for the event of the other process, then reads."""
    tensor, handle = inbox.get()
    event = torch.cuda.Event.from_ipc_handle(torch.device("cuda:0"), handle)
    event.wait()
    outbox.put(float(tensor.sum()))
    outbox.put("read")
    del tensor, event
    inbox.get()


def read_and_stop(inbox, outbox):
    """Opens a tensor and ends without giving it back."""
    import os

    tensor = inbox.get()
    total = float(tensor.sum())
    outbox.put(total)
    outbox.close()
    outbox.join_thread()
    os._exit(3)


def train(model, x, outbox):
    """Changes the parameters of the other process's model."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.5)
    torch.cuda.synchronize()
    outbox.put(float(model(x).sum()))
