# SPDX-License-Identifier: MIT
"""PyTorch, CuPy and Loch share memory of a GPU: both structures, all types, order between streams, lifetimes.

Run by scripts/gpu-test; nothing here is skipped.
"""

import ctypes
import gc
import threading

import cupy
import loch
import numpy as np
import pytest
import torch

DEVICE = "cuda:0"
TYPES = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
    "f8e4m3": torch.float8_e4m3fn, "f8e5m2": torch.float8_e5m2, "i8": torch.int8, "i16": torch.int16,
    "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8, "u16": torch.uint16, "u32": torch.uint32,
    "u64": torch.uint64, "bool": torch.bool,
}  # fmt: skip
CUPY_TYPES = [name for name in TYPES if name not in ("bf16", "f8e4m3", "f8e5m2")]
SHAPES = [(), (7,), (2, 3), (3, 0, 2), (2, 1, 2, 1, 2)]
SLEEP = 1_000_000_000  # cycles: about half a second


@pytest.fixture(autouse=True, scope="module")
def open_device():
    """Opened once, so that no test pays for it while it measures."""
    keep = loch.zeros((1,), "f32", DEVICE)
    torch.zeros(1, device=DEVICE)
    yield
    del keep


@pytest.fixture(autouse=True)
def nothing_waits():
    """Every test ends what it began."""
    yield
    gc.collect()
    torch.cuda.synchronize()
    assert loch.collect(wait=True) == 0


def numbers(shape, dtype):
    count = int(np.prod(shape, dtype=int))
    return (torch.arange(count) % 2 if dtype == torch.bool else torch.arange(count)).to(dtype).reshape(shape).to(DEVICE)


def bits(tensor):
    """The bytes of a tensor, row after row: not every type has comparisons."""
    return tensor.cpu().contiguous().reshape(-1).view(torch.uint8).tolist()


# --- both ways ---


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", TYPES)
def test_from_torch_and_back(name, shape):
    source = numbers(shape, TYPES[name])
    tensor = loch.from_dlpack(source)
    assert (tensor.dtype, tensor.shape, tensor.device) == (name, shape, DEVICE)
    assert tensor.__dlpack_device__() == (2, 0)
    back = torch.from_dlpack(tensor)
    assert back.dtype == source.dtype and back.shape == source.shape and back.device == source.device
    assert bits(back) == bits(source)
    if source.numel():
        assert tensor.address == source.data_ptr() == back.data_ptr()


@pytest.mark.parametrize("name", TYPES)
def test_from_loch_to_torch(name):
    tensor = loch.tensor([[0, 1, 2], [3, 4, 5]]).to(dtype=name).to(DEVICE)
    shared = torch.from_dlpack(tensor)
    assert shared.dtype == TYPES[name] and shared.is_cuda and shared.data_ptr() == tensor.address
    expected = torch.tensor([[0, 1, 2], [3, 4, 5]]).to(TYPES[name])
    assert bits(shared) == bits(expected)
    assert bits(torch.from_dlpack(tensor.transpose(0, 1))) == bits(expected.T)


@pytest.mark.parametrize("name", CUPY_TYPES)
def test_cupy_both_ways(name):
    array = cupy.asarray(numbers((3, 4), TYPES[name]).cpu().numpy())
    tensor = loch.from_dlpack(array)
    assert (tensor.dtype, tensor.shape, tensor.address) == (name, (3, 4), array.data.ptr)
    back = cupy.from_dlpack(tensor)
    assert back.data.ptr == array.data.ptr and bool((back == array).all())
    backwards = cupy.from_dlpack(tensor[::-1, ::2])  # CuPy reads negative strides
    assert np.array_equal(backwards.get(), array.get()[::-1, ::2])
    assert np.array_equal(np.from_dlpack(loch.from_dlpack(array[1:, ::2]).to("cpu")), array.get()[1:, ::2])


def test_negative_strides_of_cupy():
    """Versions of CuPy divide them as if they were unsigned: what comes out then is refused, not believed."""
    array = cupy.arange(4, dtype="f4")
    try:
        tensor = loch.from_dlpack(array[::-1])
    except loch.Error as error:
        assert "strides" in str(error)
    else:
        assert np.array_equal(np.from_dlpack(tensor.to("cpu")), array.get()[::-1])


