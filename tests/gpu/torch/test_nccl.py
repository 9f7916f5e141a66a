# SPDX-License-Identifier: MIT
"""NCCL in a group of one: collectives. (With one GPU, registration of pools hangs with every allocator: tests/torch has it.)"""

COLLECTIVES = """
import json, os, tempfile, torch
import torch.distributed as dist
early = torch.full((3 << 20,), 2.0, device="cuda")
with tempfile.TemporaryDirectory() as folder:
    dist.init_process_group("nccl", init_method=f"file://{folder}/store", rank=0, world_size=1, device_id=torch.device("cuda:0"))
    sums = []
    for size in (1000, 1 << 20, 40 << 20):
        x = torch.full((size,), 3.0, device="cuda")
        dist.all_reduce(x)
        work = dist.all_reduce(x, async_op=True)
        work.wait()
        y = torch.empty_like(x)
        dist.all_gather_into_tensor(y, x)
        z = torch.empty_like(x)
        dist.reduce_scatter_tensor(z, y)
        dist.broadcast(z, 0)
        sums.append(float(z.double().sum()) / size)
        del x, y, z, work
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # segments end while the communicator lives
    dist.all_reduce(early)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(256, 256).cuda())
    for _ in range(3):
        model(torch.randn(8, 256, device="cuda")).sum().backward()
    graph = torch.cuda.CUDAGraph()
    x = torch.ones(1 << 20, device="cuda")
    dist.all_reduce(x)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        y = x + 1
        dist.all_reduce(y)
        z = y * 2
    x.fill_(4)
    graph.replay()
    sums.append(float(z[5]))
    torch.cuda.synchronize()
    del graph, y, z
    dist.destroy_process_group()
print(json.dumps({"sums": sums, "early": float(early[0])}))
"""


def test_collectives(fresh):
    assert fresh(COLLECTIVES, may_warn=True) == {"sums": [3.0, 3.0, 3.0, 10.0], "early": 2.0}


def test_collectives_with_registration_of_all_tensors(fresh):
    environment = {"TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK": "1"}
    assert fresh(COLLECTIVES, environment=environment, may_warn=True) == {"sums": [3.0, 3.0, 3.0, 10.0], "early": 2.0}
