# SPDX-License-Identifier: MIT
"""loch.torch.plan under the real PyTorch, on a simulated device: no GPU is needed."""

import ctypes
import random
import threading

import pytest

torch = pytest.importorskip("torch")
if torch.version.cuda is None:
    pytest.skip("PyTorch is built without CUDA", allow_module_level=True)

import loch.torch  # noqa: E402

MIB = 1 << 20
CAPACITY = 256 * MIB
DEVICE = f"sim:{CAPACITY},backed,id=%d"
SIZES = [3 * MIB, 700, 5 * MIB + 3, 2 * MIB, 512, 9 * MIB, 40_000, 6 * MIB]


class Block:
    """Memory of PyTorch's allocator whose first and last bytes are its own."""

    live = set()
    count = 0

    def __init__(self, size):
        self.address = torch._C._cuda_cudaCachingAllocator_raw_alloc(size, 0)
        self.size = size
        Block.count += 1
        self.value = Block.count % 251
        ctypes.memset(self.address, self.value, size)
        self.live.add(self)

    def free(self):
        assert ctypes.string_at(self.address, self.size) == bytes([self.value]) * self.size
        self.live.remove(self)
        torch._C._cuda_cudaCachingAllocator_raw_delete(self.address)


@pytest.fixture(autouse=True)
def enabled():
    """Loch serves PyTorch in this process; every test leaves everything free."""
    loch.torch.enable(device=DEVICE, pinned=False)
    torch.cuda._initialized = True
    yield
    for block in list(Block.live):
        block.free()
    torch._C._cuda_emptyCache()
    assert sum(pool["used_bytes"] for pool in loch.torch.stats(0).get("pools", ())) == 0


def figure(name):
    return torch.cuda.memory_stats(0)[name]


def run_step(sizes=SIZES):
    """A forward pass that keeps every second block, and a backward pass in a thread of its own. Returns the addresses."""
    kept, addresses = [], []
    for index, size in enumerate(sizes):
        block = Block(size)
        addresses.append(block.address)
        if index % 2:
            block.free()
        else:
            kept.append(block)
    failures = []

    def go_back():
        try:
            while kept:
                gradient = Block(kept[-1].size)
                addresses.append(gradient.address)
                kept.pop().free()
                gradient.free()
        except BaseException as failure:  # the thread that waits raises it
            failures.append(failure)

    thread = threading.Thread(target=go_back)
    thread.start()
    thread.join()
    assert not failures, failures
    return addresses


def test_steps_are_served_by_the_plan_at_the_same_addresses():
    with loch.torch.plan() as plan:
        assert plan.device == 0
        for _ in plan.steps(range(4)):
            run_step()
        assert plan.info()["period"] == 0 and plan.info()["recorded"] == 4 * 12
        seen = []
        for _ in range(6):
            plan.step()
            seen.append(run_step())
        info = plan.info()
        assert figure("reserved_bytes.all.current") - figure("allocated_bytes.all.current") <= info["height"] + 4 * MIB
    assert info["period"] == info["planned"] == 12
    assert info["served"] == 6 * 12 and info["deviations"] == 0 and info["plans"] == 1 and info["status"] == "OK"
    assert all(addresses == seen[0] for addresses in seen)
    assert info["lower_bound"] <= info["height"] <= sum(SIZES)
    assert plan.info() == info and plan.device is None
    assert Block(SIZES[0]).address not in seen[0]