def test_writing_is_seen_on_the_other_side():
    source = torch.zeros(2, 3, device=DEVICE)
    loch.from_dlpack(source)[1].fill(4)
    assert source.tolist() == [[0, 0, 0], [4, 4, 4]]
    tensor = loch.zeros((3,), "bf16", DEVICE)
    torch.from_dlpack(tensor).fill_(1.5)
    torch.cuda.synchronize()
    assert np.from_dlpack(tensor.to("cpu").to(dtype="f32")).tolist() == [1.5] * 3
    array = cupy.zeros(4, cupy.int32)
    loch.from_dlpack(array).fill(7)
    assert array.get().tolist() == [7] * 4


def test_three_libraries_in_a_row():
    array = cupy.arange(6, dtype=cupy.float32).reshape(2, 3)
    last = torch.from_dlpack(loch.from_dlpack(cupy.from_dlpack(loch.from_dlpack(array))))
    last[1, 2] = 50
    torch.cuda.synchronize()
    assert array.get()[1, 2] == 50 and last.data_ptr() == array.data.ptr


def test_views_of_torch():
    source = numbers((4, 5, 6), torch.int32)
    for view in source.permute(2, 0, 1), source[1:, ::2, 3], source.expand(2, 4, 5, 6), source[:, 2:2], source.mT:
        tensor = loch.from_dlpack(view)
        assert tensor.shape == tuple(view.shape) and torch.equal(torch.from_dlpack(tensor), view)
        assert np.array_equal(np.from_dlpack(tensor.to("cpu")), view.cpu().numpy())


def test_printing():
    source = torch.arange(2000, device=DEVICE, dtype=torch.float32).reshape(40, 50) / 7
    assert str(loch.from_dlpack(source)) == np.array2string(source.cpu().numpy())


def test_both_structures():
    source = numbers((2, 3), torch.float32)
    for capsule in source.__dlpack__(), source.__dlpack__(max_version=(1, 0)):
        assert loch.from_dlpack(capsule).address == source.data_ptr()
    tensor = loch.zeros((2,), "f32", DEVICE)
    for version in None, (1, 0):
        for stream in None, -1, 1, 2, torch.cuda.Stream().cuda_stream:
            capsule = tensor.__dlpack__(max_version=version, stream=stream)
            assert torch.utils.dlpack.from_dlpack(capsule).tolist() == [0, 0]
            del capsule
            gc.collect()
            assert tensor.references == 1
    with pytest.raises(BufferError):
        tensor.__dlpack__(stream=0)


def test_copies_on_demand():
    source = torch.zeros(3, device=DEVICE)
    own = loch.from_dlpack(source, copy=True)
    own.fill(1)
    torch.cuda.synchronize()
    assert own.address != source.data_ptr() and not source.any()
    tensor = loch.tensor([1.0, 2.0]).to(DEVICE)
    copy = torch.utils.dlpack.from_dlpack(tensor.__dlpack__(copy=True, max_version=(1, 0)))
    assert copy.data_ptr() != tensor.address and copy.tolist() == [1, 2] and tensor.references == 1
    host = np.from_dlpack(tensor, device="cpu")  # the exporter copies it over
    assert host.tolist() == [1, 2]
    with pytest.raises(BufferError):
        tensor.__dlpack__(dl_device=(1, 0), copy=False)


# --- order ---


def test_loch_waits_for_the_stream_of_torch():
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        source = torch.zeros(1 << 20, device=DEVICE)
        torch.cuda._sleep(SLEEP)
        source.fill_(7)
        tensor = loch.from_dlpack(source)
    assert not side.query()  # nobody waited on the host
    assert np.from_dlpack(tensor.to("cpu")).min() == 7  # on the default stream, behind the other


