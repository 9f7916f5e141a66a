# SPDX-License-Identifier: MIT
"""PyTorch on the CPU and Loch share memory: both structures, the types that NumPy lacks, views, lifetimes."""

import gc
import sys

import loch
import numpy as np
import pytest
import torch
from torch.utils import dlpack

TYPES = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
    "f8e4m3": torch.float8_e4m3fn, "f8e5m2": torch.float8_e5m2, "i8": torch.int8, "i16": torch.int16,
    "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8, "u16": torch.uint16, "u32": torch.uint32,
    "u64": torch.uint64, "bool": torch.bool,
}  # fmt: skip
SHAPES = [(), (7,), (2, 3), (3, 0, 2), (2, 1, 2, 1, 2)]


def numbers(shape, dtype):
    count = int(np.prod(shape, dtype=int))
    return (torch.arange(count) % 2 if dtype == torch.bool else torch.arange(count)).to(dtype).reshape(shape)


def bits(tensor):
    """The bytes of a tensor, row after row: not every type has comparisons."""
    return tensor.contiguous().reshape(-1).view(torch.uint8).tolist()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", TYPES)
def test_from_torch_and_back(name, shape):
    source = numbers(shape, TYPES[name])
    tensor = loch.from_dlpack(source)
    assert (tensor.dtype, tensor.shape, tensor.device) == (name, shape, "cpu")
    back = torch.from_dlpack(tensor)
    assert back.dtype == source.dtype and back.shape == source.shape and bits(back) == bits(source)
    if source.numel():
        assert tensor.address == source.data_ptr() == back.data_ptr()


@pytest.mark.parametrize("name", TYPES)
def test_from_loch(name):
    tensor = loch.tensor([[0, 1, 2], [3, 4, 5]]).to(dtype=name)
    shared = torch.from_dlpack(tensor)
    assert shared.dtype == TYPES[name] and shared.data_ptr() == tensor.address
    expected = torch.tensor([[0, 1, 2], [3, 4, 5]]).to(TYPES[name])
    assert bits(shared) == bits(expected)
    assert bits(torch.from_dlpack(tensor.transpose(0, 1))) == bits(expected.T)


@pytest.mark.parametrize("name", ["bf16", "f8e4m3", "f8e5m2", "f16"])
def test_conversions_are_those_of_torch(name):
    rng = np.random.default_rng(7)
    values = (rng.standard_normal(20000) * 10.0 ** rng.integers(-8, 8, 20000)).astype(np.float32)
    limit = torch.finfo(TYPES[name]).max
    values = values[np.abs(values) < limit]  # beyond it, PyTorch does not saturate
    ours = torch.from_dlpack(loch.from_dlpack(values).to(dtype=name))
    assert bits(ours) == bits(torch.from_numpy(values).to(TYPES[name]))
    every = torch.arange(2**16 if ours.element_size() == 2 else 2**8).to(
        torch.uint16 if ours.element_size() == 2 else torch.uint8
    )
    every = every.view(TYPES[name])
    wide = torch.from_dlpack(loch.from_dlpack(every).to(dtype="f32"))
    assert torch.equal(wide.nan_to_num(nan=7.5), every.to(torch.float32).nan_to_num(nan=7.5))


def test_both_structures():
    source = numbers((2, 3), torch.float32)
    for capsule in dlpack.to_dlpack(source), source.__dlpack__(), source.__dlpack__(max_version=(1, 0)):
        assert loch.from_dlpack(capsule).address == source.data_ptr()
    tensor = loch.tensor([1.0, 2.0])
    for version in None, (1, 0):
        assert dlpack.from_dlpack(tensor.__dlpack__(max_version=version)).tolist() == [1, 2]
        assert tensor.references == 1


def test_views_of_torch():
    source = numbers((4, 5, 6), torch.int32)
    for view in source.permute(2, 0, 1), source[1:, ::2, 3], source.expand(2, 4, 5, 6), source[:, 2:2], source.mT:
        tensor = loch.from_dlpack(view)
        assert tensor.shape == tuple(view.shape) and torch.equal(torch.from_dlpack(tensor), view)


def test_writing_is_seen_on_the_other_side():
    source = torch.zeros(2, 3)
    loch.from_dlpack(source)[1].fill(4)
    assert source.tolist() == [[0, 0, 0], [4, 4, 4]]
    tensor = loch.zeros((3,), "bf16")
    torch.from_dlpack(tensor).fill_(1.5)
    assert np.from_dlpack(tensor.to(dtype="f32")).tolist() == [1.5] * 3


def test_copies_on_demand():
    source = torch.zeros(3)
    own = loch.from_dlpack(source, copy=True)
    own.fill(1)
    assert own.address != source.data_ptr() and not source.any()
    tensor = loch.tensor([1.0])
    copy = torch.from_dlpack(tensor, copy=True)
    assert copy.data_ptr() != tensor.address and copy.tolist() == [1]


def test_lifetimes():
    tensor = loch.zeros((1000,))
    shared = torch.from_dlpack(tensor)
    part = shared[5:]
    assert tensor.references == 2
    del shared
    gc.collect()
    assert tensor.references == 2
    del part
    gc.collect()
    assert tensor.references == 1
    kept = torch.from_dlpack(loch.tensor([3.0, 4.0]))
    gc.collect()
    assert kept.tolist() == [3, 4]

    array = np.zeros(1000)  # whose references PyTorch's storage holds, and can be counted
    before = sys.getrefcount(array)
    held = loch.from_dlpack(torch.from_numpy(array))
    gc.collect()
    assert sys.getrefcount(array) == before + 1
    del held
    gc.collect()
    assert sys.getrefcount(array) == before


def test_numpy_loch_and_torch_in_a_row():
    array = np.arange(6.0).reshape(2, 3)
    last = torch.from_dlpack(loch.from_dlpack(np.from_dlpack(loch.from_dlpack(array))))
    last[1, 2] = 50
    assert array[1, 2] == 50 and last.data_ptr() == array.ctypes.data


def test_read_only_memory():
    array = np.arange(3.0)
    array.flags.writeable = False
    tensor = loch.from_dlpack(array)
    try:
        shared = torch.from_dlpack(tensor)  # PyTorch takes it, and cannot keep the promise
    except (BufferError, RuntimeError):
        return
    assert shared.tolist() == [0, 1, 2]


@pytest.mark.parametrize("source", [torch.zeros(2, dtype=torch.complex64), torch.zeros(2, dtype=torch.float8_e4m3fnuz)])
def test_types_that_loch_has_not(source):
    with pytest.raises((loch.Error, BufferError)):
        loch.from_dlpack(source)


def test_what_torch_does_not_export():
    for source in torch.zeros(2, requires_grad=True), torch.zeros(2, dtype=torch.complex64).conj():
        with pytest.raises((RuntimeError, BufferError)):
            loch.from_dlpack(source)


def test_comparisons_with_torch_are_by_element():
    tensor = loch.tensor([1.0, 2.0, 3.0])
    for other in (torch.tensor([1, 5, 3]), torch.tensor([1.0, 5.0, 3.0], requires_grad=True), torch.tensor([1, 5, 3], dtype=torch.bfloat16)):
        for answer in (tensor == other, other == tensor, tensor >= other):
            assert isinstance(answer, (loch.Tensor, torch.Tensor)) and answer.tolist() == [True, False, True]
    assert (tensor == torch.tensor(2)).tolist() == [False, True, False]
