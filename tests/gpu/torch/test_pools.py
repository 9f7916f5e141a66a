# SPDX-License-Identifier: MIT
"""torch.cuda.MemPool: pools of the program's own, foreign allocators under them, symmetric memory."""

import ctypes
import gc
import pathlib
import subprocess
import threading

import pytest
import torch

MIB, GIB = 1 << 20, 1 << 30
GPU = "cuda"


def byte_tensor(count):
    return torch.empty(count, dtype=torch.uint8, device=GPU)


def holds(segments, tensor):
    return any(part["address"] <= tensor.data_ptr() < part["address"] + part["total_size"] for part in segments)


def test_a_pool_holds_what_was_allocated_in_it():
    pool = torch.cuda.MemPool()
    assert pool.use_count() == 1
    outside = byte_tensor(3 * MIB)
    with torch.cuda.use_mem_pool(pool):
        assert pool.use_count() == 2
        inside, small = byte_tensor(5 * MIB), byte_tensor(700)
    assert pool.use_count() == 1
    after = byte_tensor(5 * MIB)
    segments = pool.snapshot()
    assert holds(segments, inside) and holds(segments, small)
    assert not holds(segments, outside) and not holds(segments, after)
    assert all(tuple(part["segment_pool_id"]) == pool.id for part in segments)
    sizes = sorted(block["requested_size"] for part in segments for block in part["blocks"] if block["state"] == "active_allocated")
    assert sizes == [700, 5 * MIB]
    for part in segments:
        assert sum(block["size"] for block in part["blocks"]) == part["total_size"]
    ids = {tuple(part["segment_pool_id"]) for part in torch.cuda.memory_snapshot()}
    assert pool.id in ids and (0, 0) in ids
    inside.fill_(1), small.fill_(2), after.fill_(3)
    assert int(inside.sum(dtype=torch.int64)) == 5 * MIB and int(small.sum()) == 1400


def test_freed_memory_of_a_pool_serves_the_pool_again():
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        first = byte_tensor(64 * MIB)
        address = first.data_ptr()
        del first
    outside = byte_tensor(64 * MIB)
    assert outside.data_ptr() != address
    with torch.cuda.use_mem_pool(pool):
        assert byte_tensor(64 * MIB).data_ptr() == address


def test_memory_of_a_pool_comes_back():
    before = torch.cuda.memory_reserved()
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        x = byte_tensor(256 * MIB)
    assert torch.cuda.memory_reserved() >= before + 256 * MIB
    del x
    del pool
    gc.collect()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= before + 4 * MIB


def test_a_tensor_outlives_its_pool():
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        x = torch.full((MIB,), 6, dtype=torch.uint8, device=GPU)
    del pool
    gc.collect()
    torch.cuda.empty_cache()
    noise = [torch.zeros(MIB, dtype=torch.uint8, device=GPU) for _ in range(50)]
    assert int(x.sum(dtype=torch.int64)) == 6 * MIB
    del noise, x
    torch.cuda.empty_cache()


def test_pools_belong_to_threads():
    pool, found = torch.cuda.MemPool(), {}

    def other():
        found["tensor"] = byte_tensor(2 * MIB)

    with torch.cuda.use_mem_pool(pool):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        mine = byte_tensor(2 * MIB)
    assert holds(pool.snapshot(), mine) and not holds(pool.snapshot(), found["tensor"])


def test_pools_nest():
    outer, inner = torch.cuda.MemPool(), torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(outer):
        a = byte_tensor(2 * MIB)
        with torch.cuda.use_mem_pool(inner):
            b = byte_tensor(2 * MIB)
        c = byte_tensor(2 * MIB)
    assert holds(outer.snapshot(), a) and holds(outer.snapshot(), c)
    assert holds(outer.snapshot(), b) != holds(inner.snapshot(), b)


def test_unsplit_segments():
    pool = torch.cuda.MemPool(no_split=True)
    with torch.cuda.use_mem_pool(pool):
        tensors = [byte_tensor(3 * MIB), byte_tensor(3 * MIB), byte_tensor(100_000)]
    segments = pool.snapshot()
    starts = {part["address"] for part in segments}
    assert {tensor.data_ptr() for tensor in tensors} <= starts
    assert all(len(part["blocks"]) == 1 for part in segments)