def test_torch_waits_for_the_stream_of_loch():
    tensor = loch.zeros((1 << 20,), "f32", DEVICE)
    shared = torch.from_dlpack(tensor)
    torch.cuda._sleep(SLEEP)  # on the default stream, which is Loch's
    shared.fill_(5)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        there = torch.from_dlpack(tensor)
        assert not torch.cuda.default_stream().query()
        seen = there.clone()
    side.synchronize()
    assert seen.min().item() == 5


def test_no_order_is_made_when_none_is_wanted():
    tensor = loch.zeros((4,), "f32", DEVICE)
    side = torch.cuda.Stream()
    torch.cuda._sleep(SLEEP)
    capsule = tensor.__dlpack__(stream=-1)
    with torch.cuda.stream(side):
        torch.zeros(1, device=DEVICE)
    side.synchronize()
    assert not torch.cuda.default_stream().query()
    del capsule
    torch.cuda.synchronize()
    assert tensor.references == 1


def test_the_thread_stream():
    tensor = loch.zeros((1 << 20,), "f32", DEVICE)
    shared = torch.from_dlpack(tensor)
    torch.cuda._sleep(SLEEP // 4)
    shared.fill_(3)
    with cupy.cuda.Stream.ptds:
        seen = cupy.from_dlpack(tensor).copy()
        cupy.cuda.Stream.ptds.synchronize()
    assert seen.get().min() == 3


def test_loch_waits_for_the_stream_of_cupy():
    side = cupy.cuda.Stream(non_blocking=True)
    with side:
        array = cupy.zeros(1 << 26, cupy.float32)
        for _ in range(60):
            array += 1
        tensor = loch.from_dlpack(array)
    assert np.from_dlpack(tensor.to("cpu")).min() == 60


def test_cupy_waits_for_the_stream_of_loch():
    tensor = loch.zeros((1 << 20,), "f32", DEVICE)
    shared = torch.from_dlpack(tensor)
    torch.cuda._sleep(SLEEP // 4)
    shared.fill_(9)
    side = cupy.cuda.Stream(non_blocking=True)
    with side:
        seen = cupy.from_dlpack(tensor).copy()
    side.synchronize()
    assert seen.get().min() == 9


# --- lifetimes ---


def test_exports_hold_the_buffer():
    tensor = loch.zeros((1000,), "f32", DEVICE)
    shared = torch.from_dlpack(tensor)
    array = cupy.from_dlpack(tensor)
    assert tensor.references == 3
    part = shared[5:]
    del shared, array
    gc.collect()
    assert tensor.references == 2
    del part
    gc.collect()
    assert tensor.references == 1
    kept = torch.from_dlpack(loch.tensor([3.0, 4.0]).to(DEVICE))
    gc.collect()
    assert kept.tolist() == [3, 4]


def test_imports_hold_the_memory_of_torch():
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    source = torch.full((1 << 20,), 2.0, device=DEVICE)
    with_it = torch.cuda.memory_allocated()
    tensor = loch.from_dlpack(source)
    view = tensor[10:20]
    del source, tensor
    gc.collect()
    assert torch.cuda.memory_allocated() == with_it
    assert np.from_dlpack(view.to("cpu")).tolist() == [2.0] * 10
    del view
    gc.collect()
    loch.collect(wait=True)
    assert torch.cuda.memory_allocated() == before


def test_imports_hold_the_memory_of_cupy():
    pool = cupy.get_default_memory_pool()
    gc.collect()
    before = pool.used_bytes()
    tensor = loch.from_dlpack(cupy.full(1 << 20, 3, cupy.int32))
    gc.collect()
    assert pool.used_bytes() > before
    assert np.from_dlpack(tensor.to("cpu")).max() == 3
    del tensor
    gc.collect()
    loch.collect(wait=True)
    assert pool.used_bytes() == before


def test_receivers_let_go_in_any_thread():
    tensor = loch.zeros((1000,), "f32", DEVICE)
    held = [[torch.from_dlpack(tensor)] for _ in range(16)]
    assert tensor.references == 17
    threads = [threading.Thread(target=one.clear) for one in held]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tensor.references == 1


def test_memory_of_the_pool_is_used_again_behind_torch():
    """Blocks that PyTorch was the last to hold go back to the pool, and come out of it with the right contents."""
    for i in range(200):
        shared = torch.from_dlpack(loch.zeros((1 << 18,), "f32", DEVICE))
        assert not shared.any()
        shared.fill_(i + 1)
        del shared


# --- flags, kinds, and what is refused ---


class Inside(ctypes.Structure):
    """The tensor in a structure of DLPack, as far as the tests change it."""

    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class Versioned(ctypes.Structure):
    """The structure of DLPack with a version."""

    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", Inside)]  # fmt: skip


ctypes.pythonapi.PyCapsule_GetPointer.restype = ctypes.c_void_p
ctypes.pythonapi.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def changed(source, change):
    """A capsule of PyTorch's with something changed in it."""
    capsule = source.__dlpack__(max_version=(1, 0), stream=1)
    get = ctypes.pythonapi.PyCapsule_GetPointer
    change(Versioned.from_address(get(capsule, b"dltensor_versioned")))
    return capsule


def test_read_only_memory():
    source = numbers((4,), torch.float32)
    tensor = loch.from_dlpack(changed(source, lambda managed: setattr(managed, "flags", managed.flags | 1)))
    assert tensor.is_read_only
    with pytest.raises(loch.Error):
        tensor.fill(1)
    capsule = tensor.__dlpack__(max_version=(1, 0), stream=1)
    get = ctypes.pythonapi.PyCapsule_GetPointer
    assert Versioned.from_address(get(capsule, b"dltensor_versioned")).flags & 1
    with pytest.raises(BufferError, match="read-only"):
        tensor.__dlpack__(stream=1)
    assert tensor.clone().is_read_only is False


def test_pinned_memory():
    source = torch.arange(5.0).pin_memory()
    tensor = loch.from_dlpack(source)
    assert tensor.address == source.data_ptr() and tensor.__dlpack_device__() == (3, 0)
    assert np.from_dlpack(tensor).tolist() == [0, 1, 2, 3, 4]
    host = torch.utils.dlpack.from_dlpack(tensor.__dlpack__(dl_device=(1, 0), max_version=(1, 0)))
    assert host.data_ptr() == source.data_ptr() and host.device.type == "cpu"
    assert np.from_dlpack(tensor.to(DEVICE).to("cpu")).tolist() == [0, 1, 2, 3, 4]


def test_managed_memory():
    memory = cupy.cuda.malloc_managed(4 * 6)
    array = cupy.ndarray((2, 3), cupy.float32, memory)
    array[...] = cupy.arange(6, dtype=cupy.float32).reshape(2, 3)
    tensor = loch.from_dlpack(array)
    assert tensor.address == array.data.ptr and tensor.__dlpack_device__()[0] == 13
    cupy.cuda.Device().synchronize()
    assert np.from_dlpack(tensor).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert cupy.from_dlpack(tensor).get().tolist() == [[0, 1, 2], [3, 4, 5]]


def set_device(kind, number):
    def change(managed):
        managed.tensor.device_type, managed.tensor.device_id = kind, number

    return change


def test_memory_that_is_elsewhere_than_said():
    there, here = torch.zeros(4, device=DEVICE), torch.zeros(4)
    for kind in 1, 3:  # the GPU's, said to be the host's
        with pytest.raises(loch.Error) as error:
            loch.from_dlpack(changed(there, set_device(kind, 0)))
        assert error.value.status == "E_INVALID"
    capsule = here.__dlpack__(max_version=(1, 0))
    get = ctypes.pythonapi.PyCapsule_GetPointer
    set_device(2, 0)(Versioned.from_address(get(capsule, b"dltensor_versioned")))
    with pytest.raises(loch.Error) as error:  # the host's, said to be the GPU's
        loch.from_dlpack(capsule)
    assert error.value.status == "E_INVALID"
    with pytest.raises(loch.Error):
        loch.from_dlpack(changed(there, set_device(2, 999)))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.float8_e4m3fnuz], ids=str)
def test_types_that_loch_has_not(dtype):
    with pytest.raises((loch.Error, BufferError)):
        loch.from_dlpack(torch.zeros(2, dtype=dtype, device=DEVICE))
