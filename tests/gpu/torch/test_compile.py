# SPDX-License-Identifier: MIT
"""torch.compile: default, and reduce-overhead with cudagraph trees and all of their checks."""

import gc

import pytest
import torch

GPU = "cuda"
MIB = 1 << 20


class Net(torch.nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.rise = torch.nn.Linear(width, 4 * width)
        self.fall = torch.nn.Linear(4 * width, width)
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(x + self.fall(torch.nn.functional.gelu(self.rise(x))))


def twins():
    torch.manual_seed(0)
    first, second = Net().to(GPU), Net().to(GPU)
    second.load_state_dict(first.state_dict())
    return first, second


@pytest.fixture(autouse=True)
def compiler():
    from torch._inductor import config

    torch._dynamo.reset()
    with config.patch({"triton.fast_path_cudagraph_asserts": True, "triton.slow_path_cudagraph_asserts": True}):
        yield
    torch._dynamo.reset()


def train(model, x, optimizer):
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.detach().clone()


def test_default_mode():
    eager, model = twins()
    compiled = torch.compile(model)
    for batch in (32, 32, 48):
        x = torch.randn(batch, 256, device=GPU)
        torch.testing.assert_close(compiled(x), eager(x), rtol=1e-3, atol=1e-3)
    a, b = (torch.optim.AdamW(m.parameters(), lr=1e-3) for m in (eager, model))
    for _ in range(3):
        x = torch.randn(32, 256, device=GPU)
        torch.testing.assert_close(train(compiled, x, b), train(eager, x, a), rtol=1e-2, atol=1e-3)


def test_reduce_overhead_infers():
    from torch._inductor import cudagraph_trees

    eager, model = twins()
    compiled = torch.compile(model, mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(6):
            x = torch.randn(64, 256, device=GPU)
            torch.compiler.cudagraph_mark_step_begin()
            y = compiled(x).clone()
            noise = [torch.full((4 * MIB,), -1.0, device=GPU) for _ in range(4)]
            torch.testing.assert_close(y, eager(x), rtol=1e-3, atol=1e-3)
            assert all(bool((part == -1).all()) for part in noise)
    manager = cudagraph_trees.get_manager(0, create_if_none_exists=False)
    assert manager is not None and manager.roots  # graphs were recorded, not skipped


def test_reduce_overhead_trains():
    eager, model = twins()
    compiled = torch.compile(model, mode="reduce-overhead")
    a, b = (torch.optim.SGD(m.parameters(), lr=1e-2) for m in (eager, model))
    for _ in range(8):
        x = torch.randn(64, 256, device=GPU)
        torch.compiler.cudagraph_mark_step_begin()
        torch.testing.assert_close(train(compiled, x, b), train(eager, x, a), rtol=1e-2, atol=1e-3)


def test_reduce_overhead_with_branches():
    """Two functions in changing order make a tree with branches: memory is brought back to earlier checkpoints."""
    from torch._inductor import cudagraph_trees

    @torch.compile(mode="reduce-overhead")
    def first(x):
        return (x * 2 + 1).relu() @ x.T

    @torch.compile(mode="reduce-overhead")
    def second(x):
        return (x - 1).sigmoid() @ x.T

    with torch.no_grad():
        for order in ("ab", "aa", "ba", "abab", "bb", "aba", "ab", "ba", "aba", "aab"):
            torch.compiler.cudagraph_mark_step_begin()
            kept = []
            x = torch.randn(128, 128, device=GPU)
            for number, letter in enumerate(order):
                y = x + number
                got = (first if letter == "a" else second)(y)
                want = (y * 2 + 1).relu() @ y.T if letter == "a" else (y - 1).sigmoid() @ y.T
                torch.testing.assert_close(got, want, rtol=1e-2, atol=1e-2)
                kept.append((got, want))
            for got, want in kept:  # outputs of earlier graphs are still what they were
                torch.testing.assert_close(got, want, rtol=1e-2, atol=1e-2)
            del got, kept
    manager = cudagraph_trees.get_manager(0, create_if_none_exists=False)
    assert manager.debug_checkpointing_counter >= 1


def test_memory_of_compiled_graphs_comes_back():
    torch.cuda.synchronize()
    before = torch.cuda.memory_reserved()

    def run():
        @torch.compile(mode="reduce-overhead")
        def work(x):
            for _ in range(3):
                x = torch.nn.functional.softmax(x @ x, dim=-1)
            return x

        with torch.no_grad():
            for _ in range(4):
                torch.compiler.cudagraph_mark_step_begin()
                work(torch.randn(2048, 2048, device=GPU))
        return torch.cuda.memory_reserved()

    held = run()
    assert held > before
    torch._dynamo.reset()
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    # cuBLAS keeps a workspace for each stream
    assert torch.cuda.memory_reserved() <= before + 96 * MIB
