# SPDX-License-Identifier: MIT
"""The allocators that programs.py can install, and what each of them counts. A process installs one, before it uses CUDA."""
import os
import sys

import torch

import plugin

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "..", "tests", "torch"))
import door  # noqa: E402  loads the shim

ASYNC, EXPANDABLE = "backend:cudaMallocAsync", "expandable_segments:True"
SETTINGS = {"expandable": EXPANDABLE, "async": ASYNC}  # in PYTORCH_ALLOC_CONF, which PyTorch reads when it is imported


class Native:
    """PyTorch's own allocator, or one that keeps PyTorch's figures: cudaMallocAsync behind PyTorch, and the shim."""

    def __init__(self, way):
        self.way = way
        if way in SETTINGS and SETTINGS[way] not in os.environ.get("PYTORCH_ALLOC_CONF", ""):
            raise RuntimeError(f"{way} needs PYTORCH_ALLOC_CONF={SETTINGS[way]}")
        if way == "loch":
            door.install("loch", "pinned=on\nsharing=on")  # as loch.torch.enable() does

    def start(self):
        torch.cuda.reset_peak_memory_stats()

    def figures(self):
        """A freed block that a second stream still uses stays in PyTorch's requested bytes, and leaves its allocated ones, which are
        rounded up: the lower of the two peaks is what the program held. cudaMallocAsync counts no requested bytes."""
        stats = torch.cuda.memory_stats()
        requested, allocated = stats.get("requested_bytes.all.peak", 0), stats["allocated_bytes.all.peak"]
        backend = torch.cuda.get_allocator_backend()
        if (backend == "cudaMallocAsync") != (self.way == "async"):
            raise RuntimeError(f"{self.way} was asked for and PyTorch's backend is {backend}")
        if self.way == "expandable" and not any(segment.get("is_expandable") for segment in torch.cuda.memory_snapshot()):
            raise RuntimeError("expandable segments were asked for and not used")
        return {
            "peak_held": min(requested, allocated) if requested else allocated,
            "peak_requested": requested,
            "peak_reserved": stats["reserved_bytes.all.peak"],
            "allocs": stats.get("allocation.all.allocated", 0),
            "driver_calls": stats.get("num_device_alloc", 0) + stats.get("num_device_free", 0),
            "retries": stats.get("num_alloc_retries", 0),
        }


class Rmm:
    """RMM's pool, which grows from nothing, behind RMM's plug-in for PyTorch. Its memory is counted where it comes from the device."""

    def __init__(self, _):
        if os.environ.get("LOCH_RMM"):  # behind the packages of PyTorch, which has cuda.bindings too
            sys.path.append(os.environ["LOCH_RMM"])
        import rmm
        from rmm.allocators.torch import rmm_torch_allocator
        self.below = rmm.mr.StatisticsResourceAdaptor(rmm.mr.CudaMemoryResource())
        self.pool = rmm.mr.PoolMemoryResource(self.below, initial_pool_size=0)
        rmm.mr.set_current_device_resource(self.pool)
        torch.cuda.memory.change_current_allocator(rmm_torch_allocator)
        self.version = rmm.__version__

    def start(self):
        pass

    def figures(self):
        counts = self.below.allocation_counts
        return {"peak_held": 0, "peak_requested": 0, "peak_reserved": counts.peak_bytes, "allocs": 0, "driver_calls": counts.total_count,
                "retries": 0, "version": self.version}


class Plugin:
    """libloch_torch.so, Loch's plug-in for versions of PyTorch without a shim."""

    def __init__(self, library):
        self.loch = plugin.Loch(library)

    def start(self):
        self.loch.reset_peaks()

    def figures(self):
        stats = self.loch.stats()
        return dict(stats, peak_held=stats["peak_requested"])


class Nothing:
    """On the CPU there is no allocator to choose."""

    def start(self):
        pass

    def figures(self):
        return {"peak_held": 0, "peak_requested": 0, "peak_reserved": 0, "allocs": 0, "driver_calls": 0, "retries": 0}


def install(way, library=plugin.BUILT):
    """Makes an allocator that of this process; returns an object with its figures."""
    if way == "plugin":
        return Plugin(library)
    return Rmm(way) if way == "rmm" else Native(way)
