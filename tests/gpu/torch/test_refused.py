# SPDX-License-Identifier: MIT
"""Requests that are refused leave the device to the libraries beside the allocator: cuBLAS, cuDNN, Triton and NCCL start
after them as with PyTorch's own allocator, and the memory that is free is no less."""

import pytest

GIB = 1 << 30
SLACK = 256 << 20  # contexts and modules differ a little from run to run

KERNEL = """
import triton
import triton.language as tl

@triton.jit
def double(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, i < n) * 2, i < n)
"""

# Refuses requests beside `live` blocks of 30 GiB, then uses every library for the first time.
PROGRAM = """
import json, os, sys, tempfile
import torch
import torch.distributed as dist
live, folder = int(sys.argv[1]), sys.argv[2]
sys.path.insert(0, folder)
GIB = 1 << 30

def blank(count):
    return torch.empty(count, dtype=torch.uint8, device="cuda")

def read():
    return {"free": torch.cuda.mem_get_info()[0], "reserved": torch.cuda.memory_reserved()}

torch.ones(4, device="cuda").sum().item()
seen = {"start": read(), "refused": 0}
blocks = [blank(30 * GIB) for _ in range(live)]
total = torch.cuda.mem_get_info()[1]
seen["live"] = read()
for count in (1 << 40, 200 * GIB, total - GIB // 4, *(30 * GIB for _ in range(live // 4))):
    try:
        blank(count)
    except torch.OutOfMemoryError:
        seen["refused"] += 1
seen["after"] = read()
uses = seen["uses"] = {}

def use(name, call):
    try:
        uses[name] = call()
    except Exception as error:
        uses[name] = str(error).splitlines()[0][:200]

def multiply():
    a = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
    return float((a @ a).float().std()) > 0

def convolve():
    return list(torch.nn.Conv2d(64, 64, 3).cuda()(torch.randn(8, 64, 56, 56, device="cuda")).shape) == [8, 64, 54, 54]

def launch():
    from refused_kernel import double
    a = torch.randn(5000, device="cuda")
    b = torch.empty_like(a)
    double[(5,)](a, b, 5000, B=1024)
    return bool(torch.equal(b, a * 2))

def reduce():
    dist.init_process_group("nccl", init_method=f"file://{folder}/store", rank=0, world_size=1, device_id=torch.device("cuda:0"))
    t = torch.ones(10, device="cuda")
    dist.all_reduce(t)
    dist.destroy_process_group()
    return float(t.sum()) == 10

for name, call in (("cublas", multiply), ("cudnn", convolve), ("triton", launch), ("nccl", reduce)):
    use(name, call)
torch.cuda.synchronize()
print(json.dumps(seen))
"""


@pytest.mark.parametrize("live", [0, 4])
def test_libraries_start_after_refused_requests(fresh, allocator, tmp_path, live):
    seen = {}
    for name in dict.fromkeys(("native", allocator)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "refused_kernel.py").write_text(KERNEL)
        seen[name] = fresh(PROGRAM, live, folder, allocator=name, may_warn=True)
    mine, native = seen[allocator], seen["native"]
    assert mine["uses"] == {"cublas": True, "cudnn": True, "triton": True, "nccl": True}, mine
    assert mine["refused"] == native["refused"] == 3 + live // 4, seen
    assert mine["after"]["reserved"] <= mine["live"]["reserved"], mine
    assert mine["after"]["free"] >= mine["live"]["free"], mine
    assert mine["after"]["free"] >= native["after"]["free"] - SLACK, seen