def test_a_pool_that_helps_when_memory_is_short():
    total = torch.cuda.get_device_properties(0).total_memory
    with torch.cuda.use_mem_pool(torch.cuda.MemPool()):
        pass
    held = torch.cuda.memory_reserved()
    torch.cuda.set_per_process_memory_fraction((held + GIB) / total)
    try:
        for helps in (False, True):
            pool = torch.cuda.MemPool(use_on_oom=helps)
            with torch.cuda.use_mem_pool(pool):
                x = byte_tensor(700 * MIB)
            del x
            if helps:
                y = byte_tensor(600 * MIB)
                assert holds(pool.snapshot(), y)
                y.fill_(1)
                del y
            else:
                with pytest.raises(torch.OutOfMemoryError):
                    byte_tensor(600 * MIB)
            del pool
            gc.collect()
            torch.cuda.empty_cache()
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    path = tmp_path_factory.mktemp("foreign") / "foreign.so"
    source = pathlib.Path(__file__).resolve().parent / "foreign.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", str(source), "-o", str(path), "-ldl"], check=True)
    library = ctypes.CDLL(str(path))

    class Foreign:
        pluggable = torch.cuda.memory.CUDAPluggableAllocator(str(path), "foreign_alloc", "foreign_free")

        def __getattr__(self, name):
            return ctypes.c_long.in_dll(library, f"foreign_{name}").value

        def make_empty(self, is_empty):
            ctypes.c_int.in_dll(library, "foreign_is_empty").value = int(is_empty)

    return Foreign()


def test_a_foreign_allocator_under_a_pool(foreign):
    allocs, frees, held = foreign.allocs, foreign.frees, foreign.bytes
    pool = torch.cuda.MemPool(foreign.pluggable.allocator())
    with torch.cuda.use_mem_pool(pool):
        tensors = [torch.full((size,), 5, dtype=torch.uint8, device=GPU) for size in (3 * MIB, 40 * MIB, 1000, 25 * MIB)]
    assert foreign.allocs > allocs and foreign.bytes - held >= 68 * MIB
    outside = byte_tensor(30 * MIB)
    assert not holds(pool.snapshot(), outside)
    for tensor in tensors:
        assert holds(pool.snapshot(), tensor)
        assert int(tensor.sum(dtype=torch.int64)) == 5 * tensor.numel()
    count = foreign.allocs
    size = tensors[1].numel()
    del tensors[1], tensor
    with torch.cuda.use_mem_pool(pool):
        again = byte_tensor(size)
    assert foreign.allocs == count  # cached
    assert foreign.frees == frees
    del tensors, again, pool
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert foreign.bytes == held and foreign.frees - frees == foreign.allocs - allocs


def test_a_foreign_allocator_without_memory(foreign):
    pool = torch.cuda.MemPool(foreign.pluggable.allocator())
    foreign.make_empty(True)
    try:
        with torch.cuda.use_mem_pool(pool), pytest.raises(RuntimeError):
            byte_tensor(30 * MIB)
    finally:
        foreign.make_empty(False)
    with torch.cuda.use_mem_pool(pool):
        x = byte_tensor(30 * MIB)
    assert holds(pool.snapshot(), x)
    del x


def test_a_graph_in_a_foreign_pool(foreign):
    held = foreign.bytes
    pool = torch.cuda.MemPool(foreign.pluggable.allocator())
    x = torch.ones(MIB, device=GPU)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool.id):
        y = (x + 1) * 3
    x.fill_(4)
    graph.replay()
    assert float(y[9]) == 15 and foreign.bytes > held and holds(pool.snapshot(), y)
    del graph, y, pool
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert foreign.bytes == held


SYMMETRIC = """
import json, os, tempfile, torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm
with tempfile.TemporaryDirectory() as folder:
    dist.init_process_group("nccl", init_method=f"file://{folder}/store", rank=0, world_size=1, device_id=torch.device("cuda:0"))
    before = torch.cuda.memory_allocated()
    x = symm.empty(1 << 20, dtype=torch.float32, device="cuda")
    x.fill_(2)
    handle = symm.rendezvous(x, dist.group.WORLD.group_name)
    buffer = handle.get_buffer(0, (1 << 20,), torch.float32)
    buffer.add_(1)
    total = float(x.sum())
    y = torch.ones(1 << 20, device="cuda")
    dist.all_reduce(y)
    result = {"total": total, "rank": handle.rank, "world": handle.world_size, "reduced": float(y.sum())}
    pool = None
    if hasattr(symm, "get_mem_pool"):
        pool = symm.get_mem_pool(torch.device("cuda:0"))
        with torch.cuda.use_mem_pool(pool):
            z = torch.full((1 << 20,), 4.0, device="cuda")
        result["pooled"] = float(z.sum())
        del z
    del x, buffer, handle
    torch.cuda.synchronize()
    dist.destroy_process_group()
    print(json.dumps(result))
"""


def test_symmetric_memory(fresh):
    result = fresh(SYMMETRIC, may_warn=True)
    count = 1 << 20
    assert result["total"] == 3.0 * count and result["rank"] == 0 and result["world"] == 1 and result["reduced"] == count
    assert result.get("pooled", 4.0 * count) == 4.0 * count
