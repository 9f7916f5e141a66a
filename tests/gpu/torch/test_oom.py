# SPDX-License-Identifier: MIT
"""Limits: the memory fraction, torch.OutOfMemoryError and recovery from it, observers."""

import pytest
import torch

MIB, GIB = 1 << 20, 1 << 30
GPU = "cuda"


def byte_tensor(count):
    return torch.empty(count, dtype=torch.uint8, device=GPU)


@pytest.fixture
def limited():
    """1 GiB, or a little more, for this process."""
    total = torch.cuda.get_device_properties(0).total_memory
    held = torch.cuda.memory_reserved()
    torch.cuda.set_per_process_memory_fraction((held + GIB) / total)
    yield held + GIB
    torch.cuda.set_per_process_memory_fraction(1.0)


def test_fraction_is_kept():
    torch.cuda.set_per_process_memory_fraction(0.375)
    try:
        assert torch.cuda.get_per_process_memory_fraction() == pytest.approx(0.375)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert torch.cuda.get_per_process_memory_fraction() == pytest.approx(1.0)
    for wrong in (-0.1, 1.5):
        with pytest.raises((ValueError, RuntimeError)):
            torch.cuda.set_per_process_memory_fraction(wrong)


def test_fraction_limits_and_the_program_goes_on(limited):
    ooms = torch.cuda.memory_stats()["num_ooms"]
    first = byte_tensor(600 * MIB)
    with pytest.raises(torch.OutOfMemoryError) as refused:
        byte_tensor(600 * MIB)
    text = str(refused.value)
    assert text.startswith("CUDA out of memory. Tried to allocate 600.00 MiB.")
    assert "GPU 0 has a total capacity of" in text and "allowed" in text
    assert issubclass(torch.OutOfMemoryError, RuntimeError)
    assert torch.cuda.memory_stats()["num_ooms"] == ooms + 1
    first.fill_(7)
    assert int(first[::MIB].sum()) == 7 * 600
    del first
    second = torch.full((900 * MIB,), 5, dtype=torch.uint8, device=GPU)  # needs the memory that was just freed
    assert int(second[::MIB].sum()) == 5 * 900
    assert torch.cuda.memory_reserved() <= limited


def test_a_higher_fraction_serves_what_a_lower_one_refused(limited):
    with pytest.raises(torch.OutOfMemoryError):
        byte_tensor(3 * GIB)
    torch.cuda.set_per_process_memory_fraction(1.0)
    assert byte_tensor(3 * GIB).numel() == 3 * GIB


def test_free_memory_of_other_sizes_serves_under_a_limit(limited):
    """Freed tensors of 100 MiB become one of 800 MiB: with the native allocator after a retry."""
    parts = [byte_tensor(100 * MIB) for _ in range(9)]
    del parts
    whole = byte_tensor(800 * MIB)
    assert whole.numel() == 800 * MIB


def test_more_than_the_gpu_has():
    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory. Tried to allocate"):
        byte_tensor(1 << 45)
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 61, dtype=torch.uint8, device=GPU)
    assert int(torch.ones(1000, device=GPU).sum()) == 1000


def test_the_error_says_what_the_pool_holds(limited, allocator):
    keep = byte_tensor(700 * MIB)
    with pytest.raises(torch.OutOfMemoryError) as refused:
        byte_tensor(500 * MIB)
    text = str(refused.value)
    assert "reserved by PyTorch but unallocated" in text or allocator != "native"
    if allocator == "loch":
        assert "limit" in text  # Loch's report, behind the words of PyTorch
    del keep


def test_observers_are_called_before_the_error(limited):
    seen = []
    torch._C._cuda_attach_out_of_memory_observer(lambda *numbers: seen.append(numbers))
    keep = byte_tensor(600 * MIB)
    with pytest.raises(torch.OutOfMemoryError):
        byte_tensor(600 * MIB)
    assert len(seen) == 1
    device, wanted, total, free = seen[0]
    assert device == 0 and wanted >= 600 * MIB and total <= limited + 2 * MIB and free >= 0
    del keep


def test_an_oom_inside_a_step_can_be_retried(limited):
    """The usual loop: catch, empty the cache, and retry with half the batch."""
    layer = torch.nn.Linear(1024, 1024, device=GPU)
    batch, sizes = 1 << 18, []
    while batch:
        try:
            x = torch.randn(batch, 1024, device=GPU)
            layer(x).relu().sum().backward()
            break
        except torch.OutOfMemoryError:
            x = None
            torch.cuda.empty_cache()
            sizes.append(batch)
            batch //= 2
    assert sizes and batch >= 1024
    assert layer.weight.grad is not None
