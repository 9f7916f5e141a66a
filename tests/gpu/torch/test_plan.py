# SPDX-License-Identifier: MIT
"""loch.torch.plan under a real training loop on a GPU: results bit for bit those of PyTorch's own allocator, the share that
the plan serves, and memory. The loops run in processes of their own; `LOCH_PLAN_PRINT=1 pytest -s` prints their figures.
"""

import json
import os

import pytest

LOOP = """
import contextlib, hashlib, json, sys, time
import torch
kind, steps, varies = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if kind != "native":
    import loch.torch
    loch.torch.enable()
torch.use_deterministic_algorithms(True)
torch.manual_seed(3)
gpu = torch.device("cuda")

class Layer(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.all = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.wide = torch.nn.Sequential(torch.nn.LayerNorm(width), torch.nn.Linear(width, 4 * width), torch.nn.GELU(),
                                        torch.nn.Linear(4 * width, width))

    def forward(self, x):
        q, k, v = self.all(self.norm(x)).chunk(3, -1)
        x = x + self.out(torch.softmax(q @ k.transpose(1, 2) / 16, -1) @ v)
        return x + self.wide(x)

model = torch.nn.Sequential(*[Layer(512) for _ in range(6)], torch.nn.Linear(512, 1000)).to(gpu)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
draw = torch.Generator().manual_seed(5)
losses, times = [], []

def train(number):
    rows = 16 if not varies or number < 8 or number % varies else 11
    x = torch.randn(rows, 128, 512, generator=draw).to(gpu)
    y = torch.randint(1000, (rows, 128), generator=draw).to(gpu)
    optimizer.zero_grad(set_to_none=True)
    loss = torch.nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
    loss.backward()
    optimizer.step()
    losses.append(loss.detach().cpu().item().hex())

with contextlib.ExitStack() as stack:
    plan = stack.enter_context(loch.torch.plan()) if kind == "plan" else None
    for number in range(steps):
        if number == 8:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        if plan:
            plan.step()
        train(number)
        times.append(time.perf_counter() - start)
    torch.cuda.synchronize()
    info = plan.info() if plan else {}
digest = hashlib.sha256()
for parameter in model.parameters():
    digest.update(parameter.detach().cpu().numpy().tobytes())
stats = torch.cuda.memory_stats()
print(json.dumps({"losses": losses, "weights": digest.hexdigest(), "info": info, "ms": 1000 * sorted(times[8:])[len(times[8:]) // 2],
                  "allocated": stats["allocated_bytes.all.peak"], "requested": stats["requested_bytes.all.peak"],
                  "reserved": stats["reserved_bytes.all.peak"], "live": stats["allocated_bytes.all.current"],
                  "blocks": stats["allocation.all.current"]}))
"""
ENVIRONMENT = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
STEPS = 24
loops = {}


def run(fresh, kind, steps=STEPS, varies=0):
    """Runs the loop once in this session; returns its figures."""
    key = (kind, steps, varies)
    if key not in loops:
        loops[key] = fresh(LOOP, kind, steps, varies, allocator="package", environment=ENVIRONMENT, may_warn=True)
        if os.environ.get("LOCH_PLAN_PRINT"):
            shown = {name: value for name, value in loops[key].items() if name not in ("losses", "weights")}
            print(f"\n{kind}, {'every ' + str(varies) + 'th step differs' if varies else 'equal steps'}: {json.dumps(shown)}")
    return loops[key]


@pytest.mark.parametrize("varies", [0, 5])
def test_results_are_those_of_the_native_allocator(fresh, varies):
    native, plan = run(fresh, "native", varies=varies), run(fresh, "plan", varies=varies)
    assert plan["losses"] == native["losses"]
    assert plan["weights"] == native["weights"]
    assert len(set(plan["losses"])) == STEPS  # it learns: equal losses would prove nothing


def test_the_plan_serves(fresh):
    info = run(fresh, "plan")["info"]
    assert info["plans"] >= 1 and info["period"] > 100
    later = info["served"] + info["left"] + info["deviations"]
    assert info["served"] > 0.9 * later, info
    assert info["lower_bound"] <= info["height"] <= 1.02 * info["lower_bound"], info


def test_steps_that_differ_are_served(fresh):
    info = run(fresh, "plan", varies=5)["info"]
    assert info["deviations"] > 0 and info["served"] > 0.6 * (info["served"] + info["deviations"]), info


def test_figures_are_those_of_pytorch(fresh):
    native, plain, plan = (run(fresh, kind) for kind in ("native", "loch", "plan"))
    assert plan["blocks"] == plain["blocks"] == native["blocks"]
    assert plan["live"] == plain["live"]
    assert abs(plan["requested"] - native["requested"]) <= 0.01 * native["requested"]


def test_memory(fresh):
    native, plan = run(fresh, "native"), run(fresh, "plan")
    assert plan["reserved"] <= 1.03 * plan["allocated"] + (32 << 20)  # granules of the three pools
    assert plan["reserved"] <= native["reserved"]


def test_a_graph_is_captured_while_a_plan_serves(fresh):
    result = fresh("""
import json, torch, loch.torch
loch.torch.enable()
x = torch.ones(1 << 20, device="cuda")
with loch.torch.plan() as plan:
    for number in plan.steps(range(8)):
        y = (x * 2 + number).relu().sum()
        del y
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(side):
        (x * 3).sum()
    torch.cuda.synchronize()
    plan.step()
    blocks = plan.info()["blocks"]
    with torch.cuda.graph(graph):
        z = (x * 3).sum()
    inside = plan.info()["blocks"]
    sums = []
    for value in (1, 2):
        x.fill_(value)
        for number in plan.steps(range(2)):
            y = (x * 2 + number).relu().sum()
            graph.replay()
            sums.append((y.item(), z.item()))
            del y
print(json.dumps([inside - blocks, sums, plan.info()["deviations"]]))
""", allocator="package")
    million = 1 << 20
    assert result[0] == 0  # nothing of the graph lies in the plan
    assert result[1] == [[(2 * value + number) * million, 3 * value * million] for value in (1, 2) for number in (0, 1)]