def test_figures_of_pytorch_count_blocks_of_the_plan():
    outside = Block(MIB)
    before = torch.cuda.memory_stats(0)
    with loch.torch.plan() as plan:
        for _ in plan.steps(range(6)):
            run_step()
        assert plan.info()["served"] >= 12
        torch.cuda.reset_peak_memory_stats(0)
        plan.step()
        small, large = Block(SIZES[0]), Block(700)
        after = torch.cuda.memory_stats(0)

        def grown(name):
            return after[name] - before[name]

        assert plan.info()["blocks"] == 2
        assert grown("requested_bytes.all.current") == SIZES[0] + 700
        assert grown("allocated_bytes.all.current") == SIZES[0] + 1024
        assert grown("allocated_bytes.all.peak") <= sum(SIZES)
        assert grown("allocation.all.current") == 2 and grown("allocation.large_pool.current") == 1
        assert grown("allocation.all.allocated") == 6 * 12 + 2 and grown("allocation.all.freed") == 6 * 12
        assert after["reserved_bytes.all.current"] >= plan.info()["height"] + MIB
        small.free()
        large.free()
        end = torch.cuda.memory_stats(0)
        for name in ("requested_bytes", "allocated_bytes", "allocation", "active"):
            assert end[f"{name}.all.current"] == before[f"{name}.all.current"], name
            assert end[f"{name}.large_pool.current"] == before[f"{name}.large_pool.current"], name
    outside.free()


