# SPDX-License-Identifier: MIT
"""Whole processes: results bit for bit, growth, and a clean end."""

import concurrent.futures

import door
import pytest

BITS = """
import hashlib, json, random, sys, torch
import torch.nn as nn, torch.nn.functional as F
torch.manual_seed(11)
torch.use_deterministic_algorithms(True)
torch.backends.cudnn.benchmark = False

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, padding=1)
        self.deep = nn.Conv2d(32, 64, 3, stride=2, padding=1)
        self.norm = nn.GroupNorm(8, 64)
        self.qkv = nn.Linear(64, 192)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(64, 10)
    def forward(self, x):
        x = F.silu(self.norm(self.deep(F.relu(self.stem(x)))))
        x = x.flatten(2).transpose(1, 2)
        b, n, c = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, 4, 16).permute(2, 0, 3, 1, 4)
        x = x + F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, c)
        return self.head(self.drop(x).mean(1))

model = Net().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
choose = random.Random(5)
side = torch.cuda.Stream()
losses = []
for step in range(30):
    batch, edge = choose.randrange(2, 17), choose.choice((24, 32, 40))
    x = torch.randn(batch, 3, edge, edge).pin_memory()
    with torch.cuda.stream(side):
        x = x.to("cuda", non_blocking=True)
    torch.cuda.current_stream().wait_stream(side)
    x.record_stream(torch.cuda.current_stream())
    y = torch.randint(10, (batch,)).cuda()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    losses.append(loss.detach())
digest = hashlib.sha256()
for value in list(model.state_dict().values()) + [torch.stack(losses)]:
    digest.update(value.cpu().numpy().tobytes())
print(json.dumps({"digest": digest.hexdigest(), "last": float(losses[-1])}))
"""


def test_results_are_bit_for_bit_those_of_the_native_allocator(fresh):
    environment = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        mine = pool.submit(fresh, BITS, environment=environment)
        native = pool.submit(fresh, BITS, allocator="native", environment=environment)
    assert mine.result() == native.result()


GROWTH = """
import json, random, torch
choose = random.Random(3)
torch.cuda.reset_peak_memory_stats()
cache = None
for step in range(400):  # a tensor that grows by torch.cat, as key/value caches do
    new = torch.full((1, 1 << 18), float(step), device="cuda")
    cache = new if cache is None else torch.cat([cache, new])
    scratch = torch.empty(choose.randrange(1 << 20, 64 << 20), dtype=torch.uint8, device="cuda")
good = bool((cache[:, 0] == torch.arange(400, device="cuda")).all())
stats = torch.cuda.memory_stats()
print(json.dumps({"good": good, "requested": stats["requested_bytes.all.peak"], "reserved": stats["reserved_bytes.all.peak"]}))
"""


@pytest.mark.parametrize("settings", [None, "expandable_segments:True"])
def test_growth(fresh, settings):
    environment = {"PYTORCH_CUDA_ALLOC_CONF": settings, "PYTORCH_ALLOC_CONF": settings} if settings else {}
    result = fresh(GROWTH, environment=environment)
    assert result["good"]
    if door.name() == "loch":
        assert result["reserved"] <= 1.25 * result["requested"]


def test_settings_of_the_native_allocator_do_no_harm(fresh):
    settings = "max_split_size_mb:128,garbage_collection_threshold:0.8,roundup_power2_divisions:4,pinned_use_cuda_host_register:True"
    environment = {"PYTORCH_CUDA_ALLOC_CONF": settings, "PYTORCH_ALLOC_CONF": settings}
    program = """
import json, torch
x = torch.ones(1 << 20).pin_memory().to("cuda", non_blocking=True)
print(json.dumps(float(x.sum())))
"""
    assert fresh(program, environment=environment) == 1 << 20


ENDS = {
    "tensors": "keep = [torch.ones(n, device='cuda') for n in (10, 1 << 20, 1 << 24)]",
    "graph": """
x = torch.ones(1 << 20, device='cuda')
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    y = x + 1
graph.replay()""",
    "pool": """
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    x = torch.ones(1 << 20, device='cuda')""",
    "inside a pool": """
pool = torch.cuda.MemPool()
context = torch.cuda.use_mem_pool(pool)
context.__enter__()
x = torch.ones(1 << 20, device='cuda')""",
    "history": """
torch.cuda.memory._record_memory_history()
keep = torch.ones(1 << 20, device='cuda')""",
    "work": """
side = torch.cuda.Stream()
x = torch.ones(1 << 24, device='cuda')
with torch.cuda.stream(side):
    torch.cuda._sleep(500_000_000)
    y = x * 2
x.record_stream(side)
del x, y""",
    "cycle": """
class Cycle: pass
cycle = Cycle()
cycle.me, cycle.tensor = cycle, torch.ones(1 << 20, device='cuda')
torch.keep_cycle = cycle""",
    "pinned": "keep = torch.ones(1 << 24).pin_memory(); there = keep.to('cuda', non_blocking=True)",
    "nothing": "",
    "caught error": """
try:
    torch.empty(1 << 45, device='cuda')
except torch.OutOfMemoryError:
    pass""",
}


def test_a_clean_end(fresh):
    """Returns 0 and prints nothing, whatever is alive at the end."""
    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        tasks = {name: pool.submit(fresh, "import json, torch\n" + body + "\nprint(json.dumps('done'))") for name, body in ENDS.items()}
    failures = {name: str(task.exception()) for name, task in tasks.items() if task.exception() or task.result() != "done"}
    assert not failures


def test_an_error_ends_the_process_as_usual(fresh):
    with pytest.raises(AssertionError, match="OutOfMemoryError: CUDA out of memory"):
        fresh("import torch\ntorch.empty(1 << 45, device='cuda')")


def test_fork_before_cuda(fresh):
    result = fresh("""
import json, os, torch
import torch.multiprocessing as mp
data = torch.utils.data.TensorDataset(torch.arange(64.0))
loader = torch.utils.data.DataLoader(data, batch_size=8, num_workers=2, pin_memory=True)
x = torch.zeros(1, device='cuda')
for (batch,) in loader:  # workers are forked from a process that uses CUDA
    x += batch.to('cuda', non_blocking=True).sum()
print(json.dumps(float(x)))
""")
    assert result == float(sum(range(64)))