def test_peaks():
    with loch.torch.plan() as plan:
        for _ in plan.steps(range(6)):
            run_step()
        torch.cuda.reset_peak_memory_stats(0)
        plan.step()
        blocks = [Block(size) for size in SIZES[:3]]
        for block in blocks:
            block.free()
        assert torch.cuda.max_memory_allocated(0) == sum((size + 511) // 512 * 512 for size in SIZES[:3])


def test_a_block_outlives_the_plan():
    with loch.torch.plan() as plan:
        for _ in plan.steps(range(6)):
            run_step()
        plan.step()
        block = Block(SIZES[0])
        height = plan.info()["height"]
    allocated = torch.cuda.memory_allocated(0)
    others = [Block(SIZES[0]) for _ in range(4)]
    block.free()
    for other in others:
        other.free()
    assert torch.cuda.memory_allocated(0) == allocated - SIZES[0]
    torch._C._cuda_emptyCache()
    assert torch.cuda.memory_reserved(0) < height


def test_memory_goes_back_at_the_end():
    torch._C._cuda_emptyCache()
    before = torch.cuda.memory_reserved(0)
    cached = Block(64 * MIB)
    cached.free()
    with loch.torch.plan() as plan:
        assert torch.cuda.memory_reserved(0) < 64 * MIB  # what was cached serves the plan
        for _ in plan.steps(range(6)):
            run_step()
        assert torch.cuda.memory_reserved(0) >= plan.info()["height"]
    assert torch.cuda.memory_reserved(0) == before


def test_a_loop_that_deviates_keeps_its_contents():
    chance = random.Random(5)
    with loch.torch.plan() as plan:
        for number, _ in enumerate(plan.steps(range(40))):
            sizes = list(SIZES)
            if number > 4:
                at = chance.randrange(len(sizes))
                kind = number % 4
                if kind == 0:
                    sizes[at] = chance.randrange(1, 2 * sizes[at])
                elif kind == 1:
                    del sizes[at]
                elif kind == 2:
                    sizes.insert(at, chance.randrange(1, 8 * MIB))
                else:
                    sizes[at - 1], sizes[at] = sizes[at], sizes[at - 1]
            run_step(sizes)
            assert torch.cuda.memory_allocated(0) == 0
        info = plan.info()
    assert info["deviations"] > 0 and info["served"] > 30 * len(SIZES)


def test_regions_and_private_pools_come_first():
    pool = (77001, 0)
    with loch.torch.plan() as plan:
        for _ in plan.steps(range(6)):
            run_step()
        plan.step()
        with loch.torch.region("weights"):
            weights = Block(SIZES[0])
        torch._C._cuda_beginAllocateToPool(0, pool)
        graph = Block(SIZES[0])
        torch._C._cuda_endAllocateToPool(0, pool)
        assert plan.info()["blocks"] == 0
        assert loch.torch.get_tag(Tensor(weights)) == "weights"
        planned = Block(SIZES[0])
        assert plan.info()["blocks"] == 1 and loch.torch.get_tag(Tensor(planned)) == ""
    for block in (weights, graph, planned):
        block.free()
    torch._C._cuda_releasePool(0, pool)
    assert "weights" in loch.torch.tags()


class Tensor:
    """What get_tag asks of a tensor."""

    def __init__(self, block):
        self.address = block.address

    def data_ptr(self):
        return self.address


def test_refusals():
    with loch.torch.plan() as plan:
        with pytest.raises(RuntimeError, match="a plan serves device 0 already"):
            loch.torch.plan().__enter__()
        with pytest.raises(RuntimeError, match="serves already"):
            plan.__enter__()
        block = Block(MIB)
        with pytest.raises(RuntimeError, match="end it before"):
            loch.torch.sleep("")
        assert loch.torch.asleep() == []
        block.free()
    for call in (plan.step, plan.record):
        with pytest.raises(RuntimeError, match="does not serve"):
            call()
    for call in (loch._core.torch_plan_step, loch._core.torch_plan_info, loch._core.torch_plan_end):
        with pytest.raises(RuntimeError, match="no plan serves device"):
            call(0)
        with pytest.raises(RuntimeError, match="no plan serves device"):
            call(1 << 40)
    with pytest.raises(RuntimeError, match="at least 2 steps"):
        loch._core.torch_plan_begin(0, 1, 0, False)
    assert torch.cuda.memory_allocated(0) == 0
    for wrong in ({"record_steps": 1}, {"time_limit": 0}, {"device": -1}):
        with pytest.raises(ValueError):
            loch.torch.plan(**wrong)
    with pytest.raises(TypeError):
        loch.torch.plan(1.5)
    for device in (0, "cuda:0", torch.device("cuda", 0), "cuda", torch.device("cuda")):
        with loch.torch.plan(device) as plan:
            assert plan.device == 0


def test_an_exception_ends_the_plan():
    plan = loch.torch.plan()
    with pytest.raises(KeyError), plan:
        raise KeyError("of the loop")
    with plan:  # and it can begin again
        for _ in plan.steps(range(6)):
            run_step()
        assert plan.info()["plans"] == 1


def test_a_new_recording():
    with loch.torch.plan(record_steps=2) as plan:
        for _ in plan.steps(range(5)):
            run_step()
        assert plan.info()["period"] == 12
        plan.record()
        for _ in plan.steps(range(5)):
            run_step([4 * MIB, 3 * MIB])
        info = plan.info()
        assert info["plans"] == 2 and info["period"] == 3


def test_short_memory():
    with loch.torch.plan() as plan:
        for _ in plan.steps(range(6)):
            run_step()
        plan.step()
        assert plan.info()["height"] > 0
        with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
            Block(CAPACITY + MIB)
        whole = Block(CAPACITY - 8 * MIB)  # the plan gives its memory back
        whole.free()
        run_step()
    assert "plan" not in loch.torch.report()


def test_reports_and_snapshots():
    with loch.torch.plan() as plan:
        for _ in plan.steps(range(6)):
            run_step()
        block = Block(SIZES[0])
        assert "torch cuda:0 plan" in loch.torch.report()
        pools = loch.torch.stats(0)["pools"]
        assert [pool["reserved_bytes"] >= plan.info()["height"] for pool in pools if "plan" in pool["name"]] == [True]
        segments = torch.cuda.memory._snapshot()["segments"]
        assert any(segment["address"] <= block.address < segment["address"] + segment["total_size"] for segment in segments)
        block.free()


def test_plans_begin_and_end_while_threads_allocate():
    stop, failures = threading.Event(), []

    def work():
        try:
            while not stop.is_set():
                for block in [Block(size) for size in (70_000, 900, MIB + 5)]:
                    block.free()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(30):
        with loch.torch.plan(record_steps=2) as plan:
            for _ in plan.steps(range(5)):
                run_step([900, 70_000, MIB])
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert torch.cuda.memory_allocated(0) == 0
